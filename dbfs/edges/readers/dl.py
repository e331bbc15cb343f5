"""DL, UCINET's language of data: the square matrix of one network, or the lists of its edges.

Source: Borgatti, Everett, Freeman, "UCINET for Windows: Software for Social Network Analysis", 2002. The ids are the
labels; without labels the numbers 1..n. igraph's reader takes a matrix with too few entries, and ends the process where
a file has fewer names than ``n`` says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dbfs.base.memory import require_room
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.heading import Head
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.source import Source
from dbfs.edges.readers.whole import CollectedEdges, text_of
from dbfs.errors import FormatError, TruncatedFileError

_START = re.compile(r"\s*+dl\b[\s,]*+", re.IGNORECASE)
_DATA = re.compile(r"\bdata\s*+:", re.IGNORECASE)
_OPTION = re.compile(r"(\w++)\s*+=\s*+(\w++)[\s,]*+")
_PRESENT = re.compile(r"diagonal\s*+=?+\s*+present[\s,]*+", re.IGNORECASE)
_LABELS = re.compile(
    r"(?:\b(?P<others>level|matrix)\s++|\b(?:row|col|column)\s++)?+\blabels\s*+(?::|(?P<embedded>embedded\b)\s*+:?+)",
    re.IGNORECASE,
)
_WORD = re.compile(r'"([^"]*+)"|([^\s,"]++)')
_FORMATS = ("fullmatrix", "edgelist1", "nodelist1")
# An entry of a dict, its string and its integer.
_VERTEX_BYTES = 200


def open_dl(head: Head, options: ReadOptions) -> EdgeList:
    """Read a DL file: an edge for each entry of the matrix that is not zero, or each pair of the lists.

    Entries are directed unless the caller says otherwise.

    Raises:
        FormatError: the file is not of the formats ``fullmatrix``, ``edgelist1`` or ``nodelist1``, describes other than
            one square matrix, or breaks its format; or its labels are not distinct, or not as many as ``n`` says.
        TruncatedFileError: the data are missing, or end too early.
        GraphTooLargeError: this process has too little memory for the file.
    """
    return _Dl(head.source, options).read()


class _Dl:
    def __init__(self, source: Source, options: ReadOptions) -> None:
        self._path = source.path
        text = bytes(text_of(source))
        try:
            self._text = text.decode("utf-8-sig")
        except UnicodeDecodeError:
            self._text = text.decode("latin-1")
        self._found = CollectedEdges(source.path, options, words=True)
        self._found.directions.default = True
        self._n = 0
        self._format = _FORMATS[0]
        self._embedded = False
        self._labels: list[str] = []

    def read(self) -> EdgeList:
        """Return the file's edges; errors as of ``open_dl``."""
        data = _DATA.search(self._text)
        if data is None:
            raise TruncatedFileError(f"{self._path} has no 'data:'; expected DL with n=, perhaps labels, and data")
        self._take_header(self._text[: data.start()])
        lines = [_words(line) for line in self._text[data.end() :].splitlines()]
        first = self._text.count("\n", 0, data.end()) + 1
        if self._format == "fullmatrix":
            self._take_matrix([word for line in lines for word in line])
        else:
            self._take_lists(lines, first)
        return self._found.edge_list()

    def _take_header(self, text: str) -> None:
        start, headings = _START.match(text), list(_LABELS.finditer(text))
        options = self._options(text[: headings[0].start() if headings else len(text)], start.end() if start else 0)
        unknown = {key: value for key, value in options.items() if key not in ("n", "format", "nm")}
        if unknown or options.get("nm", "1") != "1":
            shown = ", ".join(f"{key}={value}" for key, value in (unknown or options).items())
            raise FormatError(f"{self._path}: DL with {shown}; expected one square matrix, with n= and format= alone")
        if not re.fullmatch("[0-9]{1,18}", options.get("n", "")):
            raise FormatError(f"{self._path}: n is {options.get('n', 'missing')!r}; expected the number of vertices")
        self._n = int(options["n"])
        self._format = options.get("format", _FORMATS[0])
        if self._format not in _FORMATS:
            raise FormatError(f"{self._path}: format={self._format}; expected one of {', '.join(_FORMATS)}")
        ends = [*(each.start() for each in headings[1:]), len(text)]
        for heading, end in zip(headings, ends, strict=False):
            if heading["embedded"]:
                self._embedded = True
            elif not heading["others"]:
                labels = _words(text[heading.end() : end])
                if self._labels and labels != self._labels:
                    raise FormatError(f"{self._path}: rows and columns have other labels; expected one square matrix")
                self._labels = labels
        if self._labels:
            self._take_vertices(self._labels)
        elif not self._embedded:
            what = f"{self._path}: a table of its {self._n:,} vertices takes"
            require_room(_VERTEX_BYTES * self._n, what, "a Parquet table of its edges would take less")
            self._labels = [str(vertex) for vertex in range(1, self._n + 1)]
            self._take_vertices(self._labels)

    def _options(self, text: str, at: int) -> dict[str, str]:
        """Return the options of the header from a place on."""
        options: dict[str, str] = {}
        while at < len(text):
            found = _OPTION.match(text, at)
            if found:
                options[found.group(1).lower()] = found.group(2).lower()
            else:
                found = _PRESENT.match(text, at)
            if found is None:
                shown = repr(text[at : at + 40].partition("\n")[0])
                raise FormatError(f"{self._path}: {shown} in the header of DL; expected n=, format=, labels: or data:")
            at = found.end()
        return options

    def _take_vertices(self, names: Sequence[str]) -> None:
        if len(names) != self._n:
            raise FormatError(f"{self._path}: n={self._n}, and {len(names):,} names; expected a name for each vertex")
        for place, name in enumerate(names, 1):
            self._found.take_vertex(name, f"label {place}")

    def _take_matrix(self, words: list[str]) -> None:
        n, at = self._n, 0
        columns = self._labels
        if self._embedded:
            columns, at = words[:n], n
            if not self._labels:
                self._take_vertices(columns)
        width = n + self._embedded
        if len(words) - at != n * width:
            error = TruncatedFileError if len(words) - at < n * width else FormatError
            raise error(f"{self._path}: {len(words) - at:,} words in a matrix of {n:,} x {width:,}")
        # Programs write the names of rows and columns in letters of other sizes.
        folded = {name.casefold(): name for name in columns}
        for row in range(n):
            start = at + row * width
            source = columns[row]
            if self._embedded and words[start] != source:
                source = folded.get(words[start].casefold(), words[start])
            for target, word in zip(columns, words[start + self._embedded : start + width], strict=True):
                where = f"entry ({source}, {target})"
                try:
                    value = float(word)
                except ValueError:
                    raise self._found.wrong(where, f"{word!r} is no number") from None
                if value:
                    self._found.take_edge(source, target, where)
                if value not in (0, 1):
                    self._found.edge_values["weight"] = None

    def _take_lists(self, lines: list[list[str]], first: int) -> None:
        seen: dict[str, None] = {}
        for number, line in enumerate(lines, first):
            where = f"line {number}"
            if not line:
                continue
            if self._format == "edgelist1" and len(line) not in (2, 3):
                raise self._found.wrong(where, f"{' '.join(line)[:60]!r}: expected two ends, and perhaps a value")
            ends = line[:2] if self._format == "edgelist1" else line
            if len(line) > len(ends):
                self._found.edge_values["weight"] = None
            names = [self._name(word, where) for word in ends]
            seen.update(dict.fromkeys(names))
            for target in names[1:]:
                self._found.take_edge(names[0], target, where)
        if self._embedded and not self._labels:
            self._take_vertices(list(seen))

    def _name(self, word: str, where: str) -> str:
        """Return the id of a vertex of a list: the name as it stands, or the label of a number from 1 on."""
        if self._embedded:
            return word
        if not re.fullmatch("[0-9]{1,18}", word) or not 1 <= int(word) <= self._n:
            raise self._found.wrong(where, f"{word!r} is no vertex; expected 1 to {self._n}")
        return self._labels[int(word) - 1]


def _words(text: str) -> list[str]:
    """Return the words of a text, which blanks or commas separate; quotes may hold blanks."""
    return [quoted or word for quoted, word in _WORD.findall(text)]

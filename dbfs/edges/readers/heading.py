"""The heading of a text: comments, and what they say of the graph; a line of column names; the first line of edges.

Sources of the forms of comments: Leskovec, Krevl, "SNAP Datasets: Stanford Large Network Dataset Collection", 2014:
``# Directed graph ...`` (or ``Undirected``) and ``# Nodes: n Edges: m``. Kunegis, "KONECT: The Koblenz Network
Collection", WWW 2013: ``% sym``, ``% asym`` or ``% bip``, and in the next line ``% m left right``.

The client reads a file's ``Head``, its text up to the first edge. The head is decompressed once and has a limit,
whatever its comments: no deadline runs yet.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from dbfs.edges.readers.lines import LINE_BYTES, Line, bad_line, header_number, unreadable
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.source import START_BYTES, Source, require_text
from dbfs.errors import FormatError, InvalidOptionError, TruncatedFileError

HEAD_BYTES = 1 << 26
"""Most bytes of text before the first edge."""

HEAD_LINES = 1 << 16
"""Most lines before the first edge that a reader looks at. A pattern passes over other comments much faster."""

_BOM = b"\xef\xbb\xbf"
_CHUNK_BYTES = 1 << 16


class Head:
    """The first lines of a file, for several looks at them.

    Args:
        source: the file.
        skip_rows: lines at the top that are passed over.
    """

    def __init__(self, source: Source, skip_rows: int = 0) -> None:
        self.source = source
        self.skip_rows = skip_rows
        self._chunks = source.chunks(size=_CHUNK_BYTES)
        self._text = bytearray()
        self._more()
        require_text(source.path, bytes(self._text[:START_BYTES]))
        self._start = len(_BOM) if self._text.startswith(_BOM) else 0
        for _ in range(skip_rows):
            while (end := self._text.find(b"\n", self._start)) < 0 and self._more():
                pass
            if end < 0:
                raise TruncatedFileError(f"{source.path} has fewer lines than skip_rows={skip_rows} passes over")
            self._start = end + 1

    @property
    def start(self) -> bytes:
        """The beginning of the text, at least 64 KiB unless the text is shorter."""
        return bytes(self._text)

    def lines(self, passed_over: re.Pattern[bytes]) -> Iterator[Line]:
        """Yield the lines from the first one, except lines after it that a pattern matches.

        Args:
            passed_over: matches any number of whole lines with their line ends, in linear time.

        Raises:
            FormatError: the head is longer than ``HEAD_BYTES`` or ``HEAD_LINES``; or a line is longer than
                ``LINE_BYTES``, or has a NUL byte or a carriage return inside.
        """
        number, start = 1 + self.skip_rows, self._start
        seen = start
        for _ in range(HEAD_LINES):
            # The text grows by chunks, and the last line of a chunk may be a part of a line.
            while (end := self._text.find(b"\n", seen)) < 0 and self._more():
                seen = max(start, len(self._text) - _CHUNK_BYTES)
                if len(self._text) - start > LINE_BYTES:
                    text = bytes(self._text[start:])
                    raise bad_line(self.source.path, number, text, f"a line longer than {LINE_BYTES} bytes")
            if end < 0 and start == len(self._text):
                return
            # The last line may lack its line end; ``end`` is then one byte too far, which no reader reads.
            line = Line(number, start, (len(self._text) if end < 0 else end) + 1, self._line(start, end))
            if reason := unreadable(line.text):
                raise bad_line(self.source.path, number, line.text, reason)
            yield line
            number, start = number + 1, min(line.end, len(self._text))
            while True:
                found = passed_over.match(self._text, start)
                passed = start if found is None else found.end()
                number, start = number + self._text.count(b"\n", start, passed), passed
                if self._text.find(b"\n", start) >= 0 or len(self._text) - start > LINE_BYTES or not self._more():
                    break
            seen = start
        raise FormatError(
            f"{self.source.path}, line {number}: {HEAD_LINES:,} lines of comments and no edge; expected edges"
        )

    def mean_line(self, start: int) -> float:
        """Return the mean length in bytes of the lines from byte ``start`` on: of at least one, in about 64 KiB."""
        while len(self._text) - start < _CHUNK_BYTES and self._more():
            pass
        sample = self._text[start : start + _CHUNK_BYTES]
        # Part of a line would make the mean too large; the file's last line may lack its line end.
        whole = sample[: sample.rfind(b"\n") + 1] or sample
        return max(len(whole), 1) / max(whole.count(b"\n"), 1)

    def _line(self, start: int, end: int) -> bytes:
        return bytes(self._text[start:] if end < 0 else self._text[start:end]).removesuffix(b"\r")

    def _more(self) -> bool:
        """Read one more chunk; return whether there was one."""
        if len(self._text) > HEAD_BYTES:
            raise FormatError(
                f"{self.source.path}: no edge in the first {HEAD_BYTES >> 20} MiB of its text; "
                "expected fewer comments and blank lines before the edges"
            )
        chunk = next(self._chunks, b"")
        self._text += chunk
        return bool(chunk)


# Repeats are possessive or bounded: a line of any length takes linear time.
_GRAPH = re.compile(rb"\s*+(un)?directed\s++(?:[\w-]++\s++){0,2}(?:graph|network|multigraph)\b", re.IGNORECASE)
_KONECT = re.compile(rb"\s*+(sym|asym|bip)(?:\s++[a-z]++)*+\s*+")
_KONECT_COUNTS = re.compile(rb"\s*+([0-9]++)\s++([0-9]++)\s++([0-9]++)(?:\s.*)?", re.DOTALL)
_BANNER = re.compile(rb"\s*+MatrixMarket\s++matrix\s++coordinate\s++\S++\s++(general)?", re.IGNORECASE)
_COUNTS = re.compile(rb"\s*+Nodes:\s*+(\S++)\s++Edges:\s*+(\S++)", re.IGNORECASE)
_DIRECTION = re.compile(rb"\b(?:un|non-?)?directed\b", re.IGNORECASE)
_UNDIRECTED = re.compile(rb"\b(?:un|non-?)directed\b", re.IGNORECASE)
STRINGS = "Ids: strings, below a line of column names"
"""Comment of an edge list that dbfs wrote, whose ids are strings."""
_ALL_LINES = re.compile(rb"")
# Gephi writes a column of this name; its values say how an edge can be crossed.
_TYPE, _TYPES = "type", (b"directed", b"undirected", b"mutual")


class Remarks:
    """What the comments of a text say of its graph.

    Args:
        head: the text's first lines.

    Attributes:
        sides: numbers of vertices of the two sets, if the comments give them.
        konect: whether a comment is of KONECT's form.
        two_sets: whether sources and targets are two sets.
        edges: the number of edges, if the comments give it.
        banner: whether a comment is the banner of a Matrix Market file.
        undirected: the first comment that calls something undirected.
        strings: whether a comment says that ids are strings, even those that look like numbers.
    """

    def __init__(self, head: Head) -> None:
        self._head = head
        self._stated: dict[bool, Line] = {}
        self._unclear: Line | None = None
        self.sides: tuple[int, int] | None = None
        self.konect = False
        self.two_sets = False
        self.edges: int | None = None
        self.banner = False
        self.undirected: Line | None = None
        self.strings = False

    def take(self, line: Line, mark: bytes, options: ReadOptions) -> None:
        """Take a comment, which begins with ``mark``.

        Raise ``FormatError`` if a number of edges, which is a promise, is no number.
        """
        text = line.text.strip().lstrip(mark)
        self.strings |= text.strip() == STRINGS.encode()
        if found := _GRAPH.match(text):
            self._stated.setdefault(found.group(1) is None, line)
        elif found := _KONECT.fullmatch(text):
            self.konect = True
            self._stated.setdefault(found.group(1) == b"asym", line)
            self.two_sets |= found.group(1) == b"bip"
            self._take_counts(line.number)
        elif found := _BANNER.match(text):
            self.banner = True
            self._stated.setdefault(found.group(1) is not None, line)
        elif found := _COUNTS.match(text):
            if options.strict or re.fullmatch(rb"[0-9]{1,18}", found.group(2)):
                self.edges = header_number(self._head.source, line, found.group(2), "the count of edges")
        elif self._unclear is None and _DIRECTION.search(text):
            self._unclear = line
        if self.undirected is None and _UNDIRECTED.search(text):
            self.undirected = line

    def _take_counts(self, after: int) -> None:
        line = next(itertools.islice(self._head.lines(_ALL_LINES), after - self._head.skip_rows, None), None)
        if line is not None and (found := _KONECT_COUNTS.fullmatch(line.text.strip().lstrip(b"%#"))):
            what = ("the count of edges", "the count of vertices on the left", "the count of vertices on the right")
            self.edges, *sides = (
                header_number(self._head.source, line, word, words)
                for word, words in zip(found.groups(), what, strict=True)
            )
            self.sides = (sides[0], sides[1])

    def require_one_set(self, options: ReadOptions) -> None:
        """Refuse two sets of vertices, for a format that gives no numbers of their vertices.

        Raises:
            FormatError, InvalidOptionError: the comments, or the options, say that there are two sets.
        """
        path = self._head.source.path
        if options.bipartite:
            raise InvalidOptionError(
                f"bipartite=True needs the numbers of vertices of both sets, which {path} does not give: a file of "
                "KONECT gives them in its second line, '% edges left right'"
            )
        if self.two_sets and options.bipartite is None:
            raise FormatError(
                f"{path} says that it is bipartite, so that the same id on the left and on the right is two vertices. "
                "Integers need the numbers of these in the second line, '% edges left right'. Pass bipartite=False if "
                "no id is on both sides"
            )

    def directed(self, options: ReadOptions) -> bool:
        """Return whether edges can be crossed in one direction only: by the options, else by the comments.

        Raise ``FormatError`` if a comment speaks of direction in no known form, or comments contradict each other.
        """
        if options.directed is not None:
            return options.directed
        if len(self._stated) > 1:
            raise ask_direction(self._head.source.path, self._stated[False], "another comment says directed")
        if self._unclear is not None and not self._stated:
            raise ask_direction(self._head.source.path, self._unclear, "a comment that speaks of direction")
        return True in self._stated


def ask_direction(path: str, line: Line, reason: str) -> Exception:
    """Return the error for a line that leaves open whether edges are directed."""
    return line.wrong(path, f"{reason}; pass directed=True or directed=False")


@dataclass(frozen=True)
class Heading:
    """The heading of a text.

    Attributes:
        remarks: what the comments say.
        header: the line of column names; None if there is none.
        first: the first line after it that is no comment and not blank; None if there is none.
        rest: the lines after that, comments and blank ones among them, as ``Head.lines`` passes over them.
    """

    remarks: Remarks
    header: Line | None
    first: Line | None
    rest: Iterator[Line]

    def comments(self, head: Head) -> Iterator[Line]:
        """Yield the comments between the line of column names, or else the top, and the first row."""
        top, stop = 0 if self.header is None else self.header.number, self.first.number if self.first else 0
        above = itertools.islice(head.lines(passed_over(())), HEAD_LINES)
        between = itertools.takewhile(lambda line: line.number < stop, above)
        return (line for line in between if line.number > top and line.text.strip())

    def require_untyped(self, names: list[str], columns: list[bytes], path: str, options: ReadOptions) -> None:
        """Refuse a table with a column of each edge's direction, unless the options say how edges are crossed.

        Args:
            names: the columns' names.
            columns: the first line's columns.
            path: the file.
            options: what the caller says.

        Raises:
            FormatError: there is such a column.
        """
        folded = [name.strip().lower() for name in names]
        if options.directed is None and self.first is not None and _TYPE in folded:
            value = columns[folded.index(_TYPE)].strip(b" \"'").lower()
            if value in _TYPES:
                raise ask_direction(path, self.first, f"the column 'Type' says {value.decode()!r}")


def read_heading(head: Head, options: ReadOptions, is_header: Callable[[bytes], bool]) -> Heading:
    """Read the lines of a text up to its first edge.

    Args:
        head: the text's first lines.
        options: what the caller says: whether there is a line of column names, and what begins a comment.
        is_header: whether the first line that is no comment, stripped of blanks, names columns, if nobody says so.

    Raise ``FormatError`` if a line is no text, or a comment's number is none.
    """
    marks, remarks = options.marks, Remarks(head)
    lines = head.lines(passed_over(marks))

    def following() -> Line | None:
        for line in lines:
            text = line.text.strip()
            mark = next((mark for mark in marks if text.startswith(mark)), None)
            if mark is not None:
                remarks.take(line, mark, options)
            elif text:
                return line
        return None

    first, header = following(), None
    if first is not None and (is_header(first.text.strip()) if options.header is None else options.header):
        header, first = first, following()
    return Heading(remarks, header, first, lines)


@lru_cache(maxsize=64)
def passed_over(marks: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """Return the pattern of blank lines, and of comments that say nothing of the graph."""
    if not marks:
        return re.compile(rb"(?:[ \t]*+\r?+\n)*+")
    mark = b"|".join(re.escape(mark) for mark in marks)
    says = rb"\s*+(?:nodes:|ids:|MatrixMarket|(?:sym|asym|bip)(?![^\s]))|[^\n]*?directed"
    return re.compile(
        rb"(?:\n++|[ \t]*+(?:(?:" + mark + rb")++(?!" + says + rb")[^\n\r\0]*+)?+\r?+\n)*+", re.IGNORECASE
    )


def is_names(text: bytes) -> bool:
    """Return whether a line holds column names: two or more words that each start with a letter or an underscore.

    The first one may be empty: pandas writes its index so.
    """
    # A mark separates columns, also empty ones; a run of blanks separates columns that have text.
    columns = re.split("[,;|]", text.decode("utf-8", "replace"))
    words = [word.strip("\"'") for column in columns for word in column.split() or [""]]
    if len(words) > 2 and not words[0]:
        words = words[1:]
    return len(words) > 1 and all(word[:1].isalpha() or word[:1] == "_" for word in words)

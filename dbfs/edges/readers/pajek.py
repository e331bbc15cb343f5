"""Pajek's networks (``.net``), and projects (``.paj``) that hold one network.

Source: Mrvar, Batagelj, "Pajek: Programs for Analysis and Visualization of Very Large Networks, Reference Manual". The
ids are the vertices' numbers 1..n, and not their labels, which need not be distinct. NetworkX's reader takes labels,
and reads as arcs what it does not know: comments, ``*Arcslist``, and edges that follow arcs.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from dataclasses import replace

from dbfs.edges.arrays import from_arrays
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.heading import Head
from dbfs.edges.readers.lines import INT64_MAX, bad_line
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.source import Source
from dbfs.edges.readers.whole import Directions, pairs, text_of, told
from dbfs.errors import FormatError, TruncatedFileError

_SECTION = re.compile(rb"\*[ \t]*+([A-Za-z]++)(.*+)", re.DOTALL)
_COUNTS = re.compile(rb"\s*+([0-9]{1,19}+)(?:\s++([0-9]{1,19}+))?+\s*+")
_VERTEX = re.compile(rb'([0-9]++)(\s++(?:"[^"]*+"|\S++))?+(\s++\S)?+')
_COMMENTS = (b"%", b"/*")
_LISTS = {b"arcs": True, b"edges": False, b"arcslist": True, b"edgeslist": False}
"""Sections of edges, and whether these are directed."""
_OTHERS = (b"partition", b"vector", b"permutation", b"cluster", b"hierarchy")
"""Objects of a project beside its network. Each has a section of vertices of its own."""


def open_pajek(head: Head, options: ReadOptions) -> EdgeList:
    """Read a Pajek file: arcs, edges, lists of both, or a matrix.

    A nonzero entry of a matrix is an arc; between the two sets of vertices of a two-mode network an edge.

    Raises:
        FormatError: a line breaks the format; or the file holds several networks, relations or none, a vertex that is
            none of 1 to n, or both arcs and edges.
        TruncatedFileError: a matrix has too few entries.
        GraphTooLargeError: this process has too little memory for the file.
    """
    return _Pajek(head.source, options).read()


class _Pajek:
    def __init__(self, source: Source, options: ReadOptions) -> None:
        self._path = source.path
        self._text = text_of(source).removeprefix(b"\xef\xbb\xbf")
        self._directions = Directions(source.path, options)
        self._ends = array("q")
        self._edge_values: dict[str, None] = {}
        self._vertex_values: Counter[str] = Counter()
        self._numbered: set[int] = set()
        self._n: int | None = None
        # Vertices of the first set of a two-mode network.
        self._first: int | None = None
        self._section = b""
        # The number of the relation of each section of edges, and whether one of these is a matrix.
        self._relations: set[bytes] = set()
        self._matrix = False
        # Entries of the matrix so far.
        self._entries = 0
        self._line = (0, b"")

    def read(self) -> EdgeList:
        """Return the file's edges; errors as of ``open_pajek``."""
        for number, line in enumerate(self._text.splitlines(), 1):
            text = bytes(line).strip()
            self._line = number, text
            if not text or text.startswith(_COMMENTS):
                continue
            found = _SECTION.match(text)
            if found is not None:
                self._begin(found.group(1).lower(), found.group(2))
            elif self._section == b"vertices":
                self._take_vertex(text)
            elif self._section == b"matrix":
                self._take_row(text.split())
            elif self._section in _LISTS:
                self._take_edges(text.split())
            elif self._section in _OTHERS:
                continue
            elif self._section or text[:1].isdigit():
                # Some files have words above the first section.
                raise self._wrong("expected '*Vertices n', and then arcs, edges or a matrix")
        self._begin(b"", b"")
        if self._n is None:
            raise FormatError(f"{self._path} holds no network; expected '*Vertices n'")
        edges = from_arrays(*pairs(self._ends), n=self._n, directed=self._directions.chosen(), name=self._path)
        return told(replace(edges, first_id=1), self._edge_values, self._vertex_values)

    def _begin(self, section: bytes, rest: bytes) -> None:
        """Begin a section; the name is empty at the end of the file."""
        rows, columns = self._shape()
        if self._section == b"matrix" and self._entries != rows * columns:
            raise TruncatedFileError(
                f"{self._path}, line {self._line[0]}: the matrix ends after {self._entries:,} entries; expected "
                f"{rows:,} x {columns:,}"
            )
        if section == b"vertices" and self._section in _OTHERS:
            return
        if section in (b"network", b"vertices") and self._n is not None:
            raise self._wrong("a second network; expected one in a file")
        if section == b"vertices":
            counts = _COUNTS.fullmatch(rest)
            if counts is None or int(counts.group(1)) > INT64_MAX:
                raise self._wrong("expected '*Vertices n', or '*Vertices n n1' for two sets of vertices")
            self._n = int(counts.group(1))
            self._first = None if counts.group(2) is None else int(counts.group(2))
            if self._first is not None and self._first > self._n:
                raise self._wrong("the first set has more vertices than there are")
        elif section in _LISTS or section == b"matrix":
            if self._n is None:
                raise self._wrong("edges before '*Vertices n'")
            directed = _LISTS.get(section, self._first is None)
            # Without a single edge the kind of the first section decides.
            self._directions.default = directed if self._directions.default is None else self._directions.default
            self._relations.update(word for word in rest.split()[:1] if word.startswith(b":"))
            if len(self._relations) > 1 or (self._matrix and section == b"matrix"):
                raise self._wrong("edges of a second relation; a graph has one: delete the sections of the others")
            self._matrix |= section == b"matrix"
            self._entries = 0
        elif section not in (b"", b"network", *_OTHERS):
            raise self._wrong("an unknown section; expected *Vertices, *Arcs, *Edges, *Arcslist, *Edgeslist or *Matrix")
        self._section = section

    def _take_vertex(self, text: bytes) -> None:
        found = _VERTEX.match(text)
        if found is None:
            raise self._wrong("expected a vertex's number, and then perhaps its label")
        vertex = self._vertex(found.group(1))
        if vertex in self._numbered:
            raise self._wrong(f"a second vertex {vertex}")
        self._numbered.add(vertex)
        self._vertex_values.update(
            what for what, value in (("label", found.group(2)), ("position and shape", found.group(3))) if value
        )

    def _take_edges(self, words: list[bytes]) -> None:
        directed, lists = _LISTS[self._section], self._section.endswith(b"list")
        if len(words) < 2:
            raise self._wrong("the second end is missing")
        source = self._vertex(words[0])
        for word in words[1:] if lists else words[1:2]:
            self._ends.extend((source - 1, self._vertex(word) - 1))
            self._directions.take(directed, f"line {self._line[0]}")
        if not lists and len(words) > 2:
            self._edge_values["weight"] = None
            if len(words) > 3:
                self._edge_values["further values"] = None

    def _take_row(self, words: list[bytes]) -> None:
        rows, columns = self._shape()
        # A row may take several lines, and a line has no part of a second row.
        if self._entries == rows * columns or self._entries % columns + len(words) > columns:
            raise self._wrong(f"more entries than a row of a matrix of {rows:,} x {columns:,} has")
        for word in words:
            try:
                value = float(word)
            except ValueError:
                raise self._wrong(f"{word.decode('utf-8', 'replace')!r} is no entry of a matrix") from None
            row, column = divmod(self._entries, columns)
            self._entries += 1
            if value:
                self._ends.extend((row, column + (self._first or 0)))
                self._directions.take(self._first is None, f"line {self._line[0]}")
            if value not in (0, 1):
                self._edge_values["weight"] = None

    def _shape(self) -> tuple[int, int]:
        """Return the numbers of rows and columns of a matrix."""
        n, first = self._n or 0, self._first
        return (n, n) if first is None else (first, n - first)

    def _vertex(self, word: bytes) -> int:
        n = self._n or 0
        if not re.fullmatch(rb"[0-9]{1,19}", word) or not 1 <= int(word) <= n:
            raise self._wrong(f"{word.decode('utf-8', 'replace')!r} is no vertex; expected 1 to {n}")
        return int(word)

    def _wrong(self, reason: str) -> FormatError:
        return bad_line(self._path, *self._line, reason)

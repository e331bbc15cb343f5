"""Files of graphs that the client reads whole: their text, and the vertices and edges in it.

Formats of other programs declare vertices, name them by ids of any kind, and may say the direction of each edge. The
client reads such a file, since its parts mean nothing alone, and sends the edges to the workers as those of a table.
"""

from __future__ import annotations

import logging
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dbfs.base.memory import require_room
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.source import Source
from dbfs.edges.tables.graphs import from_indices
from dbfs.edges.tables.ids import INT64_MAX
from dbfs.edges.tables.pairs import columns_of
from dbfs.errors import EdgeInputError, FormatError
from dbfs_workers.base.text import printable

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
# Bytes of memory for a byte of text. A vertex takes most: 14 bytes of GraphML become an entry of a dict, about 180.
_EXPANSION = 16
_MOST_NAMES = 6
_DECIMAL = re.compile("0|[1-9][0-9]{0,18}")


def text_of(source: Source) -> bytearray:
    """Return the whole text of a file, decompressed.

    Raises:
        GraphTooLargeError: the text, and what is made of it, do not fit this machine's free memory. A file that is not
            compressed is refused before it is read.

    Further errors as of ``Source.chunks``.
    """
    _require_room(source, source.size or 0)
    text = bytearray()
    for chunk in source.chunks(size=_CHUNK_BYTES):
        text += chunk
        _require_room(source, len(text))
    return text


def lines_of(source: Source) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of a file that are not blank, stripped, each with its place for messages.

    A byte that is no UTF-8 is an error of who decodes it. Errors as of ``text_of``.
    """
    for number, line in enumerate(text_of(source).removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        if text := bytes(line).strip():
            yield f"line {number}", text


def words_of(text: bytes, path: str, where: str) -> list[str]:
    """Return the words of a line: what blanks of ASCII part. Raise ``FormatError`` if the line is not UTF-8."""
    try:
        return [word.decode() for word in text.split()]
    except UnicodeDecodeError:
        raise FormatError(f"{path}, {where}: a byte that is not UTF-8; expected text in UTF-8") from None


def _require_room(source: Source, size: int) -> None:
    what = f"{source.path} is read by this process, since its format can't be read in parts: that takes"
    require_room(_EXPANSION * size, what, "a Parquet table of its edges would be read by the workers")


class Directions:
    """The directions of a file's edges, as the file says them one by one.

    Args:
        path: the file.
        options: what the caller says.

    Attributes:
        default: whether edges are directed that do not say so themselves; None if the file does not say.
    """

    def __init__(self, path: str, options: ReadOptions) -> None:
        self._path = path
        self._asked = options.directed
        self._first: dict[bool, str] = {}
        self.default: bool | None = None

    def take(self, directed: bool | None, where: str) -> None:
        """Take an edge's direction, None for the default. Raise ``FormatError`` if no direction is given."""
        directed = self.default if directed is None else directed
        if directed is None and self._asked is None:
            reason = "the file does not say whether edges are directed; pass directed=True or directed=False"
            raise FormatError(f"{self._path}, {where}: {reason}")
        self._first.setdefault(bool(directed), where)

    def chosen(self) -> bool:
        """Return whether the graph is directed: as the caller says, else as the edges do.

        Raise ``FormatError`` if the caller says nothing, and some edges are directed and others are not.
        """
        if self._asked is not None:
            return self._asked
        if len(self._first) > 1:
            raise FormatError(
                f"{self._path}, {self._first[True]}: a directed edge, and an undirected one in {self._first[False]}; "
                "pass directed=False to cross all edges both ways, or directed=True to cross each from its source to "
                "its target only"
            )
        return next(iter(self._first), bool(self.default))


class CollectedEdges:
    """The vertices and edges of one file, in the order of the file.

    Args:
        path: the file.
        options: what the caller says.
        words: whether ids are words of a text. They are integers if all of them are plain decimals, else strings; with
            ``ids="string"`` they are strings in any case.
        implicit: whether an edge makes vertices of its ends. Else a vertex has one place in the file.

    Attributes:
        directions: the directions of the edges.
        edge_values: the names of the attributes of edges that are left out.
        vertex_values: the same of vertices, with the number of values of each.
    """

    def __init__(self, path: str, options: ReadOptions, *, words: bool = False, implicit: bool = False) -> None:
        self._path = path
        self._words = words and not options.strings
        self._implicit = implicit
        self._numbers: dict[Any, int] = {}
        # By an id that no vertex has had so far: where an edge first ends at it.
        self._undeclared: dict[Any, str] = {}
        self._ends = array("q")
        self.directions = Directions(path, options)
        self.edge_values: dict[str, None] = {}
        self.vertex_values: Counter[str] = Counter()

    def wrong(self, where: str, reason: str) -> FormatError:
        """Return the error for a place in the file."""
        return FormatError(f"{self._path}, {where}: {reason}")

    def take_vertex(self, vertex: Any, where: str) -> None:
        """Take a vertex, by its id. Raise ``FormatError`` if it has none, or another vertex has the id."""
        if vertex is None:
            raise self.wrong(where, "a vertex without an id")
        if vertex in self._numbers and self._undeclared.pop(vertex, None) is None and not self._implicit:
            raise self.wrong(where, f"a second vertex with the id {vertex!r}")
        self._numbers.setdefault(vertex, len(self._numbers))

    def take_edge(self, source: Any, target: Any, where: str, directed: bool | None = None) -> None:
        """Take an edge.

        Args:
            source, target: the ids of its ends, perhaps of vertices that come later.
            where: the place in the file.
            directed: as of ``Directions.take``.

        Raise ``FormatError`` if an end, or the direction, is missing.
        """
        if source is None or target is None:
            raise self.wrong(where, f"an edge without a {'source' if source is None else 'target'}")
        for end in (source, target):
            if end not in self._numbers:
                self._numbers[end] = len(self._numbers)
                if not self._implicit:
                    self._undeclared[end] = where
            self._ends.append(self._numbers[end])
        self.directions.take(directed, where)

    def edge_list(self) -> EdgeList:
        """Return the edges, and log the names of the attributes that are left out.

        Raise ``FormatError`` if an edge ends at no vertex of the file, or ids are of several types; or as of
        ``Directions.chosen``.
        """
        for vertex, where in self._undeclared.items():
            raise self.wrong(where, f"an edge ends at {vertex!r}, which is no vertex of the file")
        directed = self.directions.chosen()
        try:
            ids = list(self._numbers)
            self._numbers.clear()
            if self._words and all(_DECIMAL.fullmatch(word) and int(word) <= INT64_MAX for word in ids):
                ids = list(map(int, ids))
            (column,) = columns_of(ids, "vertex")
            edges = from_indices(pairs(self._ends), column, directed, self._path)
        except EdgeInputError as error:
            raise FormatError(f"{self._path}: {error}") from None
        return told(edges, self.edge_values, self.vertex_values)


def pairs(ends: array[int]) -> tuple[Any, Any]:
    """Return the sources and targets of edges, two int64 arrays, of an array of the ends of one edge after another."""
    table = np.frombuffer(ends, np.int64).reshape(-1, 2) if ends else np.empty((0, 2), np.int64)
    return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])


def told(edges: EdgeList, edge_values: Iterable[str], vertex_values: Counter[str]) -> EdgeList:
    """Return edges that know what is left out of them, and log what that is.

    Args:
        edges: the edges of a file.
        edge_values: names of the attributes of edges.
        vertex_values: number of values of each attribute of vertices.
    """
    names = tuple(edge_values)
    left_out = [
        f"of {what}: {', '.join(list(found)[:_MOST_NAMES])}{', ...' if len(found) > _MOST_NAMES else ''}"
        for what, found in (("vertices", list(vertex_values)), ("edges", names))
        if found
    ]
    if left_out:
        logger.warning("%s", printable(f"{edges.name}: ids and edges are read. Left out {'; '.join(left_out)}"))
    return replace(edges, values=names, vertex_values=vertex_values.total(), told=True)

"""METIS graph files: line i lists the neighbours of vertex i, so each edge is listed in both directions.

Source: Karypis, "METIS: A Software Package for Partitioning Unstructured Graphs", manual 5.1, section 4.1.1. The header
is ``n m [fmt [ncon]]``. The digits of ``fmt`` say whether a line starts with a vertex size, whether ``ncon`` vertex
weights follow, and whether each neighbour is followed by an edge weight. A self-loop is an error: METIS refuses
self-loops, and writers disagree on how often one is listed and counted. A vertex without neighbours is a blank line, so
the last line's end may be missing only if the line is not blank. The result is a ``MetisFile`` with vertices 0..n-1.

NumPy reads a block as integers, and positions give their meaning. A block that holds anything except digits and blanks,
or that looks wrong in any way, is parsed again line by line in Python, which finds the wrong line.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from dbfs.edges.readers.attributes import with_weights
from dbfs.edges.readers.file import FileEdges
from dbfs.edges.readers.heading import Head
from dbfs.edges.readers.lines import (
    INT64_MAX,
    LINE_BYTES,
    LineError,
    blocks,
    count_lines,
    each_line,
    header_number,
    parsed,
    require_bytes,
    split_points,
    unreadable,
)
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.pairs import joined, why_not_id
from dbfs.edges.readers.source import Source
from dbfs.errors import FormatError, InvalidOptionError, TruncatedFileError
from dbfs_workers.base.text import counted
from dbfs_workers.building.pieces import Edges, Piece
from dbfs_workers.building.reading import Reading, ReadLimits

if TYPE_CHECKING:
    import pyarrow as pa

EXPANSION = 44
"""Bytes of memory for a byte of text, while a block of blank lines is parsed."""

_COMMENTS = re.compile(rb"^(?:%[^\n\r\0]*+\r?+\n)++", re.MULTILINE)
_NEWLINE = ord("\n")
_SPACE = ord(" ")
_ZERO = ord("0")
_NO_ROWS = (np.empty(0, np.int64),) * 3


@dataclass(frozen=True)
class MetisLayout:
    """Numbers of a METIS graph's vertices and edges, and the numbers in a line.

    Attributes:
        n: vertices.
        m: edges; each one is listed twice.
        lead: numbers before the first neighbour: vertex size and weights.
        step: numbers for each neighbour: 2 if edges have weights, else 1.
    """

    n: int
    m: int
    lead: int
    step: int

    @property
    def line_bytes(self) -> int:
        """Longest line to accept: more bytes than a line of all edges needs. Refuses junk without line ends."""
        return LINE_BYTES + 21 * (self.lead + 2 * self.m * self.step)


def count_vertex_lines(text: bytes) -> int:
    """Count the lines that are not comments; ``text`` is whole lines."""
    return text.count(b"\n") - text.count(b"\n%") - text.startswith(b"%")


@dataclass(frozen=True)
class MetisPiece:
    """Whole lines of a METIS graph.

    Attributes:
        source, limits: as of ``TextPiece``.
        layout: its numbers of vertices and edges, and the numbers in a line.
        vertex: 0-based vertex of the first line.
        start, stop: byte range of the lines; stop None is the end of the file.
    """

    source: Source
    layout: MetisLayout
    vertex: int
    start: int
    stop: int | None
    limits: ReadLimits

    def read(self) -> Edges:
        """Return vertices and their neighbours, int64, of one length; errors as of ``Piece.read``."""
        return joined([(vertices, neighbours) for vertices, neighbours, _ in self._rows()])

    def values(self, columns: Sequence[str]) -> pa.Table:
        """Return the weight of each edge, in a column of the one name; errors as of ``Piece.read``."""
        import pyarrow as pa

        parts = [np.empty(0, np.int64)]
        for vertices, _, weights in self._rows():
            # Larger ones are clamped.
            if weights.max(initial=0) == INT64_MAX:
                vertex = vertices[weights.argmax()] + 1
                raise FormatError(f"{self.source.path}: a weight in the line of vertex {vertex} is past 2^63-2")
            parts.append(weights)
        return pa.table([np.concatenate(parts)], [*columns])

    def _rows(self) -> Iterator[Rows]:
        """Yield vertices, their neighbours, and the weights of these."""
        reading = Reading(self.source.path, self.limits, EXPANSION)
        vertex = self.vertex

        def fast(part: bytes) -> Rows | None:
            return parse_block(part, vertex, self.layout)

        def slow(at: int, part: bytes) -> Rows:
            return parse_lines(self.source, at, part, vertex, self.layout, reading)

        text = blocks(self.source, self.start, self.stop, reading, self.layout.line_bytes)
        for lines, edges in parsed(text, reading, fast, slow):
            rows = count_vertex_lines(lines)
            # Blank lines may follow the last vertex's line.
            reading.take_edges(edges[0].size, min(rows, max(self.layout.n - vertex, 0)))
            vertex += rows
            yield edges
        if self.stop is None and vertex < self.layout.n:
            raise TruncatedFileError(
                f"{self.source.path} ends after {vertex} vertex lines; its header promises {self.layout.n}"
            )


Rows = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Vertices, their neighbours, and the weights of these; no weights if edges have none."""


def parse_block(block: bytes, vertex: int, layout: MetisLayout) -> Rows | None:
    """Parse a block of whole lines to vertices, neighbours and weights; return None if a line is, or may be, wrong.

    Args:
        block: the lines.
        vertex: 0-based vertex of the first line.
        layout: the numbers in a line.
    """
    if b"%" in block:
        block = _COMMENTS.sub(b"", block)
    if block.translate(None, b"0123456789 \t\r\n") or block.count(b"\r") != block.count(b"\r\n"):
        return None
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(text == _NEWLINE)
    inside = text > _SPACE
    starts = np.flatnonzero(inside & ~np.concatenate(([False], inside[:-1])))
    before = np.concatenate(([0], np.searchsorted(starts, ends)))
    counts = np.diff(before)
    # Blank lines may follow the last vertex's line.
    used = max(layout.n - vertex, 0)
    if counts[used:].any():
        return None
    counts = counts[:used]
    if (counts < layout.lead).any() or ((counts - layout.lead) % layout.step).any():
        return None
    if starts.size == 0:
        # NumPy would read a blank text as one zero.
        return _NO_ROWS
    # NumPy clamps larger numbers to 2^63-1, which is past any n that a file has lines for.
    values = np.fromstring(block, dtype=np.int64, sep=" ")
    place = np.arange(values.size) - np.repeat(before[: counts.size], counts) - layout.lead
    listed = (place >= 0) & (place % layout.step == 0)
    # A neighbour that begins with a zero is out of range, or a code such as 007 that is no number.
    if ((text[starts] == _ZERO) & listed).any():
        return None
    neighbours = values[listed] - 1
    vertices = np.repeat(np.arange(vertex, vertex + counts.size), (counts - layout.lead) // layout.step)
    if neighbours.size and (neighbours.min() < 0 or neighbours.max() >= layout.n or (neighbours == vertices).any()):
        return None
    return vertices, neighbours, values[(place >= 0) & (place % layout.step == 1)]


def parse_line(line: bytes, vertex: int, layout: MetisLayout) -> tuple[list[int], list[int]] | None:
    """Parse one vertex's line (without line end) to 0-based neighbours and weights; return None for a comment.

    Raise ``LineError`` if the line is wrong.
    """
    text = line.removesuffix(b"\r")
    if reason := unreadable(text):
        raise LineError(reason)
    if text.startswith(b"%"):
        return None
    words = [word for word in re.split(rb"[ \t]+", text) if word]
    if vertex >= layout.n:
        if words:
            raise LineError(f"one line more than the header's {layout.n} vertices")
        return [], []
    expected = f"expected the neighbours of vertex {vertex + 1}, integers 1 to {layout.n}"
    if layout.lead:
        expected += f", after {layout.lead} number(s) of its own"
    if layout.step == 2:
        expected += ", each with its edge's weight"
    for word in words:
        if not re.fullmatch(rb"[0-9]+", word):
            raise LineError(f"{why_not_id(word)}; {expected}")
    if len(words) < layout.lead or (len(words) - layout.lead) % layout.step:
        raise LineError(f"{len(words)} numbers; {expected}")
    neighbours = []
    for word in words[layout.lead :: layout.step]:
        if len(word) > 1 and word.startswith(b"0"):
            raise LineError(f"{why_not_id(word)}; {expected}")
        # Longer numbers are past any n, and Python may refuse to convert them.
        neighbour = int(word) if len(word) < 20 else 0
        if not 1 <= neighbour <= layout.n:
            raise LineError(f"neighbour {word[:40].decode()} is out of range; {expected}")
        if neighbour == vertex + 1:
            raise LineError(f"vertex {neighbour} is its own neighbour; METIS graphs have no self-loops")
        neighbours.append(neighbour - 1)
    weights = words[layout.lead + 1 :: layout.step] if layout.step == 2 else []
    return neighbours, [min(int(word), INT64_MAX) if len(word) < 20 else INT64_MAX for word in weights]


def parse_lines(source: Source, offset: int, block: bytes, vertex: int, layout: MetisLayout, reading: Reading) -> Rows:
    """Parse a block as ``parse_block``, but line by line: slow, and it finds the wrong line.

    Errors as for ``lines.each_line``.
    """
    neighbours, weights, degrees = array("q"), array("q"), array("q")

    def parse(text: bytes) -> tuple[list[int], list[int]] | None:
        return parse_line(text, vertex + len(degrees), layout)

    for found in each_line(source, offset, block, reading, parse):
        if found is not None:
            neighbours.extend(found[0])
            weights.extend(found[1])
            degrees.append(len(found[0]))
    vertices = np.repeat(np.arange(vertex, vertex + len(degrees)), np.array(degrees, dtype=np.int64))
    return vertices, np.array(neighbours, dtype=np.int64), np.array(weights, dtype=np.int64)


_PASSED_OVER = re.compile(rb"(?:%[^\n\r\0]*+\r?+\n)*+")
# Most vertex weights that a header may promise: METIS's partitioners are used with a few. A line without end would
# otherwise be the line of one vertex.
_MOST_WEIGHTS = 1000


def open_metis(head: Head, options: ReadOptions) -> MetisFile:
    """Read the header of a METIS graph.

    Raises:
        FormatError: the first line after comments isn't ``n m [fmt [ncon]]``.
        TruncatedFileError: the file ends in its header, or is too short for its numbers of vertices and edges.
    """
    source = head.source
    for line in head.lines(_PASSED_OVER):
        if not line.text.startswith(b"%"):
            break
    else:
        raise TruncatedFileError(f"{source.path} ends before its header; expected 'n m [fmt [ncon]]'")
    words = line.text.split()
    if not 2 <= len(words) <= 4:
        raise line.wrong(source.path, "expected the header 'n m [fmt [ncon]]'")
    n = header_number(source, line, words[0], "the count of vertices")
    m = header_number(source, line, words[1], "the count of edges")
    fmt = words[2] if len(words) > 2 else b"0"
    if not re.fullmatch(rb"[01]{1,3}", fmt):
        shown = fmt[:40].decode("utf-8", "replace")
        raise line.wrong(source.path, f"fmt, the third number, is {shown!r}; expected one to three digits, each 0 or 1")
    sizes, weights, edge_weights = (digit == "1" for digit in fmt.decode().zfill(3))
    ncon = header_number(source, line, words[3], "the count of vertex weights") if len(words) > 3 else 0
    if ncon > _MOST_WEIGHTS:
        raise line.wrong(source.path, f"ncon is {ncon}; expected at most {_MOST_WEIGHTS}")
    if ncon and not weights:
        raise line.wrong(source.path, "ncon counts vertex weights, but fmt says there are none")
    if n == 0 and m > 0:
        raise line.wrong(source.path, "a graph without vertices has no edges")
    layout = MetisLayout(n, m, lead=int(sizes) + max(ncon, 1) * int(weights), step=1 + int(edge_weights))
    # A line takes at least its line end, a number two bytes.
    least = max(n, 2 * (2 * m * layout.step + n * layout.lead))
    require_bytes(source, line.end, least, f"{counted(n, 'vertex', 'vertices')} and {counted(m, 'edge')}")
    return MetisFile(
        name=source.path,
        first_id=1,
        n=n,
        m=2 * m,
        directed=bool(options.directed),
        mirrored=not options.directed,
        completes=options.directed is False,
        values=("edge weight",) if edge_weights else (),
        vertex_values=n * layout.lead,
        source=source,
        layout=layout,
        body=line.end,
    )


@dataclass(frozen=True)
class MetisFile(FileEdges):
    """A METIS graph, whose first vertex has its line at byte ``body``; ``layout`` as of ``MetisPiece``."""

    body: int
    layout: MetisLayout

    def keeping(self, columns: Sequence[str]) -> Self:
        """See ``EdgeList``; errors as for ``with_weights``."""
        return with_weights(self, "int64" if self.layout.step == 2 else "", columns, twice=True)

    def cut(self, piece_edges: int) -> Sequence[Piece]:
        """Cut into byte ranges of about ``piece_edges`` neighbours, on line boundaries. A compressed file is one piece.

        To cut several ranges, the client reads the whole file once, in blocks: a range's first vertex is the number of
        vertex lines before it.

        Errors as for ``lines.blocks`` and ``Source.chunks``.
        """
        if piece_edges < 1:
            raise InvalidOptionError(f"piece_edges is {piece_edges}; expected at least 1")
        points = split_points(self.source, self.body, -(-2 * self.layout.m // piece_edges))
        starts, limits = self._vertex_starts(points), self.limits()
        ends = [*(start for start, _ in starts[1:]), None]
        return [
            MetisPiece(self.source, self.layout, vertex, start, end, limits)
            for (start, vertex), end in zip(starts, ends, strict=True)
        ]

    def line_of(self, vertex: int) -> int:
        """See ``EdgeList``; errors as of ``cut``."""
        reading = Reading(self.source.path, self.limits(), expansion=2)
        passed = 0
        for offset, block in blocks(self.source, self.body, None, reading, self.layout.line_bytes):
            rows = count_vertex_lines(block)
            if passed + rows > vertex:
                lines = enumerate(block.split(b"\n"), start=count_lines(self.source, offset, reading) + 1)
                numbers = (number for number, text in lines if not text.startswith(b"%"))
                return next(islice(numbers, vertex - passed, None))
            passed += rows
            reading.take_edges(0, len(block))
        raise TruncatedFileError(f"{self.source.path} has no line of vertex {vertex + 1}")

    def _vertex_starts(self, points: list[int]) -> list[tuple[int, int]]:
        """Return the body's start and the first line start at or after each point, each with its first vertex."""
        starts = [(self.body, 0)]
        if not points:
            return starts
        todo = iter(points)
        point = next(todo, None)
        vertex = 0
        # The text is only looked through here: its blocks are as long as its longest lines.
        reading = Reading(self.source.path, self.limits(), expansion=2)
        for offset, block in blocks(self.source, self.body, None, reading, self.layout.line_bytes):
            done = 0
            while point is not None and point < offset + len(block):
                # A point may be the start of a line itself, so the search begins one byte before it.
                at = block.find(b"\n", max(point - offset - 1, 0)) + 1 if point > offset else 0
                if offset + at > starts[-1][0]:
                    vertex += count_vertex_lines(block[done:at])
                    starts.append((offset + at, vertex))
                    done = at
                point = next(todo, None)
            vertex += count_vertex_lines(block[done:])
            # Edges are counted where they are parsed: any text goes here.
            reading.take_edges(0, len(block))
        return starts

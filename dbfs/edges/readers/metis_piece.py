"""Strict and fast parsing of a METIS graph's lines: NumPy reads a table of integers, and positions give their meaning.

A block that holds anything except digits and blanks, or that looks wrong in any way, is parsed again line by line in
Python, which finds the wrong line.
"""

import io
import re
from array import array
from dataclasses import dataclass

import numpy as np

from dbfs.edges.readers.lines import LINE_BYTES, bad_line, blocks, count_lines, slices, unreadable
from dbfs.edges.readers.pairs import LineError, joined, why_not_id
from dbfs.edges.readers.source import Source
from dbfs.errors import TruncatedFileError
from dbfs_workers.storage.pieces import Edges
from dbfs_workers.storage.reading import Reading, ReadLimits

EXPANSION = 44
"""Bytes of memory for a byte of text, while a block of blank lines is parsed."""

_COMMENTS = re.compile(rb"^(?:%[^\n\r\0]*+\r?+\n)++", re.MULTILINE)
_NEWLINE = ord("\n")
_SPACE = ord(" ")
_ZERO = ord("0")


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
        source: the file.
        layout: its numbers of vertices and edges, and the numbers in a line.
        vertex: 0-based vertex of the first line.
        start, stop: byte range of the lines; stop None is the end of the file.
        limits: limits of the read.
    """

    source: Source
    layout: MetisLayout
    vertex: int
    start: int
    stop: int | None
    limits: ReadLimits

    def read(self) -> Edges:
        """Return vertices and their neighbours, int64, of one length.

        Raises:
            FormatError: a line is wrong (the message names file and line), there are more vertex lines or edges than
                the header promises, or much text holds few of them.
            GraphTooLargeError: the edges take more memory than this worker has left.
            TruncatedFileError: the last piece ends before vertex n, or a compressed file is truncated.
            MissingFileError, UnreadableFileError: this machine has no such file, or can't read it.
            RunCancelledError, DeadlineExceededError: no client waits for the edges any more.
        """
        reading = Reading(self.source.path, self.limits, EXPANSION)
        vertex = self.vertex
        parts: list[Edges] = []
        for offset, block in blocks(self.source, self.start, self.stop, reading, self.layout.line_bytes):
            edges = parse_block(block, vertex, self.layout)
            if edges is None:
                edges = self._by_slices(offset, block, vertex, reading)
            rows = count_vertex_lines(block)
            # Blank lines may follow the last vertex's line.
            reading.take_edges(edges[0].size, min(rows, max(self.layout.n - vertex, 0)))
            vertex += rows
            parts.append(edges)
        if self.stop is None and vertex < self.layout.n:
            raise TruncatedFileError(
                f"{self.source.path} ends after {vertex} vertex lines; its header promises {self.layout.n}"
            )
        return joined(parts)

    def _by_slices(self, offset: int, block: bytes, vertex: int, reading: Reading) -> Edges:
        """Parse a block that has a wrong line; errors as of ``read``."""
        parts: list[Edges] = []
        for part in slices(block):
            reading.look()
            edges = parse_block(part, vertex, self.layout)
            if edges is None:
                edges = parse_lines(self.source, offset, part, vertex, self.layout, reading)
            parts.append(edges)
            offset += len(part)
            vertex += count_vertex_lines(part)
        return joined(parts)


def parse_block(block: bytes, vertex: int, layout: MetisLayout) -> Edges | None:
    """Parse a block of whole lines to vertices and neighbours; return None if a line is, or may be, wrong.

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
        return np.empty(0, np.int64), np.empty(0, np.int64)
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
    return vertices, neighbours


def parse_line(line: bytes, vertex: int, layout: MetisLayout) -> list[int] | None:
    """Parse one vertex's line (without line end) to 0-based neighbours; return None for a comment.

    Raises:
        LineError: the line is wrong.
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
        return []
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
    return neighbours


def parse_lines(source: Source, offset: int, block: bytes, vertex: int, layout: MetisLayout, reading: Reading) -> Edges:
    """Parse a block as ``parse_block``, but line by line: slow, and it finds the wrong line.

    Raises:
        FormatError: a line is wrong; the message names the first one.
    """
    neighbours, degrees = array("q"), array("q")
    for index, line in enumerate(io.BytesIO(block)):
        text = line.removesuffix(b"\n")
        try:
            found = parse_line(text, vertex + len(degrees), layout)
        except LineError as error:
            number = count_lines(source, offset, reading) + index + 1
            raise bad_line(source.path, number, text.removesuffix(b"\r"), str(error)) from None
        if found is not None:
            neighbours.extend(found)
            degrees.append(len(found))
    vertices = np.repeat(np.arange(vertex, vertex + len(degrees)), np.array(degrees, dtype=np.int64))
    return vertices, np.array(neighbours, dtype=np.int64)

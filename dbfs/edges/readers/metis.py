"""METIS graph files: line i lists the neighbours of vertex i, so each edge is listed in both directions.

Source: Karypis, "METIS: A Software Package for Partitioning Unstructured Graphs", manual 5.1, section 4.1.1. The header
is ``n m [fmt [ncon]]``. The digits of ``fmt`` say whether a line starts with a vertex size, whether ``ncon`` vertex
weights follow, and whether each neighbour is followed by an edge weight. A self-loop is an error: METIS refuses
self-loops, and writers disagree on how often one is listed and counted. A vertex without neighbours is a blank line, so
the last line's end may be missing only if the line is not blank. The result is a ``MetisFile`` with vertices 0..n-1.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from dbfs.edges.readers.file import FileEdges
from dbfs.edges.readers.head import Head
from dbfs.edges.readers.lines import bad_line, blocks, count_lines, header_number, require_bytes, split_points
from dbfs.edges.readers.metis_piece import MetisLayout, MetisPiece, count_vertex_lines
from dbfs.edges.readers.options import ReadOptions
from dbfs.errors import InvalidOptionError, TruncatedFileError
from dbfs_workers.storage.pieces import Piece
from dbfs_workers.storage.reading import Reading
from dbfs_workers.text import counted

_PASSED_OVER = re.compile(rb"(?:%[^\n\r\0]*+\r?+\n)*+")
# Most vertex weights that a header may promise: METIS's partitioners are used with a few. A line without end would
# otherwise be the line of one vertex.
_MOST_WEIGHTS = 1000


def open_metis(head: Head, options: ReadOptions) -> "MetisFile":
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
        raise bad_line(source.path, line.number, line.text, "expected the header 'n m [fmt [ncon]]'")
    n = header_number(source, line, words[0], "the count of vertices")
    m = header_number(source, line, words[1], "the count of edges")
    fmt = words[2] if len(words) > 2 else b"0"
    if not re.fullmatch(rb"[01]{1,3}", fmt):
        shown = fmt[:40].decode("utf-8", "replace")
        reason = f"fmt, the third number, is {shown!r}; expected one to three digits, each 0 or 1"
        raise bad_line(source.path, line.number, line.text, reason)
    sizes, weights, edge_weights = (digit == "1" for digit in fmt.decode().zfill(3))
    ncon = header_number(source, line, words[3], "the count of vertex weights") if len(words) > 3 else 0
    if ncon > _MOST_WEIGHTS:
        raise bad_line(source.path, line.number, line.text, f"ncon is {ncon}; expected at most {_MOST_WEIGHTS}")
    if ncon and not weights:
        raise bad_line(source.path, line.number, line.text, "ncon counts vertex weights, but fmt says there are none")
    if n == 0 and m > 0:
        raise bad_line(source.path, line.number, line.text, "a graph without vertices has no edges")
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
    """A METIS graph; ``body`` is the offset of the first vertex's line.

    Attributes:
        body: byte offset of the text after the header.
        layout: its numbers of vertices and edges, and the numbers in a line.
    """

    body: int
    layout: MetisLayout

    def cut(self, piece_edges: int) -> Sequence[Piece]:
        """Cut into byte ranges of about ``piece_edges`` neighbours, on line boundaries. A compressed file is one piece.

        To cut several ranges, the client reads the whole file once, in blocks: a range's first vertex is the number of
        vertex lines before it.

        Raises:
            TruncatedFileError, FormatError, UnreadableFileError: the file can't be read to its end, or a line is too
                long.
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

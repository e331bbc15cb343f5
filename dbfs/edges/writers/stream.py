"""EdgeStream: the edges of an EdgeList for the writers, piece by piece, each undirected edge once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dbfs.edges.edge_list import EdgeList
from dbfs_workers.storage.id_codes import ascending, encode
from dbfs_workers.storage.id_table import IdTable, as_ids, take
from dbfs_workers.storage.pieces import Edges, IdEdges, PieceWithLoneIds

if TYPE_CHECKING:
    from dbfs_workers.storage.id_table import Ids

# 2^20 edges: 16 MB of ids, and a few times as much of text.
PIECE_EDGES = 2**20


@dataclass(frozen=True)
class Written:
    """Numbers of a file's vertices and edges.

    Attributes:
        n: vertices; None if the edge list's ids are external and the format keeps them.
        m: edges written; an undirected edge counts once.
        directed: whether edges can be crossed in one direction only.
        left_out: self-loops and duplicates that the format has no place for.
    """

    n: int | None
    m: int
    directed: bool
    left_out: int = 0


@dataclass(frozen=True)
class Survey:
    """Facts of edges after a pass over them all.

    Attributes:
        n: vertices.
        m: edges; an undirected edge counts once.
        ids: the ids and their vertices; None if ids are 0..n-1 already.
    """

    n: int
    m: int
    ids: IdTable | None


class EdgeStream:
    """The edges of an edge list, in order, each undirected edge once.

    Args:
        edges: the edge list.
        progress: called after each piece of each pass, with the number of edges read so far.
    """

    def __init__(self, edges: EdgeList, progress: Callable[[int], None] | None = None) -> None:
        self.edges = edges
        self._progress = progress
        self._lone: list[Ids] = []

    @property
    def title(self) -> str:
        """The edges' name for a comment: one line of valid UTF-8, which a file's name need not be."""
        return " ".join(self.edges.name.split()).encode(errors="replace").decode()

    def pieces(self) -> Iterator[IdEdges]:
        """Yield sources and targets, vertices or ids, of about ``PIECE_EDGES`` edges at a time.

        Raises:
            TruncatedFileError: there are fewer edges, or more, than a file's header promises.
            UnreadableFileError: the machine fails to read the edges.
        """
        read = 0
        self._lone.clear()
        for piece in self.edges.cut(PIECE_EDGES):
            src, dst = map(as_ids, piece.read())
            lone = piece.lone_ids() if isinstance(piece, PieceWithLoneIds) else None
            if lone is not None and len(lone):
                self._lone.append(as_ids(lone))
            read += len(src)
            if self._progress is not None:
                self._progress(read)
            if self.edges.mirrored and not self.edges.directed:
                # The pieces hold each edge in both directions.
                once = src >= dst
                src, dst = src[once], dst[once]
            yield src, dst
        self.edges.require_count(read)

    def numbered(self, survey: Survey) -> Iterator[Edges]:
        """Yield the pieces with vertices 0..n-1."""
        for src, dst in self.pieces():
            if survey.ids is None:
                yield src, dst
            else:
                yield survey.ids.vertices(src), survey.ids.vertices(dst)

    def survey(self) -> Survey:
        """Count vertices and edges: without a pass over the edges if both numbers are known."""
        n, m = self.edges.n, self.edges.m
        mirrored = self.edges.mirrored and not self.edges.directed
        if n is not None and m is not None and not mirrored:
            return Survey(n, m, None)
        ids: Ids | None = None
        count = 0
        for src, dst in self.pieces():
            count += len(src)
            if n is None:
                ids = encode([src, dst] if ids is None else [ids, src, dst])[1]
        if ids is not None and self._lone:
            ids = encode([ids, *self._lone])[1]
        if n is not None or ids is None:
            return Survey(n or 0, count, None)
        ids = take(ids, ascending(ids))
        dense = isinstance(ids, np.ndarray) and (ids.size == 0 or int(ids[-1]) == ids.size - 1)
        return Survey(len(ids), count, None if dense else IdTable(0, ids))

    def written(self, survey: Survey) -> Written:
        """Return the report on a file that holds all edges."""
        return Written(survey.n, survey.m, self.edges.directed)

    def without(self, report: Written, left_out: int) -> Written:
        """Return the report on a file that lacks ``left_out`` edges."""
        return replace(report, m=report.m - left_out, left_out=left_out)

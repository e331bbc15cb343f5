"""EdgeStream: the edges of an EdgeList for the writers, piece by piece, each undirected edge once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from dbfs import config
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.one_sided import missing_among
from dbfs.edges.readers.file_set import FileSet
from dbfs_workers.building.pieces import Edges, IdEdges, PieceWithLoneIds, check_ids
from dbfs_workers.building.reading import require_room
from dbfs_workers.building.symmetry import MISSING_BYTES, MODULUS, imbalance_of_edges
from dbfs_workers.ids.codes import ascending, encode
from dbfs_workers.ids.table import IdTable, as_ids, take

if TYPE_CHECKING:
    from dbfs_workers.ids.table import Ids

# 2^20 edges: 16 MB of ids, and a few times as much of text.
PIECE_EDGES = 2**20


@dataclass(frozen=True)
class WriteReport:
    """Numbers of a file's vertices and edges.

    Attributes:
        n: vertices; None if the edge list's ids are external and the format keeps them.
        m: edges written; an undirected edge counts once.
        directed: whether edges can be crossed in one direction only.
        left_out: self-loops and duplicates that the format has no place for.
        lone: vertices without edges that the format has no place for.
        numbered: the number of the first vertex, if consecutive numbers stand for the ids; None if the file has the
            ids.
        values: numbers of values that were left out, such as weights, by their names.
    """

    n: int | None
    m: int
    directed: bool
    left_out: int = 0
    lone: int = 0
    numbered: int | None = None
    values: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Survey:
    """Facts of edges after a pass over them all.

    Attributes:
        n: vertices.
        m: edges; an undirected edge counts once.
        ids: the ids and their vertices; None if the edges are between vertices 0..n-1 already.
        first_id: the id of vertex 0 if ids are consecutive numbers; else None.
    """

    n: int
    m: int
    ids: IdTable | None
    first_id: int | None


class EdgeStream:
    """The edges of an edge list, in order, each undirected edge once.

    Args:
        progress: called after each piece of each pass, with the number of edges read so far.

    Attributes:
        values: numbers of values, by their names, that the last pass over the edges left out.
    """

    def __init__(self, edges: EdgeList, progress: Callable[[int], None] | None = None) -> None:
        self.edges = edges
        self._progress = progress
        self.values = Counter[str]()
        self._lone: list[Ids] = []
        # Whether an edge of ``by_ids`` starts or ends at each vertex.
        self._seen = np.empty(0, bool)

    @property
    def title(self) -> str:
        """The edges' name for a comment: one line of valid UTF-8, which a file's name need not be."""
        return " ".join(self.edges.name.split()).encode(errors="replace").decode()

    def by_ids(self) -> Iterator[IdEdges]:
        """Yield sources and targets by their ids.

        Raises:
            GraphTooLargeError: the memory will not hold a byte for each vertex. Others as of ``pieces``.
        """
        edges, n = self.edges, self.edges.n
        if n is None:
            yield from self.pieces()
            return
        names = edges.names() if edges.has_names else None
        require_room(n, float(config.get("build.memory-share")), f"{edges.name}: a table of its {n:,} vertices")
        self._seen = np.zeros(n, bool)
        for src, dst in self.pieces():
            self._seen[src] = self._seen[dst] = True
            if names is None:
                yield src + edges.first_id, dst + edges.first_id
            else:
                yield take(names, src), take(names, dst)

    def pieces(self) -> Iterator[IdEdges]:
        """Yield sources and targets, vertices or ids, of about ``PIECE_EDGES`` edges at a time.

        Raises:
            InvalidVertexError: a vertex is none of the edge list's.
            TruncatedFileError: there are fewer edges, or more, than a file's header promises.
            FormatError, GraphTooLargeError: see ``_missing``; only where each edge is to be there in both directions.
            UnreadableFileError: the machine fails to read the edges.
        """
        read = found = 0
        self._lone.clear()
        self.values = Counter({"sizes and weights of vertices": self.edges.vertex_values})
        parts = self.edges.parts if isinstance(self.edges, FileSet) else (self.edges,)
        for values, piece in ((part.values, piece) for part in parts for piece in part.cut(PIECE_EDGES)):
            src, dst = map(as_ids, piece.read())
            if self.edges.n is not None:
                src, dst = check_ids(src, dst, self.edges.n, self.edges.name)
            lone = piece.lone_ids() if isinstance(piece, PieceWithLoneIds) else None
            if lone is not None and len(lone):
                self._lone.append(as_ids(lone))
            read += len(src)
            if self._progress is not None:
                self._progress(read)
            if self.edges.paired:
                # The pieces hold each edge in both directions.
                found += imbalance_of_edges(src, dst)
                once = src >= dst
                src, dst = src[once], dst[once]
            self.values.update(dict.fromkeys(values, len(src)))
            yield src, dst
        self.edges.require_count(read)
        if found % MODULUS:
            yield self._missing(read)

    def _missing(self, read: int) -> Edges:
        """Return the reverses that ``read`` edges lack, those from a higher to a lower vertex; all edges are read anew.

        Errors as for ``missing_among`` and ``require_room``.
        """
        share, what = float(config.get("build.memory-share")), "a search for edges that are listed at one end only"
        require_room(MISSING_BYTES * read, share, f"{self.edges.name}: {what}")
        pieces = [piece.read() for piece in self.edges.cut(PIECE_EDGES)]
        src, dst = (np.concatenate([piece[side] for piece in pieces]) for side in (0, 1))
        owners, others = missing_among(self.edges, src, dst)
        once = owners > others
        return owners[once], others[once]

    def lone(self) -> Ids:
        """Return the ids of vertices without edges, once ``by_ids`` has yielded all edges.

        Ids that stand alone in lines of their own take another pass over the edges.
        """
        if self._lone:
            ids = encode(self._lone)[1]
            alone = IdTable(0, take(ids, ascending(ids)))
            seen = np.zeros(len(alone), bool)
            for ends in chain.from_iterable(self.pieces()):
                found = alone.vertices(ends)
                seen[found[found >= 0]] = True
            return take(alone.ids, np.flatnonzero(~seen))
        vertices = np.flatnonzero(~self._seen)
        return take(self.edges.names(), vertices) if self.edges.has_names else vertices + self.edges.first_id

    def numbered(self, survey: Survey) -> Iterator[Edges]:
        """Yield the pieces with vertices 0..n-1."""
        for src, dst in self.pieces():
            if survey.ids is None:
                yield src, dst
            else:
                yield survey.ids.vertices(src), survey.ids.vertices(dst)

    def survey(self) -> Survey:
        """Count vertices and edges: without a pass over the edges if both numbers are known."""
        n, m, first = self.edges.n, self.edges.m, None if self.edges.has_names else self.edges.first_id
        if n is not None and m is not None and not self.edges.paired:
            return Survey(n, m, None, first)
        ids: Ids | None = None
        count = 0
        for src, dst in self.pieces():
            count += len(src)
            if n is None:
                ids = encode([src, dst] if ids is None else [ids, src, dst])[1]
        if ids is not None and self._lone:
            ids = encode([ids, *self._lone])[1]
        if n is not None or ids is None:
            return Survey(n or 0, count, None, first)
        ids = take(ids, ascending(ids))
        dense = isinstance(ids, np.ndarray) and (ids.size == 0 or ids[-1] - ids[0] == ids.size - 1)
        first = int(ids[0]) if dense and len(ids) else None
        return Survey(len(ids), count, None if first == 0 else IdTable(0, ids), first)

    def written(self, survey: Survey, first: int) -> WriteReport:
        """Return the report on a file that holds all edges between vertices whose numbers begin at ``first``."""
        numbered = None if survey.first_id == first else first
        return WriteReport(survey.n, survey.m, self.edges.directed, numbered=numbered)

    def without(self, report: WriteReport, left_out: int) -> WriteReport:
        """Return the report on a file that lacks ``left_out`` edges."""
        return replace(report, m=report.m - left_out, left_out=left_out)

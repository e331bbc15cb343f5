"""The path: one vertex per level, so the deepest traversal that n vertices allow."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate.ranges import MAX_VERTICES, even_ranges, integer
from dbfs_workers.storage.pieces import GeneratedPiece


@dataclass(frozen=True)
class PathPiece(GeneratedPiece):
    """The edges v - v+1 for the vertices v in [start, stop)."""

    start: int
    stop: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges: sources and targets, int64, of length stop - start."""
        sources = xp.arange(self.start, self.stop, dtype=xp.int64)
        return sources, sources + 1


@dataclass(frozen=True)
class Path(EdgeList):
    """A path's edges; make one with ``path``."""

    edges: int

    def cut(self, piece_edges: int) -> Sequence[PathPiece]:
        """Cut into ranges of edges, at most ``piece_edges`` each."""
        return [PathPiece(start, stop) for start, stop in even_ranges(self.edges, piece_edges)]


def path(n: int) -> EdgeList:
    """Return the undirected path 0 - 1 - ... - n-1.

    Raises:
        InvalidOptionError: n is not an integer in 1..2^40.
    """
    n = integer("path", "n", n, 1, MAX_VERTICES)
    return Path(name=f"path:n={n}", n=n, m=n - 1, directed=False, mirrored=False, edges=n - 1)

"""The star: one hub joined to all other vertices, so the most uneven degrees that n vertices allow."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate.ranges import MAX_VERTICES, even_ranges, integer
from dbfs_workers.storage.pieces import GeneratedPiece


@dataclass(frozen=True)
class StarPiece(GeneratedPiece):
    """The edges 0 - v+1 for v in [start, stop)."""

    start: int
    stop: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges: sources and targets, int64, of length stop - start."""
        return xp.zeros(self.stop - self.start, xp.int64), xp.arange(self.start + 1, self.stop + 1, dtype=xp.int64)


@dataclass(frozen=True)
class Star(EdgeList):
    """A star's edges; make one with ``star``."""

    edges: int

    def cut(self, piece_edges: int) -> Sequence[StarPiece]:
        """Cut into ranges of edges, at most ``piece_edges`` each."""
        return [StarPiece(start, stop) for start, stop in even_ranges(self.edges, piece_edges)]


def star(n: int) -> EdgeList:
    """Return the undirected star with hub 0 and n - 1 other vertices.

    Raises:
        InvalidOptionError: n is not an integer in 1..2^40.
    """
    n = integer("star", "n", n, 1, MAX_VERTICES)
    return Star(name=f"star:n={n}", n=n, m=n - 1, directed=False, mirrored=False, edges=n - 1)

"""The complete graph K_n: an edge between any two vertices, so a traversal has one level."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate.ranges import even_ranges, integer
from dbfs_workers.storage.pieces import GeneratedPiece

# Edge numbers stay below 2^59, so that 8 times one fits an int64.
_MAX_VERTICES = 2**30


@dataclass(frozen=True)
class CompletePiece(GeneratedPiece):
    """The edges [start, stop) of a complete graph, in order of their higher end, then their lower."""

    start: int
    stop: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges, lower end first: sources and targets, int64, of length stop - start."""
        edges = xp.arange(self.start, self.stop, dtype=xp.int64)
        # Vertex v is the higher end of the edges from v (v - 1) / 2 on. The rounded square root may be off by one.
        higher = ((1 + xp.sqrt((8 * edges + 1).astype(xp.float64))) / 2).astype(xp.int64)
        higher -= higher * (higher - 1) // 2 > edges
        higher += higher * (higher + 1) // 2 <= edges
        return edges - higher * (higher - 1) // 2, higher


@dataclass(frozen=True)
class Complete(EdgeList):
    """A complete graph's edges; make one with ``complete``."""

    edges: int

    def cut(self, piece_edges: int) -> Sequence[CompletePiece]:
        """Cut into ranges of edges, at most ``piece_edges`` each."""
        return [CompletePiece(start, stop) for start, stop in even_ranges(self.edges, piece_edges)]


def complete(n: int) -> EdgeList:
    """Return the undirected complete graph of n vertices, without self-loops: n * (n - 1) / 2 edges.

    Raises:
        InvalidOptionError: n is not an integer in 1..2^30.
    """
    n = integer("complete", "n", n, 1, _MAX_VERTICES)
    edges = n * (n - 1) // 2
    return Complete(name=f"complete:n={n}", n=n, m=edges, directed=False, mirrored=False, edges=edges)

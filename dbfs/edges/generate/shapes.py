"""Graphs of a plain shape: the path, the star, the complete graph and trees.

The path has one vertex per level, so it is the deepest graph of n vertices. The star has the most uneven degrees. A
traversal of the complete graph has one level. Levels of a k-ary tree grow k-fold; a random tree has logarithmic depth.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from dbfs.base.calls import public
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import counter
from dbfs.edges.generate.ranges import MAX_SEED, MAX_VERTICES, GeneratedEdges, RangePiece, integer

# Edge numbers stay below 2^59, so that 8 times one fits an int64.
_MAX_COMPLETE = 2**30


@dataclass(frozen=True)
class TreePiece(RangePiece):
    """The edges from the vertices [start, stop) of a k-ary tree to their parents."""

    arity: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges, parent first: sources and targets, int64, of length stop - start."""
        children = xp.arange(self.start, self.stop, dtype=xp.int64)
        return (children - 1) // self.arity, children


@dataclass(frozen=True)
class RandomTreePiece(RangePiece):
    """The edges from the vertices [start, stop) of a random tree to their parents."""

    seed: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges, parent first: sources and targets, int64, of length stop - start."""
        children = xp.arange(self.start, self.stop, dtype=xp.int64)
        raw = counter.numbers(xp, counter.key(self.seed), children)
        return counter.below(xp, raw, children), children


@dataclass(frozen=True)
class CompletePiece(RangePiece):
    """The edges [start, stop) of a complete graph, in order of their higher end, then their lower."""

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges, lower end first: sources and targets, int64, of length stop - start."""
        edges = xp.arange(self.start, self.stop, dtype=xp.int64)
        # Vertex v is the higher end of the edges from v (v - 1) / 2 on. The rounded square root may be off by one.
        higher = ((1 + xp.sqrt((8 * edges + 1).astype(xp.float64))) / 2).astype(xp.int64)
        higher -= higher * (higher - 1) // 2 > edges
        higher += higher * (higher + 1) // 2 <= edges
        return edges - higher * (higher - 1) // 2, higher


@public
def path(n: int) -> EdgeList:
    """Return the undirected path 0 - 1 - ... - n-1.

    Raises:
        InvalidOptionError: n is not an integer in 1..2^40.
    """
    n = integer("path", "n", n, 1, MAX_VERTICES)
    return GeneratedEdges(f"path:n={n}", n, n - 1, directed=False, whole=TreePiece(1, n, arity=1))


@public
def star(n: int) -> EdgeList:
    """Return the undirected star with hub 0 and n - 1 other vertices.

    Raises:
        InvalidOptionError: n is not an integer in 1..2^40.
    """
    n = integer("star", "n", n, 1, MAX_VERTICES)
    return GeneratedEdges(f"star:n={n}", n, n - 1, directed=False, whole=TreePiece(1, n, arity=n))


@public
def complete(n: int) -> EdgeList:
    """Return the undirected complete graph of n vertices, without self-loops: n * (n - 1) / 2 edges.

    Raises:
        InvalidOptionError: n is not an integer in 1..2^30.
    """
    n = integer("complete", "n", n, 1, _MAX_COMPLETE)
    edges = n * (n - 1) // 2
    return GeneratedEdges(f"complete:n={n}", n, edges, directed=False, whole=CompletePiece(0, edges))


@public
def tree(n: int, arity: int = 2) -> EdgeList:
    """Return the undirected complete k-ary tree with root 0: the parent of vertex v is (v - 1) // arity.

    Raises:
        InvalidOptionError: n or arity is not an integer in 1..2^40.
    """
    n = integer("tree", "n", n, 1, MAX_VERTICES)
    arity = integer("tree", "arity", arity, 1, MAX_VERTICES)
    return GeneratedEdges(f"tree:n={n},arity={arity}", n, n - 1, directed=False, whole=TreePiece(1, n, arity))


@public
def random_tree(n: int, seed: int = 1) -> EdgeList:
    """Return a random recursive tree, undirected: the parent of vertex v is uniform among 0..v-1.

    The depth from vertex 0 is about e * ln n (Pittel, "Note on the Heights of Random Recursive Trees", 1994).

    Raises:
        InvalidOptionError: n is not an integer in 1..2^40, or the seed not of 64 bits.
    """
    n = integer("random_tree", "n", n, 1, MAX_VERTICES)
    seed = integer("random_tree", "seed", seed, 0, MAX_SEED)
    return GeneratedEdges(f"random_tree:n={n},seed={seed}", n, n - 1, directed=False, whole=RandomTreePiece(1, n, seed))

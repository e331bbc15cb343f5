"""Trees: complete k-ary trees, whose levels grow k-fold, and random recursive trees of logarithmic depth."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import counter
from dbfs.edges.generate.ranges import MAX_SEED, MAX_VERTICES, even_ranges, integer
from dbfs_workers.storage.pieces import GeneratedPiece


@dataclass(frozen=True)
class TreePiece(GeneratedPiece):
    """The edges from the vertices [start, stop) of a k-ary tree to their parents."""

    arity: int
    start: int
    stop: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges, parent first: sources and targets, int64, of length stop - start."""
        children = xp.arange(self.start, self.stop, dtype=xp.int64)
        return (children - 1) // self.arity, children


@dataclass(frozen=True)
class Tree(EdgeList):
    """A k-ary tree's edges; make one with ``tree``."""

    arity: int
    vertices: int

    def cut(self, piece_edges: int) -> Sequence[TreePiece]:
        """Cut into ranges of edges, at most ``piece_edges`` each."""
        ranges = even_ranges(self.vertices - 1, piece_edges)
        return [TreePiece(self.arity, start + 1, stop + 1) for start, stop in ranges]


@dataclass(frozen=True)
class RandomTreePiece(GeneratedPiece):
    """The edges from the vertices [start, stop) of a random tree to their parents."""

    seed: int
    start: int
    stop: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges, parent first: sources and targets, int64, of length stop - start."""
        children = xp.arange(self.start, self.stop, dtype=xp.int64)
        raw = counter.numbers(xp, counter.key(self.seed), children)
        return counter.below(xp, raw, children), children


@dataclass(frozen=True)
class RandomTree(EdgeList):
    """A random tree's edges; make one with ``random_tree``."""

    seed: int
    vertices: int

    def cut(self, piece_edges: int) -> Sequence[RandomTreePiece]:
        """Cut into ranges of edges, at most ``piece_edges`` each."""
        ranges = even_ranges(self.vertices - 1, piece_edges)
        return [RandomTreePiece(self.seed, start + 1, stop + 1) for start, stop in ranges]


def tree(n: int, arity: int = 2) -> EdgeList:
    """Return the undirected complete k-ary tree with root 0: the parent of vertex v is (v - 1) // arity.

    Raises:
        InvalidOptionError: n or arity is not an integer in 1..2^40.
    """
    n = integer("tree", "n", n, 1, MAX_VERTICES)
    arity = integer("tree", "arity", arity, 1, MAX_VERTICES)
    return Tree(name=f"tree:n={n},arity={arity}", n=n, m=n - 1, directed=False, mirrored=False, arity=arity, vertices=n)


def random_tree(n: int, seed: int = 1) -> EdgeList:
    """Return a random recursive tree, undirected: the parent of vertex v is uniform among 0..v-1.

    The depth from vertex 0 is about e * ln n (Pittel, "Note on the Heights of Random Recursive Trees", 1994).

    Raises:
        InvalidOptionError: n is not an integer in 1..2^40, or the seed not of 64 bits.
    """
    n = integer("random_tree", "n", n, 1, MAX_VERTICES)
    seed = integer("random_tree", "seed", seed, 0, MAX_SEED)
    return RandomTree(
        name=f"random_tree:n={n},seed={seed}", n=n, m=n - 1, directed=False, mirrored=False, seed=seed, vertices=n
    )

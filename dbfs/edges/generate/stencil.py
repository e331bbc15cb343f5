"""Finite-element patterns: each node of a box is joined to the up to 26 nodes around it, with several unknowns a node.

Unknown u of node (x, y, z) has the id unknowns * (x + side_x * (y + side_y * z)) + u.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod
from types import ModuleType
from typing import Any

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate.ranges import even_ranges
from dbfs_workers.storage.pieces import GeneratedPiece

Offsets = Sequence[tuple[int, int, int]]

AROUND: Offsets = tuple((x, y, z) for z, y, x in product((-1, 0, 1), repeat=3))
"""A node and its 26 neighbours, in order of their ids."""
_FROM = AROUND[len(AROUND) // 2 :]


def neighbours(xp: ModuleType, nodes: Any, sides: tuple[int, int, int], offsets: Offsets) -> tuple[Any, Any]:
    """Return the nodes at given offsets from each node of a box.

    Args:
        xp: NumPy or CuPy.
        nodes: int64[count], numbers of nodes; x runs fastest.
        sides: nodes along each axis of the box.
        offsets: differences along (x, y, z).

    Returns:
        The other nodes' numbers, int64[count, offsets], and whether each lies in the box, bool of the same shape.
    """
    shifts = xp.array(offsets, dtype=xp.int64)
    strides = (1, sides[0], sides[0] * sides[1])
    column = nodes[:, xp.newaxis]
    inside = xp.ones((nodes.size, len(offsets)), bool)
    for axis, (side, stride) in enumerate(zip(sides, strides, strict=True)):
        places = column // stride % side + shifts[:, axis]
        inside &= (places >= 0) & (places < side)
    return column + (shifts * xp.array(strides, dtype=xp.int64)).sum(axis=1), inside


@dataclass(frozen=True)
class StencilPiece(GeneratedPiece):
    """The edges whose lower ends belong to the nodes [start, stop) of a box."""

    sides: tuple[int, int, int]
    unknowns: int
    start: int
    stop: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges, node by node: sources and targets, int64."""
        nodes = xp.arange(self.start, self.stop, dtype=xp.int64)
        others, inside = neighbours(xp, nodes, self.sides, _FROM)
        unknowns = range(self.unknowns)
        # Edges among a node's own unknowns, then from each of them to each unknown of the neighbours after the node.
        columns = [(0, one, other) for one, other in combinations(unknowns, 2)]
        columns += list(product(range(1, len(_FROM)), unknowns, unknowns))
        offsets, lower, higher = xp.array(columns, dtype=xp.int64).T
        edges = inside[:, offsets]
        sources = self.unknowns * nodes[:, xp.newaxis] + lower
        targets = self.unknowns * others[:, offsets] + higher
        return sources[edges], targets[edges]


@dataclass(frozen=True)
class Stencil(EdgeList):
    """A finite-element pattern's edges; make one with ``stencil27``."""

    sides: tuple[int, int, int]
    unknowns: int

    def cut(self, piece_edges: int) -> Sequence[StencilPiece]:
        """Cut into ranges of nodes that have at most ``piece_edges`` edges each, or one node."""
        edges = (len(_FROM) - 1) * self.unknowns**2 + self.unknowns * (self.unknowns - 1) // 2
        ranges = even_ranges(prod(self.sides), max(1, piece_edges // edges))
        return [StencilPiece(self.sides, self.unknowns, *ends) for ends in ranges]


def stencil27(name: str, sides: tuple[int, int, int], unknowns: int) -> Stencil:
    """Return the 27-point stencil on a box of nodes, undirected, without self-loops.

    A node's unknowns are joined to each other, and to all unknowns of the nodes around it.
    """
    nodes = prod(sides)
    node_pairs = (prod(3 * side - 2 for side in sides) - nodes) // 2
    m = node_pairs * unknowns**2 + nodes * (unknowns * (unknowns - 1) // 2)
    return Stencil(name, nodes * unknowns, m, directed=False, mirrored=False, sides=sides, unknowns=unknowns)

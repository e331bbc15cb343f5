"""Finite-element and KKT patterns, of stencils on a box of nodes. Neither has its diagonal.

In a finite-element pattern each node is joined to the up to 26 nodes around it, with several unknowns a node. Unknown u
of node (x, y, z) has the id unknowns * k + u, k = x + side_x * (y + side_y * z). Nodes may be numbered from another one
than a corner: those before that one then come last.

The KKT pattern is that of an optimisation constrained by a partial differential equation on a cube. Source: Schenk,
Wächter, Weiser, "Inertia-Revealing Preconditioning for Large-Scale Nonconvex Constrained Optimization", SIAM J. Sci.
Comput. 31, 2008: the nlpkkt matrices, with boundary control. This structure has their published numbers:
n = 2 N^3 + 6 N^2 vertices and 2 (3N - 2)^3 + 12 (3N - 2)^2 off-diagonal entries.

Its vertices are N^3 states, a control for each of the 6 N^2 nodes of the faces, and N^3 multipliers, in this order. A
multiplier is the constraint at its node, with edges to the states of the 27-point stencil around the node. A control
has edges to the multipliers of the 9-point stencil below it. The Hessian is diagonal, so there are no other edges, and
the graph is bipartite.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod
from types import ModuleType
from typing import Any

from dbfs.edges.generate.ranges import GeneratedEdges, RangePiece

Offsets = Sequence[tuple[int, int, int]]

AROUND: Offsets = tuple((x, y, z) for z, y, x in product((-1, 0, 1), repeat=3))
"""A node and its 26 neighbours, in order of their ids."""
_FROM = AROUND[len(AROUND) // 2 :]


def neighbours(xp: ModuleType, nodes: Any, sides: tuple[int, int, int], offsets: Offsets) -> tuple[Any, Any]:
    """Return the nodes at given offsets from each node of a box.

    Args:
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
class StencilPiece(RangePiece):
    """The edges whose lower ends belong to the nodes [start, stop) of a box."""

    sides: tuple[int, int, int]
    unknowns: int
    first: int

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
        sources = self.unknowns * self._numbers(nodes)[:, xp.newaxis] + lower
        targets = self.unknowns * self._numbers(others)[:, offsets] + higher
        return sources[edges], targets[edges]

    def _numbers(self, nodes: Any) -> Any:
        return (nodes - self.first) % prod(self.sides)


def stencil27(name: str, sides: tuple[int, int, int], unknowns: int, first: int = 0) -> GeneratedEdges:
    """Return the 27-point stencil on a box of nodes, undirected, without self-loops.

    A node's unknowns are joined to each other, and to all unknowns of the nodes around it. Node ``first`` of the
    box has the lowest ids.
    """
    nodes = prod(sides)
    node_pairs = (prod(3 * side - 2 for side in sides) - nodes) // 2
    among = unknowns * (unknowns - 1) // 2
    m = node_pairs * unknowns**2 + nodes * among
    edges_each = (len(_FROM) - 1) * unknowns**2 + among
    return GeneratedEdges(name, nodes * unknowns, m, False, StencilPiece(0, nodes, sides, unknowns, first), edges_each)


_FACES = 6
# Offsets along a face's own two axes; along the third axis lies the layer of nodes next to the face.
_ON_FACE = tuple(product((-1, 0, 1), repeat=2))


@dataclass(frozen=True)
class KktPiece(RangePiece):
    """The edges of the multipliers and controls [start, stop); multipliers are numbered first."""

    side: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges, from states and controls to multipliers: sources and targets, int64."""
        nodes = self.side**3
        stencils = self._stencils(xp, self.start, min(self.stop, nodes))
        controls = self._controls(xp, max(self.start, nodes) - nodes, self.stop - nodes)
        first_multiplier = nodes + _FACES * self.side**2
        sources = xp.concatenate([stencils[1], controls[0] + nodes])
        return sources, xp.concatenate([stencils[0], controls[1]]) + first_multiplier

    def _stencils(self, xp: ModuleType, start: int, stop: int) -> tuple[Any, Any]:
        """Return each node of [start, stop) with each node of the stencil around it, as two int64 arrays."""
        nodes = xp.arange(start, max(start, stop), dtype=xp.int64)
        others, inside = neighbours(xp, nodes, (self.side,) * 3, AROUND)
        return xp.broadcast_to(nodes[:, xp.newaxis], inside.shape)[inside], others[inside]

    def _controls(self, xp: ModuleType, start: int, stop: int) -> tuple[Any, Any]:
        """Return each control of [start, stop) with each node of the stencil below it, as two int64 arrays."""
        controls = xp.arange(start, max(start, stop), dtype=xp.int64)[:, xp.newaxis]
        faces, places = controls // self.side**2, controls % self.side**2
        shifts = xp.array(_ON_FACE, dtype=xp.int64)
        first = places % self.side + shifts[:, 0]
        second = places // self.side + shifts[:, 1]
        inside = (first >= 0) & (first < self.side) & (second >= 0) & (second < self.side)
        # Faces 0 and 1 are the ends of the x axis, 2 and 3 of y, 4 and 5 of z.
        axis, depth = faces // 2, faces % 2 * (self.side - 1)
        strides = xp.array([1, self.side, self.side**2], dtype=xp.int64)
        below = depth * strides[axis] + first * strides[(axis + 1) % 3] + second * strides[(axis + 2) % 3]
        return xp.broadcast_to(controls, inside.shape)[inside], below[inside]


def kkt(name: str, side: int) -> GeneratedEdges:
    """Return the pattern on a cube of side^3 nodes, undirected."""
    listed = side**3 + _FACES * side**2
    m = (3 * side - 2) ** 3 + _FACES * (3 * side - 2) ** 2
    return GeneratedEdges(name, listed + side**3, m, False, KktPiece(0, listed, side), edges_each=len(AROUND))

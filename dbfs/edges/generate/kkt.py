"""The KKT pattern of an optimisation constrained by a partial differential equation on a cube, without its diagonal.

Source: Schenk, Wächter, Weiser, "Inertia-Revealing Preconditioning for Large-Scale Nonconvex Constrained Optimization",
SIAM J. Sci. Comput. 31, 2008: the nlpkkt matrices, with boundary control. This structure has their published numbers:
n = 2 N^3 + 6 N^2 vertices and 2 (3N - 2)^3 + 12 (3N - 2)^2 off-diagonal entries.

The vertices are N^3 states, a control for each of the 6 N^2 nodes of the faces, and N^3 multipliers, in this order. A
multiplier is the constraint at its node, with edges to the states of the 27-point stencil around the node. A control
has edges to the multipliers of the 9-point stencil below it. The Hessian is diagonal, so there are no other edges, and
the graph is bipartite.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from types import ModuleType
from typing import Any

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate.ranges import even_ranges
from dbfs.edges.generate.stencil import AROUND, neighbours
from dbfs_workers.storage.pieces import GeneratedPiece

_FACES = 6
# Offsets along a face's own two axes; along the third axis lies the layer of nodes next to the face.
_ON_FACE = tuple(product((-1, 0, 1), repeat=2))


@dataclass(frozen=True)
class KktPiece(GeneratedPiece):
    """The edges of the multipliers and controls [start, stop); multipliers are numbered first."""

    side: int
    start: int
    stop: int

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


@dataclass(frozen=True)
class Kkt(EdgeList):
    """A KKT pattern's edges; make one with ``kkt``."""

    side: int

    def cut(self, piece_edges: int) -> Sequence[KktPiece]:
        """Cut into ranges of multipliers and controls with at most ``piece_edges`` edges each, or one of them."""
        total = self.side**3 + _FACES * self.side**2
        return [KktPiece(self.side, *ends) for ends in even_ranges(total, max(1, piece_edges // len(AROUND)))]


def kkt(name: str, side: int) -> Kkt:
    """Return the pattern on a cube of side^3 nodes, undirected."""
    n = 2 * side**3 + _FACES * side**2
    m = (3 * side - 2) ** 3 + _FACES * (3 * side - 2) ** 2
    return Kkt(name, n, m, directed=False, mirrored=False, side=side)

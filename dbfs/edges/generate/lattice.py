"""Lattices: the pattern of a Poisson matrix, with or without its diagonal, as Merrill 2012's grid5pt and grid7pt.

Vertex (x, y, z, ...) has the id x + side_x * (y + side_y * (z + ...)), and up to two neighbours along each axis. Each
edge is listed once, at its lower end. The diameter is large (side - 1 summed over the axes), and frontiers are small.
"""

from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import mul
from types import ModuleType
from typing import Any

from dbfs.base.calls import public
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate.ranges import GeneratedEdges, RangePiece, integer

# The largest side with at most 2^40 vertices, by number of axes.
_MAX_SIDE = {2: 2**20, 3: 10321}


@dataclass(frozen=True)
class LatticePiece(RangePiece):
    """The edges whose lower ends are the vertices [start, stop) of a lattice."""

    sides: tuple[int, ...]
    loops: bool

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges, in order of lower end, then self-loop, then axis: sources and targets, int64."""
        vertices = xp.arange(self.start, self.stop, dtype=xp.int64)[:, xp.newaxis]
        strides = xp.array([1, *accumulate(self.sides[:-1], mul)], dtype=xp.int64)
        sides = xp.array(self.sides, dtype=xp.int64)
        inside = vertices // strides % sides < sides - 1
        if self.loops:
            inside = xp.concatenate([xp.ones_like(vertices, dtype=bool), inside], axis=1)
            strides = xp.concatenate([xp.zeros(1, xp.int64), strides])
        return xp.broadcast_to(vertices, inside.shape)[inside], (vertices + strides)[inside]


def lattice(name: str, sides: tuple[int, ...], loops: bool = False) -> GeneratedEdges:
    """Return the undirected lattice with sides[i] >= 1 vertices along axis i; at most 2^40 vertices in all."""
    n = prod(sides)
    between = sum(n // side * (side - 1) for side in sides)
    whole = LatticePiece(0, n, sides, loops)
    return GeneratedEdges(name, n, between + n * loops, False, whole, edges_each=len(sides) + loops)


@public
def grid2d(side: int, loops: bool = False) -> EdgeList:
    """Return the square lattice of side * side vertices, undirected: 2 * side * (side - 1) edges without self-loops.

    Args:
        side: vertices along an axis.
        loops: give each vertex a self-loop, as the 5-point Poisson matrix with its diagonal has.

    Raises:
        InvalidOptionError: side is not an integer in 1..2^20, or loops not a bool.
    """
    return _grid("grid2d", side, 2, loops)


@public
def grid3d(side: int, loops: bool = False) -> EdgeList:
    """Return the cubic lattice of side^3 vertices, undirected: 3 * side^2 * (side - 1) edges without self-loops.

    Args:
        side: vertices along an axis.
        loops: give each vertex a self-loop, as the 7-point Poisson matrix with its diagonal has.

    Raises:
        InvalidOptionError: side is not an integer in 1..10321.
        InvalidOptionTypeError: loops is not a bool.
    """
    return _grid("grid3d", side, 3, loops)


def _grid(generator: str, side: int, axes: int, loops: bool) -> GeneratedEdges:
    side = integer(generator, "side", side, 1, _MAX_SIDE[axes])
    loops = bool(loops)
    return lattice(f"{generator}:side={side}{',loops=true' * loops}", (side,) * axes, loops)

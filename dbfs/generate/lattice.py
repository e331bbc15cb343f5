"""Square and cubic lattices: the pattern of a Poisson matrix without its diagonal, Merrill 2012's grid5pt and grid7pt.

Vertex (x, y, z) has the id x + side * y + side^2 * z and up to two neighbours an axis; each edge is listed once, at its
lower end. High diameter (2 or 3 times side) and small frontiers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dbfs.edges import EdgeList, Edges
from dbfs.generate.ranges import even_ranges, integer

# The largest with at most 2^40 vertices, by number of axes.
_MAX_SIDE = {2: 2**20, 3: 10321}


@dataclass(frozen=True)
class LatticePiece:
    """The edges whose lower ends are the vertices [start, stop) of a lattice."""

    side: int
    axes: int
    start: int
    stop: int

    def read(self) -> Edges:
        """Generate the edges, in order of lower end, then axis: sources and targets, int64."""
        strides = self.side ** np.arange(self.axes, dtype=np.int64)
        vertices = np.arange(self.start, self.stop, dtype=np.int64)[:, np.newaxis]
        inside = vertices // strides % self.side < self.side - 1
        sources = np.broadcast_to(vertices, inside.shape)
        return sources[inside], (vertices + strides)[inside]


@dataclass(frozen=True)
class Lattice(EdgeList):
    """A lattice's edges; make one with ``grid2d`` or ``grid3d``."""

    side: int
    axes: int

    def cut(self, piece_edges: int) -> Sequence[LatticePiece]:
        """Cut into ranges of vertices that have at most ``piece_edges`` edges each, or one vertex."""
        vertices = max(1, piece_edges // self.axes)
        return [LatticePiece(self.side, self.axes, *ends) for ends in even_ranges(self.side**self.axes, vertices)]


def grid2d(side: int) -> EdgeList:
    """The square lattice of side * side vertices, undirected, without self-loops: 2 * side * (side - 1) edges.

    Raises:
        InvalidOptionError: side is not an integer in 1..2^20.
    """
    return _lattice("grid2d", side, 2)


def grid3d(side: int) -> EdgeList:
    """The cubic lattice of side^3 vertices, undirected, without self-loops: 3 * side^2 * (side - 1) edges.

    Raises:
        InvalidOptionError: side is not an integer in 1..10321.
    """
    return _lattice("grid3d", side, 3)


def _lattice(generator: str, side: int, axes: int) -> Lattice:
    side = integer(generator, "side", side, 1, _MAX_SIDE[axes])
    return Lattice(
        name=f"{generator}:side={side}",
        n=side**axes,
        m=axes * side ** (axes - 1) * (side - 1),
        directed=False,
        mirrored=False,
        side=side,
        axes=axes,
    )

"""Random geometric graphs: n uniform points in the unit square, and an edge between any two within a radius.

Source: Funke et al., "Communication-Free Massively Distributed Graph Generation", IPDPS 2018, for the parallel
generation. The square is cut into tiles no narrower than the radius. The number of points in each tile follows from the
seed alone: a range of tiles is halved again and again, and a binomial draw of that range divides its points between the
halves. So the points of any tile, and their ids, can be made without the points of the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt, pi, sqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import public
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import counter
from dbfs.edges.generate.columns import drawing
from dbfs.edges.generate.ranges import MAX_SEED, integer, number
from dbfs.errors import InvalidOptionError
from dbfs_workers.building.pieces import Edges

# Coordinates, float64, are exact to 2^-53 of the square; 2^36 points are about 2^-18 apart.
_MAX_VERTICES = 2**36
# Bounds the smallest piece, a tile, to 2.7 million edges: the square of the degree divided by 2 pi.
_MAX_DEGREE = 4096
# Points a tile. A tile's share of the splitting costs as much as making some 100 points.
_TILE_POINTS = 1024
_SPLITS, _POSITIONS = 1, 2


@dataclass(frozen=True)
class Tiling:
    """The points of a random geometric graph, tile by tile in row-major order.

    Attributes:
        side: tiles along an axis.
        seed: 64-bit seed of the tiles' numbers of points and of the positions.
    """

    points: int
    side: int
    seed: int

    def counts(self, start: int, stop: int) -> tuple[int, NDArray[np.int64]]:
        """Return the number of points before tile ``start``, and in each of the tiles [start, stop), int64."""
        before, counts = 0, np.zeros(stop - start, np.int64)
        ranges = [(0, self.side**2, self.points)]
        while ranges:
            low, high, points = ranges.pop()
            if high <= start:
                before += points
            elif low < stop and high - low == 1:
                counts[low - start] = points
            elif low < stop:
                middle = (low + high) // 2
                left = self._split(low, middle, high, points)
                ranges += [(low, middle, left), (middle, high, points - left)]
        return before, counts

    def _split(self, low: int, middle: int, high: int, points: int) -> int:
        """Return how many points of the tiles [low, high) are in [low, middle)."""
        word = counter.key(self.seed, _SPLITS, low, high)
        # NumPy keeps this class's distributions the same in all versions, unlike those of ``Generator``.
        state = np.random.RandomState(np.random.Philox(key=word))
        return int(state.binomial(points, (middle - low) / (high - low)))

    def positions(self, start: int, stop: int) -> tuple[int, NDArray[np.float64], NDArray[np.int64]]:
        """Make the points of the tiles [start, stop).

        Returns:
            The first point's id; coordinates, float64[points, 2]; each point's tile, int64[points].
        """
        first, counts = self.counts(start, stop)
        tiles = np.repeat(np.arange(start, stop), counts)
        ids = np.arange(first, first + tiles.size, dtype=np.int64)
        places = 2 * ids[:, np.newaxis] + np.arange(2)
        within = (counter.numbers(np, counter.key(self.seed, _POSITIONS), places) >> np.uint64(11)) * 2.0**-53
        corners = np.stack([tiles % self.side, tiles // self.side], axis=1)
        return first, (corners + within) / self.side, tiles


@dataclass(frozen=True)
class GeometricPiece:
    """The edges of a random geometric graph whose lower ends lie in the tiles [start, stop)."""

    tiling: Tiling
    radius: float
    start: int
    stop: int

    def read(self) -> Edges:
        """Generate the edges, in order of their lower ends: sources and targets, int64."""
        # Imported here, so that a client that describes edges does not import SciPy.
        from scipy.spatial import cKDTree

        # Ids rise from tile to tile, so an edge's higher end lies in its lower end's tile, the next, or the row above.
        last = min(self.stop + self.tiling.side + 1, self.tiling.side**2)
        first, points, tiles = self.tiling.positions(self.start, last)
        # SciPy searches a little beyond the radius, and the exact test follows: edges must not depend on its rounding.
        pairs = cKDTree(points).query_pairs(self.radius * (1 + 1e-9), output_type="ndarray")
        pairs.sort(axis=1)
        squares = ((points[pairs[:, 0]] - points[pairs[:, 1]]) ** 2).sum(axis=1)
        pairs = pairs[(squares <= self.radius**2) & (tiles[pairs[:, 0]] < self.stop)]
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))].astype(np.int64) + first
        return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


@dataclass(frozen=True)
class Geometric(EdgeList):
    """A random geometric graph's edges; make one with ``geometric``."""

    tiling: Tiling
    radius: float

    def cut(self, piece_edges: int) -> Sequence[GeometricPiece]:
        """Cut into ranges of tiles with about ``piece_edges`` edges each, or one tile."""
        tiles = self.tiling.side**2
        expected = self.tiling.points**2 * pi * self.radius**2 / 2
        pieces = max(1, min(tiles, round(expected / piece_edges)))
        ends = [tiles * piece // pieces for piece in range(pieces + 1)]
        return [GeometricPiece(self.tiling, self.radius, *pair) for pair in pairwise(ends)]

    def keeping(self, columns: Sequence[str]) -> Self:
        """Return the edges with columns that are drawn: see ``columns.drawing``."""
        return drawing(self, columns, numbered=False)


@public
def geometric(n: int, radius: float, seed: int = 1) -> EdgeList:
    """Return a graph of n uniform random points in the unit square, with undirected edges up to ``radius`` long.

    The mean degree is about n * pi * radius^2, and a little less because of the square's border. The graph is probably
    connected from radius^2 = ln n / (n pi) on (Penrose, "Random Geometric Graphs", 2003). Ids follow the points' tiles.
    The number of edges is unknown before they are generated.

    Raises:
        InvalidOptionError: n is not an integer in 0..2^36, radius not a number in 0..2, or the seed not of 64 bits; or
            the mean degree would pass 4096.
    """
    n = integer("geometric", "n", n, 0, _MAX_VERTICES)
    radius = number("geometric", "radius", radius, 0, 2)
    seed = integer("geometric", "seed", seed, 0, MAX_SEED)
    if n > _MAX_DEGREE and n * pi * radius**2 > _MAX_DEGREE:
        most = sqrt(_MAX_DEGREE / (n * pi))
        raise InvalidOptionError(
            f"geometric: radius must be at most {most:.3g} for n={n}, a mean degree of {_MAX_DEGREE}, not {radius!r}"
        )
    side = max(1, isqrt(n // _TILE_POINTS))
    if radius * side > 1:
        side = max(1, int(1 / radius))
    return Geometric(
        name=f"geometric:n={n},radius={radius!r},seed={seed}",
        n=n,
        m=None,
        directed=False,
        tiling=Tiling(n, side, seed),
        radius=radius,
    )

"""Random geometric graphs: n uniform points in the unit square, an edge between any two within a radius.

The square is cut into tiles no narrower than the radius, and the number of points in each follows from the seed alone:
a range of tiles is halved again and again, and its points go to the halves by a binomial draw of its own (Funke et al.,
"Communication-Free Massively Distributed Graph Generation", IPDPS 2018). So any tile's points, and their ids, are known
without the other tiles'.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import counter
from dbfs.edges.generate.ranges import MAX_SEED, integer, number
from dbfs.errors import InvalidOptionError
from dbfs_workers.storage.pieces import Edges

# Positions are exact to 2^-53 of the square, and a radius below 2^-20 would make more tiles than points.
_MAX_VERTICES = 2**36
# A tile, the smallest piece, then has at most 2.7 million edges (the square of the degree by 2 pi).
_MAX_DEGREE = 4096
# Points a tile: its share of the splitting costs as much as making some 100 points.
_TILE_POINTS = 1024
_SPLITS, _POSITIONS = 1, 2


@dataclass(frozen=True)
class Tiling:
    """The points of a random geometric graph, tile by tile in row-major order.

    Attributes:
        points: how many in all.
        side: tiles along an axis.
        seed: of the tiles' counts and of positions.
    """

    points: int
    side: int
    seed: int

    def counts(self, start: int, stop: int) -> tuple[int, NDArray[np.int64]]:
        """The points before tile ``start``, and those in each of the tiles [start, stop): int64."""
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
        """How many of a range's points are in its first half."""
        word = counter.key(self.seed, _SPLITS, low, high)
        # NumPy promises this class's distributions for all its versions, unlike those of ``Generator``.
        state = np.random.RandomState(np.random.Philox(key=word))
        return int(state.binomial(points, (middle - low) / (high - low)))

    def positions(self, start: int, stop: int) -> tuple[int, NDArray[np.float64], NDArray[np.int64]]:
        """The points of the tiles [start, stop).

        Returns:
            The first point's id; float64 (points, 2) coordinates; the tile of each point, int64.
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
        # Here and not above: describing edges must not make a client import SciPy.
        from scipy.spatial import cKDTree

        # Ids rise from tile to tile, so an edge's higher end lies in its lower end's tile, the next, or the row above.
        last = min(self.stop + self.tiling.side + 1, self.tiling.side**2)
        first, points, tiles = self.tiling.positions(self.start, last)
        # A little more than the radius, and then exactly: which edges there are must not hang on SciPy's rounding.
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


def geometric(n: int, radius: float, seed: int = 1) -> EdgeList:
    """n uniform random points in the unit square, undirected edges between those at most ``radius`` apart.

    The mean degree is about n * pi * radius^2, a little less for the square's border; the graph is connected, most
    likely, from radius^2 = ln n / (n pi) on (Penrose, "Random Geometric Graphs", 2003). Ids follow the points' tiles.
    How many edges there are is known only when they are made.

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
        mirrored=False,
        tiling=Tiling(n, side, seed),
        radius=radius,
    )

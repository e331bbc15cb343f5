"""Random geometric graphs against all pairs of points, and the points' distribution over tiles and within them."""

import re

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import chisquare

from dbfs.edges.generate import geometric
from dbfs.edges.generate.geometric import Tiling
from dbfs.errors import InvalidOptionError


def read(n: int, radius: float, seed: int, piece_edges: int) -> np.ndarray:
    edges = geometric(n, radius, seed)
    return np.concatenate([np.stack(piece.read()) for piece in edges.cut(piece_edges)], axis=1)


@pytest.mark.parametrize(
    ("n", "radius"),
    [(0, 0.1), (1, 0.1), (2, 2.0), (300, 0.0), (300, 0.3), (300, 1.5), (2000, 0.05), (4000, 0.02), (600, 0.6)],
)
def test_edges_are_all_pairs_within_the_radius(n: int, radius: float) -> None:
    edges = geometric(n, radius, 5)
    _, points, _ = edges.tiling.positions(0, edges.tiling.side**2)
    assert points.shape == (n, 2)
    assert n < 2 or (points.min() >= 0 and points.max() < 1)
    near = pdist(points, "sqeuclidean") <= radius**2 if n > 1 else np.zeros(0, bool)
    expected = np.stack(np.triu_indices(n, 1))[:, near]
    np.testing.assert_array_equal(read(n, radius, 5, 500), expected)


def test_tiles_as_narrow_as_the_radius() -> None:
    """Tiles as narrow as the radius: neighbours lie in all eight around."""
    tiling = geometric(40_000, 0.02).tiling
    narrow = Tiling(tiling.points, 50, 1)
    _, points, tiles = narrow.positions(0, 2500)
    assert np.bincount(tiles, minlength=2500).size == 2500
    np.testing.assert_array_equal((points * 50).astype(int) @ [1, 50], tiles)


def test_any_range_of_tiles_has_its_points() -> None:
    tiling = Tiling(10_000, 7, 3)
    first, points, tiles = tiling.positions(0, 49)
    assert (first, len(points)) == (0, 10_000)
    for start, stop in [(0, 1), (5, 12), (48, 49), (20, 20)]:
        before, some, _ = tiling.positions(start, stop)
        assert before == (tiles < start).sum()
        np.testing.assert_array_equal(some, points[(tiles >= start) & (tiles < stop)])


def test_points_are_uniform() -> None:
    """Points are uniform over the tiles, by the binomial splits, and along each axis of the square."""
    tiling = Tiling(100_000, 8, 11)
    _, points, tiles = tiling.positions(0, 64)
    assert chisquare(np.bincount(tiles)).pvalue > 1e-4
    for axis in (0, 1):
        assert chisquare(np.histogram(points[:, axis], bins=37, range=(0, 1))[0]).pvalue > 1e-4


def test_tile_counts_vary_as_binomials() -> None:
    """A lattice of points would have no variance, points drawn one by one have n p (1 - p)."""
    counts = np.concatenate([Tiling(1000, 2, seed).counts(0, 4)[1] for seed in range(500)])
    assert 0.85 < counts.var() / (1000 * 0.25 * 0.75) < 1.15


def test_counts_known_beforehand() -> None:
    edges = geometric(1000, 0.01)
    assert (edges.n, edges.m, edges.directed, edges.mirrored) == (1000, None, False, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 0.1), "geometric: n must be in 0..68719476736, not -1"),
        ((5, -0.1), "geometric: radius must be in 0..2, not -0.1"),
        ((5, float("inf")), "geometric: radius must be in 0..2, not inf"),
        ((5, None), "geometric: radius must be a number in 0..2, not None"),
        ((10**6, 0.5), "geometric: radius must be at most 0.0361 for n=1000000, a mean degree of 4096, not 0.5"),
        ((5, 0.1, -1), "geometric: seed must be in 0..18446744073709551615, not -1"),
    ],
)
def test_a_wrong_argument_is_named(arguments: tuple, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"^{re.escape(message)}$"):
        geometric(*arguments)

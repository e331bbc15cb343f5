"""Uniform random graphs: reproducible, in range, and uniform by statistics of fixed seeds."""

import numpy as np
import pytest

from dbfs.edges.generate import uniform
from dbfs_workers.building.pieces import Edges


def read(n: int, m: int, seed: int = 1) -> Edges:
    (piece,) = uniform(n, m, seed).cut(max(m, 1))
    return piece.read()


def test_first_edges_stay_what_they_are() -> None:
    """Results recorded on a graph refer to its spec: a new version must make the same edges."""
    sources, targets = read(1_000_000, 4)
    assert sources.tolist() == [303568, 156134, 900268, 745087]
    assert targets.tolist() == [848708, 31106, 52066, 246266]


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 2**31 + 11, 2**40])
def test_ids_are_in_range(n: int) -> None:
    for ends in read(n, 10_001):
        assert ends.dtype == np.int64
        assert ends.size == 10_001
        assert ends.min() >= 0
        assert ends.max() < n
        assert ends.max() >= n - 1 - n // 100


def test_each_seed_has_its_own_edges() -> None:
    first = np.stack(read(1000, 500, seed=1))
    np.testing.assert_array_equal(first, np.stack(read(1000, 500, seed=1)))
    for seed in (0, 2, 2**64 - 1):
        assert not np.array_equal(first, np.stack(read(1000, 500, seed=seed)))


def test_ends_are_uniform_and_independent() -> None:
    """Chi-square of the (source, target) cells: mean 99 ** 2 - 1 and standard deviation sqrt(2 * mean)."""
    n, m = 99, 1_000_000
    sources, targets = read(n, m)
    counts = np.bincount(sources * n + targets, minlength=n * n)
    expected = m / n**2
    chi_square = ((counts - expected) ** 2 / expected).sum()
    degrees = n**2 - 1
    assert abs(chi_square - degrees) < 4 * np.sqrt(2 * degrees)


def test_consecutive_edges_are_uncorrelated() -> None:
    numbers = np.stack(read(2**40, 200_000), axis=1).ravel() / 2**40
    for lag in (1, 2, 4, 8):
        assert abs(np.corrcoef(numbers[:-lag], numbers[lag:])[0, 1]) < 4 / np.sqrt(numbers.size)


@pytest.mark.parametrize("directed", [False, True])
def test_counts_known_beforehand(directed: bool) -> None:
    edges = uniform(50, 70, directed=directed)
    assert (edges.n, edges.m, edges.directed, edges.mirrored) == (50, 70, directed, False)


def test_no_edges() -> None:
    for n in (0, 5):
        sources, targets = read(n, 0)
        assert sources.size == targets.size == 0
        assert sources.dtype == targets.dtype == np.int64

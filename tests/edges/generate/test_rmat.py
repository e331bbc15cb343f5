"""R-MAT: quadrant frequencies at every level, folding, permuted ids, and degrees against the model's expectation."""

import re
from itertools import pairwise
from math import log2

import numpy as np
import pytest

from dbfs.edges.generate import rmat
from dbfs.edges.generate.ranges import GeneratedEdges
from dbfs.edges.generate.rmat import RmatPiece, draw_pairs
from dbfs.errors import InvalidOptionError, InvalidOptionTypeError

SHARES = [(0.57, 0.19, 0.19), (0.45, 0.15, 0.15), (0.25, 0.25, 0.25), (0.1, 0.2, 0.3), (0, 0, 0), (0, 1, 0), (1, 0, 0)]


@pytest.mark.parametrize("shares", SHARES)
def test_quadrants_have_their_probabilities(shares: tuple[float, float, float]) -> None:
    """Each level's quadrants have their probabilities, and no level depends on another."""
    edges = rmat(9, 1, *shares)
    assert isinstance(edges, GeneratedEdges)
    assert isinstance(edges.whole, RmatPiece)
    count = 100_000
    sources, targets = draw_pairs(np, np.arange(count), 9, edges.whole.limits, 3)
    assert min(sources.min(), targets.min()) >= 0
    assert max(sources.max(), targets.max()) < 2**9
    quadrants = [2 * (sources >> level & 1) + (targets >> level & 1) for level in range(9)]
    expected = np.array([*shares, 1 - sum(shares)])
    for quadrant in quadrants:
        # Five standard deviations.
        np.testing.assert_allclose(np.bincount(quadrant, minlength=4) / count, expected, atol=2.5 / np.sqrt(count))
    for one, other in pairwise(quadrants):
        joint = np.bincount(4 * one + other, minlength=16).reshape(4, 4) / count
        np.testing.assert_allclose(joint, np.outer(expected, expected), atol=2.5 / np.sqrt(count))


def test_every_odd_and_even_number_of_levels() -> None:
    for scale in (1, 2, 3, 39, 40):
        drawn = np.concatenate(draw_pairs(np, np.arange(1000), scale, (2**30, 2**31, 3 * 2**30), 1))
        assert drawn.min() >= 0
        assert scale - 1 <= log2(drawn.max() + 1) <= scale


def test_degrees_have_the_expected_distribution() -> None:
    """An id with k ones among its bits is a source with probability 0.6^(scale-k) * 0.4^k, whatever it becomes."""
    scale, edges = 10, rmat(10, 500, 0.45, 0.15, 0.15, directed=True)
    sources, _ = edges.cut(2**40)[0].read()
    ones = np.array([bin(v).count("1") for v in range(2**scale)])
    expected = np.sort(edges.m * 0.6 ** (scale - ones) * 0.4**ones)
    np.testing.assert_allclose(np.sort(np.bincount(sources, minlength=2**scale)), expected, rtol=0.25)


def test_hubs_are_spread_over_ranks() -> None:
    """Unpermuted, the first of four ranks would own 36 % of all sources, the last 16 %."""
    sources, _ = rmat(14, 16, 0.45, 0.15, 0.15).cut(2**40)[0].read()
    shares = np.bincount(sources % 4) / sources.size
    assert 0.2 < shares.min() <= shares.max() < 0.3


@pytest.mark.parametrize(("scale", "n"), [(5, 17), (5, 31), (5, 32), (3, 1), (21, 2_000_000), (40, 2**40 - 1)])
def test_ids_beyond_n_are_folded_into_the_range(scale: int, n: int) -> None:
    edges = rmat(scale, n=n, m=20_000)
    assert (edges.n, edges.m) == (n, 20_000)
    ids = np.concatenate(edges.cut(2**40)[0].read())
    assert ids.min() >= 0
    assert ids.max() < n
    if n < 40:
        assert np.unique(ids).size == n


def test_counts_known_beforehand() -> None:
    assert (rmat(12, 5).n, rmat(12, 5).m, rmat(12, 5).directed) == (4096, 20480, False)
    assert (rmat(12, 5, n=3000).n, rmat(12, 5, n=3000).m) == (3000, 15000)
    assert rmat(3, directed=True).directed
    assert rmat(3, 1, 0.7, 0.2, 0.1).m == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0}, "rmat: scale must be in 1..40, not 0"),
        ({"scale": 3, "a": 0.8}, "rmat: a + b + c must be at most 1, not 1.18"),
        ({"scale": 3, "a": -0.1}, "rmat: a must be in 0..1, not -0.1"),
        ({"scale": 3, "b": float("nan")}, "rmat: b must be in 0..1, not nan"),
        ({"scale": 3, "c": "0.1"}, "rmat: c must be a number in 0..1, not '0.1'"),
        ({"scale": 3, "c": True}, "rmat: c must be a number in 0..1, not True"),
        ({"scale": 3, "n": 9}, "rmat: n must be in 1..8, not 9"),
        ({"scale": 3, "n": 0}, "rmat: n must be in 1..8, not 0"),
        ({"scale": 3, "m": -1}, "rmat: m must be in 0..1152921504606846976, not -1"),
    ],
)
def test_a_wrong_argument_is_named(options: dict, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"^{re.escape(message)}$"):
        rmat(**options)


def test_directed_is_a_bool() -> None:
    with pytest.raises(InvalidOptionTypeError, match="^directed must be True or False, not 1$"):
        rmat(3, directed=1)
    assert rmat(3, directed=np.True_) == rmat(3, directed=True)

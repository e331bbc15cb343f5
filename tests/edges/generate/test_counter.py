"""Counter-based random numbers: published outputs, NumPy's own Philox, bounds, permutations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbfs.edges.generate import counter

# The first outputs of SplitMix64 from state 1234567, as its reference implementation prints them.
SPLITMIX = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]


def test_splitmix_reference() -> None:
    assert counter.numbers(np, 1234567, np.arange(5)).tolist() == SPLITMIX
    assert counter.numbers(np, 1234567, np.array([[3], [1]])).tolist() == [[SPLITMIX[3]], [SPLITMIX[1]]]


def test_keys_of_different_labels_differ() -> None:
    keys = {counter.key(seed, *labels) for seed in (0, 1, 2**64 - 1) for labels in ((0,), (1,), (0, 0), (0, 1), (1, 0))}
    assert len(keys) == 15


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**61), st.integers(0, 50))
def test_philox_is_numpys(key: int, start: int, count: int) -> None:
    expected = np.random.Philox(key=key, counter=start).random_raw(count)
    np.testing.assert_array_equal(counter.random_raw(np, key, start, count), expected)


@pytest.mark.parametrize("bound", [1, 2, 3, 1000, 2**40 - 1, 2**40])
def test_the_extremes_map_to_the_ends_of_the_range(bound: int) -> None:
    extremes = np.array([0, 2**64 - 1], np.uint64)
    assert counter.below(np, extremes, bound).tolist() == [0, bound - 1]
    assert counter.below(np, extremes, np.array([bound, bound])).tolist() == [0, bound - 1]


def test_drawn_numbers_are_uniform() -> None:
    """Chi-squared over 100 cells: 99 +- 14 expected."""
    drawn = counter.below(np, counter.numbers(np, counter.key(5), np.arange(100_000)), 100)
    counts = np.bincount(drawn, minlength=100)
    assert 50 < ((counts - 1000) ** 2 / 1000).sum() < 160


@pytest.mark.parametrize("bits", [1, 2, 3, 8, 13, 16])
def test_scrambling_is_a_permutation(bits: int) -> None:
    ids = np.arange(2**bits)
    for seed in (1, 2**64 - 1):
        np.testing.assert_array_equal(np.sort(counter.scramble(np, ids, bits, seed)), ids)


def test_scrambling_spreads_every_bit() -> None:
    """Changing any bit of an id changes each bit of its image about half the time, on average."""
    ids = np.arange(2**16)
    image = counter.scramble(np, ids, 16, 7)
    for bit in range(16):
        changed = image ^ counter.scramble(np, ids ^ (1 << bit), 16, 7)
        flips = [((changed >> place) & 1).mean() for place in range(16)]
        assert 0.3 < np.mean(flips) < 0.7

"""Reports travel packed and come out as they were."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dbfs_workers.reports import RankReport
from dbfs_workers.scratch import Labels
from dbfs_workers.spmd import RankRun

LABELS = Labels(np.zeros(0, np.int32), None)
SHAPES = st.tuples(st.integers(0, 200), st.integers(1, 4))


def sent(counts: np.ndarray, seconds: np.ndarray) -> bytes:
    return pickle.dumps(RankReport.of(RankRun(LABELS, counts, seconds, 1, 2, 3, 0.5, 0.25)))


@given(
    counts=arrays.arrays(np.int64, SHAPES, elements=st.integers(-(2**63), 2**63 - 1), fill=st.integers(-300, 300)),
    seconds=arrays.arrays(np.float64, SHAPES, elements=st.floats(0, 1e6, width=32), fill=st.just(0.0)),
)
def test_tables(counts: np.ndarray, seconds: np.ndarray) -> None:
    found: RankReport = pickle.loads(sent(counts, seconds))
    np.testing.assert_array_equal(found.counts, counts)
    np.testing.assert_array_equal(found.seconds, seconds)
    assert (found.counts.dtype, found.seconds.dtype) == (np.int64, np.float64)
    assert (found.reached, found.edges, found.depth, found.elapsed, found.setup) == (1, 2, 3, 0.5, 0.25)


@pytest.mark.parametrize(("low", "high"), [(-1, 127), (-1, 128), (-129, 0), (0, 2**63 - 1), (-(2**63), 2**63 - 1)])
def test_the_ends_of_a_type(low: int, high: int) -> None:
    counts = np.array([[low], [high]] * 50)
    found: RankReport = pickle.loads(sent(counts, np.zeros((100, 3))))
    np.testing.assert_array_equal(found.counts, counts)


def test_a_long_run_of_small_levels_is_short() -> None:
    counts = np.zeros((8000, 9), np.int64)
    counts[:, 1] = np.arange(8000) % 250
    seconds = np.zeros((8000, 3))
    seconds[:, 0] = 1e-6 + np.arange(8000) * 1e-9
    assert len(sent(counts, seconds)) < 8000 * 5 + 3000

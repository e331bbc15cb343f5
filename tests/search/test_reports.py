"""Reports travel packed and come out as they were."""

import itertools
import pickle
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.batches.purpose import Batch
from dbfs_workers.features.batches.storage import RankBatch
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import (
    COUNT_FIELDS,
    MOST_ROWS,
    TIME_FIELDS,
    CountedLevels,
    PackedTables,
    RankReport,
    RankRun,
    RunSummary,
    join,
)
from dbfs_workers.search.reports.counts import Largest, Total
from dbfs_workers.search.reports.crossings import Nothing, joined, largest_bits, of_ranks, place

LABELS = RankLabels(np.zeros(0, np.int32), None)
LEVELS = st.integers(0, 200)


def sent(counts: np.ndarray, seconds: np.ndarray) -> bytes:
    return pickle.dumps(RankReport.of(RankRun(LABELS, CountedLevels.of(counts, seconds), 1, 2, 3, 0.5, 0.25)))


def no_seconds(counts: np.ndarray) -> np.ndarray:
    return np.zeros((len(counts), len(TIME_FIELDS)))


@given(levels=LEVELS, data=st.data())
def test_any_tables_of_levels_come_back(levels: int, data: st.DataObject) -> None:
    numbers = st.integers(-(2**63), 2**63 - 1)
    counts = data.draw(
        arrays.arrays(np.int64, (levels, len(COUNT_FIELDS)), elements=numbers, fill=st.integers(-300, 300))
    )
    seconds = data.draw(
        arrays.arrays(np.float64, (levels, len(TIME_FIELDS)), elements=st.floats(0, 1e6, width=32), fill=st.just(0.0))
    )
    found: RankReport = pickle.loads(sent(counts, seconds))
    np.testing.assert_array_equal(found.counts, counts)
    np.testing.assert_array_equal(found.seconds, seconds)
    assert (found.counts.dtype, found.seconds.dtype) == (np.int64, np.float64)
    assert (found.reached, found.edges, found.depth, found.elapsed, found.setup) == (1, 2, 3, 0.5, 0.25)


def test_a_short_traversal_is_sent_without_numpys_own_pickles() -> None:
    counts = np.arange(2 * len(COUNT_FIELDS)).reshape(2, -1, order="F")
    report = sent(counts, np.ones((2, len(TIME_FIELDS))))
    np.testing.assert_array_equal(pickle.loads(report).counts, counts)
    assert b"numpy" not in report


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("low", "high"), [(-1, 127), (-1, 128), (-129, 0), (0, 2**63 - 1), (-(2**63), 2**63 - 1)])
def test_the_ends_of_a_type(low: int, high: int, order: str) -> None:
    column = np.array([[low], [high]] * 50)
    counts = np.asarray(np.repeat(column, len(COUNT_FIELDS), axis=1), order=order)
    found: RankReport = pickle.loads(sent(counts, no_seconds(counts)))
    np.testing.assert_array_equal(found.counts, counts)


@given(st.data())
def test_a_largest_count_is_not_added_up(data: st.DataObject) -> None:
    """Of ranks, and of stretches of levels; the other counts are sums."""
    ranks, levels = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 30))
    tables = data.draw(arrays.arrays(np.int64, (ranks, levels, 3), elements=st.integers(-99, 99)))
    of_ranks = join(tables, (0,), (1,))[0]
    for level in range(levels):
        expected = [sum(tables[:, level, 0]), max(tables[:, level, 1]), sum(tables[:, level, 2])]
        assert of_ranks[level].tolist() == expected
    firsts = sorted({0, *data.draw(st.sets(st.integers(0, levels - 1)))})
    stretches = [tables[0, first:end] for first, end in itertools.pairwise([*firsts, levels])]
    expected_of = [[sum(of[:, 0]), max(of[:, 1]), sum(of[:, 2])] for of in stretches]
    assert join(tables[0], firsts, (1,)).tolist() == expected_of


class Both(NamedTuple):
    added: Total
    highest: Largest


def test_records_of_ranks_are_joined_by_their_rules() -> None:
    gathered = np.array([[3, -5, 9, 9, 9], [4, -7, 9, 9, 9]])
    assert joined(Both, gathered) == Both(7, -5)
    assert joined(Nothing, gathered) == Nothing()
    assert of_ranks(Both, gathered) == [Both(3, -5), Both(4, -7)]
    assert (place(Both, "highest"), largest_bits(Both)) == (1, 2)


def frontier_of_a_grid(levels: int) -> np.ndarray:
    """One rank's counts where a frontier grows and shrinks by a few vertices per level, as GPUs report them."""
    rng = np.random.default_rng(1)
    frontier = np.minimum(np.arange(levels), np.arange(levels)[::-1]) // 2 + rng.integers(1, 20, levels)
    discovered = np.append(frontier[1:], 0)
    edges = 4 * frontier - rng.integers(0, 4, levels)
    sent, culled = frontier // 2 + rng.integers(0, 20, levels), rng.integers(0, 20, levels)
    own = discovered + culled - sent
    columns = {
        "bottom_up": np.zeros(levels, np.int64),
        "frontier": frontier,
        "edges": edges,
        "filtered": edges - own - sent,
        "own": own,
        "sent": sent,
        "culled": culled,
        "discovered": discovered,
        "bytes_sent": 4 * sent,
        "largest_frontier": frontier,
    }
    return np.stack([columns[name] for name in COUNT_FIELDS], axis=1)


def test_a_long_run_of_small_levels_is_short() -> None:
    counts = frontier_of_a_grid(4000)
    seconds = no_seconds(counts)
    seconds[:, 0] = 1e-6 + np.arange(4000) * 1e-9
    # A byte for each of frontier, edges, sent and culled, and four for the time.
    assert len(sent(counts, seconds)) < 4000 * 8 + 3000


def test_a_long_run_of_equal_levels_is_nothing() -> None:
    counts = np.zeros((4000, len(COUNT_FIELDS)), np.int64)
    assert len(sent(counts, no_seconds(counts))) < 3000
    assert len(pickle.loads(sent(counts, no_seconds(counts))).counts) == 4000


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(0, 255, "u1"), (0, 256, "u2"), (-1, 127, "i1"), (-128, 127, "i1"), (-1, 128, "i2"), (-129, 0, "i2")],
)
def test_a_column_has_the_smallest_type(low: int, high: int, dtype: str) -> None:
    counts = np.zeros((64, len(COUNT_FIELDS)), np.int64)
    counts[:, COUNT_FIELDS.index("bottom_up")] = np.cumsum([low, high] * 32)
    assert PackedTables.pack(counts, no_seconds(counts), 64).steps["bottom_up"].dtype == dtype


@pytest.mark.parametrize(("levels", "rows"), [(MOST_ROWS, MOST_ROWS), (MOST_ROWS + 1, MOST_ROWS // 2 + 1)])
def test_tables_of_more_levels_than_rows_are_summed(levels: int, rows: int) -> None:
    counts = np.ones((levels, len(COUNT_FIELDS)), np.int64)
    records = CountedLevels.of(counts, no_seconds(counts))
    assert (len(records), records.counts.shape, len(records.seconds)) == (levels, (rows, len(COUNT_FIELDS)), rows)
    for name, column in zip(COUNT_FIELDS, records.counts.T, strict=True):
        largest = name == "largest_frontier"
        assert (column.sum(), column[0]) == ((rows, 1) if largest else (levels, -(-levels // rows)))


def test_counts_by_source_travel_in_the_smallest_type_and_leave_no_trace() -> None:
    kept = RankBatch.empty(np, Stripe(64, 1), 0, TraversalSpec("run", (3, 5), False, "cpu", purpose=Batch(("counts",))))
    kept.counts = np.array([[1, 1], [2**16, 0]])
    levels = CountedLevels.of(np.zeros((1, len(COUNT_FIELDS)), np.int64), np.zeros((1, len(TIME_FIELDS))))
    report = pickle.loads(pickle.dumps(RankReport.of(RankRun(kept, levels, 1, 2, 3, 0.5, 0.25))))
    assert report.by_source.dtype == np.uint32
    np.testing.assert_array_equal(report.by_source, kept.counts)
    # The scheduler keeps the summary until the next run.
    assert RunSummary.of([[report]]).last[0].by_source is None
    kept.counts = np.zeros((0, 2), np.int64)
    assert kept.by_source.shape == (0, 2)


def test_a_summary_needs_all_reports_of_all_ranks() -> None:
    report = RankReport(1, 2, 3, 0.5, 0.25, b"", 0)
    assert RunSummary.of([[report, report], [report, report]]).traversals == 2
    with pytest.raises(ValueError, match="shorter"):
        RunSummary.of([[report, report], [report]])

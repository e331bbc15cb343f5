"""The table of levels: sums of neighbouring levels where a traversal has many, against a table of all levels."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dbfs_workers.search.levels import level_table
from dbfs_workers.search.levels.level_table import LevelTable
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.reports import COUNT_FIELDS, MOST_ROWS, TIME_FIELDS, RankReport, RankRun, levels_of_rows
from dbfs_workers.search.reports.counts import Row, Rule, rules

RULES = rules(Row)
_EDGES, _DISCOVERED = map(COUNT_FIELDS.index, ("edges", "discovered"))
LABELS = RankLabels(np.zeros(0, np.int32), None)
# How the levels come: one, a call of a kernel, or levels that another rank counted.
PARTS = st.tuples(st.sampled_from(["one", "kernel", "led", "skip"]), st.sampled_from([1, 63, 256, 5000, 20_000]))


def write(rows: NDArray[Any], counts: NDArray[np.int64], seconds: NDArray[np.float64], led: int) -> None:
    rows["levels"], rows["led"] = 1, led
    for names, table in ((COUNT_FIELDS, counts), (TIME_FIELDS, seconds)):
        for name, column in zip(names, table.T, strict=True):
            rows[name] = column


@pytest.mark.full
@settings(max_examples=40)
@given(traversals=st.lists(st.lists(PARTS, max_size=12), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_rows_are_sums_of_neighbouring_levels(traversals: list[list[tuple[str, int]]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, expected, found = LevelTable(), [], []
    for parts in traversals:
        table.begin()
        counts, seconds, led = np.empty((0, len(COUNT_FIELDS)), np.int64), np.empty((0, len(TIME_FIELDS))), 0
        for kind, size in parts:
            levels = 1 if kind == "one" else size if kind == "skip" else min(size, 256)
            # Few levels discover a vertex, so that the last to do so lies anywhere.
            new = rng.integers(0, 9, (levels, len(COUNT_FIELDS))) * (rng.random((levels, 1)) < 0.01)
            times = rng.integers(0, 1024, (levels, len(TIME_FIELDS))) / 1024
            if kind == "skip":
                new[:], times[:] = 0, 0
                table.skip(levels)
            elif kind == "one":
                row = table.row()
                # The first half of a level, and after another look at the table the second one.
                assert not any(getattr(row, name) for name in (*COUNT_FIELDS, *TIME_FIELDS))
                row.levels = 1
                row.edges = new[0, _EDGES]
                table.room(64)
                row = table.row()
                assert row.edges == new[0, _EDGES]
                for name, value in zip((*COUNT_FIELDS, *TIME_FIELDS), (*new[0], *times[0]), strict=True):
                    setattr(row, name, value)
                table.add()
            else:
                write(table.room(256)[:levels], new, times, kind == "led")
                table.add(levels)
            led += levels * (kind == "led")
            counts, seconds = np.concatenate([counts, new]), np.concatenate([seconds, times])
        assert table.rows()["levels"].sum() == table.levels == len(counts)
        assert table.rows()["led"].sum() == led
        expected.append((counts, seconds))
        found.append(table.end())
    for (counts, seconds), (records, depth) in zip(expected, found, strict=True):
        report = RankReport.of(RankRun(LABELS, records, 0, 0, depth, 0.0, 0.0))
        assert report.levels == len(counts)
        assert report.depth == np.flatnonzero(counts[:, _DISCOVERED]).max(initial=-1) + 1
        levels = levels_of_rows(len(counts))
        assert len(report.counts) == len(levels) <= MOST_ROWS
        assert len(counts) > MOST_ROWS or (levels == 1).all()
        firsts = (np.cumsum(levels) - levels).astype(int)
        for found_of, table_of, names in (
            (report.counts, counts, COUNT_FIELDS),
            (report.seconds, seconds, TIME_FIELDS),
        ):
            for name, column, levels_of in zip(names, found_of.T, table_of.T, strict=True):
                parts = [levels_of[first : first + size] for first, size in zip(firsts, levels, strict=True)]
                rule = max if RULES.get(name) is Rule.LARGEST else sum
                np.testing.assert_allclose(column, [rule(part) for part in parts], rtol=1e-6, err_msg=name)


def test_the_memory_of_a_traversal_does_not_grow_with_its_levels() -> None:
    counts, seconds = np.ones((256, len(COUNT_FIELDS)), np.int64), np.ones((256, len(TIME_FIELDS)))
    tracemalloc.start()
    table = LevelTable()
    table.begin()
    for _ in range(4096):
        write(table.room(256), counts, seconds, 0)
        table.add(256)
    table.skip(1 << 20)
    records, depth = table.end()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(records), depth) == (2 << 20, 1 << 20)
    # The arrays of the sums come on top.
    assert peak < 2 * level_table.nbytes(2 << 20)

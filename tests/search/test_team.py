"""Several threads of a worker share the work of one rank: each piece is done once, and labels are SciPy's."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import dbfs
from dbfs_workers.base.team import Team
from dbfs_workers.features.grid.kernels.team import GridContraction, GridExpansion, GridSearch
from dbfs_workers.search.cpu import team as cpu_team
from dbfs_workers.search.cpu import team_calls as cpu_team_calls
from dbfs_workers.search.cpu.kernels.team import Expansion, Search
from dbfs_workers.search.cpu.kernels.team_tasks import TASKS
from dbfs_workers.search.partition.labels import RankLabels
from tests.support import graphs, oracle


def helpers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("dbfs-team")}


def test_every_entry_of_a_bin_is_contracted_once() -> None:
    rows = np.random.default_rng(3).integers(0, 1 << 16, 1 << 18).astype(np.uint32)
    distinct = np.unique(rows)
    team = Team(3, TASKS)
    try:
        for room in (1 << 16, distinct.size):
            # With as many places as vertices, threads find the list full, and leave entries over.
            labels, found = RankLabels(np.full(1 << 16, -1, np.int32), None), np.zeros(room, np.uint32)
            visited = np.zeros(1 << 11, np.uint32)
            count = cpu_team.contract(team, rows, None, visited, 7, labels, found)
            assert count == distinct.size
            np.testing.assert_array_equal(np.sort(found[:count]), distinct)
            np.testing.assert_array_equal(np.flatnonzero(labels.distances == 7), distinct)
    finally:
        team.close()


def test_a_task_ends_without_the_helpers_that_never_come() -> None:
    team = Team(3, replace(TASKS, serve=lambda *_: -1))
    labels, found = RankLabels(np.full(64, -1, np.int32), None), np.zeros(64, np.uint32)
    rows = np.arange(0, 64, 2, dtype=np.uint32)
    assert cpu_team.contract(team, rows, None, np.zeros(2, np.uint32), 7, labels, found) == rows.size
    np.testing.assert_array_equal(np.flatnonzero(labels.distances == 7), rows)


def test_short_tasks_one_after_another_are_done_once() -> None:
    """Helpers join some tasks, come late to others, and may still be at work when the leader has finished its part."""
    team = Team(4, TASKS)
    try:
        for size in np.random.default_rng(6).integers(1, 2000, 3000).tolist():
            rows = np.arange(size, dtype=np.uint32)
            labels, found = RankLabels(np.full(2016, -1, np.int32), None), np.zeros(2016, np.uint32)
            assert cpu_team.contract(team, rows, None, np.zeros(63, np.uint32), size, labels, found) == size
            assert (labels.distances == size).sum() == size
            assert (np.sort(found[:size]) == rows).all()
    finally:
        team.close()


def test_calls_and_kernels_share_the_same_threads() -> None:
    """Each part is called once, between tasks of kernels; an error comes after all calls."""
    team, seen = Team(3, TASKS), set()
    labels, found = RankLabels(np.full(64, -1, np.int32), None), np.zeros(64, np.uint32)
    rows, bounds = np.arange(64, dtype=np.uint32), [*range(0, 2001, 5)]

    def call(begin: int, end: int) -> int:
        seen.add(threading.current_thread())
        if end == 1000:
            raise ValueError(end)
        called.append(begin)
        return begin

    try:
        for _ in range(20):
            called: list[int] = []
            assert cpu_team.contract(team, rows, None, np.zeros(2, np.uint32), 7, labels, found) == 64
            with pytest.raises(ValueError, match="1000"):
                team.each(bounds, call)
            assert sorted(called) == [begin for begin in bounds[:-1] if begin != 995]
            assert team.each(bounds[:200], call) == bounds[:199]
        meeting = threading.Barrier(3)
        team.each([0, 1, 2, 3], lambda *_: meeting.wait(60))
        assert seen <= helpers() | {threading.current_thread()}
    finally:
        team.close()


def test_a_team_that_is_closed_or_forgotten_ends_its_threads() -> None:
    # Helpers of earlier tests may be about to end.
    before = helpers()
    team = Team(3, TASKS)
    assert len(helpers() - before) == 2
    team.close()
    forgotten = Team(2, TASKS)
    del forgotten
    end = time.monotonic() + 60
    while helpers() - before and time.monotonic() < end:
        time.sleep(0.01)
    assert not helpers() - before


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("layout", "mutable"), [("1d", False), pytest.param("1d", True, marks=pytest.mark.full), ("2d", False)]
)
def test_labels_of_workers_with_threads_are_scipys(
    monkeypatch: pytest.MonkeyPatch, layout: str, mutable: bool, ranks: int
) -> None:
    monkeypatch.setattr(cpu_team_calls, "LEAST_ROWS", 1)
    monkeypatch.setattr(cpu_team_calls, "LEAST_EDGES", 1)
    monkeypatch.setattr(cpu_team_calls, "LEAST_ENTRIES", 1)
    shared: list[type] = []
    original = cpu_team_calls.run
    monkeypatch.setattr(cpu_team_calls, "run", lambda team, task: shared.append(type(task)) or original(team, task))
    arrays = [graphs.GRAPHS[name]() for name in ("hub", "dense random", "isolated vertices")]
    with dbfs.connect(
        n_workers=ranks, threads_per_worker=3, backend="cpu", dashboard_address=None, processes=False
    ) as client:
        monkeypatch.setattr("dbfs_workers.serving.plugin.CPU_COUNT", 3)
        for n, src, dst in arrays:
            matrix = oracle.adjacency(n, src, dst, directed=False)
            with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, mutable=mutable, layout=layout) as graph:
                for direction in ("auto", "top-down", "bottom-up"):
                    result = graph.bfs(10, predecessors=True, direction=direction, validate=True)
                    expected = oracle.distances(matrix, [10])
                    np.testing.assert_array_equal(result.distances(), expected)
                    oracle.assert_valid_parents(matrix, expected, result.predecessors(), [10])
                    assert result.reached == (expected >= 0).sum()
    by_layout = {"1d": {Expansion, Search}, "2d": {GridExpansion, GridSearch, GridContraction}}
    assert set(shared) >= by_layout[layout]

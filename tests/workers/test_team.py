"""Several threads of a worker share the work of one rank: each piece is done once, and labels are SciPy's."""

import threading

import numpy as np
import pytest

import dbfs
from dbfs_workers.backends import cpu
from dbfs_workers.team import Team
from tests.support import graphs, oracle


def test_each_piece_is_done_once_by_some_thread() -> None:
    together = threading.Barrier(3)
    done = []

    def work(index: int) -> int:
        if index < 3:
            # Three threads are here at once.
            together.wait(30)
        done.append(index)
        return 2 * index

    team = Team(3)
    try:
        assert team.map(work, 50) == [2 * index for index in range(50)]
        assert team.map(work, 0) == []
    finally:
        team.close()
    assert sorted(done) == list(range(50))


def test_an_error_in_any_thread_is_raised() -> None:
    team = Team(2)
    try:
        for wrong in (0, 1, 7):
            with pytest.raises(ZeroDivisionError):
                team.map(lambda index, wrong=wrong: 1 // (index - wrong), 8)
        assert team.map(abs, 3) == [0, 1, 2]
    finally:
        team.close()


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.full)])
@pytest.mark.parametrize("mutable", [False, pytest.param(True, marks=pytest.mark.full)])
def test_labels_of_workers_with_threads_are_scipys(monkeypatch: pytest.MonkeyPatch, ranks: int, mutable: bool) -> None:
    monkeypatch.setattr(cpu, "LEAST_ROWS", 1)
    shared: list[int] = []
    original = Team.map
    monkeypatch.setattr(Team, "map", lambda team, work, count: shared.append(count) or original(team, work, count))
    arrays = [graphs.GRAPHS[name]() for name in ("hub", "dense random", "isolated vertices")]
    with dbfs.connect(
        n_workers=ranks, threads_per_worker=3, backend="cpu", dashboard_address=None, processes=False
    ) as client:
        monkeypatch.setattr("dbfs_workers.plugin.CPU_COUNT", 3)
        for n, src, dst in arrays:
            matrix = oracle.adjacency(n, src, dst, directed=False)
            with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, mutable=mutable) as graph:
                for direction in ("auto", "bottom-up"):
                    result = graph.bfs(10, predecessors=True, direction=direction, validate=True)
                    expected = oracle.distances(matrix, [10])
                    np.testing.assert_array_equal(result.distances(), expected)
                    oracle.assert_valid_parents(matrix, expected, result.predecessors(), [10])
                    assert result.reached == (expected >= 0).sum()
    assert shared

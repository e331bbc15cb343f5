"""The taskgraph engine in the service: its turn in the queue, its early ends, and the tasks that it submits."""

import os
import signal
import threading

import dask
import distributed
import numpy as np
import pytest

import dbfs
from dbfs.cluster.gang import Gang, Key, TaskGraph
from dbfs.errors import (
    DeadlineExceededError,
    GraphNotFoundError,
    InvalidOptionError,
    RunCancelledError,
    WorkerLostError,
)
from dbfs.graph.graph import Graph
from dbfs.records import FinishedRun
from tests.support.runs import ENDLESS, Background
from tests.support.waiting import eventually


def ended(client: distributed.Client, run_id: str) -> FinishedRun | None:
    """Return a run that is over, as the scheduler's history has it."""

    def look(dask_scheduler: distributed.Scheduler) -> FinishedRun | None:
        history = dask_scheduler.plugins["dbfs"].history
        return next((run for run in (*history.finished, *history.failed) if run.run_id == run_id), None)

    found: FinishedRun | None = client.run_on_scheduler(look)
    return found


def wait_for_level(client: distributed.Client, level: int) -> dbfs.Run:
    """Return the first run once its progress shows a level."""

    def there(runs: list[dbfs.Run]) -> bool:
        return bool(runs) and runs[0].status.progress is not None and runs[0].status.progress.level >= level

    run: dbfs.Run = eventually(lambda: dbfs.runs(client=client), there)[0]
    return run


def test_a_run_is_listed_and_cancelled_and_other_runs_wait_for_it(
    client: distributed.Client, endless: Graph, leaves_nothing: None
) -> None:
    # A lease on the gang, which the run must revoke.
    endless.bfs_many([0, 1], max_depth=2)
    running = Background(endless, engine="taskgraph")
    run = wait_for_level(client, 3)
    progress = run.status.progress
    assert progress is not None
    assert (progress.traversals, progress.finished, progress.reached) == (1, 0, progress.level + 1)
    waiting = threading.Thread(target=endless.bfs, args=(0,), kwargs={"max_depth": 5})
    waiting.start()
    while len(dbfs.runs(client=client)) < 2:
        assert waiting.is_alive()
    assert [one.status.running for one in dbfs.runs(client=client)] == [True, False]
    run.cancel()
    error = running.join()
    assert isinstance(error, RunCancelledError)
    assert "level" in str(error)
    waiting.join(20)
    assert not waiting.is_alive()
    kept = ended(client, run.status.run_id)
    assert kept is not None
    assert kept.error == f"RunCancelledError: {error}"
    assert kept.depth >= 3
    assert dbfs.runs(client=client) == []


def test_a_finished_run_is_in_the_history(client: distributed.Client) -> None:
    with dbfs.load("path:n=12", client=client, ranks=2) as graph:
        first, _ = graph.bfs_many([0, 5], engine="taskgraph")
        kept = ended(client, first.spec.run_id)
        assert kept is not None
        assert (kept.traversals, kept.depth, kept.reached, kept.edges) == (2, 6, 12, 44)
        assert kept.seconds > 0
        assert dbfs.graphs(client=client)[-1].runs == 1


def test_the_deadline_includes_the_wait_in_the_queue(client: distributed.Client, endless: Graph) -> None:
    resident = Background(endless)
    with pytest.raises(DeadlineExceededError, match=r"its turn did not come within 0.\d+ s .waited .* behind run"):
        endless.bfs(0, engine="taskgraph", deadline=0.2)
    dbfs.runs(client=client)[0].cancel()
    assert isinstance(resident.join(), RunCancelledError)


def test_unloading_ends_a_run(client: distributed.Client, leaves_nothing: None) -> None:
    with dbfs.load(f"path:n={ENDLESS}", client=client, ranks=2) as graph:
        running = Background(graph, engine="taskgraph")
        wait_for_level(client, 1)
        graph.unload()
        assert isinstance(running.join(), RunCancelledError | GraphNotFoundError)
    assert dbfs.runs(client=client) == []


@pytest.mark.full
def test_a_run_ends_with_its_client(client: distributed.Client) -> None:
    with dbfs.load(f"path:n={ENDLESS}", client=client, ranks=2, name="shared") as graph:
        other = distributed.Client(client.scheduler.address, set_as_default=False)
        running = Background(dbfs.open("shared", client=other), engine="taskgraph")
        run = wait_for_level(client, 1)
        other.close()
        assert graph.bfs(0, max_depth=3, deadline=10).reached == 4
        kept = ended(client, run.status.run_id)
        assert kept is not None
        assert "RunCancelledError" in kept.error
        running.thread.join(20)
        assert not running.thread.is_alive()


@pytest.mark.full
def test_a_client_that_does_not_end_its_run_loses_the_workers(
    client: distributed.Client, endless: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dbfs.service.held_run import HeldRun

    resume = threading.Event()
    check = HeldRun.check

    def stuck(run: HeldRun, doing: object) -> None:
        if run._end.done():
            resume.wait(20)
        check(run, doing)  # type: ignore[arg-type]

    monkeypatch.setattr(HeldRun, "check", stuck)
    running = Background(endless, engine="taskgraph")
    wait_for_level(client, 1).cancel()
    assert endless.bfs(0, max_depth=3, deadline=10).reached == 4
    resume.set()
    assert isinstance(running.join(), RunCancelledError)


@pytest.mark.full
@pytest.mark.parametrize("fuse_below", [0, 1, 4096])
def test_a_lost_worker_ends_a_run_of_any_shape(fuse_below: int) -> None:
    """A rank that fetches bins from the lost worker gets an error of its connection first."""
    with (
        dbfs.connect(n_workers=3, backend="cpu", dashboard_address=None) as client,
        dask.config.set({"dbfs.taskgraph.fuse-below": fuse_below}),
        dbfs.load(f"path:n={ENDLESS}", client=client) as graph,
    ):
        running = Background(graph, engine="taskgraph")
        wait_for_level(client, 2)
        victim = graph.gang.addresses[1]
        os.kill(client.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)
        error = running.join()
        assert isinstance(error, WorkerLostError), error
        assert "rank 1" in str(error)


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names of the tasks of each graph that is submitted."""
    graphs: list[list[str]] = []
    submit = Gang.submit

    def watched(gang: Gang, graph: TaskGraph, keys: list[Key]) -> object:
        graphs.append([str(key[0]).rpartition("-")[0] for tasks in graph._ranks.values() for key in tasks])
        return submit(gang, graph, keys)

    monkeypatch.setattr(Gang, "submit", watched)
    return graphs


@pytest.mark.parametrize(("fuse_below", "tasks"), [(1, 9), (0, 13)])
def test_a_level_has_few_tasks_and_none_is_submitted_in_vain(
    client: distributed.Client, submitted: list[list[str]], fuse_below: int, tasks: int
) -> None:
    # Of an undirected path, the last vertex's owner does not know that the vertex before is reached.
    path = dbfs.from_arrays(np.arange(9), np.arange(1, 10), n=10, directed=True)
    with dbfs.load(path, client=client) as graph, dask.config.set({"dbfs.taskgraph.fuse-below": fuse_below}):
        submitted.clear()
        result = graph.bfs(0, engine="taskgraph")
        levels = [names for names in submitted if "barrier" in names]
    assert [len(names) for names in levels] == [tasks] * len(result.reports)


@pytest.mark.parametrize(("max_depth", "windows"), [(None, 3), (17, 2), (16, 1), (5, 1)])
def test_small_levels_share_tasks(
    client: distributed.Client, submitted: list[list[str]], max_depth: int | None, windows: int
) -> None:
    path = dbfs.from_arrays(np.arange(39), np.arange(1, 40), n=40, directed=True)
    with dbfs.load(path, client=client) as graph:
        submitted.clear()
        result = graph.bfs(0, engine="taskgraph", direction="top-down", max_depth=max_depth)
        levels = [names for names in submitted if "state" not in names and "summary" not in names]
        assert result.distances().tolist() == [d if d <= (max_depth or 40) else -1 for d in range(40)]
    assert levels == [["small-levels"] * graph.ranks] * windows
    assert len(result.reports) == (max_depth or 40)


def test_small_levels_that_may_turn_bottom_up_share_tasks(
    client: distributed.Client, submitted: list[list[str]]
) -> None:
    with dbfs.load("path:n=40", client=client) as graph:
        submitted.clear()
        tasks, resident = (graph.bfs(0, engine=engine) for engine in ("taskgraph", "resident"))
        levels = [names for names in submitted if "state" not in names and "summary" not in names]
    assert tasks.levels["direction"].tolist() == resident.levels["direction"].tolist()
    assert tasks.levels["frontier"].tolist() == [1] * 40
    assert levels == [["small-levels"] * 4] * 3


def test_a_window_ends_before_a_bottom_up_level(client: distributed.Client, submitted: list[list[str]]) -> None:
    # A path into a clique.
    tails, heads = np.triu_indices(30, 1)
    edges = dbfs.from_arrays(
        np.concatenate([np.arange(20), tails + 20]), np.concatenate([np.arange(1, 21), heads + 20])
    )
    with dbfs.load(edges, client=client) as graph:
        submitted.clear()
        tasks, resident = (graph.bfs(0, engine=engine) for engine in ("taskgraph", "resident"))
        names = [set(each) for each in submitted]
    assert tasks.levels["direction"].tolist() == resident.levels["direction"].tolist()
    assert {"bottom-up", "barrier"} in names
    assert all(each in ({"state"}, {"small-levels"}, {"bottom-up", "barrier"}) for each in names[:-1])


@pytest.mark.parametrize("targets", [[7], [3, 7], [0], [18]])
def test_a_window_ends_at_the_last_target(
    client: distributed.Client, submitted: list[list[str]], targets: list[int]
) -> None:
    with dbfs.load("path:n=40", client=client) as graph:
        submitted.clear()
        result = graph.bfs(0, engine="taskgraph", targets=targets)
        levels = [names for names in submitted if "state" not in names and "summary" not in names]
        assert result.distances().tolist() == [d if d <= max(targets) else -1 for d in range(40)]
    assert levels == [["small-levels"] * 4] * -(-max(targets) // 16)
    assert len(result.reports) == max(targets)


def test_a_window_ends_before_a_large_level(client: distributed.Client, submitted: list[list[str]]) -> None:
    # A path into a star, and a path out of each of its arms.
    arms = np.arange(10, 40)
    tails, heads = [np.arange(9), np.full(30, 9), arms], [np.arange(1, 10), arms, arms + 30]
    graph = dbfs.from_arrays(np.concatenate(tails), np.concatenate(heads), n=70, directed=True)
    with dbfs.load(graph, client=client, ranks=2) as loaded, dask.config.set({"dbfs.taskgraph.fuse-below": 20}):
        submitted.clear()
        result = loaded.bfs(0, engine="taskgraph", direction="top-down")
    assert result.levels["frontier"].tolist() == [1] * 10 + [30, 30]
    assert [set(names) for names in submitted[1:-1]] == [
        {"small-levels"},
        {"expand-filter-partition", "contract", "barrier"},
        {"expand-filter-partition", "contract", "barrier"},
    ]


def test_phases_are_tasks_of_their_own(client: distributed.Client, submitted: list[list[str]]) -> None:
    with dbfs.load("path:n=5", client=client, ranks=2) as graph, dask.config.set({"dbfs.taskgraph.fuse-below": 0}):
        graph.bfs(0, engine="taskgraph")
    assert {"expand", "filter-partition", "contract", "barrier"} <= {name for names in submitted for name in names}


def test_directions_are_those_of_the_resident_engine(client: distributed.Client, submitted: list[list[str]]) -> None:
    with dbfs.load("kronecker:scale=12", client=client) as graph:
        source = graph.sample_sources(1)[0]
        tasks, resident = (graph.bfs(source, engine=engine) for engine in ("taskgraph", "resident"))
        assert tasks.levels["direction"].tolist() == resident.levels["direction"].tolist()
        assert set(tasks.levels["direction"]) == {"top-down", "bottom-up"}
    assert max(len(names) for names in submitted if "barrier" in names) <= 2 * 4 + 1


def test_bottom_up_levels_need_in_edges(client: distributed.Client) -> None:
    path = dbfs.from_arrays(np.arange(11), np.arange(1, 12), n=12, directed=True)
    with dbfs.load(path, client=client, ranks=2) as graph:
        with pytest.raises(InvalidOptionError, match="in_edges=True"):
            graph.bfs(0, engine="taskgraph", direction="bottom-up")
        assert graph.bfs(0, engine="taskgraph").depth == 11

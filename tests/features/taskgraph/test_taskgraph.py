"""The taskgraph engine in the service: its turn in the queue, its early ends, and the tasks that it submits."""

import os
import re
import signal
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.base.records import FinishedRun
from dbfs.cluster.deadline import Deadline
from dbfs.cluster.gang import Gang, Key, TaskGraph
from dbfs.errors import (
    DeadlineExceededError,
    GraphNotFoundError,
    InvalidOptionError,
    RunCancelledError,
    WorkerLostError,
)
from dbfs.features.taskgraph.engine import TaskGraphTraversal
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.taskgraph.bins import RankCounts
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
def test_a_lost_worker_ends_a_run() -> None:
    """A rank that fetches bins from the lost worker gets an error of its connection first."""
    with (
        dbfs.connect(n_workers=3, backend="cpu", dashboard_address=None) as client,
        dbfs.load(f"path:n={ENDLESS}", client=client, rebuild="never") as graph,
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


def counted(names: list[str]) -> dict[str, int]:
    return dict(Counter(names))


def test_a_level_is_the_graph_of_its_phases(client: distributed.Client, submitted: list[list[str]]) -> None:
    with dbfs.load("path:n=8", client=client) as graph:
        submitted.clear()
        top_down, bottom_up = (
            graph.bfs(0, engine="taskgraph", direction=direction, max_depth=3)
            for direction in ("top-down", "bottom-up")
        )
        assert top_down.distances().tolist() == bottom_up.distances().tolist() == [0, 1, 2, 3, -1, -1, -1, -1]
    phases = {"expand": 4, "filter-partition": 4, "bin": 16, "barrier": 1, "contract": 4}
    ends = [{"summary": 4, "distances": 4}, {"state": 4}]
    assert [*map(counted, submitted)] == [
        *({"state": 4}, *[phases] * 3, ends[0]),
        *(ends[1], *[{"share": 4, "bottom-up": 4}] * 3, ends[0]),
    ]


def test_the_barriers_sum_ends_a_traversal(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the ranks' counts say: here each counts one more vertex in its next frontier."""
    run = TaskGraphTraversal._run
    sums: list[int | None] = []

    def one_more(self: TaskGraphTraversal, *level: Any) -> tuple[list[RankCounts], int | None]:
        counts, entries = run(self, *level)
        sums.append(entries)
        return [replace(each, count=each.count + 1) for each in counts], entries

    with dbfs.load("path:n=5", client=client, ranks=2) as graph:
        monkeypatch.setattr(TaskGraphTraversal, "_run", one_more)
        result = graph.bfs(0, engine="taskgraph", direction="top-down")
        assert result.distances().tolist() == [0, 1, 2, 3, 4]
    assert sums[-1] == 0
    assert 0 not in sums[:-1]


def test_no_rank_contracts_before_all_bins_are_made(client: distributed.Client) -> None:
    """The barrier comes before the contraction, and a bin moves once: to the rank that owns it."""
    with dbfs.load("path:n=8", client=client, ranks=2) as graph:
        spec = TraversalSpec("a-run", (0,), predecessors=False, backend="cpu")
        traversal = TaskGraphTraversal(graph.gang, graph.record, spec, Deadline(9.0), None)  # type: ignore[arg-type]
        traversal._start()
        level, keys = traversal.level_graph(bottom_up=False)
        traversal.release()
    tasks = level.pinned(graph.gang.addresses).tasks
    inputs = {key: {name.rpartition("-")[0] for name, *_ in tasks[key].dependencies} for key in tasks}
    assert inputs["barrier-a-run", 0] == {"filter-partition-a"}
    assert [inputs[key] for key in keys[:2]] == [{"state-a", "bin-a", "barrier-a"}] * 2
    bins = [key for key in tasks if key[0] == "bin-a-run"]
    readers = {key: [other for other in tasks if key in tasks[other].dependencies] for key in bins}
    assert readers == {key: [("contract-a-run", 0, key[3])] for key in bins}
    # The drawing of the documentation has these tasks, and their dependencies within the level.
    drawing = (Path(__file__).parents[3] / "docs" / "design" / "taskgraph.svg").read_text(encoding="utf-8")
    wanted = [
        (name.removesuffix("-a-run"), *([f"rank {' to '.join(map(str, of))}"] if of else [])) for name, _, *of in tasks
    ]
    drawn = [
        tuple(re.findall(r">([^<]+)</text>", node)) for node in re.findall(r'"node">(.*?)</g>', drawing, re.DOTALL)
    ]
    assert sorted(drawn) == sorted(wanted)
    assert drawing.count('class="edge"') == sum(len(task.dependencies & tasks.keys()) for task in tasks.values())


def test_a_traversal_ends_at_its_targets(client: distributed.Client) -> None:
    with dbfs.load("path:n=40", client=client) as graph:
        for targets in ([7], [3, 5], [0]):
            result = graph.bfs(0, engine="taskgraph", targets=targets)
            assert result.distances().tolist() == [d if d <= max(targets) else -1 for d in range(40)]
            assert len(result.reports) == max(targets)


def test_the_configuration_names_the_engine_of_calls_that_name_none(client: distributed.Client) -> None:
    with dbfs.load("path:n=9", client=client, ranks=1) as graph, dask.config.set({"dbfs.engine": "taskgraph"}):
        assert graph.bfs(0).engine == "taskgraph"
        assert graph.bfs(0, engine="resident").engine == "resident"
        assert graph.bfs(0, strategy="sequential").engine == "resident"
        with (
            dask.config.set({"dbfs.engine": "tasks"}),
            pytest.raises(InvalidOptionError, match=r"dbfs\.engine: 'tasks'"),
        ):
            graph.bfs(0)
        with dbfs.load("path:n=9", client=client, layout="2d") as grid:
            with pytest.raises(InvalidOptionError, match=r"dbfs\.engine: taskgraph has no 2-D partitions"):
                grid.bfs(0)
            assert grid.bfs(0, engine="resident").depth == 8


def test_directions_are_those_of_the_resident_engine(client: distributed.Client) -> None:
    with dbfs.load("kronecker:scale=12", client=client) as graph:
        source = graph.sample_sources(1)[0]
        tasks, resident = (graph.bfs(source, engine=engine) for engine in ("taskgraph", "resident"))
        assert tasks.levels["direction"].tolist() == resident.levels["direction"].tolist()
        assert set(tasks.levels["direction"]) == {"top-down", "bottom-up"}


def test_bottom_up_levels_need_in_edges(client: distributed.Client) -> None:
    path = dbfs.from_arrays(np.arange(11), np.arange(1, 12), n=12, directed=True)
    with dbfs.load(path, client=client, ranks=2) as graph:
        with pytest.raises(InvalidOptionError, match="in_edges=True"):
            graph.bfs(0, engine="taskgraph", direction="bottom-up")
        assert graph.bfs(0, engine="taskgraph").depth == 11


def test_every_level_looks_at_the_deadline_and_the_run(client: distributed.Client) -> None:
    """Levels that end at once never wait, and a wait is where these two are looked at otherwise."""

    class Ended:
        def check(self, doing: object) -> None:
            raise RunCancelledError("the run is over")

    with dbfs.load("path:n=8", client=client, ranks=2) as graph:
        spec = TraversalSpec("a-run", (0,), predecessors=False, backend="cpu")
        for deadline, error in ((Deadline(0.0), DeadlineExceededError), (Deadline(60.0), RunCancelledError)):
            traversal = TaskGraphTraversal(graph.gang, graph.record, spec, deadline, Ended())  # type: ignore[arg-type]
            with pytest.raises(error):
                traversal._run(TaskGraph(), [])

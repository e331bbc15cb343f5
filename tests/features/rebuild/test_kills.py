"""Real processes, killed and stopped: the next traversal is right, and nothing is left."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbfs
from dbfs.base.records import RunProgress
from dbfs.errors import GraphLostError, LabelsLostError
from dbfs.features.rebuild import rebuilding
from tests.support import oracle
from tests.support.losses import nothing_is_left
from tests.support.runs import ENDLESS, Background
from tests.support.waiting import eventually

pytestmark = [pytest.mark.alone, pytest.mark.full]

WORKERS = 3


@pytest.fixture
def mortal() -> Iterator[distributed.Client]:
    """A cluster of the test's own, to be harmed, in which nothing is left."""
    with dbfs.connect(n_workers=WORKERS, backend="cpu", dashboard_address=None) as client:
        yield client
        eventually(lambda: nothing_is_left(client))


def kill(client: distributed.Client, *addresses: str) -> None:
    # A worker that does not answer any more was killed before.
    for pid in client.run(os.getpid, workers=list(addresses), on_error="ignore").values():
        os.kill(pid, signal.SIGKILL)


def assert_right(graph: dbfs.Graph, source: int = 1) -> None:
    """Compare a traversal of ``kronecker:scale=12`` with SciPy's."""
    (piece,) = dbfs.kronecker(12).cut(1 << 20)
    matrix = oracle.adjacency(graph.n, *piece.read(), directed=False)
    result = graph.bfs(source, predecessors=True, validate=True)
    assert np.array_equal(result.distances(), oracle.distances(matrix, [source]))


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("engine", ["resident", "taskgraph"])
def test_a_run_that_lost_a_worker_begins_again(mortal: distributed.Client, engine: str, rank: int) -> None:
    killed = threading.Event()
    n = ENDLESS if engine == "resident" else 100

    def kill_soon(progress: RunProgress) -> None:
        if progress.level >= 3 and not killed.is_set():
            killed.set()
            kill(mortal, graph.gang.addresses[rank])

    with dbfs.load(dbfs.path(n), client=mortal) as graph:
        direction = "auto" if engine == "taskgraph" else "bottom-up"
        depth = 400 if engine == "resident" else None
        result = graph.bfs(0, engine=engine, direction=direction, max_depth=depth, progress=kill_soon)
        assert killed.is_set()
        assert (result.attempts, result.depth) == (2, depth or n - 1)
        result.validate()


@pytest.mark.parametrize("call", ["closeness_centrality", "betweenness_centrality"])
def test_a_measure_goes_on(mortal: distributed.Client, call: str) -> None:
    killed = threading.Event()

    def kill_soon(progress: RunProgress) -> None:
        if progress.finished > 100 and not killed.is_set():
            killed.set()
            kill(mortal, graph.gang.addresses[1])

    with dbfs.load("kronecker:scale=12", client=mortal) as graph:
        sources = graph.sample_sources(1500)
        measure = getattr(graph, call)
        expected = measure(sources).to_pandas()
        found = measure(sources, progress=kill_soon).to_pandas()
        assert killed.is_set()
        assert np.allclose(found.to_numpy(float), expected.to_numpy(float))


def test_the_new_worker_is_killed_in_the_rebuild(mortal: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    build, victims = rebuilding.build, [1, 0]

    def killing(edges: Any, gang: Any, *arguments: Any) -> Any:
        if victims:
            kill(mortal, gang.addresses[victims.pop(0)])
        return build(edges, gang, *arguments)

    with dbfs.load("kronecker:scale=12", client=mortal) as graph:
        kill(mortal, graph.gang.addresses[1])
        monkeypatch.setattr(rebuilding, "build", killing)
        assert_right(graph)
        assert not victims


def test_a_stopped_worker_is_late_and_not_lost(mortal: distributed.Client) -> None:
    with dbfs.load("kronecker:scale=12", client=mortal) as graph:
        address = graph.gang.addresses[1]
        pid = mortal.run(os.getpid, workers=[address])[address]
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(dbfs.errors.DeadlineExceededError):
                graph.bfs(1, deadline=1.0)
            assert graph.state().state == "whole"
        finally:
            os.kill(pid, signal.SIGCONT)
        assert_right(graph)
        assert graph.state().rebuilt == 0


def test_a_restart_of_all_workers(mortal: distributed.Client) -> None:
    """Dask forgets all data, and starts its workers anew."""
    with dbfs.load("kronecker:scale=12", client=mortal, name="web") as graph:
        result = graph.bfs(1)
        arrays = dbfs.load((np.array([0, 1]), np.array([1, 2])), client=mortal, name="arrays")
        mortal.restart()
        eventually(lambda: all(len(status.lost) == WORKERS for status in dbfs.graphs(client=mortal)))
        for lost in (arrays, dbfs.open("arrays", client=mortal)):
            with pytest.raises(GraphLostError, match="client's memory"):
                lost.bfs(0)
        # Nobody has to give leave for a name of which nothing is left.
        with dbfs.load("path:n=9", client=mortal, name="arrays") as taken:
            assert taken.bfs(0).depth == 8
        assert_right(dbfs.open("web", client=mortal))
        assert_right(graph)
        with pytest.raises(LabelsLostError):
            result.distances()
        assert [status.name for status in dbfs.graphs(client=mortal)] == ["web"]


def test_many_kills_one_after_another(mortal: distributed.Client) -> None:
    with (
        # The losses of one turn may be noticed one after another, and each is an attempt.
        dask.config.set({"dbfs.retries": WORKERS}),
        dbfs.load("kronecker:scale=12", client=mortal, order="degree", name="web") as graph,
    ):
        others = dbfs.open("web", client=mortal)
        for turn in range(6):
            victims = graph.gang.addresses[turn % WORKERS :: 2]
            kill(mortal, *victims)
            assert_right(others if turn % 2 else graph, source=turn + 1)
        assert_right(graph)


def test_a_run_under_way_of_another_graph_goes_on(mortal: distributed.Client) -> None:
    with (
        dbfs.load(dbfs.path(ENDLESS), client=mortal, ranks=1) as other,
        dbfs.load("kronecker:scale=12", client=mortal) as graph,
    ):
        running = Background(other, max_depth=2000)
        kill(mortal, next(at for at in graph.gang.addresses if at not in other.gang.addresses))
        assert_right(graph)
        assert running.join() is None


def test_a_view_and_weights_of_a_killed_worker(mortal: distributed.Client, tmp_path: Path) -> None:
    """A path with a column of ones: the distances by weight are those of a traversal."""
    n, path = 200_000, tmp_path / "path.parquet"
    ends = {"source": np.arange(n - 1), "target": np.arange(1, n), "one": np.ones(n - 1, int)}
    pq.write_table(pa.table(ends), path)
    killed = threading.Event()

    def kill_soon(progress: RunProgress) -> None:
        if progress.level >= 3 and not killed.is_set():
            killed.set()
            kill(mortal, graph.gang.addresses[1])

    with dbfs.load(path, client=mortal, edge_columns="one", name="web") as graph:
        view = graph.where(without=[n - 1])
        found = graph.sssp(0, "one", progress=kill_soon)
        assert killed.is_set()
        assert (found.attempts, found.distances().tolist()) == (2, list(range(n)))
        with pytest.raises(GraphLostError, match="is a view of web"):
            view.bfs(0)
        view.unload()
        with graph.where(without=[n - 1]) as again:
            assert again.bfs(0, validate=True).depth == n - 2


@pytest.mark.gpu
def test_a_graph_on_gpus_comes_back() -> None:
    """All of its ranks are built again."""
    with dbfs.connect(dashboard_address=None, memory_limit=0) as gpus:
        with dbfs.load("kronecker:scale=12", client=gpus, backend="cuda") as graph:
            kill(gpus, graph.gang.addresses[-1])
            assert_right(graph)
            assert graph.state().rebuilt == 1
        eventually(lambda: nothing_is_left(gpus))


def test_a_living_graph_is_killed_while_it_changes(mortal: distributed.Client, tmp_path: Path) -> None:
    """Each update that was answered is there, once, and no other one."""
    n, ended, made = 400, threading.Event(), list[int]()
    ring = np.arange(n)
    options: dict[str, Any] = {"mutable": True, "room": 100_000, "checkpoint": tmp_path / "kept"}
    with (
        dask.config.set({"dbfs.retries": WORKERS}),
        dbfs.load((ring, np.roll(ring, 1)), client=mortal, name="ring", **options) as graph,
        distributed.Client(mortal.scheduler.address, set_as_default=False) as second,
    ):

        def change() -> None:
            living = dbfs.open("ring", client=second)
            while not ended.wait(0.01):
                # What is made twice would leave a vertex without edges.
                (new,) = living.insert_vertices(1).ids
                living.insert_edges([(0, new)])
                made.append(new)

        thread = threading.Thread(target=change)
        thread.start()
        for turn in range(3):
            count = len(made)
            eventually(lambda count=count: len(made) > count + 3)
            kill(mortal, graph.gang.addresses[turn % WORKERS])
        count = len(made)
        eventually(lambda: len(made) > count)
        ended.set()
        thread.join()
        assert made == [*range(n, n + len(made))]
        result = graph.bfs(0, validate=True)
        assert (graph.n, graph.version) == (n + len(made), 2 * len(made))
        distances = result.distances()
        assert (result.reached, np.count_nonzero(distances == 1)) == (graph.n, 2 + len(made))
        assert graph.state().rebuilt >= 3
    with dbfs.load(tmp_path / "kept", client=mortal) as again:
        assert np.array_equal(again.bfs(0).distances(), distances)

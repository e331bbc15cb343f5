"""CUDA rows of the parity suite on 1, 2 and 4 GPUs, and runs that end early: cancelled, late, or with a dead peer."""

import importlib.util
import os
import signal
from collections.abc import Iterator

import distributed
import numpy as np
import pytest

import dbfs
from dbfs.errors import DeadlineExceededError, InvalidOptionError, RunCancelledError, WorkerLostError
from dbfs_workers.gpus import visible_gpus
from tests import oracle
from tests.graphs import GRAPHS
from tests.test_parity import Way, check, loaded
from tests.test_service import ENDLESS, Background

GPUS = len(visible_gpus())
LACKING = [name for name in ("cupy", "dask_cuda") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="there is no GPU"),
    pytest.mark.skipif(bool(LACKING), reason=f"not installed: {', '.join(LACKING)}"),
]
WAYS = {
    "cuda": Way("resident", "cuda_ipc"),
    "cuda, top-down": Way("resident", "cuda_ipc", "top-down"),
    "cuda, bottom-up": Way("resident", "cuda_ipc", "bottom-up"),
    "cuda, degree order": Way("resident", "cuda_ipc", order="degree"),
    "taskgraph": Way("taskgraph"),
}


def needs(ranks: int) -> object:
    return pytest.param(ranks, marks=pytest.mark.skipif(ranks > GPUS, reason=f"{ranks} GPUs wanted, {GPUS} there"))


RANKS = [needs(ranks) for ranks in (1, 2, 4)]


@pytest.fixture(scope="module")
def gpus() -> Iterator[distributed.Client]:
    with dbfs.connect(dashboard_address=None) as client:
        yield client


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(gpus: distributed.Client, name: str, directed: bool, ranks: int) -> None:
    arrays = GRAPHS[name]()
    with loaded(gpus, arrays, WAYS["cuda"], directed=directed, ranks=ranks) as graph:
        assert graph.backend == "cuda"
        for way in WAYS.values():
            if way.order == "given":
                check(graph, arrays, way, [0])
                check(graph, arrays, way, [graph.n - 1, 0, 0], max_depth=2)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("way", WAYS)
def test_larger_graphs(gpus: distributed.Client, way: str, ranks: int) -> None:
    for spec in ("kronecker:scale=13", "uniform:n=20000,m=80000", "grid2d:side=60"):
        with dbfs.load(spec, client=gpus, ranks=ranks, order=WAYS[way].order) as graph:
            assert graph.exchange == "cuda_ipc"
            truth = graph.bfs(5, engine="taskgraph")
            found = graph.bfs(5, predecessors=True, direction=WAYS[way].direction, engine=WAYS[way].engine)
            found.validate()
            np.testing.assert_array_equal(found.distances(), truth.distances())
            assert (found.reached, found.edges, found.depth) == (truth.reached, truth.edges, truth.depth)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("mean_degree", [3, 6, 15, 40])
def test_levels_of_every_kind_follow_each_other(gpus: distributed.Client, mean_degree: int, ranks: int) -> None:
    # With degrees up to 32 and more than 65,536 edges in a frontier, a light level is followed by a bottom-up one.
    n = 20000
    edges = dbfs.uniform(n, n * mean_degree // 2, seed=mean_degree)
    matrix = oracle.adjacency(n, *edges.cut(n * mean_degree)[0].read(), directed=False)
    with dbfs.load(edges, client=gpus, ranks=ranks) as graph:
        for step in (n, n // 2, n // 30, n // 1000):
            sources = list(range(1, n, step))
            for max_depth in (None, 3):
                expected = oracle.distances(matrix, sources, max_depth)
                for predecessors in (False, True):
                    found = graph.bfs(sources, max_depth=max_depth, predecessors=predecessors, validate=True)
                    np.testing.assert_array_equal(found.distances(), expected)


@pytest.mark.parametrize("ranks", RANKS)
def test_max_depth_targets_and_many(gpus: distributed.Client, ranks: int) -> None:
    path = np.arange(70)
    with loaded(gpus, GRAPHS["path"](), WAYS["cuda"], directed=False, ranks=ranks) as graph:
        for max_depth in (0, 1, 7, 68, 69, 1000):
            found = graph.bfs(0, max_depth=max_depth, validate=True)
            np.testing.assert_array_equal(found.distances(), np.where(path <= max_depth, path, -1))
        for targets in ([0], [3], [40, 7], [7, 7, 69]):
            found = graph.bfs(0, targets=targets, predecessors=True, validate=True)
            np.testing.assert_array_equal(found.distances(), np.where(path <= max(targets), path, -1))
            assert found.reached == max(targets) + 1
        # Labels are a result's own: later runs leave them alone.
        many = graph.bfs_many([0, 69, 30], predecessors=True)
        for source, result in zip([0, 69, 30], many, strict=True):
            np.testing.assert_array_equal(result.distances(), abs(path - source))
            oracle.assert_valid_parents(
                oracle.adjacency(*GRAPHS["path"](), directed=False), result.distances(), result.predecessors(), [source]
            )


def test_bottom_up_needs_in_edges(gpus: distributed.Client) -> None:
    n, src, dst = GRAPHS["dense random"]()
    with dbfs.load(dbfs.from_arrays(src, dst, n=n, directed=True), client=gpus, backend="cuda") as graph:
        with pytest.raises(InvalidOptionError, match="in_edges=True"):
            graph.bfs(0, direction="bottom-up")
        assert set(graph.bfs(0, validate=True).levels["direction"]) == {"top-down"}


def test_a_run_is_cancelled_and_the_gang_serves_the_next(gpus: distributed.Client) -> None:
    with dbfs.load(f"path:n={ENDLESS}", client=gpus, backend="cuda") as graph:
        run = Background(graph)
        dbfs.runs(client=gpus)[0].cancel()
        error = run.join()
        assert isinstance(error, RunCancelledError)
        assert "by request" in str(error)
        assert graph.bfs(0, max_depth=9, validate=True).reached == 10
        with pytest.raises(DeadlineExceededError, match=r"rank \d, level \d+, \w"):
            graph.bfs(0, deadline=0.5)
        assert graph.bfs(0, max_depth=9, predecessors=True, validate=True).reached == 10


@pytest.mark.skipif(GPUS < 2, reason=f"2 GPUs wanted, {GPUS} there")
def test_a_peer_killed_mid_run() -> None:
    with dbfs.connect(dashboard_address=None) as mortal:
        graph = dbfs.load(f"path:n={ENDLESS}", client=mortal, backend="cuda")
        victim = graph.gang.addresses[1]
        pid = mortal.run(os.getpid, workers=[victim])[victim]
        run = Background(graph)
        os.kill(pid, signal.SIGKILL)
        error = run.join()
        assert isinstance(error, WorkerLostError)
        assert "level" in str(error)
        assert "rank 1" in str(error)
        mortal.wait_for_workers(GPUS, timeout=60)
        with dbfs.load("path:n=50", client=mortal, backend="cuda") as again:
            assert again.bfs(0, validate=True).depth == 49

"""Deep graphs on several GPUs, whose traversals rank 0 makes alone from the second one on, through the public API."""

import distributed
import numpy as np
import pytest

import dbfs
from dbfs.errors import DeadlineExceededError
from dbfs.graph.result import BFSResult
from dbfs_workers.search.cuda.records import CAPACITY
from tests.support import oracle
from tests.support.gpus import GPUS, needs, needs_gpu
from tests.support.graphs import Arrays, random
from tests.support.parity import Way, check, loaded
from tests.support.runs import ENDLESS, kill_rank_1_mid_run

pytestmark = needs_gpu("cupy", "dask_cuda")
WAY = Way("resident", "cuda_ipc")
RANKS = [needs(ranks) for ranks in (2, 4)]


def lattice(side: int) -> Arrays:
    places = np.arange(side * side).reshape(side, side)
    src = np.append(places[:, :-1], places[:-1])
    return side * side, src, np.append(places[:, 1:], places[1:])


def roads() -> Arrays:
    """Return a lattice without many of its edges, of which each of the others is a chain of four."""
    n, src, dst = lattice(110)
    kept = np.random.default_rng(7).random(src.size) < 0.75
    src, dst = src[kept], dst[kept]
    inner = n + np.arange(3 * src.size).reshape(-1, 3)
    ends = np.column_stack([src, inner, dst])
    return n + inner.size, ends[:, :-1].ravel(), ends[:, 1:].ravel()


GRAPHS = {"lattice": lambda: lattice(300), "roads": roads}


def is_led(result: BFSResult) -> bool:
    """Return whether one rank made a traversal: it sent no vertex to another."""
    return bool(result.levels["sent"].sum() == 0)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", GRAPHS)
def test_later_traversals_of_deep_graphs_are_led(gpus: distributed.Client, name: str, ranks: int) -> None:
    arrays = n, src, dst = GRAPHS[name]()
    matrix = oracle.adjacency(n, src, dst, directed=False)
    with loaded(gpus, arrays, WAY, directed=False, ranks=ranks) as graph:
        assert not is_led(graph.bfs(0))
        for sources in ([0], [n // 2 + 7], [3, 5, 900], [*range(50)]):
            check(graph, arrays, WAY, sources)
            plain = graph.bfs(sources)
            assert is_led(plain)
            np.testing.assert_array_equal(plain.distances(), oracle.distances(matrix, sources))
        check(graph, arrays, WAY, [7], max_depth=100)
        far = graph.bfs(0, targets=[n // 3], predecessors=True)
        expected = oracle.distances(matrix, [0])
        expected[expected > expected[n // 3]] = -1
        np.testing.assert_array_equal(far.distances(), expected)
        oracle.assert_valid_parents(matrix, far.distances(), far.predecessors(), [0])
        assert is_led(far)
        results = graph.bfs_many(range(0, n, n // 9), predecessors=True)
        for source, result in zip(range(0, n, n // 9), results, strict=True):
            assert is_led(result)
            np.testing.assert_array_equal(result.distances(), oracle.distances(matrix, [source]))
        # Labels that were made together and alone are compared by validation, and levels by all ranks follow.
        check(graph, arrays, Way("resident", "cuda_ipc", direction="bottom-up"), [9])
        check(graph, arrays, WAY, [9], max_depth=1)
        check(graph, arrays, WAY, [n - 1])


@pytest.mark.parametrize("ranks", RANKS)
def test_more_levels_than_records_while_copies_have_yet_to_be_loaded(gpus: distributed.Client, ranks: int) -> None:
    n = 10 * CAPACITY
    with dbfs.load(f"path:n={n}", client=gpus, ranks=ranks, backend="cuda") as graph:
        assert not is_led(graph.bfs(0))
        # Each worker loads CuPy's kernels anew.
        gpus.run(lambda: __import__("cupy").clear_memo())
        for predecessors in (False, True):
            result = graph.bfs(0, predecessors=predecessors)
            assert is_led(result)
            assert result.depth == n - 1


@pytest.mark.parametrize("ranks", RANKS)
def test_other_clients_graphs_and_batches(gpus: distributed.Client, ranks: int) -> None:
    n, src, dst = arrays = lattice(300)
    other, edges = random(3000, 60_000, 4), dbfs.from_arrays(src, dst, n=n, directed=False)
    with (
        dbfs.load(edges, client=gpus, ranks=ranks, backend="cuda", name="mesh") as graph,
        loaded(gpus, other, WAY, directed=False, ranks=ranks) as shallow,
        distributed.Client(gpus.scheduler.address, set_as_default=False) as second,
    ):
        graph.bfs(0)
        assert is_led(graph.bfs(0))
        matrix = oracle.adjacency(n, src, dst, directed=False)
        same = dbfs.open("mesh", client=second)
        for source in (11, 80_000):
            check(shallow, other, WAY, [source % 3000])
            for of in (graph, same):
                result = of.bfs(source)
                assert is_led(result)
                np.testing.assert_array_equal(result.distances(), oracle.distances(matrix, [source]))
        sources = [0, 5, 80_000]
        batch = graph.bfs_batch(sources, keep="distances").distances()
        for place, source in enumerate(sources):
            np.testing.assert_array_equal(batch[:, place], oracle.distances(matrix, [source]))
        check(graph, arrays, WAY, [5])


@pytest.mark.parametrize("ranks", RANKS)
def test_another_version(gpus: distributed.Client, ranks: int) -> None:
    n, src, dst = lattice(300)
    edges = dbfs.from_arrays(src, dst, n=n, directed=False)
    with dbfs.load(edges, client=gpus, ranks=ranks, backend="cuda", mutable=True) as graph:
        for removed in (0, 5, 200):
            if removed:
                graph.delete_edges(list(zip(src[:removed].tolist(), dst[:removed].tolist(), strict=True)))
            matrix = oracle.adjacency(n, src[removed:], dst[removed:], directed=False)
            for led in (False, True, True):
                result = graph.bfs(0, predecessors=True)
                assert is_led(result) is led
                np.testing.assert_array_equal(result.distances(), oracle.distances(matrix, [0]))
                oracle.assert_valid_parents(matrix, result.distances(), result.predecessors(), [0])


@pytest.mark.parametrize("ranks", RANKS)
def test_a_deadline_in_a_led_traversal(gpus: distributed.Client, ranks: int) -> None:
    n = 4_000_000
    arrays = n, np.arange(n - 1), np.arange(1, n)
    with loaded(gpus, arrays, WAY, directed=False, ranks=ranks) as graph:
        graph.bfs(n // 2, max_depth=5000)
        assert is_led(graph.bfs(n // 2, max_depth=5000))
        with pytest.raises(DeadlineExceededError):
            graph.bfs(0, deadline=1)
        assert not is_led(graph.bfs(n // 2, max_depth=5000))
        result = graph.bfs(n // 2, max_depth=5000)
        assert is_led(result)
        assert (result.reached, result.depth) == (10_001, 5000)


@pytest.mark.skipif(GPUS < 2, reason=f"2 GPUs wanted, {GPUS} there")
def test_a_peer_killed_in_a_led_traversal() -> None:
    with dbfs.connect(dashboard_address=None, memory_limit=0) as mortal:
        graph = dbfs.load(f"path:n={ENDLESS}", client=mortal, backend="cuda", rebuild="never")
        graph.bfs(0, max_depth=9000)
        assert is_led(graph.bfs(0, max_depth=9000))
        kill_rank_1_mid_run(graph)
        mortal.wait_for_workers(GPUS, timeout=60)
        with dbfs.load("path:n=50", client=mortal, backend="cuda") as again:
            assert again.bfs(0, validate=True).depth == 49

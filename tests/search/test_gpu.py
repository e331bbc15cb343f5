"""CUDA rows of the parity suite, and runs on GPUs that end early: cancelled, late, or with a dead peer.

Two clusters: one with a worker per GPU, for ranks that map each other's memory (1, 2 and 4 GPUs); one whose four
workers share the first GPU, for what needs no GPU of its own: the taskgraph engine, and the resident loop through the
host.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dask
import distributed
import networkx as nx
import numpy as np
import pytest

import dbfs
from dbfs.base.records import RunProgress
from dbfs.errors import DeadlineExceededError, InvalidOptionError, RunCancelledError
from dbfs.graph import labels
from dbfs_workers.features.grid.grid import Grid
from dbfs_workers.search.cuda.records import CAPACITY
from dbfs_workers.search.reports.packing import levels_a_row, levels_of_rows
from tests.support import oracle, parity
from tests.support.gpus import GPUS, Together, four_on_one_gpu, needs, needs_gpu, needs_nccl
from tests.support.graphs import GRAPHS, circulant, comet
from tests.support.parity import Way, check, loaded
from tests.support.runs import ENDLESS, Background, kill_rank_1_mid_run, ranks_end_runs
from tests.support.waiting import eventually

pytestmark = needs_gpu("cupy", "dask_cuda")
MAPPED = {
    "cuda_ipc": Way("resident", "cuda_ipc"),
    "cuda_ipc, top-down": Way("resident", "cuda_ipc", direction="top-down"),
    "cuda_ipc, bottom-up": Way("resident", "cuda_ipc", direction="bottom-up"),
    "cuda_ipc, degree order": Way("resident", "cuda_ipc", order="degree"),
}
BY_NCCL = {
    "nccl": Way("resident", "nccl"),
    "nccl, top-down": Way("resident", "nccl", direction="top-down"),
    "nccl, bottom-up": Way("resident", "nccl", direction="bottom-up"),
    "nccl, degree order": Way("resident", "nccl", order="degree"),
}
IN_GRID = Way("resident", layout="2d", backend="cuda")
# The ways of CPUs, which GPUs have as well.
THROUGH_HOST = {name: replace(way, backend="cuda") for name, way in parity.WAYS.items()}


RANKS = [needs(ranks) for ranks in (1, 2, 4, 8)]


@pytest.fixture(scope="module")
def gpus() -> Iterator[distributed.Client]:
    """A cluster with a worker for each GPU, whose levels are made by all ranks: ``test_led_gpu`` has the others."""
    with dbfs.connect(dashboard_address=None, memory_limit=0) as client:
        client.register_plugin(Together())
        yield client


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(gpus: distributed.Client, name: str, directed: bool, ranks: int) -> None:
    arrays = GRAPHS[name]()
    with loaded(gpus, arrays, MAPPED["cuda_ipc"], directed=directed, ranks=ranks) as graph:
        assert graph.backend == "cuda"
        for way in MAPPED.values():
            if way.order == "given":
                check(graph, arrays, way, [0])
                check(graph, arrays, way, [graph.n - 1, 0, 0], max_depth=2)


@pytest.mark.parametrize("steps", [2, 4, 5])
def test_self_loops_beside_few_neighbours(gpus: distributed.Client, steps: int) -> None:
    """One GPU leaves them out of its table of neighbours, which takes rows of eight."""
    n, src, dst = circulant(3000, steps)
    arrays = n, np.append(src, np.arange(n)), np.append(dst, np.arange(n))
    for order in ("given", "degree"):
        way = replace(MAPPED["cuda_ipc, top-down"], order=order)
        with loaded(gpus, arrays, way, directed=False, ranks=1) as graph:
            check(graph, arrays, way, [7])


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("largest", [127, 128, 32767, 32768])
def test_labels_that_gpus_put_in_the_order_of_vertices(
    gpus: distributed.Client, monkeypatch: pytest.MonkeyPatch, largest: int, ranks: int
) -> None:
    assert_labels_in_order(gpus, monkeypatch, MAPPED["cuda_ipc, degree order"], largest, ranks)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("largest", [127, 128, 700])
def test_labels_that_ranks_on_one_gpu_put_in_the_order_of_vertices(
    sharing: distributed.Client, monkeypatch: pytest.MonkeyPatch, largest: int, ranks: int
) -> None:
    assert_labels_in_order(sharing, monkeypatch, THROUGH_HOST["shared memory, degree order"], largest, ranks)


def assert_labels_in_order(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, way: Way, largest: int, ranks: int
) -> None:
    monkeypatch.setattr(labels, "FEW_VERTICES", 0)
    path = np.random.default_rng(largest).permutation(largest + 3)
    # Two vertices are not reached.
    arrays = path.size, path[:largest], path[1 : largest + 1]
    with loaded(client, arrays, way, directed=False, ranks=ranks) as graph:
        # A client that had the order would read the labels by another way.
        monkeypatch.setattr(graph.numbering, "_fetch_order", lambda: pytest.fail("the whole order is fetched"))
        check(graph, arrays, way, [int(path[0])])


@needs_nccl
@pytest.mark.parametrize("ranks", [needs(ranks) for ranks in (2, 3, 4)])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_by_nccl(gpus: distributed.Client, name: str, directed: bool, ranks: int) -> None:
    arrays = GRAPHS[name]()
    for order in ("given", "degree"):
        ways = [way for way in BY_NCCL.values() if way.order == order]
        with loaded(gpus, arrays, ways[0], directed=directed, ranks=ranks) as graph:
            assert (graph.backend, graph.exchange) == ("cuda", "nccl")
            for way in ways:
                check(graph, arrays, way, [0])
                check(graph, arrays, way, [graph.n - 1, 0, 0], max_depth=2)


@needs_nccl
@pytest.mark.parametrize("ranks", [needs(ranks) for ranks in (2, 3, 4)])
def test_levels_queued_ahead_by_nccl(gpus: distributed.Client, ranks: int) -> None:
    # Large bins at the head, then leaves without neighbours of their own.
    arrays, source = comet(300, 20_000)
    way = BY_NCCL["nccl, top-down"]
    with loaded(gpus, arrays, way, directed=False, ranks=ranks) as graph:
        for max_depth in (None, 299, 300, 301, 77):
            check(graph, arrays, way, [source], max_depth=max_depth)
    # Few vertices a level, and no bottom-up level pays.
    with dask.config.set({"dbfs.exchange": "nccl"}), dbfs.load(dbfs.path(3001), client=gpus, ranks=ranks) as path:
        for sources in ([0], [1500], [0, 2999]):
            expected = np.min([abs(np.arange(3001) - source) for source in sources], axis=0)
            np.testing.assert_array_equal(path.bfs(sources).distances(), expected)


@needs_nccl
@pytest.mark.parametrize("ranks", [needs(2)])
@pytest.mark.parametrize("seed", range(4))
def test_options_in_any_combination_by_nccl(gpus: distributed.Client, seed: int, ranks: int) -> None:
    parity.assert_options_agree(gpus, BY_NCCL["nccl"], ranks, seed)


@needs_nccl
@pytest.mark.parametrize("ranks", [needs(2)])
def test_depths_targets_and_many_by_nccl(gpus: distributed.Client, ranks: int) -> None:
    assert_depths_targets_and_many(gpus, BY_NCCL["nccl"], ranks)


@pytest.mark.parametrize("ranks", parity.RANKS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_through_the_host(sharing: distributed.Client, name: str, directed: bool, ranks: int) -> None:
    arrays = GRAPHS[name]()
    with loaded(sharing, arrays, THROUGH_HOST["shared memory"], directed=directed, ranks=ranks) as graph:
        for way in ("shared memory", "shared memory, top-down", "shared memory, bottom-up", "tasks"):
            check(graph, arrays, THROUGH_HOST[way], [0])


@pytest.mark.parametrize("ranks", parity.RANKS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("way", THROUGH_HOST)
def test_ways_through_the_host(sharing: distributed.Client, way: str, directed: bool, ranks: int) -> None:
    for name in ("hub", "sparse random", "dense random"):
        arrays = GRAPHS[name]()
        with loaded(sharing, arrays, THROUGH_HOST[way], directed=directed, ranks=ranks) as graph:
            check(graph, arrays, THROUGH_HOST[way], [5])
            check(graph, arrays, THROUGH_HOST[way], [5, 30, 5], max_depth=2)


@pytest.mark.parametrize("ranks", parity.RANKS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", ["hub", "sparse random", "dense random"])
def test_grids_that_map_messages(sharing: distributed.Client, name: str, directed: bool, ranks: int) -> None:
    assert_grids(sharing, IN_GRID, name, directed, ranks)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("directed", [False, True])
def test_grids_on_gpus_of_their_own(gpus: distributed.Client, directed: bool, ranks: int) -> None:
    assert_grids(gpus, IN_GRID, "dense random", directed, ranks)


@needs_nccl
@pytest.mark.parametrize("grid", [Grid(1, 2), Grid(2, 1), Grid(2, 2)], ids=str)
@pytest.mark.parametrize("directed", [False, True])
def test_grids_by_nccl(gpus: distributed.Client, directed: bool, grid: Grid) -> None:
    ranks = grid.rows * grid.columns
    if ranks > GPUS:
        pytest.skip(f"{ranks} GPUs wanted, {GPUS} there")
    for name in ("hub", "sparse random", "dense random", "path"):
        assert_grids(gpus, replace(IN_GRID, exchange="nccl", layout=f"2d:{grid}"), name, directed, ranks)
    # Bitmaps that do not fit beside the headers.
    with (
        dask.config.set({"dbfs.exchange": "nccl"}),
        dbfs.load("uniform:n=400000,m=2000000", client=gpus, ranks=ranks, layout=f"2d:{grid}") as graph,
    ):
        assert graph.bfs(5, predecessors=True, validate=True).depth == graph.bfs(5, strategy="row-scan").depth


def assert_grids(client: distributed.Client, way: Way, name: str, directed: bool, ranks: int) -> None:
    arrays = GRAPHS[name]()
    exchange = way.exchange if way.exchange != "auto" else "cuda_ipc" if ranks > 1 else "shared_memory"
    with loaded(client, arrays, way, directed=directed, ranks=ranks) as graph:
        assert (graph.layout, graph.exchange) == ("2d", exchange)
        scan = graph.bfs(5, strategy="row-scan", predecessors=True, validate=True)
        np.testing.assert_array_equal(scan.distances(), graph.bfs(5).distances())
        for direction in ("auto", "top-down", "bottom-up"):
            check(graph, arrays, replace(way, direction=direction), [5])
            check(graph, arrays, replace(way, direction=direction), [5, 30, 5], max_depth=2)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("order", ["given", "degree", "bfs"])
def test_larger_graphs(gpus: distributed.Client, order: str, ranks: int) -> None:
    for spec in ("kronecker:scale=13", "uniform:n=20000,m=80000", "grid2d:side=60"):
        truth = None
        for exchange in ("cuda_ipc", "shared_memory", "tcp"):
            with (
                dask.config.set({"dbfs.exchange": exchange}),
                dbfs.load(spec, client=gpus, ranks=ranks, order=order, backend="cuda") as graph,
            ):
                assert graph.exchange == exchange
                truth = truth or graph.bfs(5, engine="taskgraph", validate=True)
                assert truth.summary()["backend"] == "cuda"
                for direction in ("auto", "top-down", "bottom-up"):
                    found = graph.bfs(5, predecessors=True, direction=direction, validate=True)
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
                    # Every level expands what the one before discovered, whatever kinds they are of.
                    levels = found.levels
                    assert levels["frontier"].tolist()[1:] == levels["discovered"].tolist()[:-1]


@pytest.mark.parametrize("ranks", RANKS)
def test_levels_that_one_rank_leads_until_the_frontier_has_grown(gpus: distributed.Client, ranks: int) -> None:
    # A level k has 2^k vertices: leader levels, light ones of all ranks, then others.
    n = 2**20 - 1
    depths = np.log2(np.arange(n) + 1).astype(np.int32)
    with dbfs.load(f"tree:n={n},arity=2", client=gpus, ranks=ranks) as graph:
        for max_depth in (None, 1, 14, 15, 16):
            expected = depths if max_depth is None else np.where(depths <= max_depth, depths, -1)
            for direction in ("auto", "top-down"):
                for predecessors in (False, True):
                    found = graph.bfs(0, max_depth=max_depth, direction=direction, predecessors=predecessors)
                    np.testing.assert_array_equal(found.distances(), expected)
                    assert found.levels["discovered"].tolist() == np.bincount(expected[expected > 0])[1:].tolist() + [
                        0
                    ] * (max_depth is None)
                    if predecessors:
                        parents = np.where(expected >= 0, np.maximum(np.arange(n) - 1, 0) // 2, -1)
                        np.testing.assert_array_equal(found.predecessors(), parents)
        # From vertices of other ranks than the one that leads, after runs that left their last frontiers elsewhere.
        matrix = oracle.adjacency(n, np.arange(1, n), np.arange(n - 1) // 2, directed=False)
        for source in (n - 1, 1, 3 * n // 4, 2, 3, 5):
            found = graph.bfs(source, direction="top-down")
            np.testing.assert_array_equal(found.distances(), oracle.distances(matrix, [source]))
        # More sources than the frontier of a leader level.
        sources = list(range(2**15 - 1, 2**16 - 1))
        assert graph.bfs(sources, validate=True).depth == 15
        assert graph.bfs(sources, predecessors=True, validate=True).depth == 15


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("leaves", [299, 100_000])
def test_vertices_that_have_in_edges_only(gpus: distributed.Client, leaves: int, order: str, ranks: int) -> None:
    # Few are queued, many marked in a bitmap. The second run must find nothing of the first.
    star = dbfs.from_arrays(np.zeros(leaves, np.int64), np.arange(1, leaves + 1), n=leaves + 1, directed=True)
    with dbfs.load(star, client=gpus, ranks=ranks, order=order) as graph:
        for predecessors in (False, True):
            found = graph.bfs(0, predecessors=predecessors)
            assert (found.reached, found.depth) == (leaves + 1, 1)
            np.testing.assert_array_equal(found.distances(), [0] + [1] * leaves)
            found = graph.bfs(leaves, predecessors=predecessors)
            assert (found.reached, found.depth) == (1, 0)
            np.testing.assert_array_equal(found.distances(), [-1] * leaves + [0])


@pytest.mark.parametrize("ranks", RANKS)
def test_a_grid_with_levels_of_any_size(gpus: distributed.Client, ranks: int) -> None:
    # Up to 30,000 vertices per level: leader levels, then light ones of all ranks that leave some in their queues.
    side = 200
    ids = np.arange(side**3)
    axes = (ids % side, ids // side % side, ids // side**2)
    with dbfs.load(f"grid3d:side={side}", client=gpus, ranks=ranks) as graph:
        for source in graph.sample_sources(5):
            expected = sum(abs(axis - axis[source]) for axis in axes)
            for predecessors in (False, True):
                found = graph.bfs(source, predecessors=predecessors)
                np.testing.assert_array_equal(found.distances(), expected)
                found.release()


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("seed", range(12))
def test_options_in_any_combination(gpus: distributed.Client, seed: int, ranks: int) -> None:
    parity.assert_options_agree(gpus, MAPPED["cuda_ipc"], ranks, 10 * seed + ranks)


@pytest.mark.parametrize("ranks", parity.RANKS)
@pytest.mark.parametrize("seed", range(4))
def test_options_in_any_combination_through_the_host(sharing: distributed.Client, seed: int, ranks: int) -> None:
    parity.assert_options_agree(sharing, THROUGH_HOST["shared memory"], ranks, 10 * seed + ranks)
    parity.assert_options_agree(sharing, THROUGH_HOST["tcp"], ranks, 10 * seed + 5)


def assert_depths_targets_and_many(client: distributed.Client, way: Way, ranks: int) -> None:
    path = np.arange(70)
    with loaded(client, GRAPHS["path"](), way, directed=False, ranks=ranks) as graph:
        for max_depth in (0, 1, 7, 68, 69, 1000):
            found = graph.bfs(0, max_depth=max_depth, engine=way.engine, validate=True)
            np.testing.assert_array_equal(found.distances(), np.where(path <= max_depth, path, -1))
        for targets in ([0], [3], [40, 7], [7, 7, 69]):
            found = graph.bfs(0, targets=targets, predecessors=True, engine=way.engine, validate=True)
            np.testing.assert_array_equal(found.distances(), np.where(path <= max(targets), path, -1))
            assert found.reached == max(targets) + 1
        # Labels are a result's own: later runs leave them alone.
        many = graph.bfs_many([0, 69, 30], predecessors=True, engine=way.engine)
        for source, result in zip([0, 69, 30], many, strict=True):
            assert isinstance(result.distances(), np.ndarray)
            np.testing.assert_array_equal(result.distances(), abs(path - source))
            oracle.assert_valid_parents(
                oracle.adjacency(*GRAPHS["path"](), directed=False), result.distances(), result.predecessors(), [source]
            )


@pytest.mark.parametrize("ranks", RANKS)
def test_depths_targets_and_many(gpus: distributed.Client, ranks: int) -> None:
    assert_depths_targets_and_many(gpus, MAPPED["cuda_ipc"], ranks)


@pytest.mark.parametrize("way", ["tasks", "shared memory", "tcp"])
def test_depths_targets_and_many_through_the_host(sharing: distributed.Client, way: str) -> None:
    assert_depths_targets_and_many(sharing, THROUGH_HOST[way], 3)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("predecessors", [False, True])
def test_level_counts(gpus: distributed.Client, predecessors: bool, ranks: int) -> None:
    for spec in ("kronecker:scale=13", "uniform:n=200000,m=2000000", "uniform:n=200000,m=600000", "grid2d:side=60"):
        with dbfs.load(spec, client=gpus, ranks=ranks) as graph:
            truth = graph.bfs(5, engine="taskgraph").levels
            for direction in ("auto", "top-down"):
                levels = graph.bfs(5, direction=direction, predecessors=predecessors).levels
                assert levels["discovered"].tolist()[: len(truth)] == truth["discovered"].tolist()
                assert (levels["edges"] == levels["filtered"] + levels["own"] + levels["sent"]).all()
                assert (levels["discovered"] == levels["own"] + levels["sent"] - levels["culled"]).all()
                assert (levels.select_dtypes("number") >= 0).all(axis=None)
                assert levels["edges"].max() <= graph.m
                assert (levels["bytes_sent"].sum() > 0) == (ranks > 1)
                assert levels["sent"].sum() >= (0 if ranks == 1 else 1)


@pytest.mark.parametrize("ranks", RANKS)
def test_measures(gpus: distributed.Client, ranks: int, tmp_path: Path) -> None:
    path = nx.path_graph(60)
    with dbfs.load("path:n=60", client=gpus, ranks=ranks) as graph:
        seen: list[RunProgress] = []
        found = graph.closeness_centrality(progress=seen.append).to_dict()
        assert found == pytest.approx(nx.closeness_centrality(path))
        assert (seen[-1].traversals, seen[-1].finished) == (60, 60)
        assert [made.finished for made in seen] == sorted(made.finished for made in seen)
        assert graph.wiener_index() == nx.wiener_index(path)
        assert graph.khop_sizes(2, [0, 30]).to_dict() == {0: 3, 30: 5}
        assert (graph.diameter(), graph.radius()) == (59, 30)
        assert [each.tolist() for each in graph.landmarks(3).bounds(59, [0, 59])] == [[59, 0], [59, 0]]
        kept = tmp_path / "kept.npz"
        assert graph.wiener_index(checkpoint=kept) == graph.wiener_index(checkpoint=kept) == nx.wiener_index(path)
        assert len(graph.harmonic_centrality(sample=5).values) == 60


@pytest.mark.parametrize("ranks", RANKS)
def test_every_level_of_a_deep_run_is_told_of(gpus: distributed.Client, ranks: int) -> None:
    n = 3 * CAPACITY + 17
    with dbfs.load(f"path:n={n}", client=gpus, ranks=ranks) as graph:
        for _ in range(2):
            told: list[RunProgress] = []
            found = graph.bfs(0, progress=told.append)
            assert found.depth == n - 1
            levels = found.levels
            assert levels.index.tolist() == list(range(0, n, levels_a_row(n)))
            assert levels["frontier"].tolist() == levels_of_rows(n).tolist()
            assert levels["discovered"].sum() == n - 1
            assert levels["edges"].sum() == graph.m
            assert (told[-1].level, told[-1].reached) == (n, n)


@pytest.mark.parametrize("ranks", RANKS)
def test_deep_runs_behind_others_under_way(gpus: distributed.Client, ranks: int) -> None:
    n = 3 * CAPACITY + 17
    sources = [0, n - 1, 5, n // 2, 1, 0, n - 3]
    with dbfs.load(f"path:n={n}", client=gpus, ranks=ranks, backend="cuda") as graph:
        for predecessors in (False, True):
            results = graph.bfs_many(sources, predecessors=predecessors)
            for source, found in zip(sources, results, strict=True):
                assert found.depth == max(source, n - 1 - source)
                assert found.levels["discovered"].sum() == n - 1


def test_a_run_tells_where_it_is(gpus: distributed.Client) -> None:
    with dbfs.load(f"path:n={ENDLESS}", client=gpus, backend="cuda") as graph:
        told: list[RunProgress] = []
        run = Background(graph, progress=told.append)
        # The client may ask twice between two looks.
        while len({at.level for at in told}) < 4:
            assert run.thread.is_alive(), run.error
            time.sleep(0.05)
        dbfs.runs(client=gpus)[0].cancel()
        assert isinstance(run.join(), RunCancelledError)
        levels = [at.level for at in told]
        assert levels == sorted(levels)
        assert all(at.frontier == 1 for at in told if at.level)
        assert all(abs(at.reached - at.level) <= 1 + 10_000 * graph.ranks for at in told)


def test_bottom_up_needs_in_edges(gpus: distributed.Client) -> None:
    n, src, dst = GRAPHS["dense random"]()
    for exchange in ("cuda_ipc", "shared_memory"):
        with (
            dask.config.set({"dbfs.exchange": exchange}),
            dbfs.load(dbfs.from_arrays(src, dst, n=n, directed=True), client=gpus, backend="cuda") as graph,
        ):
            with pytest.raises(InvalidOptionError, match="in_edges=True"):
                graph.bfs(0, direction="bottom-up")
            assert set(graph.bfs(0, validate=True).levels["direction"]) == {"top-down"}


def test_who_shares_a_gpu_is_told_that_it_is_slower(
    sharing: distributed.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "dbfs.graph.load"),
        dbfs.load("path:n=9", client=sharing, backend="cuda") as graph,
    ):
        assert (graph.backend, graph.exchange) == ("cuda", "shared_memory")
        assert "exchange through the host (shared_memory), which is slower: ranks 0 and 1" in caplog.text
        told = graph.bfs(0, validate=True).summary()
        assert (told["backend"], told["exchange"]) == ("cuda", "shared_memory")
    # To share a GPU is nothing to choose for somebody.
    with dbfs.load("path:n=9", client=sharing) as graph:
        assert (graph.backend, graph.exchange) == ("cpu", "shared_memory")


def assert_ends_early_and_serves(client: distributed.Client, layout: str = "1d") -> None:
    with dbfs.load(f"path:n={ENDLESS}", client=client, backend="cuda", layout=layout) as graph:
        run = Background(graph)
        dbfs.runs(client=client)[0].cancel()
        error = run.join()
        assert isinstance(error, RunCancelledError)
        assert "cancelled: a client called run.cancel() or dbfs cancel" in str(error)
        assert graph.bfs(0, max_depth=9, validate=True).reached == 10
        with (
            ranks_end_runs(client),
            pytest.raises(DeadlineExceededError, match=r"rank \d, level \d+, \w"),
        ):
            graph.bfs(0, deadline=0.5)
        assert graph.bfs(0, max_depth=9, predecessors=True, validate=True).reached == 10


def test_a_run_is_cancelled_and_the_gang_serves_the_next(gpus: distributed.Client) -> None:
    assert_ends_early_and_serves(gpus)


@pytest.mark.parametrize("exchange", ["shared_memory", "tcp"])
def test_a_run_through_the_host_is_cancelled(sharing: distributed.Client, exchange: str) -> None:
    with dask.config.set({"dbfs.exchange": exchange}):
        assert_ends_early_and_serves(sharing)


@needs_nccl
@pytest.mark.skipif(GPUS < 2, reason=f"2 GPUs wanted, {GPUS} there")
@pytest.mark.parametrize("layout", ["1d", "2d"])
def test_a_run_by_nccl_is_cancelled_and_the_gang_is_formed_anew(gpus: distributed.Client, layout: str) -> None:
    with dask.config.set({"dbfs.exchange": "nccl"}):
        assert_ends_early_and_serves(gpus, layout)


def assert_a_killed_peer_is_lost(client: distributed.Client, workers: int, layout: str = "1d") -> None:
    graph = dbfs.load(f"path:n={ENDLESS}", client=client, backend="cuda", layout=layout, rebuild="never")
    kill_rank_1_mid_run(graph)
    # The run may end before the scheduler notices who left.
    eventually(lambda: graph.gang.addresses[1] not in client.scheduler_info(n_workers=-1)["workers"])
    client.wait_for_workers(workers, timeout=60)
    with dbfs.load("path:n=50", client=client, backend="cuda") as again:
        assert again.bfs(0, validate=True).depth == 49


@pytest.mark.skipif(GPUS < 2, reason=f"2 GPUs wanted, {GPUS} there")
def test_a_peer_killed_mid_run() -> None:
    with dbfs.connect(dashboard_address=None, memory_limit=0) as mortal:
        assert_a_killed_peer_is_lost(mortal, GPUS)


@needs_nccl
@pytest.mark.skipif(GPUS < 2, reason=f"2 GPUs wanted, {GPUS} there")
@pytest.mark.parametrize("layout", ["1d", "2d"])
def test_a_peer_killed_mid_run_by_nccl(layout: str) -> None:
    with (
        dask.config.set({"dbfs.exchange": "nccl"}),
        dbfs.connect(dashboard_address=None, memory_limit=0) as mortal,
    ):
        assert_a_killed_peer_is_lost(mortal, GPUS, layout)


@pytest.mark.parametrize("exchange", ["shared_memory", "tcp"])
def test_a_peer_killed_mid_run_through_the_host(exchange: str) -> None:
    with dask.config.set({"dbfs.exchange": exchange}), four_on_one_gpu() as mortal:
        assert_a_killed_peer_is_lost(mortal, 4)

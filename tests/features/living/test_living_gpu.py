"""Living graphs on GPUs: updates against SciPy, with memory that ranks map and through the host, and repairs.

Axes: undirected, by degree, directed with and without in-edges; 1 and 2 ranks; GPUs that map each other's memory, one
GPU that ranks share, and workers without a GPU whose kernels run on the CPU.
"""

from collections.abc import Callable, Iterator
from typing import Any

import dask
import distributed
import numpy as np
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import EdgeInputError, GraphTooLargeError, InvalidOptionError, InvalidVertexError
from dbfs.features.living import living
from dbfs.service.runs import RunSender
from dbfs_workers.serving.answers import error_of, read_answer
from dbfs_workers.serving.turns.requests import Answer, Change
from tests.support import merging, oracle
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.gpus import GPUS, four_on_one_gpu, needs_gpu
from tests.support.graphs import random

Edge = tuple[int, int]
LAYOUTS = ["undirected", "by degree", "directed", "in-edges"]
N = 200


CLUSTERS: dict[str, Callable[[], distributed.Client]] = {
    "emulated": merging.two_on_numpy,
    "sharing": four_on_one_gpu,
    "mapped": lambda: dbfs.connect(dashboard_address=None, memory_limit=0),
    "nccl": lambda: dbfs.connect(dashboard_address=None, memory_limit=0),
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("emulated", marks=[pytest.mark.full, needs_compiler]),
        pytest.param("sharing", marks=needs_gpu("cupy")),
        pytest.param("mapped", marks=needs_gpu("cupy", "dask_cuda")),
        pytest.param("nccl", marks=needs_gpu("cupy", "dask_cuda", "nccl")),
    ],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[tuple[str, distributed.Client]]:
    exchange = {"mapped": "auto", "nccl": "nccl"}.get(request.param, "shared_memory")
    with dask.config.set({"dbfs.exchange": exchange}), CLUSTERS[request.param]() as client:
        yield request.param, client


@pytest.fixture(params=[1, 2])
def ranks(request: pytest.FixtureRequest, cluster: tuple[str, distributed.Client]) -> int:
    if cluster[0] in ("mapped", "nccl") and request.param > GPUS:
        pytest.skip(f"{request.param} GPUs wanted, {GPUS} there")
    return int(request.param)


def require_refusal_for_memory(client: distributed.Client, graph: Graph) -> None:
    """Leave the last rank 100 bytes of memory, and check that a batch is refused."""
    addresses = graph.record.addresses
    client.run(merging.limit_memory, 100, workers=[addresses[-1]])
    try:
        with pytest.raises(GraphTooLargeError, match=f"rank {len(addresses) - 1}, .* 100 bytes are free"):
            graph.insert_edges([(0, 21)])
    finally:
        client.run(merging.limit_memory, None)


def check(graph: Graph, edges: set[Edge], source: int, *, tasks: bool = False) -> None:
    """Compare traversals in all directions with SciPy's answer, with ``tasks`` by the taskgraph engine too."""
    src, dst = np.array(sorted(edges), np.int64).reshape(-1, 2).T
    matrix = oracle.adjacency(graph.n, src, dst, directed=graph.directed)
    expected = oracle.distances(matrix, [source])
    directions = ["auto", "top-down"] + ["bottom-up"] * graph.record.infos[0].has_parents
    for engine, direction in [*(("resident", each) for each in directions), *[("taskgraph", "auto")] * tasks]:
        result = graph.bfs(source, predecessors=True, engine=engine, direction=direction)
        assert (result.distances() == expected).all()
        oracle.assert_valid_parents(matrix, result.distances(), result.predecessors(), [source])
        assert result.version == graph.record.version
    assert (graph.bfs(source).distances() == expected).all()


def mirrored(edges: list[Edge], directed: bool) -> set[Edge]:
    return {*edges, *(() if directed else ((v, u) for u, v in edges))}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_updates_agree_with_scipy(
    cluster: tuple[str, distributed.Client], monkeypatch: pytest.MonkeyPatch, layout: str, ranks: int
) -> None:
    directed = layout in ("directed", "in-edges")
    _, src, dst = random(N, 240, ranks)
    options: dict[str, Any] = {"in_edges": layout == "in-edges", "order": "degree" if layout == "by degree" else None}
    source = dbfs.from_arrays(src, dst, n=N, directed=directed)
    with dbfs.load(source, client=cluster[1], ranks=ranks, mutable=True, backend="cuda", **options) as graph:
        edges = set(zip(src.tolist(), dst.tolist(), strict=True))
        generator = np.random.default_rng(ranks)
        for version in range(1, 7):
            # Batches go with the update's message, or whole to every rank, or are binned by tasks.
            few, whole = ((4096, 1 << 23), (0, 1 << 23), (0, 0))[version % 3]
            monkeypatch.setattr(living, "_FEW_EDGES", few)
            monkeypatch.setattr(living, "_WHOLE_EDGES_ON_GPUS", whole)
            if version in (2, 5):
                batch = sorted(edges)[:: version // 2]
                done = graph.delete_edges([*batch, (0, 0)] if (0, 0) not in edges else batch)
                edges -= mirrored(batch, directed)
            else:
                batch = [(int(u), int(v)) for u, v in generator.integers(0, N, (90, 2))]
                if version == 4:
                    # A hub: its row was short enough for light levels before.
                    batch += [(7, v) for v in range(N)]
                done = graph.insert_edges(batch)
                edges |= set(batch)
            assert graph.version == done.version == version
            check(graph, edges, version, tasks=version == 3)
        graph.freeze()
        with pytest.raises(InvalidOptionError, match="takes no updates"):
            graph.insert_edges([(0, 1)])
        check(graph, edges, 0)
        graph.thaw()
        graph.bfs(1, validate=True)
        with dbfs.load(graph_of(edges, directed), client=cluster[1], ranks=ranks, backend="cuda", **options) as frozen:
            assert (frozen.bfs(3).distances() == graph.bfs(3).distances()).all()


@pytest.mark.parametrize("layout", ["undirected", "by degree", "in-edges"])
def test_results_follow(cluster: tuple[str, distributed.Client], layout: str, ranks: int) -> None:
    """One GPU repairs distances and parents; otherwise a new traversal is made."""
    kind, client = cluster
    if kind == "mapped":
        client.run(repair_always)
    directed, side = layout == "in-edges", 14
    everything = [(v, v + 1) for v in range(N - 1) if (v + 1) % side] + [(v, v + side) for v in range(N - side)]
    source = dbfs.from_arrays(*np.array(everything).T, n=N, directed=directed)
    options: dict[str, Any] = {"in_edges": layout == "in-edges", "order": "degree" if layout == "by degree" else None}
    with dbfs.load(source, client=client, ranks=ranks, mutable=True, backend="cuda", **options) as graph:
        edges = mirrored(everything, directed)
        result = graph.bfs(0, predecessors=True)
        before = result.distances()
        for version in range(1, 7):
            parents = result.predecessors()
            batch = [(int(parents[v]), v) for v in range(version, N, 9) if parents[v] >= 0]
            if version % 3:
                graph.delete_edges(batch)
                edges -= mirrored(batch, directed)
            else:
                graph.insert_edges([*everything, (0, 20 * version)])
                edges |= mirrored([*everything, (0, 20 * version)], directed)
            assert result.update().version == version
            matrix = oracle.adjacency(N, *np.array(sorted(edges)).T, directed=directed)
            distances = oracle.distances(matrix, [0])
            assert (result.distances() == distances).all()
            oracle.assert_valid_parents(matrix, distances, result.predecessors(), [0])
            assert (result.reached, result.depth) == ((distances >= 0).sum(), distances.max())
            assert (np.asarray(result.changed()) == np.flatnonzero(distances != before)).all()
            assert result.edges == sum(distances[u] >= 0 for u, _ in edges)
            # A repair has no levels.
            assert bool(result.reports) != (kind == "mapped" and ranks == 1)
            before = distances


def repair_always() -> None:
    """Let a worker repair results of small graphs, however long that takes."""
    from dbfs_workers.features.living import cuda_repair as repair

    repair._LEAST_SECONDS, repair._SHARE = 0.0, 1e9  # type: ignore[misc]


def graph_of(edges: set[Edge], directed: bool) -> dbfs.EdgeList:
    src, dst = np.array(sorted(edges), np.int64).reshape(-1, 2).T
    return dbfs.from_arrays(src, dst, n=N, directed=directed)


def test_vertices_come_and_go_and_results_follow(cluster: tuple[str, distributed.Client], ranks: int) -> None:
    path = [(v, v + 1) for v in range(39)]
    with dbfs.load("path:n=40", client=cluster[1], ranks=ranks, mutable=True, backend="cuda", room=3) as graph:
        result = graph.bfs(0, predecessors=True)
        graph.insert_edges([(0, 20)])
        result.update()
        assert result.version == 1
        assert result.changed().tolist() == list(range(11, 40))
        assert graph.delete_vertices([30]).ids == (30,)
        edges = mirrored([*path, (0, 20)], directed=False)
        edges -= {(u, v) for u, v in edges if 30 in (u, v)}
        check(graph, edges, 0)
        with pytest.raises(InvalidVertexError, match="30 was deleted"):
            graph.bfs(30)
        with pytest.raises(InvalidVertexError, match="30 was deleted"):
            graph.insert_edges([(1, 30)])
        with pytest.raises(EdgeInputError, match="are not there"):
            graph.delete_edges([(1, 5)], strict=True)
        assert graph.version == 2
        assert graph.insert_vertices(3).ids == (30, 40, 41)
        graph.insert_edges([(41, 39), (30, 0)])
        check(graph, edges | {(41, 39), (39, 41), (30, 0), (0, 30)}, 41)
        graph.compact()
        assert result.update().version == graph.version == 4


def test_a_few_edges_go_in_their_clients_turn(
    cluster: tuple[str, distributed.Client], monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    _, client = cluster
    reports: list[bool] = []
    receive = RunSender._receive

    def received(*given: Any) -> Answer:
        answer = receive(*given)
        if isinstance(given[3].work, Change):
            report = error_of(answer.ranks[0]) is None and read_answer(answer.ranks[0]).value()
            reports.append(bool(report and report.applied))
        return answer

    monkeypatch.setattr(RunSender, "_receive", received)
    with dbfs.load("path:n=40", client=client, ranks=ranks, mutable=True, backend="cuda") as graph:
        edges = mirrored([(v, v + 1) for v in range(39)], directed=False)
        result = graph.bfs(0, predecessors=True)
        graph.bfs_many([0, 1])
        graph.insert_edges([(0, 30)])
        assert result.update().depth == 15
        graph.delete_edges([(0, 30)])
        assert result.update().depth == 39
        with pytest.raises(EdgeInputError, match="strict=True"):
            graph.insert_edges([(0, 1), (0, 5)], strict=True)
        require_refusal_for_memory(client, graph)
        assert graph.insert_edges([(0, 21)]).version == 3
        assert reports == [True, True, False, False, True]
        check(graph, edges | {(0, 21), (21, 0)}, 3, tasks=True)


def test_a_batch_that_does_not_fit_one_rank_changes_none(cluster: tuple[str, distributed.Client], ranks: int) -> None:
    _, client = cluster
    with dbfs.load("path:n=40", client=client, ranks=ranks, mutable=True, backend="cuda") as graph:
        require_refusal_for_memory(client, graph)
        edges = mirrored([(v, v + 1) for v in range(39)], directed=False)
        assert graph.version == 0
        check(graph, edges, 3)
        assert graph.insert_edges([(0, 21)]).version == 1
        check(graph, edges | {(0, 21), (21, 0)}, 3)

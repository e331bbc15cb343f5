"""``Graph.sssp`` in the layout 2d, and on GPUs that do not map each other's memory, against a heap's Dijkstra.

Axes: grids of one to four ranks; undirected, directed, with in-edges; as given and by degree; integers and floats;
graphs and their views; one host and several; GPUs that exchange through the host and by NCCL, or workers without a GPU
that pretend to.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import dask
import distributed
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import (
    DeadlineExceededError,
    GraphTooLargeError,
    InvalidOptionError,
    InvalidVertexError,
    NoRoomForLabelsError,
)
from dbfs.features.weights import columns as client_columns
from dbfs_workers.features.grid.grid import Grid
from dbfs_workers.features.weights.columns import Stripes
from dbfs_workers.search.members.label_room import LabelRoom
from tests.support import graphs
from tests.support.gpus import GPUS, four_on_one_gpu, needs_gpu, needs_nccl
from tests.support.nccl import cluster_by_nccl
from tests.support.pretended_hosts import pretended_hosts
from tests.support.runs import set_room
from tests.support.standin import pretend_to_have_a_gpu
from tests.support.waiting import eventually
from tests.support.weights import arcs, assert_path, assert_tree, expected, weighted_graphs


class Case:
    """A graph whose vertices are its ids, by a self-loop at each, and of whose edges some are ``kept`` in a view."""

    def __init__(self, arrays: graphs.Arrays, weights: NDArray[Any], *, directed: bool) -> None:
        self.n, src, dst = arrays
        loops, m = np.arange(self.n), src.size
        self.src, self.dst = np.append(src, loops), np.append(dst, loops)
        self.weights = np.append(weights, np.zeros(self.n, weights.dtype))
        self.kept = np.append(np.random.default_rng(m).random(m) < 0.6, np.ones(self.n, bool))
        self.directed = directed

    @property
    def table(self) -> pa.Table:
        return pa.table({"source": self.src, "target": self.dst, "w": self.weights, "kept": self.kept})

    def load(self, client: distributed.Client, **options: Any) -> Graph:
        return dbfs.load(self.table, client=client, directed=self.directed, edge_columns=["w", "kept"], **options)

    def arcs(self, *, view: bool = False) -> list[tuple[int, int, Any]]:
        kept = self.kept if view else slice(None)
        arrays = self.n, self.src[kept], self.dst[kept]
        return arcs(arrays, self.weights[kept], directed=self.directed)

    def check(self, graph: Graph, sources: list[int], *, view: bool = False, **options: Any) -> None:
        """The labels are Dijkstra's and pass validation, the parents are a tree, a path sums to its distance."""
        of, dtype, target = self.arcs(view=view), self.weights.dtype, self.n - 1
        result = graph.sssp(sources, "w", predecessors=True, **options)
        found = result.distances()
        np.testing.assert_array_equal(found, expected(self.n, of, sources, dtype))
        assert_tree(of, sources, found, result.predecessors())
        result.validate()
        want = expected(self.n, of, sources[:1], dtype)[target]
        path = graph.path(sources[0], target, weight="w")
        assert_path(of, want, graph.distance(sources[0], target, weight="w"), path, dtype)
        assert not path or (path[0], path[-1]) == (sources[0], target)


def drawn(dtype: str, *, directed: bool, n: int = 200, m: int = 700) -> Case:
    weights = np.random.default_rng(3).integers(0, 50, m).astype(dtype)
    return Case(graphs.random(n, m, 31), weights, directed=directed)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=weighted_graphs(), data=st.data())
def test_any_grid_has_dijkstras_labels(client: distributed.Client, graph: dict[str, Any], data: st.DataObject) -> None:
    case = Case(graph["arrays"], graph["weights"], directed=graph["directed"])
    shape = data.draw(st.sampled_from(Grid.shapes(graph["p"])))
    order = data.draw(st.sampled_from(["given", "degree"]))
    in_edges = graph["directed"] and data.draw(st.booleans())
    options: dict[str, Any] = {"ranks": graph["p"], "layout": f"2d:{shape}", "order": order, "in_edges": in_edges}
    with case.load(client, **options) as grid, grid.where(edges=pc.field("kept")) as view:
        case.check(grid, graph["sources"], delta=graph["purpose"].delta)
        case.check(view, graph["sources"], view=True)


@pytest.mark.parametrize("hosts", [(0, 0, 1, 1), pytest.param((0, 1, 2, 3), marks=pytest.mark.full)], ids=str)
def test_a_grid_of_several_hosts(client: distributed.Client, hosts: tuple[int, ...]) -> None:
    case = drawn("float64", directed=True, n=3000, m=12_000)
    with (
        pretended_hosts(client, hosts),
        case.load(client, ranks=4, layout="2d", in_edges=True) as grid,
        grid.where(edges=pc.field("kept")) as view,
    ):
        case.check(grid, [3, 50])
        case.check(view, [3, 50], view=True)


def stripes_kept(client: distributed.Client) -> int:
    """Number of ranks' edges in stripes that all workers keep."""

    def found() -> list[int]:
        gc.collect()
        return [id(each) for each in gc.get_objects() if type(each) is Stripes]

    # Workers may be threads of one process.
    return len({each for of_worker in client.run(found).values() for each in of_worker})


def test_the_ranks_keep_stripes_until_the_graph_is_unloaded(
    client: distributed.Client, leaves_nothing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, made, before = drawn("int64", directed=True), [], stripes_kept(client)
    striped = client_columns._striped

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return striped(*arguments)

    monkeypatch.setattr(client_columns, "_striped", counted)
    grid = case.load(client, ranks=4, layout="2d")
    hops = grid.bfs(3).distances()
    for _ in range(2):
        case.check(grid, [3, 50])
    with pytest.raises(InvalidOptionError, match="no column 'miles'; the columns are: 'w', 'kept'"):
        grid.sssp(3, "miles")
    assert (len(made), stripes_kept(client)) == (1, before + 4)
    np.testing.assert_array_equal(grid.bfs(3).distances(), hops)
    grid.unload()
    eventually(lambda: stripes_kept(client) == before)


def test_a_view_of_a_grid_keeps_what_it_left_out(client: distributed.Client) -> None:
    case = drawn("int64", directed=False)
    gone = [5, 6]
    case.kept = ~np.isin(case.src, gone) & ~np.isin(case.dst, gone)
    with case.load(client, ranks=4, layout="2d") as grid, grid.where(without=gone) as view:
        with pytest.raises(InvalidVertexError, match="5"):
            view.sssp(5, "w")
        case.check(view, [3, 50], view=True)
        result = view.sssp(3, "w")
        assert set(gone) <= set(np.flatnonzero(result.distances() < 0).tolist())


def test_stripes_that_do_not_fit_are_refused(client: distributed.Client, leaves_nothing: None) -> None:
    case = drawn("int64", directed=False)
    with case.load(client, ranks=4, layout="2d") as grid:
        with (
            dask.config.set({"dbfs.build.memory-share": 1e-6}),
            pytest.raises(GraphTooLargeError, match="edges in stripes, for paths by weight, on 4 ranks need about"),
        ):
            grid.sssp(3, "w")
        case.check(grid, [3])


@contextmanager
def pretending() -> Iterator[distributed.Client]:
    """Start a cluster of workers that pretend to share a GPU."""
    with dbfs.connect(n_workers=3, backend="cpu", dashboard_address=None) as client:
        dbfs.load("path:n=2", client=client).unload()
        client.run(pretend_to_have_a_gpu)
        yield client


def a_gpu_each() -> distributed.Client:
    return dbfs.connect(dashboard_address=None, memory_limit=0)


Clusters = dict[str, tuple[Callable[[], AbstractContextManager[distributed.Client]], str, int, str]]
# By name, a cluster, the exchange to ask for, the ranks, and the exchange that they have.
CLUSTERS: Clusters = {
    "pretended": (pretending, "auto", 3, "shared_memory"),
    "pretended by nccl": (cluster_by_nccl, "auto", 4, "nccl"),
    "sharing": (four_on_one_gpu, "auto", 2, "shared_memory"),
    "through the host": (a_gpu_each, "shared_memory", 2, "shared_memory"),
    "by nccl": (a_gpu_each, "nccl", 2, "nccl"),
}
TWO_GPUS = [*needs_gpu("cupy", "dask_cuda"), pytest.mark.skipif(GPUS < 2, reason=f"2 GPUs wanted, {GPUS} there")]


@pytest.fixture(
    scope="module",
    params=[
        "pretended",
        "pretended by nccl",
        pytest.param("sharing", marks=needs_gpu("cupy")),
        pytest.param("through the host", marks=TWO_GPUS),
        pytest.param("by nccl", marks=[*TWO_GPUS, needs_nccl]),
    ],
)
def apart(request: pytest.FixtureRequest) -> Iterator[Callable[..., Graph]]:
    """Return what loads a case on GPUs that do not map each other's memory."""
    started, wanted, ranks, exchange = CLUSTERS[request.param]

    def load(case: Case, **options: Any) -> Graph:
        graph = case.load(client, ranks=ranks, backend="cuda", **options)
        # The ranks of a grid map each other's messages, but not their edges, where they can.
        assert graph.backend == "cuda"
        assert graph.exchange == exchange or options["layout"] == "2d"
        return graph

    with dask.config.set({"dbfs.exchange": wanted}), started() as client:
        yield load


@pytest.mark.matrix
@pytest.mark.parametrize("layout", ["1d", "2d"])
@pytest.mark.parametrize("dtype", ["int64", "float32"])
@pytest.mark.parametrize("options", [{}, {"order": "degree"}, {"directed": True, "in_edges": True}], ids=str)
def test_gpus_that_do_not_map_each_other(
    apart: Callable[..., Graph], dtype: str, layout: str, options: dict[str, Any]
) -> None:
    case = drawn(dtype, directed=options.get("directed", False))
    with apart(case, layout=layout, **{name: each for name, each in options.items() if name != "directed"}) as graph:
        hops = graph.bfs(3).distances()
        case.check(graph, [3, 50])
        np.testing.assert_array_equal(graph.bfs(3).distances(), hops)
        case.check(graph, [7, 3], delta=1)
        if layout == "1d":
            with graph.where(edges=pc.field("kept")) as view:
                case.check(view, [3, 50], view=True)


def test_a_run_takes_the_hosts_memory(apart: Callable[..., Graph]) -> None:
    case = drawn("int64", directed=False)
    with apart(case, layout="1d") as graph:
        room = LabelRoom().total_bytes()

        def limit(nbytes: int) -> None:
            graph.gang.client.run(set_room, graph.record.graph_id, nbytes, workers=[*graph.gang.addresses])

        limit(1)
        with pytest.raises(GraphTooLargeError, match="copying its edges for shortest paths by weight takes about"):
            graph.sssp(3, "w")
        limit(room)
        case.check(graph, [3])
        limit(1)
        with pytest.raises(NoRoomForLabelsError, match="the distances of 1 traversals by 'w' need"):
            graph.sssp(3, "w")
        limit(room)
        case.check(graph, [3])


@pytest.mark.full
@pytest.mark.parametrize("layout", ["1d", "2d"])
def test_rounds_with_more_entries_than_bins_hold(apart: Callable[..., Graph], layout: str) -> None:
    case = drawn("int64", directed=True, n=12_000, m=60_000)
    with apart(case, layout=layout) as graph:
        case.check(graph, [3], delta=10**6)


@pytest.mark.full
@pytest.mark.parametrize("layout", ["1d", "2d"])
def test_a_run_by_weight_ends_at_its_deadline_and_the_graph_goes_on(apart: Callable[..., Graph], layout: str) -> None:
    """A path, on which each vertex is a bucket of its own."""
    n = 60_000
    case = Case((n, np.arange(n - 1), np.arange(1, n)), np.ones(n - 1, np.int64), directed=False)
    with apart(case, layout=layout) as graph:
        graph.sssp(0, "w", max_distance=1)
        with pytest.raises(DeadlineExceededError):
            graph.sssp(0, "w", delta=0, deadline=0.5)
        assert graph.sssp(0, "w", max_distance=10).reached == 11
        assert graph.bfs(0, max_depth=10).reached == 11

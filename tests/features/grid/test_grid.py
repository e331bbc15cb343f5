"""Graphs with ``layout="2d"``: whatever a graph offers, against the same graph with ``layout="1d"`` or SciPy."""

import contextlib
import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import dask
import distributed
import numpy as np
import pytest
from click.testing import CliRunner
from scipy.sparse.csgraph import connected_components

import dbfs
from dbfs.assembly import BuildOptions
from dbfs.building import builder
from dbfs.cli import main
from dbfs.errors import DbfsError, ExchangeUnavailableError, GraphTooLargeError, InvalidOptionError, ValidationError
from dbfs_workers.features.grid.runner import GridRunner
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import grids, oracle
from tests.support.graphs import GRAPHS, random
from tests.support.parity import WAYS, Way, assert_options_agree, check, loaded
from tests.support.pretended_hosts import pretended_hosts
from tests.support.runs import ENDLESS, kill_rank_1_mid_run
from tests.support.saved import assert_same, load_arrays
from tests.support.standin import pretend_to_have_a_gpu


@pytest.fixture(scope="module")
def sixteen() -> Iterator[distributed.Client]:
    with dbfs.connect(n_workers=16, backend="cpu", dashboard_address=None, processes=False) as client:
        yield client


@pytest.mark.full
@pytest.mark.matrix
@pytest.mark.parametrize(("ranks", "directed"), [(6, False), (9, False), (16, True)])
@pytest.mark.parametrize("ways", [("shared memory", "shared memory, degree order"), ("2-D", "2-D, degree order")])
def test_ways_on_more_ranks(sixteen: distributed.Client, ways: tuple[str, str], directed: bool, ranks: int) -> None:
    for name, way in zip(("hub", "dense random"), ways, strict=True):
        arrays = GRAPHS[name]()
        with loaded(sixteen, arrays, WAYS[way], directed=directed, ranks=ranks) as graph:
            check(graph, arrays, WAYS[way], [5])
            check(graph, arrays, WAYS[way], [5, 30, 5], max_depth=2)


# Hosts of the ranks by exchange, for so many ranks: grids of one row, of rows of two lengths, and squares.
ACROSS = {
    "tcp": {2: (0, 1), 4: (0, 1, 2, 3), 6: tuple(range(6)), 9: tuple(range(9))},
    "shared_memory+tcp": {
        3: (0, 1, 0),
        4: (0, 0, 1, 1),
        6: (0, 1, 1, 0, 2, 2),
        16: tuple(rank // 4 for rank in range(16)),
    },
}


MARKS = {("shared_memory+tcp", 4): (), ("tcp", 9): pytest.mark.long}


@pytest.mark.parametrize(
    ("exchange", "ranks"),
    [
        pytest.param(exchange, ranks, marks=MARKS.get((exchange, ranks), pytest.mark.full))
        for exchange, of in ACROSS.items()
        for ranks in of
    ],
)
def test_ranks_on_several_hosts(request: pytest.FixtureRequest, exchange: str, ranks: int) -> None:
    """Every direction, with predecessors, validation and components, against SciPy."""
    client = request.getfixturevalue("client" if ranks <= 4 else "sixteen")
    for name, directed in (("hub", False), ("dense random", True)):
        arrays, way = GRAPHS[name](), Way("resident", layout="2d")
        with (
            pretended_hosts(client, ACROSS[exchange][ranks]),
            loaded(client, arrays, way, directed=directed, ranks=ranks) as graph,
        ):
            assert (graph.layout, graph.exchange) == ("2d", exchange)
            for direction in ("auto", "top-down", "bottom-up"):
                check(graph, arrays, replace(way, direction=direction), [5])
            check(graph, arrays, way, [5, 30, 5], max_depth=2)
            matrix = oracle.adjacency(*arrays, directed=directed)
            assert graph.components().count == connected_components(matrix, directed=directed, connection="weak")[0]


@pytest.mark.full
@pytest.mark.parametrize("of_ranks", [(0, 1, 0, 1), (0, 1, 2, 0, 1, 2)], ids=str)
def test_any_options_on_several_hosts(sixteen: distributed.Client, of_ranks: tuple[int, ...]) -> None:
    with pretended_hosts(sixteen, of_ranks):
        assert_options_agree(sixteen, Way("resident", layout="2d"), len(of_ranks), 5)


@pytest.mark.full
@pytest.mark.parametrize(("ranks", "seed"), [(1, 3), (9, 1)])
def test_options_in_any_combination(sixteen: distributed.Client, ranks: int, seed: int) -> None:
    assert_options_agree(sixteen, WAYS["2-D"], ranks, seed)


@pytest.mark.full
def test_many_traversals_on_sixteen_ranks(sixteen: distributed.Client) -> None:
    n, src, dst = random(400, 1500, 3)
    matrix = oracle.adjacency(n, src, dst, directed=False)
    with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=sixteen, layout="2d") as graph:
        sources = graph.sample_sources(60)
        for source, result in zip(sources, graph.bfs_stream(sources, predecessors=True), strict=True):
            np.testing.assert_array_equal(result.distances(), oracle.distances(matrix, [source]))


@pytest.mark.full
def test_bytes_sent_on_sixteen_ranks_are_at_most_six_tenths(sixteen: distributed.Client) -> None:
    sent = {}
    for layout in ("1d", "2d"):
        with dbfs.load("kronecker:scale=16", client=sixteen, layout=layout) as graph:
            sources = graph.sample_sources(4)
            for predecessors in (False, True):
                results = graph.bfs_many(sources, predecessors=predecessors)
                sent[layout, predecessors] = sum(int(result.levels["bytes_sent"].sum()) for result in results)
    for predecessors in (False, True):
        assert sent["2d", predecessors] <= 0.6 * sent["1d", predecessors]


@pytest.mark.parametrize("directed", [pytest.param(False, marks=pytest.mark.full), True])
def test_whatever_a_graph_offers_is_as_with_1d(client: distributed.Client, directed: bool) -> None:
    n, src, dst = random(400, 500, 6)
    src, dst = np.append(src, [7, 7, 9]), np.append(dst, [7, 7, 9])
    edges = dbfs.from_arrays(src, dst, n=n, directed=directed)
    options = {"in_edges": directed, "keep_edges": True, "client": client}
    with dbfs.load(edges, **options) as striped, dbfs.load(edges, layout="2d", **options) as graph:
        assert (graph.layout, striped.layout) == ("2d", "1d")
        assert (graph.exchange, graph.m, graph.max_degree) == ("shared_memory", striped.m, striped.max_degree)
        assert (graph.self_loops, graph.duplicates) == (striped.self_loops, striped.duplicates)
        for ours, theirs in zip(graph.degree_counts(), striped.degree_counts(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        # The vertices 7 and 9 may have self-loops alone.
        assert graph.sample_sources(40) == striped.sample_sources(40)
        assert graph.components().to_pandas().equals(striped.components().to_pandas())
        chosen = range(0, n, 3)
        assert graph.subgraph(chosen).to_arrow().equals(striped.subgraph(chosen).to_arrow())
        assert graph.khop(3, 2).subgraph().to_arrow().equals(striped.khop(3, 2).subgraph().to_arrow())
        (source,) = graph.sample_sources(1)
        results = [each.bfs(source, predecessors=True, validate=True) for each in (graph, striped)]
        found, expected = (result.to_pandas() for result in results)
        assert found.drop(columns="predecessor").equals(expected.drop(columns="predecessor"))
        assert results[0].to_dict() == results[1].to_dict()
        assert len(results[0].path_to(int(results[0].distances().argmax()))) == results[0].depth + 1


@pytest.mark.parametrize("keep_edges", [False, pytest.param(True, marks=pytest.mark.full)])
def test_wrong_labels_are_refused(client: distributed.Client, keep_edges: bool) -> None:
    _, src, dst = random(300, 900, 4)
    with dbfs.load((src, dst), client=client, layout="2d", keep_edges=keep_edges, ids="dense") as graph:
        result = graph.bfs(0, predecessors=True)
        distances, parents = result.distances(), result.predecessors()
        assert dbfs.validate(graph, result).of_input == keep_edges
        far = int(distances.argmax())
        distances[far] -= 1
        with pytest.raises(ValidationError):
            dbfs.validate(graph, dbfs.Labels(result.sources, distances, parents))


@pytest.mark.full
def test_named_ids_and_strings(client: distributed.Client) -> None:
    names = [f"v{index:03}" for index in range(60)]
    with dbfs.load(list(pairwise(names)), client=client, layout="2d", order="degree") as graph:
        assert graph.bfs("v000", predecessors=True, validate=True).path_to("v059") == names


def test_what_2d_has_not_is_refused(client: distributed.Client) -> None:
    path = dbfs.path(50)
    for layout in ("3d", "2d:", "2d:2", "2d:0x4", "2d:2X2", "2d:2x2x1", "2d:-1x4", "1d:1x4", "2d: 2x2", "2d:pxq", ""):
        with pytest.raises(
            InvalidOptionError, match=f"unknown layout {layout!r}; choose one of 1d, 2d, auto, or the rows"
        ):
            dbfs.load(path, client=client, layout=layout)
    for layout, shape in (("2d:2x3", 6), ("2d:1x1", 1), ("2d:pxp", 16)):
        words = (
            f"layout='{layout}' is for {shape} ranks?, and the graph has 4; choose 2d, or one of 2d:1x4, 2d:2x2, 2d:4x1"
        )
        with pytest.raises(InvalidOptionError, match=words):
            dbfs.load(path, client=client, ranks=4, layout=layout)
        with pytest.raises(InvalidOptionError, match=words):
            dbfs.estimate(path, 4, BuildOptions(layout=layout))
    with pytest.raises(InvalidOptionError, match="unknown layout '2d'; there is 1d alone"):
        builder.BuildOptions(layout="2d")
    with pytest.raises(InvalidOptionError, match="mutable=True does not go with layout='2d'"):
        dbfs.load(path, client=client, layout="2d", mutable=True)
    with dbfs.load(path, client=client, layout="2d") as graph:
        with pytest.raises(InvalidOptionError, match="engine='taskgraph' has no 2-D partitions"):
            graph.bfs(0, engine="taskgraph")
        assert graph.bfs(0, validate=True).depth == 49


def test_a_saved_graph_loads_into_a_grid(client: distributed.Client, tmp_path: Path) -> None:
    n, src, dst = random(300, 900, 4)
    with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, order="degree") as graph:
        graph.save(tmp_path / "graph")
    with dbfs.load(tmp_path / "graph", client=client, layout="2d") as graph:
        assert (graph.layout, graph.m) == ("2d", graph.m)
        expected = oracle.distances(oracle.adjacency(n, src, dst, directed=graph.directed), [3])
        np.testing.assert_array_equal(graph.bfs(3, validate=True).distances(), expected)


@pytest.mark.parametrize(
    ("directed", "order", "keep_edges"),
    [
        (True, "degree", False),
        pytest.param(False, "given", True, marks=pytest.mark.full),
        pytest.param(False, "degree", False, marks=pytest.mark.full),
    ],
)
def test_a_grid_is_saved_and_loads_in_any_layout(
    client: distributed.Client, leaves_nothing: None, tmp_path: Path, directed: bool, order: str, keep_edges: bool
) -> None:
    arrays, folder = random(300, 900, 4), tmp_path / "graph"
    options = {"directed": directed, "order": order, "keep_edges": keep_edges}
    with load_arrays(client, arrays, layout="2d", **options) as graph:
        assert graph.save(folder) == sum(file.stat().st_size for file in folder.glob("*.arrow"))
        for ranks, layout in ((graph.ranks, "1d"), (graph.ranks, "2d"), (3, "2d"), (2, "1d")):
            with dbfs.load(folder, client=client, ranks=ranks, layout=layout) as again:
                assert (again.ranks, again.layout) == (ranks, layout)
                # An undirected graph in 2-D has its edges by their ends as well.
                assert_same(again, arrays, graph, source=7)
    # The files have the rows of a 1-D partition, which ranks take as they are.
    assert not dbfs.estimate(folder, 4, BuildOptions(order=order)).build


SHAPES = {(1, 4): "2d:1xp", (4, 1): "2d:px1", (2, 2): "2d", (2, 3): "2d:2x3", (3, 2): "2d:3x2"}


@pytest.mark.parametrize(
    ("shape", "directed"),
    [
        *(pytest.param(shape, False, marks=pytest.mark.full) for shape in ((4, 1), (2, 2))),
        *(((1, 4), True), ((2, 3), True), ((3, 2), False)),
    ],
)
def test_grids_of_any_shape(
    sixteen: distributed.Client, tmp_path: Path, shape: tuple[int, int], directed: bool
) -> None:
    """Every direction, with validation, batches and components, against SciPy; saved, and loaded in another shape."""
    arrays, ranks = random(300, 1200, 4), shape[0] * shape[1]
    matrix = oracle.adjacency(*arrays, directed=directed)
    way = Way("resident", layout=SHAPES[shape])
    with loaded(sixteen, arrays, way, directed=directed, ranks=ranks) as graph:
        assert graph.grid is not None
        assert (graph.layout, graph.grid.rows, graph.grid.columns) == ("2d", *shape)
        assert f"{ranks} ranks in a {shape[0]}x{shape[1]} grid" in repr(graph)
        for direction in ("auto", "top-down", "bottom-up"):
            check(graph, arrays, replace(way, direction=direction), [5])
        check(graph, arrays, way, [5, 30, 5], max_depth=2)
        assert graph.components().count == connected_components(matrix, directed=directed, connection="weak")[0]
        found = graph.bfs_batch([3, 7], keep="distances").distances()
        np.testing.assert_array_equal(found.astype(np.int8).T, [oracle.distances(matrix, [each]) for each in (3, 7)])
        graph.save(tmp_path / "graph")
        with dbfs.load(tmp_path / "graph", client=sixteen, ranks=ranks, layout=f"2d:{shape[1]}x{shape[0]}") as again:
            assert again.grid is not None
            assert (again.grid.rows, again.grid.columns) == shape[::-1]
            assert_same(again, arrays, graph, source=7)


def test_an_opened_graph_has_its_grid(client: distributed.Client) -> None:
    with dbfs.load("path:n=50", client=client, ranks=4, layout="2d:4x1", name="shaped") as graph:
        assert str(dbfs.open("shaped", client=client).grid) == "4x1"
        assert graph.bfs(0, validate=True).depth == 49


@pytest.fixture(scope="module")
def pretending() -> Iterator[distributed.Client]:
    with dbfs.connect(n_workers=4, backend="cpu", dashboard_address=None) as client:
        dbfs.load("path:n=2", client=client).unload()
        client.run(pretend_to_have_a_gpu)
        yield client


@pytest.mark.parametrize(
    ("ranks", "hosts", "exchange"),
    [
        (4, None, "shared_memory"),
        pytest.param(1, None, "shared_memory", marks=pytest.mark.full),
        pytest.param(4, (0, 0, 1, 1), "shared_memory+tcp", marks=pytest.mark.full),
        pytest.param(3, (0, 1, 2), "tcp", marks=pytest.mark.full),
    ],
)
def test_ranks_that_share_a_gpu(
    pretending: distributed.Client, ranks: int, hosts: tuple[int, ...] | None, exchange: str
) -> None:
    """The way of a grid to its GPUs. ``tests/features/grid/test_grid_kernels.py`` has the kernels."""
    arrays, way = GRAPHS["sparse random"](), Way("resident", layout="2d", backend="cuda")
    n, src, dst = arrays
    across = contextlib.nullcontext() if hosts is None else pretended_hosts(pretending, hosts)
    with across, loaded(pretending, arrays, way, directed=True, ranks=ranks) as graph:
        assert (graph.layout, graph.backend, graph.exchange) == ("2d", "cuda", exchange)
        for direction in ("auto", "top-down", "bottom-up"):
            check(graph, arrays, replace(way, direction=direction), [5, 30, 5])
        matrix = oracle.adjacency(n, src, dst, directed=True)
        assert graph.components().count == connected_components(matrix, connection="weak")[0]


@pytest.mark.full
def test_the_refusals_of_grids_on_gpus(pretending: distributed.Client) -> None:
    for exchange, words in (("cuda_ipc", "can't map the GPU memory of rank"), ("nccl", "are on one GPU")):
        with dask.config.set({"dbfs.exchange": exchange}), pytest.raises(ExchangeUnavailableError, match=words):
            dbfs.load("path:n=9", client=pretending, layout="2d", backend="cuda")
    for layout, words in (
        ("2d", r"needs a grid of ranks, dbfs.load\(..., layout='2d:1x4'\); .* on 4 ranks in a 2x2 grid, backend cuda"),
        ("2d:1xp", "radix-bins needs exchange='cuda_ipc', not 'shared_memory'"),
    ):
        with (
            dbfs.load("path:n=9", client=pretending, layout=layout, backend="cuda") as graph,
            pytest.raises(InvalidOptionError, match=words),
        ):
            graph.bfs(0, strategy="radix-bins")
    pretending.run(fill_the_gpu, 1000)
    try:
        with pytest.raises(
            GraphTooLargeError, match=r"path:n=999: 999 vertices on 4 ranks need .* of each GPU; rank 0"
        ):
            dbfs.load("path:n=999", client=pretending, layout="2d", backend="cuda")
    finally:
        pretending.run(fill_the_gpu, 2**40)


def fill_the_gpu(free: int) -> None:
    """Leave so many bytes of a worker's pretended GPU free."""
    sys.modules["cupy"].free = free  # type: ignore[attr-defined]


def test_the_estimate_on_gpus_is_what_a_rank_takes() -> None:
    edges = dbfs.kronecker(10)
    needed = dbfs.estimate(edges, 4, BuildOptions(layout="2d"), backend="cuda", memory="1GB")
    assert needed.fits
    assert not needed.build
    src, dst = edges.cut(edges.m)[0].read()
    runner = GridRunner(None, "cuda", 1, "host", "graph")
    parts = grids.build(Stripe(edges.n, 4), src, dst, directed=False)
    taken = [runner.gpu_bytes(partition) for partition in parts]
    assert sum(taken) == pytest.approx(4 * needed.peak_bytes, rel=0.01)


@pytest.mark.full
def test_the_estimate_holds(client: distributed.Client) -> None:
    edges = dbfs.kronecker(14)
    needed = dbfs.estimate(edges, 4, BuildOptions(layout="2d"))
    assert needed.partition_bytes > dbfs.estimate(edges, 4).partition_bytes
    with dbfs.load(edges, client=client, ranks=4, layout="2d") as graph:
        assert sum(graph.nbytes) <= 4 * needed.partition_bytes
        assert max(graph.nbytes) < 1.2 * needed.partition_bytes


def test_the_benchmark_of_layouts(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("benchmarks.layouts")
    monkeypatch.setattr(module, "connect", lambda *_: contextlib.nullcontext(client))
    arguments = ["--graph", "kronecker:scale=8", "--ranks", "4", "--sources", "2", "--json"]
    answer = CliRunner().invoke(main, ["bench", "layouts", *arguments], catch_exceptions=False)
    costs = json.loads(answer.stdout)["costs"]
    assert [(cost["layout"], cost["predecessors"]) for cost in costs] == [
        (layout, predecessors) for layout in ("1d", "2d") for predecessors in (False, True)
    ]
    assert [cost["peers"] for cost in costs] == [3, 3, 2, 2]
    assert all(cost["state_bytes"] and cost["milliseconds"] > 0 and cost["levels"] > 2 for cost in costs)
    assert {(cost["backend"], cost["exchange"]) for cost in costs} == {("cpu", "shared_memory")}
    for cost, striped in zip(costs, costs[:2] * 2, strict=True):
        assert cost["ratio"] == pytest.approx(cost["bytes_sent"] / striped["bytes_sent"])


def test_the_command_estimates_a_grid() -> None:
    arguments = ["estimate", "kronecker:scale=20", "--ranks", "16", "--json"]
    striped, grid = (
        json.loads(CliRunner().invoke(main, [*arguments, "--layout", layout]).stdout) for layout in ("1d", "2d")
    )
    assert grid["partition"]["columns"] == 2 * striped["partition"]["columns"]
    assert grid["partition"]["degrees"] == 8 * 2**16
    offsets = {}
    for layout in ("2d:4x4", "2d:1xp", "2d:16x1"):
        answer = json.loads(CliRunner().invoke(main, [*arguments, "--layout", layout]).stdout)
        assert (answer["layout"], answer["partition"]["columns"]) == (layout, grid["partition"]["columns"])
        offsets[layout] = answer["partition"]["row offsets"]
    # A list for each rank of the column, and for each rank of the row.
    assert offsets["2d:4x4"] == grid["partition"]["row offsets"]
    assert offsets["2d:1xp"] == offsets["2d:16x1"] == 17 * offsets["2d:4x4"] // 8
    refused = CliRunner().invoke(main, [*arguments, "--layout", "2d:4"])
    assert (refused.exit_code, "unknown layout '2d:4'" in refused.stderr) == (2, True)


@pytest.mark.full
def test_a_worker_killed_mid_run() -> None:
    with dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None) as client:
        with dbfs.load(dbfs.path(ENDLESS), client=client, layout="2d", rebuild="never") as graph:
            kill_rank_1_mid_run(graph)
            with pytest.raises(DbfsError):
                graph.bfs(0)

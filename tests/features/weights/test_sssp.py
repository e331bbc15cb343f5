"""``Graph.sssp`` on a cluster: its results, their tables and paths, and bad input."""

import datetime
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import (
    DeadlineExceededError,
    DistanceOverflowError,
    InvalidOptionError,
    InvalidOptionTypeError,
    InvalidVertexError,
)
from dbfs_workers.features.weights import checks, part
from dbfs_workers.features.weights.storage import WeightScratch
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import graphs
from tests.support.gang import partitions
from tests.support.weights import Attributes, arcs, assert_tree, by_column, expected, hold

N, M = 200, 600

Held = Callable[..., Graph]


@pytest.fixture
def held(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Return a function that loads a graph whose edges have columns."""
    loaded: list[Graph] = []
    kept: list[distributed.Future] = []

    def load(src: Any, dst: Any, columns: dict[str, Any], *, n: int | None = N, **options: Any) -> Graph:
        options = {"ranks": 3, "client": client} | options
        directed = options.pop("directed", False)
        edges = (src, dst) if n is None else dbfs.from_arrays(src, dst, n=n, directed=directed)
        graph = dbfs.load(edges, **options, directed=directed if n is None else None)
        loaded.append(graph)
        kept.extend(hold(graph, src, dst, {name: pa.array(column) for name, column in columns.items()}))
        keys = [future.key for future in kept[-graph.ranks :]]
        monkeypatch.setattr(Graph, "_column_keys", staticmethod(lambda graph: keys))
        return graph

    yield load
    for graph in loaded:
        graph.unload()


def edges() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    _, src, dst = graphs.random(N, M, 21)
    return src, dst


def distances_of(src: Any, dst: Any, weights: NDArray[Any], sources: list[int], *, directed: bool) -> NDArray[Any]:
    return expected(N, arcs((N, src, dst), weights, directed=directed), sources, weights.dtype)


@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32", "float64"])
def test_labels_are_dijkstras(held: Held, dtype: str, directed: bool, order: str) -> None:
    src, dst = edges()
    weights = np.random.default_rng(1).integers(0, 50, M).astype(dtype)
    graph = held(src, dst, {"minutes": weights}, directed=directed, order=order)
    result = graph.sssp([3, 50], "minutes", predecessors=True)
    wide = weights.astype(np.int64) if dtype == "uint8" else weights
    want = distances_of(src, dst, wide, [3, 50], directed=directed)
    found = result.distances()
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)
    assert_tree(arcs((N, src, dst), wide, directed=directed), [3, 50], found, result.predecessors())
    reached = want >= 0 if want.dtype.kind == "i" else np.isfinite(want)
    assert (result.reached, result.unreached) == (reached.sum(), (~reached).sum())
    assert result.depth == want[reached].max()
    np.testing.assert_array_equal(result.within(20), np.flatnonzero(reached & (want <= 20)))
    np.testing.assert_array_equal(result.vertices(), np.flatnonzero(reached))
    np.testing.assert_array_equal(result.vertices_at(result.depth), np.flatnonzero(want == result.depth))
    assert result.to_dict() == dict(zip(np.flatnonzero(reached).tolist(), want[reached].tolist(), strict=True))


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_tables_have_the_distances_in_their_type(held: Held, dtype: str, tmp_path: Path) -> None:
    src, dst = edges()
    weights = np.random.default_rng(2).integers(1, 50, M).astype(dtype)
    graph = held(src, dst, {"w": weights}, directed=True)
    result = graph.sssp(3, "w", predecessors=True)
    want = distances_of(src, dst, weights, [3], directed=True)
    reached = want >= 0 if dtype == "int64" else np.isfinite(want)
    parents = result.predecessors()
    table = result.to_arrow(unreached=True)
    assert table.schema.field("distance").type == pa.from_numpy_dtype(dtype)
    assert table["vertex"].to_pylist() == list(range(N))
    assert table["distance"].to_pylist() == [one if there else None for one, there in zip(want, reached, strict=True)]
    wanted = [
        int(up) if there and up != at else None for at, (up, there) in enumerate(zip(parents, reached, strict=True))
    ]
    assert table["predecessor"].to_pylist() == wanted
    short = result.to_arrow()
    assert short["distance"].to_pylist() == want[reached].tolist()
    # From here on the labels are Dask data.
    folder = tmp_path / "labels"
    result.to_parquet(folder)
    assert pq.read_table(folder).sort_by("vertex").cast(short.schema).equals(short)
    frame = result.to_dask_dataframe(unreached=True).compute().sort_values("vertex")
    assert frame["distance"].notna().tolist() == reached.tolist()
    assert result.to_dask_array().dtype == dtype
    np.testing.assert_array_equal(result.distances(), want)
    assert result.to_arrow().equals(short)


def test_paths_sum_to_the_distances_by_ids_that_are_strings(held: Held) -> None:
    src, dst = edges()
    names = np.array([f"v{at:03}" for at in range(N)])
    weights = np.random.default_rng(4).random(M)
    graph = held(names[src], names[dst], {"w": weights}, n=None)
    result = graph.sssp("v003", "w", predecessors=True)
    between: dict[tuple[str, str], float] = {}
    for u, v, weight in arcs((N, src, dst), weights, directed=False):
        ends = str(names[u]), str(names[v])
        between[ends] = min(weight, between.get(ends, np.inf))
    for target, distance in list(result.to_dict().items())[::20]:
        path, total = result.path_to(target), 0.0
        for step in itertools.pairwise(path):
            total += between[step]
        assert path[0] == "v003" and path[-1] == target and total == distance


def test_bounds_and_targets(held: Held) -> None:
    src, dst = edges()
    weights = np.random.default_rng(5).integers(0, 50, M)
    graph = held(src, dst, {"w": weights})
    want = distances_of(src, dst, weights, [0], directed=False)
    bounded = graph.sssp(0, "w", max_distance=30.5)
    np.testing.assert_array_equal(bounded.distances(), np.where(want <= 30, want, -1))
    assert bounded.farthest == 30.5
    near = int(np.argsort(np.where(want < 0, want.max(), want))[20])
    stopped = graph.sssp(0, "w", targets=near, delta=1)
    found = stopped.distances()
    assert found[near] == want[near]
    np.testing.assert_array_equal(found[found >= 0], want[found >= 0])
    assert stopped.reached < graph.sssp(0, "w").reached


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1, -2, 3], r"column 'w' has -2 at the edge from '1' to '2'; shortest"),
        ([1.0, 2.0, float("nan")], "has nan at the edge from '2' to '3'"),
        ([None, 2, None], "has no value at the edge from '0' to '1'; shortest"),
        (np.array([1, 2, 2**63], np.uint64), "has 9223372036854775808 at the edge from '2' to '3'"),
    ],
    ids=["negative", "nan", "null", "past int64"],
)
def test_wrong_weights_are_told_with_their_edge(held: Held, column: Any, message: str) -> None:
    src, dst = np.array(["0", "1", "2"]), np.array(["1", "2", "3"])
    graph = held(src, dst, {"w": column}, n=None, directed=True, ranks=2)
    with pytest.raises(InvalidOptionError, match=message):
        graph.sssp("0", "w")


def test_bad_input_names_what_would_be_right(held: Held) -> None:
    src, dst = np.array([0, 1]), np.array([1, 2])
    columns = {
        "text": ["a", "b"],
        "day": [datetime.date(2026, 1, 1)] * 2,
        "flag": [True, False],
        "w": [1, 2],
        "huge": [2**62, 2**62],
    }
    graph = held(src, dst, columns, n=3, ranks=2)
    for name in ("text", "day", "flag"):
        with pytest.raises(InvalidOptionTypeError, match=f"column '{name}' is of type"):
            graph.sssp(0, name)
    with pytest.raises(InvalidOptionError, match="no column 'miles'; the columns are: 'text', 'day', 'flag', 'w'"):
        graph.sssp(0, "miles")
    with pytest.raises(InvalidOptionTypeError, match="weight must be a text, not 3"):
        graph.sssp(0, 3)  # type: ignore[arg-type]
    for option, value in {"delta": -1, "max_distance": -0.5}.items():
        with pytest.raises(InvalidOptionError, match=f"{option} must be at least 0"):
            graph.sssp(0, "w", **{option: value})
        with pytest.raises(InvalidOptionError, match=f"{option} must be at least 0, not nan"):
            graph.sssp(0, "w", **{option: float("nan")})
        with pytest.raises(InvalidOptionTypeError, match=f"{option} must be a number"):
            graph.sssp(0, "w", **{option: "1"})
    with pytest.raises(InvalidVertexError):
        graph.sssp(7, "w")
    with pytest.raises(InvalidVertexError, match="at least one source"):
        graph.sssp([], "w")
    with pytest.raises(DistanceOverflowError, match="1 vertices by 'huge'"):
        graph.sssp(0, "huge")
    result = graph.sssp(0, "w")
    with pytest.raises(InvalidOptionError, match="has distances by weight"):
        dbfs.validate(graph, result)
    with pytest.raises(InvalidOptionError, match="distance must be at least 0"):
        result.within(-1)
    assert result.distances().tolist() == [0, 1, 3]


def test_a_graph_that_has_no_columns(client: distributed.Client) -> None:
    with dbfs.load([(0, 1)], client=client, ranks=1) as plain, pytest.raises(InvalidOptionError, match="no columns"):
        plain.sssp(0, "w")


@pytest.mark.full
def test_threads_of_a_cluster_share_large_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    n, m = 30_000, 120_000
    _, src, dst = graphs.random(n, m, 23)
    weights = np.random.default_rng(23).integers(0, 9, m)
    shared: list[int] = []
    share = WeightScratch.share

    def counted(self: WeightScratch, row: Any) -> None:
        share(self, row)
        shared.append(row.frontier)

    monkeypatch.setattr(WeightScratch, "share", counted)
    # A rank has no more threads than the machine has cores.
    monkeypatch.setattr(part, "LEAST_THREADS", 2)
    options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 3, "processes": False, "backend": "cpu"}
    with (
        dbfs.connect(dashboard_address=None, **options) as own,
        dbfs.load(dbfs.from_arrays(src, dst, n=n), client=own) as graph,
    ):
        (kept,) = hold(graph, src, dst, {"w": pa.array(weights)})
        monkeypatch.setattr(Graph, "_column_keys", staticmethod(lambda graph: [kept.key]))
        result = graph.sssp(0, "w", predecessors=True)
        of = arcs((n, src, dst), weights, directed=False)
        distances = result.distances()
        np.testing.assert_array_equal(distances, expected(n, of, [0], weights.dtype))
        assert_tree(of, [0], distances, result.predecessors())
        assert sum(shared) > n // 4
        assert sum(report.frontier for report in result.reports) >= result.reached


def test_a_run_by_weight_ends_at_its_deadline_and_the_graph_goes_on(held: Held) -> None:
    """A path, on which each vertex is a bucket of its own."""
    n = 60_000
    graph = held(np.arange(n - 1), np.arange(1, n), {"w": np.ones(n - 1, np.int64)}, n=n, ranks=2)
    with pytest.raises(DeadlineExceededError):
        graph.sssp(0, "w", delta=0, deadline=0.5)
    assert graph.sssp(0, "w", max_distance=10).reached == 11


def test_bfs_is_as_before_beside_runs_by_weight(held: Held) -> None:
    src, dst = edges()
    graph = held(src, dst, {"w": np.ones(M, np.int64)})
    before = graph.bfs(3).distances()
    np.testing.assert_array_equal(graph.sssp(3, "w").distances(), before)
    np.testing.assert_array_equal(graph.bfs(3).distances(), before)


@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_right_results_pass_validation(held: Held, dtype: str, order: str) -> None:
    src, dst = edges()
    weights = np.random.default_rng(7).integers(0, 5, M).astype(dtype)
    graph = held(src, dst, {"w": weights}, order=order, directed=order == "given")
    for options in ({"predecessors": True}, {"max_distance": 4}, {"targets": 9, "predecessors": True, "delta": 1}):
        graph.sssp([2, 70], "w", **options).validate()


def spoilt(labels: tuple[Any, Any], vertex: int, *, distance: Any = None, parent: int | None = None) -> tuple[Any, Any]:
    """Labels by rank with another distance or parent of a vertex."""
    distances, parents = ([own.copy() for own in label] for label in labels)
    p = len(distances)
    if distance is not None:
        distances[vertex % p][vertex // p] = distance
    if parent is not None:
        parents[vertex % p][vertex // p] = parent
    return distances, parents


@pytest.mark.parametrize("p", [1, 2])
def test_each_fault_of_labels_is_found(p: int) -> None:
    """A path 0 - 1 - 2 - 3 with weights 5, 0 and 7, and a lone vertex."""
    arrays, weights = (5, np.arange(3), np.arange(1, 4)), np.array([5, 0, 7])
    of, parts, stripe = arcs(arrays, weights, directed=False), partitions(*arrays, p, directed=False), Stripe(5, p)
    attributes = [Attributes(pa.table({"w": by_column(part, of, weights.dtype)})) for part in parts]

    def faults(labels: tuple[Any, Any], farthest: int | None = None) -> list[str]:
        found = [
            checks.check_edges(part, own, "w", *labels, farthest) for part, own in zip(parts, attributes, strict=True)
        ]
        return [fault.rule.format(*fault.vertices) for fault in checks.check_tree(stripe, (0,), *labels, found)]

    whole = np.array([0, 5, 5, 12, -1]), np.array([0, 0, 1, 2, -1])
    right = tuple([label[rank::p] for rank in range(p)] for label in whole)
    assert not faults(right)  # type: ignore[arg-type]
    shorter, none = "makes a shorter path", "no edge gives the distance of"
    for change, words in (
        ({"vertex": 3, "distance": 13}, shorter),
        ({"vertex": 3, "distance": -1, "parent": -1}, shorter),
        ({"vertex": 3, "distance": 11}, f"{none} 3"),
        ({"vertex": 4, "distance": 3, "parent": 0}, f"{none} 4"),
        ({"vertex": 3, "parent": 1}, f"{none} 3"),
        ({"vertex": 0, "parent": 1}, "the source 0 is not its own predecessor"),
        ({"vertex": 3, "parent": -1}, f"{none} 3"),
        ({"vertex": 4, "parent": 0}, "4 has a distance without a predecessor, or the reverse"),
    ):
        (found,) = faults(spoilt(right, **change))  # type: ignore[arg-type]
        assert words in found
    assert not faults(spoilt(right, 3, distance=-1, parent=-1), farthest=11)  # type: ignore[arg-type]
    assert faults(spoilt(right, 3, distance=-1, parent=-1), farthest=12)  # type: ignore[arg-type]
    # 1 and 2 are each other's predecessors over the edge of weight 0.
    (found,) = faults(spoilt(right, 1, parent=2))  # type: ignore[arg-type]
    assert found in [f"the predecessors of {vertex} do not lead to a source" for vertex in (1, 2)]


@pytest.mark.parametrize("ranks", [1, pytest.param(3, marks=pytest.mark.full)])
def test_a_graph_that_changes(client: distributed.Client, ranks: int) -> None:
    """Edges come, go and change their weights; an update of a weight alone is seen as well."""
    rng = np.random.default_rng(ranks)
    edges = {(u, u + 1): 5 for u in range(59)}

    def table(of: dict[tuple[int, int], int]) -> dict[str, list[int]]:
        source, target = zip(*of, strict=True)
        return {"source": [*source], "target": [*target], "w": [*of.values()]}

    options: dict[str, Any] = {"directed": True, "edge_columns": ["w"], "client": client, "ranks": ranks}
    with dbfs.load(pa.table(table(edges)), mutable=True, **options) as graph:
        for change in range(6):
            if change:
                drawn = rng.integers(0, 60, (20, 2)).tolist()
                new = {(u, v): int(rng.integers(0, 40)) for u, v in drawn if u != v}
                graph.insert_edges(table(new), on_existing="update")
                edges |= new
                gone = [pair for pair in edges if rng.random() < 0.05]
                graph.delete_edges(gone)
                for pair in gone:
                    del edges[pair]
                one = next(iter(edges))
                edges[one] = 100 + change
                graph.insert_edges(table({one: 100 + change}), on_existing="update")
            of = [(u, v, weight) for (u, v), weight in edges.items()]
            result = graph.sssp(0, "w", predecessors=True)
            np.testing.assert_array_equal(result.distances(), expected(60, of, [0], np.dtype(np.int64)))
            assert_tree(of, [0], result.distances(), result.predecessors())
            result.validate()

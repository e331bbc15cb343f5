"""Distances and shortest paths between two vertices against SciPy's and NetworkX's."""

import asyncio

import dask
import distributed
import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import (
    DeadlineExceededError,
    InvalidOptionError,
    InvalidOptionTypeError,
    InvalidVertexError,
    InvalidVertexTypeError,
    TooManyPathsError,
)
from tests.support.graphs import GRAPHS

Edges = tuple[int, list[tuple[int, int]]]

edge_lists = st.integers(1, 40).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=90))
)


def networkx_of(n: int, pairs: list[tuple[int, int]], *, directed: bool) -> "nx.Graph[int]":
    made: nx.Graph[int] = nx.DiGraph() if directed else nx.Graph()
    made.add_nodes_from(range(n))
    made.add_edges_from(pairs)
    return made


def assert_paths(graph: Graph, right: "nx.Graph[int]", pairs: list[tuple[int, int]]) -> None:
    """Compare all calls of some pairs with NetworkX."""
    expected = []
    for source, target in pairs:
        try:
            paths = sorted(nx.all_shortest_paths(right, source, target))
        except nx.NetworkXNoPath:
            paths = []
        expected.append(len(paths[0]) - 1 if paths else -1)
        assert graph.distance(source, target) == expected[-1]
        assert graph.reachable(source, target) == bool(paths)
        assert graph.path(source, target) == (paths[0] if paths else [])
        assert list(graph.paths(source, target)) == paths
        assert list(graph.paths(source, target, limit=2)) == paths[:2]
    np.testing.assert_array_equal(graph.pair_distances(pairs), np.array(expected, np.int32))


@pytest.mark.parametrize("name", ["path", "self-loops and duplicates", "fewer vertices than ranks", "two components"])
def test_some_graphs(client: distributed.Client, name: str) -> None:
    n, src, dst = GRAPHS[name]()
    right = networkx_of(n, [*zip(src.tolist(), dst.tolist(), strict=True)], directed=False)
    with dbfs.load(dbfs.from_arrays(src, dst, n=n, directed=False), client=client, ranks=2) as graph:
        assert_paths(graph, right, [(0, n - 1), (n // 2, 0), (n // 3, n // 3)])


@pytest.mark.full
@pytest.mark.parametrize(
    ("ranks", "exchange", "layout"),
    [(1, "shared_memory", "1d"), (3, "tcp", "1d"), (4, "auto", "1d"), (2, "auto", "2d")],
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=edge_lists, directed=st.booleans(), in_edges=st.booleans(), order=st.sampled_from(["given", "degree"]))
def test_any_graph(
    client: distributed.Client,
    ranks: int,
    exchange: str,
    layout: str,
    edges: Edges,
    directed: bool,
    in_edges: bool,
    order: str,
) -> None:
    n, pairs = edges
    src, dst = np.array(pairs, np.int64).reshape(-1, 2).T
    with (
        dask.config.set({"dbfs.exchange": exchange}),
        dbfs.load(
            dbfs.from_arrays(src, dst, n=n, directed=directed),
            client=client,
            ranks=ranks,
            in_edges=directed and in_edges,
            order=order,
            layout=layout,
        ) as graph,
    ):
        chosen = np.random.default_rng(n).integers(0, n, (4, 2)).tolist()
        assert_paths(graph, networkx_of(n, pairs, directed=directed), [(u, v) for u, v in chosen])


def path_counts(right: "nx.Graph[int]", source: int) -> list[int]:
    """The number of shortest paths to each vertex, by plain Python."""
    counts = dict.fromkeys(right, 0) | {source: 1}
    distances = nx.single_source_shortest_path_length(right, source)
    for vertex in sorted(distances, key=lambda vertex: distances[vertex]):
        for after in right[vertex]:
            if distances[after] == distances[vertex] + 1:
                counts[after] += counts[vertex]
    return [counts[vertex] for vertex in sorted(right)]


@pytest.mark.full
@pytest.mark.parametrize("layout", ["1d", "2d"])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=edge_lists, directed=st.booleans(), order=st.sampled_from(["given", "degree"]), ranks=st.integers(1, 4))
def test_counts_of_any_graph(
    client: distributed.Client, layout: str, edges: Edges, directed: bool, order: str, ranks: int
) -> None:
    n, pairs = edges
    src, dst = np.array([*pairs, *pairs], np.int64).reshape(-1, 2).T
    listed = dbfs.from_arrays(src, dst, n=n, directed=directed)
    with dbfs.load(listed, client=client, ranks=ranks, order=order, layout=layout) as graph:
        expected = path_counts(networkx_of(n, pairs, directed=directed), n // 2)
        for floats in (False, True):
            counted = graph.count_paths(n // 2, floats=floats)
            assert counted.ids.tolist() == list(range(n))
            assert counted.values.tolist() == expected
            assert counted.values.dtype == (np.float64 if floats else np.int64)


def diamonds(count: int) -> list[tuple[int, int]]:
    """A chain of squares, whose ends are joined by 2^count shortest paths."""
    return [(3 * k + u, 3 * k + v) for k in range(count) for u, v in ((0, 1), (0, 2), (1, 3), (2, 3))]


@pytest.mark.full
@pytest.mark.parametrize(("ranks", "layout"), [(1, "1d"), (3, "1d"), (2, "2d")])
def test_too_many_paths(client: distributed.Client, ranks: int, layout: str) -> None:
    with dbfs.load(diamonds(62), client=client, ranks=ranks, layout=layout) as graph:
        assert graph.count_paths(0).values[-1] == 2**62
    with dbfs.load(diamonds(63), client=client, ranks=ranks, layout=layout) as graph:
        with pytest.raises(TooManyPathsError, match="floats"):
            graph.count_paths(0)
        assert graph.count_paths(0, floats=True).values[-1] == 2.0**63
        # Paths are made as they are taken.
        assert [len(path) for path in graph.paths(0, 189, limit=3)] == [127, 127, 127]
    with (
        dbfs.load(diamonds(1024), client=client, ranks=ranks, layout=layout) as graph,
        pytest.raises(TooManyPathsError),
    ):
        graph.count_paths(0, floats=True)


@pytest.mark.parametrize("ranks", [1, 2])
def test_ids_of_callers(client: distributed.Client, ranks: int) -> None:
    names = [("ann", "bob"), ("bob", "dan"), ("ann", "cid"), ("cid", "dan"), ("eve", "eve")]
    with dbfs.load(names, client=client, ranks=ranks) as graph:
        assert graph.path("ann", "dan") == ["ann", "bob", "dan"]
        assert list(graph.paths("ann", "dan")) == [["ann", "bob", "dan"], ["ann", "cid", "dan"]]
        assert graph.pair_distances([("ann", "dan"), ("ann", "eve"), ("eve", "eve")]).tolist() == [2, -1, 0]
        assert graph.count_paths("ann").to_dict() == {"ann": 1, "bob": 1, "cid": 1, "dan": 2, "eve": 0}
    table = {"a": ["x", "y", "z"], "b": [1, 2, 3], "c": ["y", "z", "w"], "d": [2, 3, 4]}
    pairs = [((a, b), (c, d)) for a, b, c, d in zip(*table.values(), strict=True)]
    with dbfs.load(pairs, client=client, ranks=ranks) as graph:
        assert graph.distance(("x", 1), ("w", 4)) == 3
        assert graph.path(("x", 1), ("z", 3)) == [("x", 1), ("y", 2), ("z", 3)]
        assert graph.pair_distances([(("x", 1), ("w", 4)), (("y", 2), ("y", 2))]).tolist() == [3, 0]


def test_bad_input(client: distributed.Client) -> None:
    with dbfs.load("path:n=5", client=client, ranks=2) as graph:
        with pytest.raises(InvalidVertexError, match="target 5 is not in path"):
            graph.distance(0, 5)
        with pytest.raises(InvalidVertexError, match="source must be one id, not several"):
            graph.path([0, 1], 4)
        with pytest.raises(InvalidVertexTypeError, match="source"):
            graph.reachable("0", 4)
        with pytest.raises(InvalidOptionError, match="limit must be at least 0, not -1"):
            graph.paths(0, 4, limit=-1)
        with pytest.raises(InvalidOptionTypeError):
            graph.paths(0, 4, limit=1.5)  # type: ignore[arg-type]
        for wrong in ([(0, 1, 2)], [0, 1], ["01"], [(0,)]):
            with pytest.raises(InvalidOptionError, match="is no pair|is a text"):
                graph.pair_distances(wrong)
        with pytest.raises(InvalidVertexError, match="source -1"):
            graph.pair_distances([(0, 1), (-1, 2)])
        assert list(graph.paths(0, 4, limit=0)) == []
        assert graph.pair_distances([]).tolist() == []
        assert graph.pair_distances(np.array([[0, 4], [4, 4]])).tolist() == [4, 0]


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_living_graph(client: distributed.Client, ranks: int) -> None:
    with dbfs.load("path:n=30", client=client, ranks=ranks, mutable=True, room=5) as graph:
        assert graph.distance(0, 29) == 29
        graph.insert_edges([(3, 20), (2, 20)])
        assert graph.path(0, 29) == [0, 1, 2, *range(20, 30)]
        assert list(graph.paths(5, 19)) == [[5, 4, 3, 20, 19]]
        graph.delete_vertices([2])
        assert graph.path(0, 29) == []
        assert graph.count_paths(3).to_dict()[20] == 1
        with pytest.raises(InvalidVertexError, match="2 was deleted"):
            graph.distance(2, 5)
        with pytest.raises(InvalidVertexError, match="2 was deleted"):
            graph.pair_distances([(5, 2)])
        (new,) = graph.insert_vertices(1).ids
        graph.insert_edges([(1, new), (new, 29)])
        assert graph.path(0, 28) == [0, 1, new, 29, 28]


@pytest.mark.full
def test_a_search_that_is_cancelled_leaves_the_next_one_right(client: distributed.Client) -> None:
    """A deadline that has passed ends a search in its middle, whose vertices the next one must not find."""
    with dbfs.load("grid2d:side=700", client=client, ranks=1) as graph:
        pairs = [(0, 700 * 700 - 1)] * 400
        with pytest.raises(DeadlineExceededError):
            graph.pair_distances(pairs, deadline=0.2)
        assert graph.pair_distances([(0, 3), (5, 5), (0, 700 * 700 - 1)]).tolist() == [3, 0, 1398]
        assert len(graph.path(0, 700 * 700 - 1)) == 1399


@pytest.mark.full
def test_rows_that_fill_bins(client: distributed.Client) -> None:
    """Hubs have more neighbours than a bin has entries, so that the ranks take a level in rounds."""
    hubs, leaves = 40, 6000
    src = np.repeat(np.arange(hubs), leaves)
    dst = hubs + np.tile(np.arange(leaves), hubs)
    ends = np.array([[0, hubs + leaves], [hubs - 1, hubs + leaves + 1]])
    src, dst = np.append(src, ends[:, 0]), np.append(dst, ends[:, 1])
    with dbfs.load((src, dst), client=client, ranks=4) as graph:
        first, last = hubs + leaves, hubs + leaves + 1
        assert graph.distance(first, last) == 4
        assert graph.path(first, last) == [first, 0, hubs, hubs - 1, last]
        assert len(list(graph.paths(first, last))) == leaves
        assert graph.count_paths(first).values[[hubs, 1, last]].tolist() == [1, leaves, leaves]


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 3])
def test_more_edges_than_there_is_room_for_at_first(client: distributed.Client, ranks: int) -> None:
    side = 80
    with dbfs.load(f"grid2d:side={side}", client=client, ranks=ranks) as graph:
        last = side * side - 1
        along = [*range(side), *range(2 * side - 1, last + 1, side)]
        assert graph.path(0, last) == along
        # From the last corner the smallest neighbour lies in the row below.
        assert graph.path(last, 0) == [*range(last, side - 2, -side), *range(side - 2, -1, -1)]


@pytest.mark.full
@pytest.mark.parametrize("order", ["given", "degree"])
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=edge_lists, directed=st.booleans(), seed=st.integers(0, 9))
def test_a_path_is_the_same_whatever_the_order_of_edges_the_ranks_and_the_run(
    client: distributed.Client, order: str, edges: Edges, directed: bool, seed: int
) -> None:
    n, pairs = edges
    generator = np.random.default_rng(seed)
    ends = generator.integers(0, n, (3, 2)).tolist()
    found = []
    for ranks in (1, 2, 4):
        shuffled = np.array(pairs, np.int64).reshape(-1, 2)[generator.permutation(len(pairs))]
        listed = dbfs.from_arrays(*shuffled.T, n=n, directed=directed)
        with dbfs.load(listed, client=client, ranks=ranks, order=order, in_edges=directed) as graph:
            found += [[graph.path(u, v) for u, v in ends] for _ in range(2)]
            found.append([next(graph.paths(u, v), []) for u, v in ends])
    assert all(paths == found[0] for paths in found)


@pytest.mark.full
@pytest.mark.parametrize("published", [False, True])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=edge_lists, directed=st.booleans(), order=st.sampled_from(["given", "degree"]), ranks=st.integers(1, 4))
def test_paths_of_a_result(
    client: distributed.Client, published: bool, edges: Edges, directed: bool, order: str, ranks: int
) -> None:
    n, pairs = edges
    src, dst = np.array(pairs, np.int64).reshape(-1, 2).T
    listed = dbfs.from_arrays(src, dst, n=n, directed=directed)
    with dbfs.load(listed, client=client, ranks=ranks, order=order) as graph:
        result = graph.bfs([0, n // 2], predecessors=True)
        if published:
            result.publish()
        targets = [n - 1, *range(n), 0]
        table = result.paths_to(targets).to_pandas()
        assert table["step"].tolist() == [step for v in targets for step in range(len(result.path_to(v)))]
        assert table["target"].tolist() == [v for v in targets for _ in result.path_to(v)]
        assert table["vertex"].tolist() == [vertex for v in targets for vertex in result.path_to(v)]
        assert result.paths_to([]).to_arrow().num_rows == 0


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2])
def test_long_paths_of_a_result(client: distributed.Client, ranks: int) -> None:
    with dbfs.load("path:n=1300", client=client, ranks=ranks) as graph:
        result = graph.bfs(0, predecessors=True)
        assert result.paths_to([1299, 700]).vertices.tolist() == [*range(1300), *range(701)]
        with pytest.raises(InvalidVertexError, match="target 1300"):
            result.paths_to([5, 1300])
        with pytest.raises(InvalidOptionError, match="predecessors"):
            graph.bfs(0).paths_to([5])


def test_landmarks_spare_searches(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = [*((v, v + 1) for v in range(20)), (30, 31)]
    with (
        dbfs.load(edges, client=client, ranks=2, mutable=True) as graph,
        dbfs.load(edges, client=client, ranks=1) as other,
    ):
        marks = graph.landmarks(2)
        pairs = [(u, v) for u in (0, 7, 20, 30) for v in (3, 20, 31)]
        assert graph.pair_distances(pairs, landmarks=marks).tolist() == graph.pair_distances(pairs).tolist()
        assert [graph.distance(*pair, landmarks=marks) for pair in pairs] == graph.pair_distances(pairs).tolist()
        with pytest.raises(InvalidOptionError, match="another graph"):
            other.distance(0, 3, landmarks=marks)
        with pytest.raises(InvalidOptionTypeError, match="landmarks must be"):
            graph.distance(0, 3, landmarks=4)  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            # The distance of a landmark is known, and so is that no path leads out of its component.
            patch.setattr("dbfs.features.paths.search._answers", None)
            assert graph.distance(marks.ids[0], 20, landmarks=marks) == 20 - marks.ids[0]
            assert not graph.reachable(30, 3, landmarks=marks)
        graph.insert_edges([(0, 20)])
        with pytest.raises(InvalidOptionError, match="version 0 of .*, which is 1 now"):
            graph.distance(0, 3, landmarks=marks)
        assert graph.distance(0, 19) == 2


def test_an_asynchronous_client(client: distributed.Client) -> None:
    async def main() -> None:
        async with distributed.Client(client.scheduler.address, asynchronous=True, set_as_default=False) as own:
            async with await dbfs.load("grid2d:side=3", client=own, ranks=2) as graph:
                assert await graph.distance(0, 8, landmarks=await graph.landmarks(1)) == 4
                assert await graph.reachable(0, 8)
                assert await graph.path(0, 8) == [0, 1, 2, 5, 8]
                assert [path async for path in graph.paths(0, 8, limit=1)] == [[0, 1, 2, 5, 8]]
                assert (await graph.pair_distances([(0, 8), (4, 4)])).tolist() == [4, 0]
                assert (await graph.count_paths(0)).values[-1] == 6
                near = await graph.khop([0, 8], 1, each=True)
                assert near.to_arrow()["vertex"].to_pylist() == [0, 1, 3, 5, 7, 8]
                result = await graph.bfs(0, predecessors=True)
                assert (await result.paths_to([1, 3])).vertices.tolist() == [0, 1, 0, 3]

    asyncio.run(main())

"""Measures of many sources against NetworkX, exact and sampled, and what they refuse."""

import math
from types import SimpleNamespace
from typing import Any

import distributed
import igraph
import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.assembly import Graph
from dbfs.base import memory
from dbfs.base.records import RunProgress
from dbfs.errors import (
    DisconnectedGraphError,
    GraphTooLargeError,
    InvalidOptionError,
    InvalidOptionTypeError,
    InvalidVertexError,
)
from dbfs.features.batches import diameter, measures, sweeps
from dbfs.features.batches.diameter import Measure
from dbfs.features.batches.measures import Options
from dbfs.graph.traversing import traverse

edge_lists = st.integers(1, 25).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60))
)


def theirs(n: int, pairs: list[tuple[int, int]], *, directed: bool) -> nx.Graph:
    graph: nx.Graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(pairs)
    return graph


def load(client: distributed.Client, graph: nx.Graph, **options: Any) -> Graph:
    src, dst = np.array(list(graph.edges), np.int64).reshape(-1, 2).T
    edges = dbfs.from_arrays(src, dst, n=len(graph), directed=graph.is_directed())
    return dbfs.load(edges, client=client, **options)


def assert_measures(ours: Graph, graph: nx.Graph) -> None:
    """All exact measures."""
    n = len(graph)
    for improved in (True, False):
        found = ours.closeness_centrality(wf_improved=improved)
        assert found.errors is None
        assert found.to_dict() == pytest.approx(nx.closeness_centrality(graph, wf_improved=improved))
    assert ours.harmonic_centrality().to_dict() == pytest.approx(nx.harmonic_centrality(graph))
    some = [n - 1, 0, n - 1]
    assert ours.harmonic_centrality(some).to_dict() == pytest.approx(nx.harmonic_centrality(graph, nbunch=some))
    for k in (0, 1, 3):
        sizes = {vertex: len(nx.single_source_shortest_path_length(graph, vertex, k)) for vertex in graph}
        assert ours.khop_sizes(k).to_dict() == sizes
    assert ours.khop_sizes(2, n - 1).values.tolist() == [len(ours.khop(n - 1, 2))]
    assert ours.wiener_index() == nx.wiener_index(graph)
    lengths = [length for _, each in nx.all_pairs_shortest_path_length(graph) for length in each.values()]
    function = ours.neighbourhood_function()
    assert function.pairs.tolist() == np.cumsum(np.bincount(lengths)).tolist()
    assert not function.errors.any()
    try:
        expected = nx.eccentricity(graph)
    except nx.NetworkXError:
        with pytest.raises(DisconnectedGraphError, match="connected: .* reaches"):
            ours.eccentricity()
        with pytest.raises(DisconnectedGraphError):
            ours.average_shortest_path_length()
        for call in ours.diameter, ours.radius:
            with pytest.raises(DisconnectedGraphError, match="connected: .* reaches"):
                call()
    else:
        assert ours.eccentricity().to_dict() == expected
        assert (ours.diameter(), ours.radius()) == (nx.diameter(graph), nx.radius(graph))
        mean = ours.average_shortest_path_length()
        assert float(mean) == pytest.approx(nx.average_shortest_path_length(graph))
        assert (mean.error, mean.sources) == (0, n)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("options", [{"ranks": 1}, {"ranks": 3, "order": "degree"}], ids=str)
def test_connected_graphs_in_several_runs(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], directed: bool
) -> None:
    monkeypatch.setattr(sweeps, "MOST_SOURCES", 20)
    monkeypatch.setattr(measures, "_BLOCK", 40)
    graph = nx.gnp_random_graph(90, 0.1, 3, directed=directed)
    assert nx.is_strongly_connected(graph) if directed else nx.is_connected(graph)
    with load(client, graph, **options) as ours:
        assert_measures(ours, graph)
        seen: list[RunProgress] = []
        ours.closeness_centrality(progress=seen.append)
        assert (seen[-1].traversals, seen[-1].finished) == (90, 90)
        assert [made.finished for made in seen] == sorted(made.finished for made in seen)


@pytest.mark.full
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=edge_lists, ranks=st.integers(1, 3), directed=st.booleans())
def test_any_graph(
    client: distributed.Client, edges: tuple[int, list[tuple[int, int]]], ranks: int, directed: bool
) -> None:
    graph = theirs(*edges, directed=directed)
    with load(client, graph, ranks=ranks) as ours:
        assert_measures(ours, graph)


@pytest.mark.parametrize("directed", [False, True])
def test_a_disconnected_graph(client: distributed.Client, directed: bool) -> None:
    graph = theirs(7, [(0, 1), (1, 2), (3, 4), (4, 4)], directed=directed)
    with load(client, graph, ranks=2) as ours:
        assert_measures(ours, graph)
        assert ours.wiener_index() == math.inf


@pytest.mark.full
@pytest.mark.parametrize("directed", [False, True])
def test_a_sample_is_near_by_its_errors(client: distributed.Client, directed: bool) -> None:
    """A sample of all vertices is exact; the errors of many samples are as large as told."""
    graph = nx.gnp_random_graph(60, 0.06, 5, directed=directed)
    exact = {True: nx.closeness_centrality(graph), False: nx.closeness_centrality(graph, wf_improved=False)}
    harmonic = nx.harmonic_centrality(graph)
    with load(client, graph, ranks=2) as ours:
        pairs = ours.neighbourhood_function().pairs

        def results(sample: int, seed: int) -> list[tuple[Any, Any, Any]]:
            made = [ours.closeness_centrality(wf_improved=one, sample=sample, seed=seed) for one in (True, False)]
            made.append(ours.harmonic_centrality(sample=sample, seed=seed))
            wanted = [exact[True], exact[False], harmonic]
            found: list[tuple[Any, Any, Any]] = [
                (each.values, each.errors, np.array(list(right.values())))
                for each, right in zip(made, wanted, strict=True)
            ]
            function = ours.neighbourhood_function(sample=sample, seed=seed)
            return [*found, (function.pairs[:3], function.errors[:3], pairs[:3])]

        for values, errors, right in results(60, 1):
            np.testing.assert_allclose(values, right)
            np.testing.assert_allclose(errors, 0, atol=1e-9)
        rounds = [results(30, seed) for seed in range(40)]
    for measure in zip(*rounds, strict=True):
        values, errors, right = (np.array(part) for part in zip(*measure, strict=True))
        known = np.isfinite(errors).all(axis=0) & (right[0] > 0)
        off = np.sqrt(np.mean((values - right)[:, known] ** 2))
        assert 0.7 < off / np.sqrt(np.mean(errors[:, known] ** 2)) < 1.4


def test_sums_of_many_runs(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of a run travel as bytes here, and those of all runs would not fit in bytes."""
    monkeypatch.setattr(sweeps, "MOST_SOURCES", 4)
    broom = nx.path_graph(6)
    broom.add_edges_from((5, leaf) for leaf in range(6, 66))
    with load(client, broom) as ours:
        found = ours.closeness_centrality(sample=len(broom))
    assert found.to_dict() == pytest.approx(nx.closeness_centrality(broom))


def test_an_error_is_unknown_where_the_sample_tells_nothing(client: distributed.Client) -> None:
    graph = theirs(20, [(source, 19) for source in range(1, 18)], directed=True)
    graph.add_edge(0, 18)
    with load(client, graph, ranks=2) as ours:
        samples = [ours.closeness_centrality([18, 0], wf_improved=False, sample=12, seed=seed) for seed in range(8)]
        improved = [ours.closeness_centrality([18, 0], sample=12, seed=seed) for seed in range(8)]
    # No vertex reaches 0. The one vertex that reaches 18 is in some of the samples.
    assert np.isnan([one.errors for one in samples]).all()
    reached = np.array([one.values[0] > 0 for one in samples])
    assert 0 < reached.sum() < 8
    assert (np.isfinite([one.errors[0] for one in improved if one.errors is not None]) == reached).all()


def test_a_mean_distance_by_a_sample(client: distributed.Client) -> None:
    graph = nx.gnp_random_graph(90, 0.1, 3)
    right = nx.average_shortest_path_length(graph)
    with load(client, graph, ranks=2) as ours:
        found = [ours.average_shortest_path_length(sample=20, seed=seed) for seed in range(30)]
        assert found[1] == ours.average_shortest_path_length(sample=20)
    off = np.sqrt(np.mean([(one.value - right) ** 2 for one in found]))
    assert 0.7 < off / np.sqrt(np.mean([one.error**2 for one in found])) < 1.4


connected = st.integers(1, 30).flatmap(
    lambda n: st.tuples(
        st.tuples(*(st.integers(0, max(0, vertex - 1)) for vertex in range(n))),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20),
    )
)


@pytest.mark.full
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=connected, ranks=st.integers(1, 3), often=st.booleans())
def test_diameters_of_connected_graphs(
    client: distributed.Client,
    monkeypatch: pytest.MonkeyPatch,
    drawn: tuple[tuple[int, ...], list[tuple[int, int]]],
    ranks: int,
    often: bool,
) -> None:
    """A random tree, and edges across."""
    parents, more = drawn
    graph = theirs(len(parents), [*enumerate(parents), *more], directed=False)
    with monkeypatch.context() as patch, load(client, graph, ranks=ranks) as ours:
        if often:
            # Vertices get traversals of their own after every second one.
            patch.setattr(diameter, "DEEP", (2, 3))
            patch.setattr(diameter, "SMALL_WORLD", (2, 3))
        assert_measures(ours, graph)
        for measure, expected in (Measure.LARGEST_EACH, nx.periphery), (Measure.SMALLEST_EACH, nx.center):
            found = diameter.eccentricities(ours, measure, Options())
            end = found.max() if measure is Measure.LARGEST_EACH else found.min()
            assert np.flatnonzero(found == end).tolist() == sorted(expected(graph))


def test_a_diameter_takes_few_traversals(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, ...]] = []

    def counted(graph: Graph, kind: Any, sources: list[tuple[int, ...]], **options: Any) -> Any:
        made.extend(sources)
        return traverse(graph, kind, sources, **options)

    monkeypatch.setattr(diameter, "traverse", counted)
    with dbfs.load("grid2d:side=40", client=client, ranks=2) as graph:
        assert (graph.diameter(), graph.radius()) == (78, 40)
    assert len(made) < 20
    # The centre of a tree is the third source: of several with its lower bound, it has the smallest upper bound.
    made.clear()
    with load(client, nx.random_labeled_tree(60, seed=1), ranks=1) as graph:
        assert (graph.diameter(), len(made)) == (22, 3)


@pytest.mark.parametrize(
    ("graph", "singles"),
    [
        # In a small world a batch decides as many vertices as 50 to 80 single traversals in the same time.
        pytest.param(nx.barabasi_albert_graph(3000, 3, seed=1), 3000 // 64, id="small world"),
        pytest.param(nx.cycle_graph(2000), 2000 // 10, id="cycle", marks=pytest.mark.full),
    ],
)
def test_single_traversals_are_a_small_part_of_the_work(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, graph: nx.Graph, singles: int
) -> None:
    """Where they decide few vertices, batches follow, so that a diameter takes no longer than all eccentricities."""
    made: list[int] = []
    batched: list[int] = []

    def counted(*given: Any, **options: Any) -> list[dbfs.BFSResult]:
        made.append(1)
        return traverse(*given, **options)

    def batches(graph: Graph, sources: np.ndarray, *given: Any, **options: Any) -> Any:
        batched.append(len(sources))
        return sweeps.counts_of(graph, sources, *given, **options)

    monkeypatch.setattr(diameter, "traverse", counted)
    monkeypatch.setattr(diameter, "counts_of", batches)
    with load(client, graph, ranks=1) as ours:
        values = ours.eccentricity().values
        for function, expected in (ours.diameter, values.max()), (ours.radius, values.min()):
            made.clear(), batched.clear()
            assert function() == expected
            assert len(made) <= singles
            assert sum(batched) < graph.number_of_nodes()


@pytest.mark.parametrize("directed", [False, True])
def test_a_matrix_of_distances(client: distributed.Client, monkeypatch: pytest.MonkeyPatch, directed: bool) -> None:
    monkeypatch.setattr(sweeps, "MOST_SOURCES", 4)
    graph = nx.gnp_random_graph(40, 0.05, 7, directed=directed)
    some, others = [3, 17, 5, 3, 30, 1, 2, 9, 11, 12, 38], [8, 3, 8]
    with load(client, graph, ranks=3) as ours:
        for sources, targets in (some, others), (others, some), (np.arange(40), 7), ([], others), (some, []):
            rows, columns = np.atleast_1d(sources), np.atleast_1d(targets)
            lengths = dict(nx.all_pairs_shortest_path_length(graph))
            expected = [[lengths[row].get(column, -1) for column in columns] for row in rows]
            found = ours.distance_matrix(sources, targets)
            assert (found.dtype, found.shape) == (np.int32, (rows.size, columns.size))
            assert found.tolist() == expected
        seen: list[RunProgress] = []
        ours.distance_matrix(some, others, progress=seen.append)
        # An undirected graph is traversed from the smaller side.
        assert seen[-1].traversals == (10 if directed else 2)
        with pytest.raises(InvalidVertexError, match="target 40"):
            ours.distance_matrix([0], [40])
        # The workers of the same process have room.
        free = SimpleNamespace(virtual_memory=lambda: SimpleNamespace(available=2 * 4 * 40))
        monkeypatch.setattr(memory, "psutil", free)
        assert ours.distance_matrix(range(20), [5, 3]).shape == (20, 2)
        with pytest.raises(GraphTooLargeError, match=r"distances of 41 pairs need about 328 bytes.*take fewer sources"):
            ours.distance_matrix([*range(40), 0], [5])
        kept = ours.bfs_batch([1, 2, 3, 4, 5], keep="distances")
        with pytest.raises(
            GraphTooLargeError, match=r"the distances of .*to_dask_array\(\) leaves them on the workers"
        ):
            kept.distances()
    monkeypatch.undo()
    with dbfs.load([("a", "b"), ("c", "d")], client=client, ranks=2) as named:
        assert named.distance_matrix(["b", "d"], ["a", "c"]).tolist() == [[1, -1], [-1, 1]]


def test_tables_in_the_ids_of_the_caller(client: distributed.Client) -> None:
    with dbfs.load([("a", "b"), ("b", "c")], client=client, ranks=2) as graph:
        table = graph.eccentricity(["c", "b", "c"]).to_pandas()
        assert table.to_dict("list") == {"vertex": ["c", "b"], "eccentricity": [2, 1]}
        sampled = graph.closeness_centrality("a", sample=3)
        assert sampled.to_arrow().column_names == ["vertex", "closeness_centrality", "standard_error"]
        function = graph.neighbourhood_function()
        assert function.to_pandas().to_dict("list") == {
            "distance": [0, 1, 2],
            "pairs": [3, 7, 9],
            "standard_error": [0, 0, 0],
        }
        # 8.1 pairs of 9 lie between 7 within distance 1 and 9 within 2.
        assert function.effective_diameter() == pytest.approx(1.55)
        assert (function.effective_diameter(1), function.effective_diameter(0.1)) == (2, 0)
        assert graph.eccentricity([]).to_dict() == graph.harmonic_centrality([]).to_dict() == {}


def test_what_is_refused(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with load(client, nx.path_graph(9), ranks=2, mutable=True) as graph:
        for sample, match in (2, "sample must be at least 3, not 2"), (10, "sample must be at most 9, .*, not 10"):
            with pytest.raises(InvalidOptionError, match=match):
                graph.closeness_centrality(sample=sample)
        with pytest.raises(InvalidOptionTypeError, match="sample must be an integer"):
            graph.neighbourhood_function(sample=0.5)  # type: ignore[arg-type]
        with pytest.raises(InvalidOptionError, match="k must be at least 0, not -1"):
            graph.khop_sizes(-1)
        with pytest.raises(InvalidVertexError, match="vertex 9"):
            graph.eccentricity([9])
        with pytest.raises(InvalidOptionError, match="share must be above 0 and at most 1, not 90"):
            graph.neighbourhood_function().effective_diameter(90)
        monkeypatch.setattr(sweeps, "MOST_SOURCES", 2)

        def update(made: RunProgress) -> None:
            if made.finished >= 4 and not graph.version:
                graph.insert_edges([(0, 8)])

        with pytest.raises(InvalidOptionError, match="updated from version 0 to 1 during the call"):
            graph.eccentricity(progress=update)
    with load(client, theirs(9, [(0, 1)], directed=True), ranks=2) as graph:
        with pytest.raises(InvalidOptionError, match="a sample does not show whether all vertices reach each other"):
            graph.average_shortest_path_length(sample=5)
    with dbfs.load(dbfs.from_arrays([], []), client=client, ranks=2) as graph:
        assert graph.closeness_centrality().to_dict() == graph.eccentricity().to_dict() == {}
        numbers = graph.wiener_index, graph.average_shortest_path_length, graph.diameter, graph.radius
        for call in (*numbers, graph.neighbourhood_function):
            with pytest.raises(InvalidVertexError, match="has no vertices"):
                call()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edges=edge_lists,
    placed=st.fixed_dictionaries({"ranks": st.integers(1, 3), "layout": st.sampled_from(["1d", "2d"])}),
    directed=st.booleans(),
    depth=st.integers(0, 5),
)
def test_longer_paths_do_not_count(
    client: distributed.Client,
    edges: tuple[int, list[tuple[int, int]]],
    placed: dict[str, Any],
    directed: bool,
    depth: int,
) -> None:
    """As igraph's cutoff has it, also where all vertices are sampled."""
    graph = theirs(*edges, directed=directed)
    other = igraph.Graph(len(graph), [*graph.edges], directed=directed)
    close = np.nan_to_num(other.closeness(mode="in", cutoff=depth))
    harmonic = other.harmonic_centrality(mode="in", cutoff=depth, normalized=False)
    within = np.array(other.neighborhood_size(order=depth, mode="in")) - 1
    with load(client, graph, **placed, in_edges=directed) as ours:
        for sample in {None, len(graph)} if len(graph) > 2 else {None}:
            found = ours.closeness_centrality(max_depth=depth, wf_improved=False, sample=sample).values
            np.testing.assert_allclose(found, close, rtol=1e-12)
            found = ours.closeness_centrality(max_depth=depth, sample=sample).values
            np.testing.assert_allclose(found, close * within / max(1, len(graph) - 1), rtol=1e-12)
            found = ours.harmonic_centrality(max_depth=depth, sample=sample).values
            np.testing.assert_allclose(found, np.nan_to_num(harmonic), rtol=1e-12)
        matrix = ours.distance_matrix(range(len(graph)), range(len(graph)), max_depth=depth)
    lengths = np.array(other.distances(mode="out"))
    assert matrix.tolist() == np.where(lengths > depth, -1, lengths).tolist()


def test_an_inexact_depth_is_refused(client: distributed.Client) -> None:
    with load(client, nx.path_graph(4), ranks=1) as graph:
        calls = graph.closeness_centrality, graph.harmonic_centrality, graph.betweenness_centrality
        for call in (*calls, graph.edge_betweenness_centrality, lambda **depth: graph.distance_matrix([], [], **depth)):
            with pytest.raises(InvalidOptionError, match="max_depth must be at least 0, not -1"):
                call(max_depth=-1)
            with pytest.raises(InvalidOptionTypeError, match=r"max_depth must be an integer, not 2\.5"):
                call(max_depth=2.5)

"""Betweenness of vertices and edges against NetworkX, exact and sampled, and what is refused."""

from pathlib import Path
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
from dbfs.base.records import RunProgress
from dbfs.errors import (
    GraphTooLargeError,
    InvalidOptionError,
    InvalidOptionTypeError,
    RunCancelledError,
    TooManyPathsError,
)
from dbfs.features.batches import betweenness, sweeps
from dbfs.features.batches.measures import Options

DATA = Path(__file__).parents[4] / "shared" / "data"

edge_lists = st.integers(1, 30).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=90))
)


def load(client: distributed.Client, n: int, pairs: list[tuple[int, int]], *, directed: bool, **options: Any) -> Graph:
    src, dst = np.array(pairs, np.int64).reshape(-1, 2).T
    edges = dbfs.from_arrays(src, dst, n=n, directed=directed)
    return dbfs.load(edges, client=client, in_edges=directed, **options)


def theirs(n: int, pairs: list[tuple[int, int]], *, directed: bool) -> nx.Graph:
    """A multigraph as NetworkX's betweenness takes it: a neighbour counts once."""
    graph: nx.Graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(pairs)
    return graph


def of_edges(graph: nx.Graph, **options: Any) -> dict[tuple[Any, Any], float]:
    """NetworkX's values by edge, the smaller end of an undirected edge first."""
    found = nx.edge_betweenness_centrality(graph, **options)
    return {ends if graph.is_directed() else tuple(sorted(ends)): value for ends, value in found.items()}


def assert_right(ours: Graph, graph: nx.Graph) -> None:
    for normalized in (True, False):
        for endpoints in (True, False):
            right = nx.betweenness_centrality(graph, normalized=normalized, endpoints=endpoints)
            found = ours.betweenness_centrality(normalized=normalized, endpoints=endpoints)
            assert found.to_dict() == pytest.approx(right, rel=1e-12)
            assert (found.errors, found.sources) == (None, len(graph))
        edges = ours.edge_betweenness_centrality(normalized=normalized)
        assert edges.to_dict() == pytest.approx(of_edges(graph, normalized=normalized), rel=1e-12)
        assert list(edges.to_dict()) == sorted(edges.to_dict())
        assert (edges.errors, edges.sources) == (None, len(graph))


@pytest.mark.full
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("options", [{"ranks": 1}, {"ranks": 3, "order": "degree"}], ids=str)
def test_several_runs_of_several_sweeps(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], directed: bool
) -> None:
    monkeypatch.setattr(sweeps, "MOST_SOURCES", 40)
    graph = nx.gnp_random_graph(90, 0.04, 3, directed=directed)
    pairs = [*graph.edges, (3, 3), *list(graph.edges)[:9]]
    with load(client, 90, pairs, directed=directed, **options) as ours:
        graph.add_edge(3, 3)
        assert_right(ours, graph)
        seen: list[RunProgress] = []
        ours.betweenness_centrality(progress=seen.append)
        assert (seen[-1].traversals, seen[-1].finished) == (90, 90)


@pytest.mark.full
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=edge_lists, ranks=st.integers(1, 4), directed=st.booleans())
def test_any_graph(
    client: distributed.Client, edges: tuple[int, list[tuple[int, int]]], ranks: int, directed: bool
) -> None:
    """Parallel edges, self-loops, and vertices without an edge."""
    with load(client, *edges, directed=directed, ranks=ranks) as ours:
        assert_right(ours, theirs(*edges, directed=directed))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=edge_lists, ranks=st.integers(1, 3), directed=st.booleans(), depth=st.integers(0, 5))
def test_longer_paths_do_not_count(
    client: distributed.Client, edges: tuple[int, list[tuple[int, int]]], ranks: int, directed: bool, depth: int
) -> None:
    """As igraph's cutoff has it; the ends of the paths that count, by their lengths."""
    graph = theirs(*edges, directed=directed)
    other = igraph.Graph(len(graph), [*graph.edges], directed=directed)
    with load(client, *edges, directed=directed, ranks=ranks) as ours:
        found = ours.betweenness_centrality(max_depth=depth, normalized=False)
        right = np.array(other.betweenness(directed=directed, cutoff=depth))
        np.testing.assert_allclose(found.values, right, rtol=1e-9, atol=1e-9)
        found = ours.betweenness_centrality(max_depth=depth, normalized=False, endpoints=True)
        ends = [np.array(other.neighborhood_size(order=depth, mode=mode)) - 1 for mode in ("in", "out")]
        right += sum(ends) / (1 if directed else 2)
        np.testing.assert_allclose(found.values, right, rtol=1e-9, atol=1e-9)
        values = ours.edge_betweenness_centrality(max_depth=depth, normalized=False).to_dict()
    of_ends = zip(graph.edges, other.edge_betweenness(directed=directed, cutoff=depth), strict=True)
    right = {ends if directed else tuple(sorted(ends)): value for ends, value in of_ends}
    assert values == pytest.approx(right, rel=1e-9, abs=1e-9)


@pytest.mark.full
@pytest.mark.skipif(not DATA.exists(), reason="needs the real graphs of ../shared/data")
@pytest.mark.parametrize("name", ["karate.mtx", "netscience.mtx", "email-Eu-core.csv"])
def test_real_graphs(client: distributed.Client, name: str) -> None:
    """Against igraph: NetworkX takes a minute."""
    with dbfs.load(DATA / name, client=client, ranks=2, in_edges=True, progress=False) as ours:
        part = ours.subgraph(ours.ids())
        ends = np.stack([part.sources, part.targets])
        once = np.unique(ends if part.directed else np.sort(ends, axis=0), axis=1)
        graph = igraph.Graph(ours.n, once.T.tolist(), directed=part.directed)
        vertices, edges = (
            call(normalized=False) for call in (ours.betweenness_centrality, ours.edge_betweenness_centrality)
        )
        np.testing.assert_allclose(vertices.values, graph.betweenness(directed=part.directed), rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal([edges.source_ids, edges.target_ids], ours.ids()[once])
        np.testing.assert_allclose(edges.values, graph.edge_betweenness(directed=part.directed), rtol=1e-9)


@pytest.mark.full
@pytest.mark.parametrize("directed", [False, True])
def test_a_sample_is_near_by_its_errors(client: distributed.Client, directed: bool) -> None:
    """A sample of all vertices is exact; the errors of many samples are as large as told."""
    graph = nx.gnp_random_graph(60, 0.06, 5, directed=directed)
    calls: list[dict[str, Any]] = [{}, {"endpoints": True}, {"normalized": False}]
    with load(client, 60, [*graph.edges], directed=directed, ranks=2) as ours:

        def results(**sample: int) -> list[Any]:
            return [ours.betweenness_centrality(**options, **sample) for options in calls] + [
                ours.edge_betweenness_centrality(**sample)
            ]

        for all_sampled, exact in zip(results(sample=60), results(), strict=True):
            np.testing.assert_allclose(all_sampled.values, exact.values, rtol=1e-12)
            np.testing.assert_allclose(all_sampled.errors, 0, atol=1e-12)
        rounds = [results(sample=30, seed=seed) for seed in range(12)]
        for exact, *samples in zip(results(), *rounds, strict=True):
            off = np.array([one.values - exact.values for one in samples])
            # A value of 0 does not say how rarely a path passes.
            assert all((np.isnan(one.errors) == (one.values == 0)).all() for one in samples)
            told = np.sqrt(np.mean([np.nan_to_num(one.errors) ** 2 for one in samples]))
            assert 0.7 < np.sqrt(np.mean(off**2)) / told < 1.4
            assert "standard_error" in samples[0].to_pandas().columns
            assert samples[0].sources == 30


def test_sources_of_the_callers_choice_are_scaled_as_networkx_does(client: distributed.Client) -> None:
    """One source, and two: a sampled vertex tells nothing of itself."""
    graph = nx.gnp_random_graph(20, 0.2, 5)
    with load(client, 20, [*graph.edges], directed=False, ranks=2) as ours:
        for k in (1, 2, 20):
            sources = np.array(nx.utils.create_py_random_state(7).sample(list(graph), k))
            for endpoints in (True, False):
                found = betweenness.of_vertices(ours, sources, True, endpoints, Options())[0]
                right = nx.betweenness_centrality(graph, k=k, endpoints=endpoints, seed=7)
                np.testing.assert_allclose(found, [*right.values()], rtol=1e-12)
            edges = betweenness.of_edges(ours, sources, False, Options())[1]
            right = of_edges(graph, k=k, normalized=False, seed=7)
            np.testing.assert_allclose(edges, [right[ends] for ends in sorted(right)], rtol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("measure", ["betweenness_centrality", "edge_betweenness_centrality"])
def test_a_checkpoint_goes_on_with_other_ranks(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, measure: str
) -> None:
    monkeypatch.setattr(sweeps, "MOST_SOURCES", 20)
    path, graph = tmp_path / "kept.npz", nx.gnp_random_graph(90, 0.06, 3)
    seen: list[RunProgress] = []

    def stop(made: RunProgress) -> None:
        if made.finished >= 40:
            raise RunCancelledError("enough")

    with load(client, 90, [*graph.edges], directed=False, ranks=3) as ours:
        right = getattr(ours, measure)()
        with pytest.raises(RunCancelledError, match="enough"):
            getattr(ours, measure)(progress=stop, checkpoint=path)
    with load(client, 90, [*graph.edges], directed=False, ranks=2) as ours:
        found = getattr(ours, measure)(progress=seen.append, checkpoint=path)
        np.testing.assert_allclose(found.values, right.values, rtol=1e-12)
        assert min(made.finished for made in seen) >= 20


def test_tables_in_the_ids_of_the_caller(client: distributed.Client) -> None:
    with dbfs.load([("c", "b"), ("b", "a"), ("a", "b")], client=client, ranks=2, directed=False) as graph:
        table = graph.betweenness_centrality(["c", "b", "c"]).to_pandas()
        assert table.to_dict("list") == {"vertex": ["c", "b"], "betweenness_centrality": [0, 1]}
        edges = graph.edge_betweenness_centrality(normalized=False)
        assert edges.to_pandas().to_dict("list") == {
            "source": ["a", "b"],
            "target": ["b", "c"],
            "edge_betweenness_centrality": [2, 2],
        }
        assert edges.to_dict() == {("a", "b"): 2, ("b", "c"): 2}
        assert "standard_error" in graph.edge_betweenness_centrality(sample=3).to_arrow().column_names
    with load(client, 0, [], directed=False, ranks=2) as graph:
        assert graph.betweenness_centrality().to_dict() == graph.edge_betweenness_centrality().to_dict() == {}


def test_a_changed_graph(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)]
    with load(client, 5, pairs, directed=True, ranks=2, mutable=True) as ours:
        ours.insert_edges([(4, 0), (1, 4)])
        ours.delete_edges([(3, 0)])
        assert_right(ours, theirs(5, [*pairs[:3], (3, 4), (4, 0), (1, 4)], directed=True))
        monkeypatch.setattr(sweeps, "MOST_SOURCES", 2)

        def update(made: RunProgress) -> None:
            if made.finished >= 2 and ours.record.version < 3:
                ours.insert_edges([(0, 3)])

        with pytest.raises(InvalidOptionError, match="updated from version|of version"):
            ours.edge_betweenness_centrality(progress=update)


def test_what_is_refused(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    path = [(0, 1), (1, 2), (2, 3)]
    with dbfs.load(path, client=client, ranks=2, directed=True) as graph:
        for call in graph.betweenness_centrality, graph.edge_betweenness_centrality:
            with pytest.raises(InvalidOptionError, match="needs its in-edges; load .* with in_edges=True"):
                call()
    with dbfs.load(path, client=client, ranks=4, layout="2d", directed=False) as graph:
        with pytest.raises(InvalidOptionError, match="betweenness needs layout='1d', and .* has '2d'"):
            graph.betweenness_centrality()
    with dbfs.load(path, client=client, ranks=2, directed=False) as graph:
        for sample, error in (2, InvalidOptionError), (5, InvalidOptionError), (0.5, InvalidOptionTypeError):
            with pytest.raises(error, match="sample must be"):
                graph.betweenness_centrality(sample=sample)  # type: ignore[arg-type]
        with pytest.raises(InvalidOptionError, match="unknown keep='betweenness'; choose one of counts"):
            graph.bfs_batch([0], keep="betweenness")
        monkeypatch.setattr(betweenness, "_EDGE_BYTES", 1 << 60)
        with pytest.raises(GraphTooLargeError, match="edges of .* take about"):
            graph.edge_betweenness_centrality()
    # A chain in which each of 1,400 stretches doubles the number of paths.
    first = 3 * np.arange(1400)
    pairs = [(first, first + 1), (first, first + 2), (first + 1, first + 3), (first + 2, first + 3)]
    src, dst = (np.concatenate([pair[end] for pair in pairs]) for end in (0, 1))
    with dbfs.load(dbfs.from_arrays(src, dst), client=client, ranks=2) as graph:
        with pytest.raises(TooManyPathsError, match=r"more shortest paths from a source than the largest float64"):
            graph.betweenness_centrality(sample=40)
        # The ranks go on.
        assert graph.bfs(0).depth == 2800

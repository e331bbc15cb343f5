"""Distances and shortest paths between two vertices against SciPy's and NetworkX's."""

import dask
import distributed
import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.assembly import Graph

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


@pytest.mark.parametrize("exchange", ["shared_memory", "tcp"])
@pytest.mark.parametrize("ranks", [1, 3])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=edge_lists, directed=st.booleans(), in_edges=st.booleans(), order=st.sampled_from(["given", "degree"]))
def test_any_graph(
    client: distributed.Client, exchange: str, ranks: int, edges: Edges, directed: bool, in_edges: bool, order: str
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
        ) as graph,
    ):
        chosen = np.random.default_rng(n).integers(0, n, (4, 2)).tolist()
        assert_paths(graph, networkx_of(n, pairs, directed=directed), [(u, v) for u, v in chosen])

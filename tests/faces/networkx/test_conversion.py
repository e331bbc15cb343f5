"""Conversions: views of graphs that change, filters of multigraphs, and graphs that are pickled and copied."""

import copy
import gc
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import distributed
import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.edges.resolve import edge_list
from dbfs.errors import EdgeInputError
from dbfs.networkx import from_networkx

Make = Callable[[nx.Graph], nx.Graph]


@pytest.fixture(autouse=True)
def no_warnings_of_the_cache() -> Iterator[None]:
    """NetworkX warns whenever it takes a converted graph a second time."""
    with nx.config(warnings_to_ignore={"cache"}):
        yield


@pytest.fixture(autouse=True)
def one_rank() -> Iterator[None]:
    """Conversions are the client's work, so that one rank will do."""
    with nx.config.backends.dbfs(ranks=1):
        yield


CLOSED: set[int] = set()
"""Nodes that a filter of the views hides: state outside of any graph."""

VIEWS: dict[str, Make] = {
    "subgraph": lambda graph: graph.subgraph(range(6)),
    "edge_subgraph": lambda graph: graph.edge_subgraph([(node, node + 1) for node in range(6)]),
    "reverse": lambda graph: graph.reverse(copy=False),
    "undirected": lambda graph: graph.to_undirected(as_view=True),
    "plain": nx.graphviews.generic_graph_view,
    "filter": lambda graph: nx.subgraph_view(graph, filter_node=lambda node: node not in CLOSED),
    "view of a view": lambda graph: graph.reverse(copy=False).subgraph(range(6)),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_the_graph_as_it_is(client: distributed.Client, view: str) -> None:
    graph = nx.path_graph(8, create_using=nx.DiGraph)
    seen = VIEWS[view](graph)
    for change in (lambda: None, lambda: graph.remove_edge(2, 3), lambda: CLOSED.add(5)):
        change()
        expected = nx.closeness_centrality(seen)
        assert nx.closeness_centrality(seen, backend="dbfs") == expected
        # The first call's conversion is not taken for the second one either.
        assert nx.closeness_centrality(seen, backend="dbfs") == expected
    CLOSED.clear()


def test_a_mapping_that_reads_elsewhere_is_no_dict_to_keep(client: distributed.Client) -> None:
    class Listed(nx.DiGraph):
        """A graph that shows the neighbours of another one."""

    graph, listed = nx.path_graph(4, create_using=nx.DiGraph), Listed()
    listed._node, listed._adj, listed._pred = graph._node, graph.adj, graph.pred
    assert nx.descendants(listed, 0, backend="dbfs") == {1, 2, 3}
    graph.remove_edge(1, 2)
    assert nx.descendants(listed, 0, backend="dbfs") == {1}


def test_a_graph_that_goes_before_its_edges_are_read_keeps_their_order(client: distributed.Client) -> None:
    edges = [("x", "a"), ("x", "b"), ("x", "c"), ("c", "d"), ("b", "d"), ("a", "d")]
    expected = list(nx.bfs_edges(nx.DiGraph(edges), "d", reverse=True))
    for found in (
        nx.bfs_edges(nx.DiGraph(edges), "d", reverse=True, backend="dbfs"),
        nx.bfs_edges(nx.DiGraph(edges).subgraph("abcdx"), "d", reverse=True, backend="dbfs"),
    ):
        gc.collect()
        assert list(found) == expected


def test_a_change_that_keeps_all_degrees_does_not_mix_with_the_conversion(client: distributed.Client) -> None:
    graph = nx.DiGraph([("s", "a"), ("s", "b"), ("a", "x"), ("b", "y"), ("x", "t"), ("y", "t")])
    converted = from_networkx(graph)
    expected = set(nx.bfs_edges(graph, "t", reverse=True))
    # Against the rules. Every node keeps its numbers of edges.
    graph.remove_edges_from([("a", "x"), ("b", "y")])
    graph.add_edges_from([("a", "y"), ("b", "x")])
    assert set(nx.bfs_edges(converted, "t", reverse=True)) == expected


@pytest.mark.parametrize("kind", [nx.Graph, nx.MultiGraph])
@pytest.mark.parametrize("take", [edge_list, from_networkx])
def test_a_filter_that_tells_directions_apart_is_refused(kind: type[nx.Graph], take: Callable[..., Any]) -> None:
    view = nx.subgraph_view(kind([(0, 1), (1, 2)]), filter_edge=lambda u, v, *_: u < v)
    with pytest.raises(EdgeInputError, match=r"shows the edge \((0, 1|1, 2)\) and hides \((1, 0|2, 1)\)"):
        take(view)


def thinned(graph: nx.Graph, hidden: set[Any], nodes: set[Any]) -> nx.Graph:
    """Return a view without some nodes and edges; edges are named by ends and key, in either order if undirected."""

    def shown(*edge: Any) -> bool:
        return edge not in hidden and (graph.is_directed() or (edge[1], edge[0], *edge[2:]) not in hidden)

    return nx.subgraph_view(graph, filter_node=lambda node: node not in nodes, filter_edge=shown)


def check_view(client: distributed.Client, view: nx.Graph) -> None:
    """Compare what dbfs makes of a view with what NetworkX makes of a copy of the view."""
    plain = type(view)()
    plain.add_nodes_from(view)
    # Each edge once; the copy of a view would go the same way through the filters.
    plain.add_edges_from(view.edges(keys=True) if view.is_multigraph() else view.edges())
    converted = from_networkx(view)
    assert (list(converted), converted.number_of_edges()) == (list(plain), plain.number_of_edges())
    assert nx.closeness_centrality(converted) == pytest.approx(nx.closeness_centrality(plain))
    for node in list(plain)[:2]:
        assert list(nx.bfs_edges(converted, node)) == list(nx.bfs_edges(view, node))
        assert nx.single_target_shortest_path(converted, node) == nx.single_target_shortest_path(view, node)
    if len(plain):
        loaded = dbfs.load(view, client=client, ranks=1)
        stored = plain.number_of_edges()
        if not plain.is_directed():
            stored = 2 * stored - nx.number_of_selfloops(plain)
        assert (loaded.n, loaded.m) == (len(plain), stored)


KINDS = [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph]


@pytest.mark.parametrize("kind", KINDS)
def test_filters_hide_edges_and_nodes(client: distributed.Client, kind: type[nx.Graph]) -> None:
    edges = [(0, 1), (0, 1), (1, 2), (2, 3), (2, 3), (3, 0), (4, 4)]
    graph = kind(edges)
    key = (0,) if graph.is_multigraph() else ()
    # One of two parallel edges, and the only edge between its ends.
    check_view(client, thinned(graph, {(0, 1, *key), (1, 2, *key)}, {3}))


@pytest.mark.full
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_filter(client: distributed.Client, data: st.DataObject) -> None:
    graph = data.draw(st.sampled_from(KINDS))()
    graph.add_nodes_from(data.draw(st.permutations(range(6)))[: data.draw(st.integers(1, 6))])
    nodes = st.sampled_from(list(graph))
    with nx.config.backends.dbfs(ranks=1):
        graph.add_edges_from(data.draw(st.lists(st.tuples(nodes, nodes), max_size=14)))
        listed = list(graph.edges(keys=True) if graph.is_multigraph() else graph.edges())
        hidden = data.draw(st.sets(st.sampled_from(listed))) if listed else set()
        check_view(client, thinned(graph, hidden, data.draw(st.sets(nodes, max_size=2))))


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "cloudpickle": lambda value: cloudpickle.loads(cloudpickle.dumps(value)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_that_the_backend_has_seen_is_copied_as_before(
    client: distributed.Client, kind: type[nx.Graph], way: str
) -> None:
    graph = kind([(0, 1), (1, 2)], name="ours")
    assert nx.has_path(graph, 0, 2, backend="dbfs")
    found = COPIES[way](graph)
    assert (type(found), found.graph, list(found.edges)) == (kind, graph.graph, list(graph.edges))
    found.add_edge(2, 3)
    assert nx.has_path(found, 0, 3, backend="dbfs")
    assert not nx.has_path(graph, 2, 0, backend="dbfs") or not graph.is_directed()
    # A copy that did not change either is converted anew, and keeps its own conversion.
    again = COPIES[way](graph)
    for _ in range(2):
        assert nx.closeness_centrality(again, backend="dbfs") == nx.closeness_centrality(graph)


@pytest.mark.parametrize("way", COPIES)
def test_a_converted_graph_is_copied_by_its_original(client: distributed.Client, way: str) -> None:
    converted = from_networkx(nx.path_graph(["a", "b", "c"], create_using=nx.DiGraph))
    assert nx.ancestors(converted, "c") == {"a", "b"}
    found = COPIES[way](converted)
    assert found is not converted
    assert (nx.ancestors(found, "c"), nx.descendants(found, "b")) == ({"a", "b"}, {"c"})


def test_a_task_gets_a_graph_that_the_backend_has_seen(client: distributed.Client) -> None:
    graph = nx.cycle_graph(5)
    assert nx.diameter(graph, backend="dbfs") == 2
    assert client.submit(nx.number_of_edges, graph).result() == 5

"""Every function of the NetworkX backend gives what NetworkX gives, in the same order where the order is visible."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import distributed
import hypothesis.strategies as st
import networkx as nx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from networkx.algorithms import bipartite

import dbfs.networkx.backend  # noqa: F401 - offers the functions
from dbfs.errors import InvalidOptionTypeError
from dbfs.features.batches import diameter
from dbfs.networkx import from_networkx
from dbfs.networkx.registry import OFFERS

# The others make a graph, and take none; or go by weights.
WEIGHTED = {name for name, offer in OFFERS.items() if offer.function.__module__ == "dbfs.networkx.weighted"}
TRAVERSING = {name for name, offer in OFFERS.items() if offer.check is None} - WEIGHTED
Call = tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def calls(graph: nx.Graph, one: Any, other: Any) -> Iterator[Call]:
    """Yield a name, a function of NetworkX and arguments after the graph: each function offered, with what it needs."""
    required = {"n": one, "source": one, "sources": one, "u": one, "target": other, "v": other, "distance": 2}
    required |= {"nodes": {one}, "S": {one, other}}
    for name, offer in OFFERS.items():
        if name not in TRAVERSING:
            continue
        _, *parameters = offer.signature.parameters.values()
        needed = {each.name: required[each.name] for each in parameters if each.default is each.empty}
        yield name, getattr(nx, name, None) or getattr(bipartite, name), (), needed
    for function in (nx.eccentricity, nx.closeness_centrality, nx.harmonic_centrality, nx.shortest_path_length):
        yield function.__name__, function, (one,), {}
    for function in (nx.shortest_path, nx.shortest_path_length, nx.predecessor):
        yield function.__name__, function, (one, other), {}
    yield "shortest_path", nx.shortest_path, (one,), {}
    for cutoff in (0, 1.5, 2, -1):
        for function in (nx.single_source_shortest_path, nx.single_target_shortest_path_length):
            yield function.__name__, function, (one,), {"cutoff": cutoff}
        yield "bfs_edges", nx.bfs_edges, (one,), {"depth_limit": cutoff}
    yield "bfs_tree", nx.bfs_tree, (one,), {"reverse": True}
    yield "bfs_edges", nx.bfs_edges, (one,), {"reverse": True}
    yield "bfs_layers", nx.bfs_layers, ([one, other],), {}
    yield "predecessor", nx.predecessor, (one,), {"cutoff": 2, "return_seen": True}
    yield "predecessor", nx.predecessor, (one, other), {"return_seen": True}
    yield "shortest_path", nx.shortest_path, (), {"target": one}
    yield "shortest_path_length", nx.shortest_path_length, (), {"target": one}
    yield "ego_graph", nx.ego_graph, (one,), {"radius": 2, "center": False, "undirected": True}
    yield "harmonic_centrality", nx.harmonic_centrality, (), {"nbunch": [one], "sources": [one, other]}
    yield "harmonic_centrality", nx.harmonic_centrality, (), {"nbunch": [one, other], "sources": [other]}
    for k in (None, *(range(len(graph) + 2) if len(graph) == 3 else [1, len(graph)])):
        for options in ({"endpoints": True}, {"normalized": False}, {}):
            arguments = {"k": k, "seed": 5} | options
            yield "betweenness_centrality", nx.betweenness_centrality, (), arguments
        for normalized in (True, False):
            arguments = {"k": k, "seed": 5, "normalized": normalized}
            yield "edge_betweenness_centrality", nx.edge_betweenness_centrality, (), arguments
    yield "eccentricity", nx.eccentricity, ([one, other],), {}
    yield "diameter", nx.diameter, (), {"usebounds": True}


# Dictionaries that list the nodes in another order than NetworkX's.
OTHER_ORDER = {
    "all_pairs_shortest_path_length", "color", "shortest_path_length", "single_source_shortest_path_length",
    "single_target_shortest_path_length",
}  # fmt: skip


def outcome(function: Callable[..., Any], graph: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the result, all of it, or the type of the error."""
    try:
        return plain(function(graph, *args, **kwargs))
    except (nx.NetworkXException, KeyError, ValueError, ZeroDivisionError, TypeError) as error:
        return type(error)


def plain(value: Any) -> Any:
    """Return a result without iterators and graphs, which do not compare."""
    if isinstance(value, nx.Graph):
        # Which end of an undirected edge comes first may depend on the hashes of the nodes.
        ends = list if value.is_directed() else sorted
        edges = [(ends([repr(source), repr(target)]), repr(data)) for source, target, data in value.edges(data=True)]
        return sorted(map(repr, value.nodes(data=True))), sorted(edges)
    if isinstance(value, Iterator):
        return "an iterator", [plain(one) for one in value]
    return value


def assert_same(name: str, found: Any, expected: Any) -> None:
    """Compare values, types and orders; inverse distances may be added in another order."""
    assert type(found) is type(expected)
    if isinstance(expected, float):
        assert math.isclose(found, expected, rel_tol=1e-12) or (math.isnan(found) and math.isnan(expected))
    elif isinstance(expected, dict):
        order = set if name in OTHER_ORDER else list
        assert order(found) == order(expected)
        for key, value in expected.items():
            assert_same(name, found[key], value)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_same(name, *pair)
    else:
        assert found == expected


NAMES = ["a", "b", ("c", 1), 4, 3.5, None, frozenset({1}), 0, -1, "z"]


@st.composite
def graphs(draw: st.DrawFn) -> nx.Graph:
    """Draw a graph with nodes of mixed types, in any order, with loops, parallel edges and attributes."""
    kind = draw(st.sampled_from([nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph]))
    nodes = [name for name in draw(st.permutations(NAMES))[: draw(st.integers(1, len(NAMES)))] if name is not None]
    graph = kind(nodes=1)
    graph.add_nodes_from(nodes or ["a"], colour="red")
    pairs = st.lists(st.tuples(st.sampled_from(list(graph)), st.sampled_from(list(graph))), max_size=25)
    graph.add_edges_from(draw(pairs), length=3)
    return graph


def check(graph: nx.Graph, one: Any, other: Any) -> set[str]:
    """Compare all functions on a graph; return the names of those that are defined there."""
    converted = from_networkx(graph)
    answered = set()
    for name, function, args, kwargs in calls(graph, one, other):
        expected = outcome(function, graph, *args, **kwargs)
        if not isinstance(expected, type):
            answered.add(name)
        found = outcome(function, converted, *args, **kwargs)
        if name in ("shortest_path", "bidirectional_shortest_path") and isinstance(expected, list):
            # Any shortest path between two nodes will do.
            assert nx.is_path(graph, found)
            assert (found[0], found[-1], len(found)) == (expected[0], expected[-1], len(expected))
        elif name == "all_shortest_paths" and isinstance(expected, list):
            # NetworkX's order is that in which its own search finds nodes.
            assert sorted(map(str, found)) == sorted(map(str, expected))
        else:
            assert_same(name, found, expected)
    return answered


# Of each type one graph. No two of their nodes are alike, and what lies within a distance is not all that is connected.
RING = [("a", "b"), ("b", ("c", 1)), (("c", 1), 4), (4, "a"), (4, 3.5), (3.5, -1)]
FIXED = (
    # Bipartite and connected: a ring with a tail.
    (nx.Graph(RING), "a", -1),
    # A ring in one direction, a way out of it, and a way into what lies behind.
    (nx.DiGraph([("a", "b"), ("b", 4), (4, "a"), (4, 3.5), (3.5, -1), ("z", 3.5)]), "b", -1),
    # Two components, with loops and parallel edges.
    (nx.MultiGraph([*RING, ("a", "b"), ("b", "b"), ("z", 0), ("z", 0)]), "b", 3.5),
    (nx.MultiDiGraph([*RING, *RING[:3], ("b", "b"), (-1, 4), ("z", 0)]), "a", 3.5),
)


def test_a_graph_of_each_type(client: distributed.Client) -> None:
    with nx.config.backends.dbfs(ranks=1):
        answered = set().union(*(check(*fixed) for fixed in FIXED))
    assert answered == TRAVERSING


# No smaller example is looked for: each takes half of a second.
@pytest.mark.full
@settings(max_examples=3, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(graph=graphs(), data=st.data())
def test_random_graphs(client: distributed.Client, graph: nx.Graph, data: st.DataObject) -> None:
    with nx.config.backends.dbfs(ranks=1):
        check(graph, data.draw(st.sampled_from(list(graph))), data.draw(st.sampled_from(list(graph))))


@pytest.mark.full
@pytest.mark.fuzz
@pytest.mark.parametrize("examples", [3, pytest.param(30, marks=pytest.mark.long)])
def test_many_random_graphs(client: distributed.Client, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(graph=graphs(), data=st.data())
    def check_any(graph: nx.Graph, data: st.DataObject) -> None:
        check(graph, data.draw(st.sampled_from(list(graph))), data.draw(st.sampled_from(list(graph))))

    check_any()


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(nx.cycle_graph(40), id="cycle", marks=pytest.mark.full),
        pytest.param(nx.barabasi_albert_graph(400, 2, seed=1), id="hubs", marks=pytest.mark.full),
        pytest.param(nx.grid_2d_graph(12, 12), id="lattice", marks=pytest.mark.full),
        pytest.param(nx.random_labeled_tree(60, seed=1), id="tree"),
    ],
)
def test_eccentricities_by_bounds(client: distributed.Client, graph: nx.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    # Vertices get traversals of their own after every third one.
    monkeypatch.setattr(diameter, "DEEP", (3, 5))
    monkeypatch.setattr(diameter, "SMALL_WORLD", (3, 5))
    converted = from_networkx(graph)
    for function in (nx.diameter, nx.radius, nx.center, nx.periphery, nx.eccentricity):
        expected = function(graph)
        found = function(converted)
        assert (sorted(found) if isinstance(found, list) else found) == (
            sorted(expected) if isinstance(expected, list) else expected
        )


@pytest.mark.full
def test_graphs_without_nodes_or_edges(client: distributed.Client) -> None:
    for kind, nodes in ((nx.Graph, []), (nx.DiGraph, []), (nx.Graph, ["a", "b"]), (nx.DiGraph, ["a"])):
        graph = kind()
        graph.add_nodes_from(nodes)
        converted = from_networkx(graph)
        for name, function, args, kwargs in calls(graph, "a", "b"):
            with nx.config.backends.dbfs(ranks=1):
                expected, found = (outcome(function, each, *args, **kwargs) for each in (graph, converted))
            assert_same(name, found, expected)


def test_results_have_the_types_and_orders_of_networkx(client: distributed.Client) -> None:
    graph = nx.Graph([("d", "c"), ("d", "b"), ("c", "a"), (17, 9)])
    graph.add_node(-1)
    converted, tree = from_networkx(graph), graph.subgraph("abcd")
    for name, function, one, args in (
        ("harmonic_centrality", nx.harmonic_centrality, graph, ()),
        ("harmonic_centrality", nx.harmonic_centrality, graph, (["d", 9, "a", 17, -1],)),
        ("schultz_index", nx.schultz_index, tree, ()),
        ("gutman_index", nx.gutman_index, tree, ()),
        ("barycenter", nx.barycenter, tree, ()),
    ):
        assert_same(name, function(converted if one is graph else from_networkx(one), *args), function(one, *args))
    # NetworkX goes from component to component, depth first; dbfs in the order of the graph.
    assert list(bipartite.color(converted)) == list(graph)


@pytest.mark.parametrize("graph", [nx.empty_graph(2), nx.DiGraph([(0, 1)], name="one way")])
def test_messages_name_the_graph_as_networkx_does(client: distributed.Client, graph: nx.Graph) -> None:
    words = []
    for one in (graph, from_networkx(graph)):
        with pytest.raises(nx.NetworkXNoPath) as raised:
            nx.barycenter(one)
        words.append(str(raised.value))
    assert words[0] == words[1]


def test_efficiency_of_no_node_is_refused(client: distributed.Client) -> None:
    graph = from_networkx(nx.path_graph(3))
    for nodes, name in (((None, 1), "u"), ((1, None), "v")):
        with pytest.raises(InvalidOptionTypeError, match=f"{name} must be a node, not None"):
            nx.efficiency(graph, *nodes)

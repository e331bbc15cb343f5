"""Graphs of other libraries and iterables of pairs: the same vertices and edges, isolated vertices among them."""

import igraph
import networkit
import networkx as nx
import numpy as np
import pytest
import rustworkx
from hypothesis import given, settings
from hypothesis import strategies as st

from dbfs.edges.resolve import edge_list
from dbfs.edges.tables import pairs
from dbfs.errors import EdgeInputError, InvalidOptionError
from dbfs_workers.building.pieces import PieceWithLoneIds
from dbfs_workers.ids.table import as_ids, as_python


def vertices_and_edges(listed, piece_edges=2):
    """Read all pieces: the set of vertices, and the list of edges."""
    edges, vertices = [], set(range(listed.n or 0))
    for piece in listed.cut(piece_edges):
        src, dst = (as_python(as_ids(ids)) for ids in piece.read())
        edges += zip(src, dst, strict=True)
        lone = piece.lone_ids() if isinstance(piece, PieceWithLoneIds) else None
        vertices |= {*src, *dst, *(() if lone is None else as_python(as_ids(lone)))}
    return vertices, edges


def crossed(edges, directed):
    return set(edges) | (set() if directed else {(dst, src) for src, dst in edges})


NODES = {
    "integers": st.integers(0, 2**63 - 1),
    "strings": st.text(st.characters(exclude_categories=["Cs"])),
    "tuples": st.tuples(st.integers(0, 9), st.text("abc")),
}


@pytest.mark.parametrize("kind", NODES)
@pytest.mark.parametrize("graph_type", [nx.DiGraph, nx.MultiGraph])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_networkx(kind, graph_type, data):
    graph = graph_type()
    graph.add_nodes_from(data.draw(st.lists(NODES[kind], max_size=9)))
    if graph.nodes:
        nodes = st.sampled_from(list(graph.nodes))
        graph.add_edges_from(data.draw(st.lists(st.tuples(nodes, nodes), max_size=15)))
    listed = edge_list(graph)
    vertices, edges = vertices_and_edges(listed)
    assert vertices == set(graph.nodes)
    found = listed.distinct_ids()
    assert found is not None
    assert found.count == len(graph.nodes)
    assert (listed.m, listed.directed) == (len(edges), graph.is_directed())
    assert sorted(edges) == sorted((src, dst) for src, dst, *_ in graph.edges)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12),
    st.booleans(),
    st.booleans(),
)
def test_igraph(n, given_pairs, directed, named):
    ends = [(src % n, dst % n) for src, dst in given_pairs]
    graph = igraph.Graph(n, ends, directed=directed)
    words = [f"v{place}" for place in range(n)]
    if named:
        graph.vs["name"] = words
        ends = [(words[src], words[dst]) for src, dst in ends]
    listed = edge_list(graph)
    vertices, edges = vertices_and_edges(listed)
    assert vertices == set(words if named else range(n))
    assert listed.directed == directed
    assert crossed(edges, directed) == crossed(ends, directed)


@pytest.mark.parametrize("removed", [None, 2])
@pytest.mark.parametrize("directed", [False, True])
def test_rustworkx_and_networkit(removed, directed):
    ends = [(0, 1), (1, 3), (3, 3), (2, 3)]
    first = (rustworkx.PyDiGraph if directed else rustworkx.PyGraph)()
    first.add_nodes_from(range(5))
    first.add_edges_from_no_data(ends)
    second = networkit.Graph(5, directed=directed)
    for pair in ends:
        second.addEdge(*pair)
    if removed is not None:
        first.remove_node(removed)
        second.removeNode(removed)
        ends.pop()
    for graph in (first, second):
        listed = edge_list(graph)
        vertices, edges = vertices_and_edges(listed)
        assert vertices == set(range(5)) - {removed}
        assert listed.directed == directed
        assert crossed(edges, directed) == crossed(ends, directed)


@pytest.mark.parametrize("graph", [nx.DiGraph([(1, 2)]), igraph.Graph([(0, 1)], directed=True)])
def test_a_directed_graph_crossed_both_ways(graph):
    assert edge_list(graph, directed=False).symmetrise


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=20))
def test_pairs_of_every_iterable(expected):
    for listed in (
        expected,
        iter(expected),
        tuple(expected),
        (pair for pair in expected),
        [*map(list, expected)],
        np.array(expected or np.empty((0, 2), int)),
    ):
        if isinstance(listed, list | np.ndarray) and len(listed) == 2 and not isinstance(listed[0], tuple):
            continue
        if isinstance(listed, tuple) and len(listed) == 2 and len(listed[0]) != 2:
            continue
        assert vertices_and_edges(edge_list(listed), 7)[1] == expected
    assert set(vertices_and_edges(edge_list(set(expected)))[1]) == set(expected)


def test_items_of_a_dictionary():
    assert vertices_and_edges(edge_list({"a": "b", "c": "d"}.items())) == (set("abcd"), [("a", "b"), ("c", "d")])


def test_pairs_in_chunks(monkeypatch):
    monkeypatch.setattr(pairs, "_CHUNK_PAIRS", 10)
    expected = [(i, i + 1) for i in range(25)]
    assert vertices_and_edges(edge_list(iter(expected)), 7)[1] == expected
    with pytest.raises(EdgeInputError, match="element 23 is 5"):
        edge_list([*expected[:23], 5])
    with pytest.raises(EdgeInputError, match="ids are of several types"):
        edge_list([*expected[:20], ("a", "b")])


BAD = {
    "mixed": (
        nx.Graph([(1, "a")]),
        "NetworkX graph: a vertex is of type int or str; ids are all integers, all strings",
    ),
    "mixed-isolated": (nx.compose(nx.Graph([(1, 2)]), nx.empty_graph(["a"])), "have ids of another type than those"),
    "floats": (nx.Graph([(0.5, 1.5)]), "a vertex is of type float"),
    "none": ([(None, 1)], "pairs: a vertex is of type NoneType or int"),
    "bools": (nx.Graph([(True, False)]), "a vertex is of type bool"),
    "frozensets": (nx.Graph([(frozenset("a"), frozenset("b"))]), "a vertex is of type frozenset"),
    "negative": (nx.Graph([(3, -1)]), "is -1; integer ids are 0 or more. ids='string' takes any id as a string"),
    "negative-isolated": (nx.empty_graph([-4]), "vertices without edges, row 0: column 'source' is -4"),
    "wide": ([(2**63, 1)], "a vertex is 9223372036854775808; integer ids are 0 to 2^63-1"),
    "lengths": (
        nx.Graph([((1, 2), (1, 2, 3))]),
        "a vertex is a tuple of length 2, and another of length 3; expected one length",
    ),
    "empty-tuples": ([((), ())], "a vertex is a tuple of length 0"),
    "nested": ([(((1, 2), 3), ((1, 2), 3))], "part 0 of a vertex is of type tuple"),
    "mixed-parts": ([((1, "a"), ("b", 1))], "part 0 of a vertex is of type int or str"),
    "surrogate": ([("\ud800", "a")], "no text that UTF-8 can hold"),
    "names-twice": (igraph.Graph.Star(3), ""),
    "triple": ([(1, 2), (1, 2, 0.5)], "pairs: element 1 is (1, 2, 0.5); expected a pair (source, target)"),
    "word": ([("a", "b"), "ab"], "pairs: element 1 is 'ab'; expected a pair"),
    "numbers": ([1, 2, 3], "pairs: element 0 is 1; expected a pair"),
    "long": ([("x" * 99, "y", "z")], "...; expected a pair"),
    "two-lists": ([[0, 1], [1, 2]], "pass dbfs.from_arrays(*edges), or tuples if each is an edge"),
    "float-array": (np.array([[0.5, 1], [1, 2], [2, 3]]), "src must hold integers, not float64"),
}
BAD["names-twice"][0].vs["name"] = ["a", "b", "a"]


@pytest.mark.parametrize("name", BAD)
def test_bad_graphs_and_pairs(name):
    graph, words = BAD[name]
    with pytest.raises(EdgeInputError) as caught:
        edge_list(graph)
    assert words in str(caught.value)


@pytest.mark.parametrize("graph", [nx.path_graph(3), rustworkx.PyGraph(), networkit.Graph(2), igraph.Graph(2)])
def test_options_of_graphs(graph):
    with pytest.raises(InvalidOptionError, match="is undirected: its edges have no order"):
        edge_list(graph, directed=True)
    with pytest.raises(InvalidOptionError, match="name columns of a table; a graph has none"):
        edge_list(graph, source="a", target="b")
    with pytest.raises(InvalidOptionError, match="format= is for files; a graph has none"):
        edge_list(graph, format="csv")

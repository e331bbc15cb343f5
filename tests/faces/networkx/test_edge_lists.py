"""Graphs that NetworkX's functions make of tables, lists, files and matrices: NetworkX's nodes and edges, in order."""

import copy
import gzip
import io
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from dbfs.networkx import BackendGraph
from dbfs.networkx.backend import backend

NODES = st.sampled_from(["a", 1, 1.0, True, 0, -7, ("b", 2), "1", frozenset({3}), 2.5])
MATRICES = st.integers(0, 9).flatmap(
    lambda n: st.lists(st.lists(st.sampled_from([0, 0, 1]), min_size=n, max_size=n), min_size=n, max_size=n).map(
        lambda rows: np.array(rows, np.int8).reshape(len(rows), len(rows))
    )
)
KINDS = st.sampled_from([None, nx.Graph, nx.DiGraph])


def assert_same(found: Any, expected: nx.Graph) -> None:
    """The same nodes and edges, in the order of both; the graph that NetworkX gets back has them too."""
    assert isinstance(found, BackendGraph)
    assert (found.is_directed(), found.is_multigraph()) == (expected.is_directed(), expected.is_multigraph())
    assert (list(found), found.number_of_edges()) == (list(expected), expected.number_of_edges())
    back = backend.convert_to_nx(found)
    assert type(back) is type(expected)
    assert nx.utils.graphs_equal(back, expected)
    for graph, adjacency in (back.adj, found.adjacency), *([(back.pred, found.against)] if back.is_directed() else []):
        theirs = expected.adj if graph is back.adj else expected.pred
        rows = np.split(adjacency.neighbours, adjacency.starts[1:-1])
        assert [found.nodes_of(row) for row in rows[: len(found)]] == [list(row) for row in theirs.values()]
        assert [list(row) for row in graph.values()] == [list(row) for row in theirs.values()]
    assert str(found) == str(expected)


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(NODES, NODES), max_size=12), kind=KINDS)
def test_lists_of_pairs(pairs: list[tuple[Any, Any]], kind: Any) -> None:
    assert_same(nx.from_edgelist(pairs, kind, backend="dbfs"), nx.from_edgelist(pairs, kind))
    table = pd.DataFrame({"from": [pair[0] for pair in pairs], "to": [pair[1] for pair in pairs]}, dtype=object)
    given = table, "from", "to", None, kind
    assert_same(nx.from_pandas_edgelist(*given, backend="dbfs"), nx.from_pandas_edgelist(*given))


@settings(deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), max_size=20),
    kind=KINDS,
    dtypes=st.tuples(*[st.sampled_from(["int8", "int64", "uint32", "float64", "Int64", "category", "object"])] * 2),
)
def test_columns_of_numbers(pairs: list[tuple[int, int]], kind: Any, dtypes: tuple[str, str]) -> None:
    ends = np.array(pairs, np.int64).reshape(-1, 2) % 9
    table = pd.DataFrame({"source": pd.Series(ends[:, 0]), "target": pd.Series(ends[:, 1])})
    table = table.astype(dict(zip(table, dtypes, strict=True)))
    found = nx.from_pandas_edgelist(table, create_using=kind, backend="dbfs")
    expected = nx.from_pandas_edgelist(table, create_using=kind)
    assert_same(found, expected)
    assert [*map(type, found)] == [*map(type, expected)]
    assert_same(nx.from_edgelist(ends, kind, backend="dbfs"), nx.from_edgelist(ends, kind))


def test_numbers_beyond_int64_stay_as_they_are() -> None:
    table = pd.DataFrame({"source": np.array([2**64 - 1, 3], np.uint64), "target": [-1, 2**62]})
    assert_same(nx.from_pandas_edgelist(table, backend="dbfs"), nx.from_pandas_edgelist(table))


@settings(deadline=None)
@given(matrix=MATRICES, kind=KINDS, data=st.data())
def test_matrices(matrix: np.ndarray, kind: Any, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["int8", "bool", "float32", "complex64", "uint64"]))
    given: dict[str, Any] = {"create_using": kind}
    if data.draw(st.booleans()):
        given["nodelist"] = data.draw(st.lists(NODES, min_size=len(matrix), max_size=len(matrix)))
    array = matrix.astype(dtype)
    assert_same(nx.from_numpy_array(array, **given, backend="dbfs"), nx.from_numpy_array(array, **given))
    given["edge_attr"] = None
    assert_same(nx.from_numpy_array(3 * array, **given, backend="dbfs"), nx.from_numpy_array(3 * array, **given))
    sparse = scipy.sparse.coo_array(matrix.astype(np.float64)).asformat(
        data.draw(st.sampled_from(["csr", "csc", "coo", "dok", "lil"]))
    )
    found = nx.from_scipy_sparse_array(sparse, create_using=kind, backend="dbfs")
    assert_same(found, nx.from_scipy_sparse_array(sparse, create_using=kind))


def test_a_sparse_matrix_that_has_an_entry_twice() -> None:
    twice = scipy.sparse.coo_array(([1, 1, 1], ([2, 0, 2], [1, 1, 1])), shape=(4, 4))
    assert_same(nx.from_scipy_sparse_array(twice, backend="dbfs"), nx.from_scipy_sparse_array(twice))


LINES = st.sampled_from(
    ["1 2", "2 1 # back", "# nothing", "", "3", " 4\t5 \n", "2,3", "5, 6,7", "1 2 {'weight': 3}\n", "a#b"]
)


@settings(deadline=None)
@given(
    lines=st.lists(LINES, max_size=8),
    kind=KINDS,
    delimiter=st.sampled_from([None, ",", " "]),
    comments=st.sampled_from(["#", "%", None]),
)
def test_lines(lines: list[str], kind: Any, delimiter: str | None, comments: str | None) -> None:
    given = {"create_using": kind, "delimiter": delimiter, "comments": comments, "data": False}
    assert_same(nx.parse_edgelist(iter(lines), **given, backend="dbfs"), nx.parse_edgelist(iter(lines), **given))


def test_files(tmp_path: Path, client: distributed.Client) -> None:
    path = tmp_path / "edges.txt.gz"
    path.write_bytes(gzip.compress("é b\nb c 5\n# no edge\nc d\n".encode("latin-1")))
    given: dict[str, Any] = {"data": False, "encoding": "latin-1"}
    expected = nx.read_edgelist(path, **given)
    found = nx.read_edgelist(path, **given, backend="dbfs")
    assert_same(found, expected)
    assert nx.shortest_path(found, "é", "d") == ["é", "b", "c", "d"]
    assert nx.closeness_centrality(found) == nx.closeness_centrality(expected)
    # A function that the backend does not have runs in NetworkX, on the same edges.
    with nx.config(fallback_to_nx=True):
        assert nx.core_number(found) == nx.core_number(expected)
    opened, given = io.BytesIO(b"1 2\n2 3\n"), {"nodetype": int, "data": False, "create_using": nx.DiGraph}
    numbers = nx.read_edgelist(opened, **given, backend="dbfs")
    assert nx.ancestors(numbers, 3) == {1, 2}
    with pytest.raises(TypeError, match="Failed to convert the node 'x' to type <class 'int'>"):
        nx.parse_edgelist(["1 x"], nodetype=int, data=False, backend="dbfs")


@pytest.mark.parametrize("way", [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_copies(client: distributed.Client, way: Callable[[Any], Any]) -> None:
    pairs = [("x", "a"), ("x", "b"), ("b", "d"), ("a", "d"), ("a", "d")]
    found = nx.from_edgelist(pairs, nx.DiGraph, backend="dbfs")
    assert nx.descendants(found, "a") == {"d"}
    again = way(found)
    assert_same(again, nx.from_edgelist(pairs, nx.DiGraph))
    assert list(nx.bfs_edges(again, "d", reverse=True)) == list(nx.bfs_edges(nx.DiGraph(pairs), "d", reverse=True))


TABLE = pd.DataFrame({"source": [0, 1], "target": [1, 2], "km": [5, 6]})
SPARSE = scipy.sparse.csr_array(np.array([[0, 2], [1, 0]]))
REFUSED: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], str]] = {
    "attributes": ("from_pandas_edgelist", (TABLE,), {"edge_attr": "km"}, "edge_attr='km': an edge has no attributes"),
    "keys": ("from_pandas_edgelist", (TABLE,), {"edge_key": "km"}, "edge_key='km'"),
    "multigraphs": ("from_pandas_edgelist", (TABLE,), {"create_using": nx.MultiGraph}, "new nx.Graph or nx.DiGraph"),
    "a graph to fill": ("from_edgelist", ([(0, 1)],), {"create_using": nx.Graph()}, "new nx.Graph or nx.DiGraph"),
    "data": ("from_edgelist", ([(0, 1), (1, 2, {"km": 5})],), {}, "an edge is more than a pair"),
    "triples": ("from_edgelist", (np.array([[0, 1, {}]], object),), {}, "an edge is more than a pair"),
    "an iterator": ("from_edgelist", (iter([(0, 1)]),), {}, "give a list"),
    "weights": ("from_numpy_array", (np.array([[0, 2], [2, 0]]),), {}, "edge_attr=None leaves it out"),
    "records": ("from_numpy_array", (np.zeros((1, 1), [("km", int)]),), {"edge_attr": None}, "no array of numbers"),
    "sparse weights": ("from_scipy_sparse_array", (SPARSE,), {}, "an entry is a weight"),
    "stored zeros": ("from_scipy_sparse_array", (SPARSE * 0,), {}, "an entry is a weight"),
    "data of lines": ("parse_edgelist", (["0 1"],), {}, "data=True: .*data=False leaves them out"),
    "typed data": ("parse_edgelist", (["0 1 2"],), {"data": [("km", int)]}, "data=False leaves them out"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_lost_is_left_to_networkx(case: str) -> None:
    name, arguments, options, words = REFUSED[case]
    function = getattr(nx, name)
    assert re.search(words, str(backend.can_run(name, arguments, options)))
    with pytest.raises(NotImplementedError, match="not implemented by 'dbfs' backend"):
        function(*arguments, **options, backend="dbfs")
    with nx.config(fallback_to_nx=True), nx.config.backend_priority(generators=["dbfs"]):
        assert isinstance(function(*arguments, **options), nx.Graph)


def test_networkx_chooses_the_backend_for_new_graphs() -> None:
    with nx.config.backend_priority(generators=["dbfs"]):
        assert_same(nx.from_pandas_edgelist(TABLE), nx.Graph([(0, 1), (1, 2)]))


def test_errors_are_those_of_networkx() -> None:
    for call in (
        lambda **given: nx.from_numpy_array(np.ones((2, 3)), **given),
        lambda **given: nx.from_numpy_array(np.ones(3), **given),
        lambda **given: nx.from_numpy_array(np.ones((2, 2)), nodelist=[1], **given),
        lambda **given: nx.from_scipy_sparse_array(scipy.sparse.csr_array(np.ones((2, 3))), **given),
        lambda **given: nx.from_pandas_edgelist(TABLE, "source", "nowhere", **given),
        lambda **given: nx.from_edgelist([(0, None)], **given),
        lambda **given: nx.from_edgelist([(0, [1])], **given),
    ):
        with pytest.raises(Exception) as theirs:
            call()
        with pytest.raises(type(theirs.value)):
            call(backend="dbfs")

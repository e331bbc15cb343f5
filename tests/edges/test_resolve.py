"""What ``load`` and ``estimate`` take, and the message for each argument that they don't."""

from pathlib import Path
from typing import Any

import dask
import distributed
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

import dbfs
from dbfs.edges.resolve import edge_list
from dbfs.errors import EdgeInputError, InvalidOptionError

SRC, DST = np.array([0, 1, 2]), np.array([1, 2, 3])
MATRIX = scipy.sparse.coo_array((np.ones(3), (SRC, DST)), shape=(4, 4))
PAIRS = [(0, 1), (1, 2), (2, 3)]

TAKEN = {
    "spec": "path:n=4",
    "edge list": dbfs.path(4),
    "arrays": (SRC, DST),
    "columns": (pd.Series(SRC), pd.Series(DST)),
    "matrix": MATRIX + MATRIX.T,
    "csc matrix": scipy.sparse.csc_matrix(MATRIX + MATRIX.T),
    "table": pd.DataFrame({"from": SRC, "to": DST}),
    "graph": nx.path_graph(4),
    "pairs": PAIRS,
    "array of pairs": np.array(PAIRS),
    "edge index": np.array(PAIRS).T,
}


@pytest.fixture
def path_file(tmp_path: Path) -> Path:
    """A file of the same path graph."""
    (tmp_path / "path.mtx").write_text("%%MatrixMarket matrix coordinate pattern symmetric\n4 4 3\n2 1\n3 2\n4 3\n")
    return tmp_path / "path.mtx"


@pytest.mark.parametrize("given", TAKEN)
def test_load_takes_every_form_of_edges(client: distributed.Client, given: str) -> None:
    with dbfs.load(TAKEN[given], client=client, ranks=2) as graph:
        assert (graph.n, graph.directed) == (4, False)
        assert graph.bfs(0).distances().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("ranks", [1, 2])
def test_load_keeps_names_and_vertices_without_edges(client: distributed.Client, ranks: int) -> None:
    listed = nx.DiGraph([("carol", "bob"), ("alice", "bob"), ("bob", "dan")])
    listed.add_nodes_from(["eve", "ada"])
    with dbfs.load(listed, client=client, ranks=ranks) as graph:
        assert graph.ids().to_pylist() == ["ada", "alice", "bob", "carol", "dan", "eve"]
        assert graph.bfs("alice").distances().tolist() == [-1, 0, 1, -1, 2, -1]
        assert graph.bfs("eve").distances().tolist() == [-1, -1, -1, -1, -1, 0]


@pytest.mark.parametrize("given", TAKEN)
def test_estimate_takes_every_form_of_edges(given: str) -> None:
    assert dbfs.estimate(TAKEN[given], ranks=2).partition == dbfs.estimate(dbfs.path(4), ranks=2).partition


def test_estimate_takes_files(path_file: Path) -> None:
    expected = dbfs.estimate(dbfs.path(4), ranks=2).partition
    assert dbfs.estimate(path_file, ranks=2).partition == expected
    assert dbfs.estimate(str(path_file), ranks=2, format="matrix-market").partition == expected
    directed = dbfs.estimate(path_file, ranks=2, directed=True).partition
    assert directed["columns"] < expected["columns"]


def test_directions_of_arrays_and_matrices() -> None:
    assert edge_list((SRC, DST), directed=True).directed
    assert edge_list(MATRIX).directed
    assert edge_list(MATRIX + MATRIX.T, directed=True).directed
    with pytest.raises(EdgeInputError, match="not symmetric"):
        edge_list(MATRIX, directed=False)


@pytest.mark.parametrize("given", list(TAKEN))
def test_formats_are_for_files(given: str) -> None:
    with pytest.raises(InvalidOptionError, match="format= is for files"):
        edge_list(TAKEN[given], format="metis")


@pytest.mark.parametrize("given", ["spec", "edge list"])
def test_directions_that_are_fixed(given: str) -> None:
    with pytest.raises(InvalidOptionError, match="directed= is for files, arrays and matrices"):
        edge_list(TAKEN[given], directed=True)


@pytest.mark.parametrize(
    ("given", "call"),
    [
        (pl.LazyFrame({"a": [1]}), "pass edges.collect()"),
        ([SRC, DST], "dbfs.from_arrays(*edges)"),
        ((SRC.tolist(), DST.tolist()), "dbfs.from_arrays(*edges)"),
        ([(0, 1, 0.5), (1, 2, 0.5)], "or pairs (source, target), without further values, if each is an edge"),
        (dask.delayed([(1, 2)]), "holds no edges yet: pass edges.compute()"),
        (np.eye(3), "or scipy.sparse.csr_array(edges) for a matrix"),
        (np.eye(2), "has several meanings: pass (edges[:, 0], edges[:, 1]) for edges, one in each row"),
        (SRC, "must be a generator's spec, a path, an edge list, a table, a graph, pairs (source, target), two arrays"),
        (5, "or a SciPy sparse matrix, not int"),
        (b"web.txt", "or a SciPy sparse matrix, not bytes"),
        (None, "or a SciPy sparse matrix, not NoneType"),
    ],
)
def test_an_argument_of_another_type_names_the_call_that_converts_it(given: Any, call: str) -> None:
    with pytest.raises(EdgeInputError) as error:
        dbfs.estimate(given, ranks=2)
    assert call in str(error.value)
    assert str(error.value).startswith("edges must")


def test_the_calls_named_convert() -> None:
    frame = pd.DataFrame({"from": SRC, "to": DST})
    array, pair = np.array(PAIRS), [SRC, DST]
    for edges in (
        dbfs.from_arrays(frame["from"], frame["to"]),
        dbfs.from_arrays(*zip(*PAIRS, strict=True)),
        dbfs.from_arrays(*pair),
        edge_list((array[:, 0], array[:, 1])),
        edge_list(scipy.sparse.csr_array(MATRIX.toarray())),
    ):
        found = edges.distinct_ids()
        assert (edges.n if found is None else found.count, edges.m) == (4, 3)

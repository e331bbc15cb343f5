"""Containers whose values may be missing, masked or null: refused where one is, and read where none is.

The second edge lacks its source. Stored zeros of a matrix are values like any other: each stored entry is an edge.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import distributed
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse

import dbfs
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.resolve import edge_list
from dbfs.errors import EdgeInputError, InvalidOptionError, InvalidVertexTypeError

WHOLE, MISSING = [4, 1, 2], [4, None, 2]
ENDS = [7, 8, 9]
NAMES = {4: "d", 1: "a", 2: "b", None: None}


def masked(values: list[Any], dtype: Any = None) -> Any:
    filled = [("x" if dtype else 1) if value is None else value for value in values]
    return np.ma.array(filled, dtype=dtype, mask=[value is None for value in values])


def named(values: list[Any]) -> list[Any]:
    return [NAMES[value] for value in values]


def frame(values: Any, ends: Any = ENDS) -> pd.DataFrame:
    return pd.DataFrame({"a": values, "b": ends})


def in_dask(values: list[Any]) -> Any:
    arrays = [da.from_array(masked(each), chunks=2) for each in (values, ENDS)]
    return tuple(arrays)


SOURCES: dict[str, Callable[[list[Any]], Any]] = {
    "NumPy mask": lambda values: (masked(values), np.array(ENDS)),
    "NumPy mask, by from_arrays": lambda values: dbfs.from_arrays(masked(values), ENDS),
    "NumPy mask, two columns": lambda values: np.ma.stack([masked(values), np.ma.array(ENDS)], axis=1),
    "NumPy mask, two rows": lambda values: np.ma.stack([masked(values), np.ma.array(ENDS)]),
    "NumPy mask of strings": lambda values: (masked(named(values), "U1"), np.array(["x", "y", "z"])),
    "NumPy mask in dask": in_dask,
    "list": lambda values: dbfs.from_arrays(values, ENDS),
    "pandas Int64": lambda values: frame(pd.array(values, dtype="Int64")),
    "pandas Int64, a pair": lambda values: (pd.Series(values, dtype="Int64"), pd.Series(ENDS)),
    "pandas by Arrow": lambda values: frame(pd.array(values, dtype="int64[pyarrow]")),
    "pandas objects": lambda values: frame(named(values), ["x", "y", "z"]),
    "pandas categories": lambda values: frame(pd.Categorical(named(values)), ["x", "y", "z"]),
    "pandas in dask": lambda values: dd.from_pandas(frame(pd.array(values, dtype="Int64")), npartitions=2),
    "Arrow table": lambda values: pa.table({"a": values, "b": ENDS}),
    "Arrow dictionary": lambda values: pa.table(
        {"a": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(named(values))), "b": ["x", "y", "z"]}
    ),
    "Arrow runs": lambda values: pa.table(
        {"a": pa.RunEndEncodedArray.from_arrays([1, 2, 3], pa.array(named(values))), "b": ["x", "y", "z"]}
    ),
    "Arrow, a pair": lambda values: (pa.array(values), pa.array(ENDS)),
    "Arrow chunks, a pair": lambda values: (pa.chunked_array([values[:1], values[1:]]), pa.array(ENDS)),
    "Polars": lambda values: pl.DataFrame({"a": values, "b": ENDS}),
    "Polars, a pair": lambda values: (pl.Series(values), pl.Series(ENDS)),
    "DuckDB": lambda values: duckdb.from_arrow(pa.table({"a": values, "b": ENDS})),
}


def read(edges: EdgeList) -> list[tuple[Any, Any]]:
    parts = [
        [ids.tolist() if isinstance(ids, np.ndarray) else ids.to_pylist() for ids in piece.read()]
        for piece in edges.cut(9)
    ]
    return [pair for part in parts for pair in zip(*part, strict=True)]


@pytest.mark.parametrize("container", SOURCES)
def test_a_missing_id_is_refused(container: str) -> None:
    make = SOURCES[container]
    found = read(edge_list(make(WHOLE)))
    assert [source for source, _ in found] in (WHOLE, named(WHOLE))
    with pytest.raises(
        EdgeInputError, match=r"(src\[1\] is missing|row 1: column '(a|src)' is null); an edge needs both"
    ):
        read(edge_list(make(MISSING)))


@pytest.mark.parametrize(("name", "write"), [("e.parquet", pq.write_table), ("e.arrow", feather.write_feather)])
def test_a_missing_id_in_a_file_is_refused(tmp_path: Path, name: str, write: Any) -> None:
    path = tmp_path / name
    for values in (WHOLE, MISSING):
        write(pa.table({"a": values, "b": ENDS}), path)
        if values is WHOLE:
            assert read(edge_list(path)) == list(zip(WHOLE, ENDS, strict=True))
    with pytest.raises(EdgeInputError, match=r"row 1: column 'a' is null; an edge needs both ends"):
        read(edge_list(path))


@pytest.mark.parametrize("pairs", [[(0, 1), (np.ma.masked, 2)], [(0, 1), (None, 2)], [(0, 1), (pd.NA, 2)]])
def test_a_missing_id_among_pairs_is_refused(pairs: Any) -> None:
    with pytest.raises(EdgeInputError, match="a vertex is of type (MaskedConstant|NoneType|NAType) or int"):
        edge_list(pairs)


def test_masked_vertices_and_labels_are_refused(client: distributed.Client) -> None:
    """Also in arrays that are longer than those whose ids the client keeps."""
    with dbfs.load("path:n=5", client=client, ranks=2) as graph:
        for size in (2, 5000):
            ids = np.ma.array(np.zeros(size, np.int64), mask=np.arange(size) == 1)
            for call in (graph.bfs, graph.vertices_of, graph.ids_of):
                with pytest.raises(
                    InvalidVertexTypeError, match=r"must be (an integer, not None|integers, not masked)"
                ):
                    call(ids)
            ids.mask = False
            assert graph.bfs(ids).reached == 5
        labels = dbfs.Labels([0], np.ma.array(range(5), mask=[0, 0, 1, 0, 0]))
        with pytest.raises(InvalidOptionError, match="distances must be 5 integers, one a vertex, not masked int64"):
            dbfs.validate(graph, labels)


STORED = scipy.sparse.coo_array((np.array([0, 5, 1, -1]), ([0, 1, 1, 2], [1, 2, 2, 2])), shape=(3, 3))
ENTRIES = [(0, 1), (1, 2), (1, 2), (2, 2)]


def test_each_stored_entry_of_a_matrix_is_an_edge(tmp_path: Path) -> None:
    """Whatever its value, and as often as it is stored; in memory, in an archive and in a Matrix Market file."""
    scipy.sparse.save_npz(tmp_path / "a.npz", STORED)
    scipy.io.mmwrite(tmp_path / "a.mtx", STORED)
    for edges in (STORED, tmp_path / "a.npz", tmp_path / "a.mtx"):
        for directed in (None, True):
            assert sorted(read(edge_list(edges, directed=directed))) == ENTRIES


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "lil", "dok", "bsr", "dia"])
def test_zeros_of_each_layout(layout: str) -> None:
    """Those that fill a block or a diagonal are no entries."""
    rows, columns = np.array([0, 3, 1]), np.array([1, 1, 2])
    found = scipy.sparse.coo_array((np.array([0, 5, 7]), (rows, columns)), shape=(4, 4)).asformat(layout)
    filled = layout in ("bsr", "dia")
    assert sorted(read(edge_list(found))) == ([] if filled else [(0, 1)]) + [(1, 2), (3, 1)]


def test_a_matrix_is_symmetric_by_its_entries() -> None:
    """Two entries of one place are two edges, and a stored zero answers an entry of any value."""
    one = scipy.sparse.coo_array((np.array([0, 5]), ([0, 1], [1, 0])), shape=(2, 2))
    assert not edge_list(one).directed
    twice = scipy.sparse.coo_array((np.array([1, 1, 2]), ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    assert edge_list(twice).directed

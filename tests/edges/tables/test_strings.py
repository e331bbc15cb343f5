"""``ids="string"`` for every table: integers of any size and mixtures become strings, floats and nulls do not.

Axis: container. Also tables without rows, matrices in DataFrames, and columns that are not used.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import distributed
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import dbfs
from dbfs.edges.edge_list import tell_left_out
from dbfs.edges.readers import from_file
from dbfs.edges.resolve import edge_list
from dbfs.errors import EdgeInputError, InvalidOptionError

SRC, DST = [7, 10, 0], [10, 0, 9]
EXPECTED = [("7", "10"), ("10", "0"), ("0", "9")]


def pairs(edges: Any) -> list[tuple[Any, Any]]:
    parts = [piece.read() for piece in edges.cut(2)]
    return [pair for src, dst in parts for pair in zip(src.tolist(), dst.tolist(), strict=True)]


def saved(write: Callable[[Any, Path], Any], name: str) -> Callable[[Path], Any]:
    def make(folder: Path) -> Path:
        write(pa.table({"src": SRC, "dst": DST}), folder / name)
        return folder / name

    return make


FRAME = pd.DataFrame({"src": SRC, "dst": DST})
CONTAINERS: dict[str, Callable[[Path], Any]] = {
    "pandas": lambda _: FRAME,
    "objects": lambda _: pd.DataFrame({"src": [7, "10", 0], "dst": ["10", 0, np.int64(9)]}),
    "categories": lambda _: FRAME.assign(src=pd.Categorical([7, "10", 0])),
    "nullable": lambda _: FRAME.astype("Int64"),
    "Polars": lambda _: pl.DataFrame(FRAME),
    "uint64": lambda _: pl.DataFrame(FRAME).cast(pl.UInt64),
    "decimals": lambda _: pa.table({name: pa.array(ids.tolist(), pa.decimal128(38, 0)) for name, ids in FRAME.items()}),
    "dictionaries": lambda _: pa.table({name: pa.array(ids).dictionary_encode() for name, ids in FRAME.items()}),
    "pairs": lambda _: [(7, "10"), ("10", 0), (np.int64(0), 9)],
    "arrays": lambda _: (np.array(SRC), np.array(DST)),
    "two columns": lambda _: FRAME.to_numpy(),
    "dask": lambda _: dd.from_pandas(FRAME, npartitions=2),
    "dask arrays": lambda _: (da.from_array(np.array(SRC), chunks=2), da.from_array(np.array(DST), chunks=2)),
    "Parquet": saved(pq.write_table, "a.parquet"),
    "Feather": saved(feather.write_feather, "a.feather"),
    "CSV": saved(lambda table, path: table.to_pandas().to_csv(path, index=False), "a.csv"),
    "npy": saved(lambda table, path: np.save(path, table.to_pandas().to_numpy()), "a.npy"),
    "npz": saved(lambda table, path: np.savez(path, src=SRC, dst=DST), "a.npz"),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_integers_become_strings(tmp_path: Path, name: str) -> None:
    edges = edge_list(CONTAINERS[name](tmp_path), ids="string")
    assert pairs(edges) == EXPECTED
    assert edges.id_kinds == ("string",)


def test_integers_of_any_size_become_strings() -> None:
    card = 622188820004259028012
    assert pairs(edge_list(pd.DataFrame({"a": [card], "b": [-1]}), ids="string")) == [(str(card), "-1")]
    assert pairs(edge_list([(card, "x")], ids="string")) == [(str(card), "x")]
    wide = pl.DataFrame({"a": pl.Series([2**64 - 1], dtype=pl.UInt64), "b": pl.Series([1], dtype=pl.UInt64)})
    assert pairs(edge_list(wide, ids="string")) == [(str(2**64 - 1), "1")]
    parts = pd.DataFrame({"a": [1, "x"], "b": [2, 3], "c": [4, 5], "d": ["y", 6]})
    edges = edge_list(parts, source=["a", "b"], target=["c", "d"], ids="string")
    assert [tuple(one.values()) for one, _ in pairs(edges)] == [("1", "2"), ("x", "3")]
    for wrong in (pd.DataFrame({"a": [card], "b": [1]}), wide, [(card, 1)], pd.DataFrame({"a": [1, "x"], "b": [1, 2]})):
        with pytest.raises(EdgeInputError, match="ids='string' takes|ids are all integers|ids are of several types"):
            edge_list(wrong)


@pytest.mark.parametrize("value", [None, float("nan"), 1.5, True, b"x"])
def test_other_values_are_no_strings(value: Any) -> None:
    with pytest.raises(EdgeInputError, match="null|mixes types|holds"):
        pairs(edge_list(pd.DataFrame({"a": [1, value, "x"], "b": [1, 2, 3]}), ids="string"))


@pytest.mark.parametrize(
    "edges", [sp.eye_array(3), "kronecker:scale=4", dbfs.from_arrays([1], [2])], ids=["matrix", "spec", "edge list"]
)
def test_what_has_ids_of_its_own(edges: Any) -> None:
    for told in ({"ids": "string"}, {"missing": ()}, {"skip_rows": 1}, {"sep": ","}):
        with pytest.raises(InvalidOptionError, match=next(iter(told))):
            edge_list(edges, **told)  # type: ignore[arg-type]


def test_words_for_missing_values_are_names_in_tables(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": ["NA", "nan", "->"], "b": ["None", "null", "1.0"]})
    expected = list(frame.itertuples(index=False, name=None))
    frame.to_parquet(tmp_path / "a.parquet")
    for table in (frame, pl.DataFrame(frame), pa.table(dict(frame.items())), tmp_path / "a.parquet"):
        assert pairs(edge_list(table)) == expected


def test_tables_without_rows(tmp_path: Path) -> None:
    for table in (pd.DataFrame({"a": [], "b": []}), pl.DataFrame({"a": [], "b": []})):
        with pytest.raises(EdgeInputError, match="table has no rows"):
            edge_list(table)
    assert pairs(edge_list(pd.DataFrame({"a": [], "b": []}, dtype="int64"))) == []
    for name, kind in (("0", pa.null()), ("2", pa.float64()), ("3", pa.int64())):
        pq.write_table(pa.table({"a": pa.array([], kind), "b": pa.array([], kind)}), tmp_path / f"{name}.parquet")
    with pytest.raises(EdgeInputError, match=r"0.parquet has no rows"):
        from_file(tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": ["x"], "b": ["y"]}), tmp_path / "1.parquet")
    feather.write_feather(pa.table({"a": pa.nulls(0), "b": pa.nulls(0)}), tmp_path / "4.feather")
    found = from_file(tmp_path)
    assert (pairs(found), found.id_kinds, found.m) == ([("x", "y")], ("string",), 1)
    pq.write_table(pa.table({"a": pa.nulls(1), "b": pa.nulls(1)}), tmp_path / "5.parquet")
    with pytest.raises(EdgeInputError, match=r"5.parquet: column 'a' holds null"):
        from_file(tmp_path)


def test_an_empty_partition_has_no_types() -> None:
    frame = pd.DataFrame({"src": ["a", "b", "c"], "dst": ["b", "c", "a"]}, dtype=object)
    parts = dd.from_pandas(frame, npartitions=3)
    found = [piece.read() for piece in edge_list(parts[parts["src"] != "b"]).cut(1)]
    assert sum(len(src) for src, _ in found) == 2


def test_a_frame_with_the_labels_of_its_columns_is_a_matrix() -> None:
    for labels in (["a", "b"], ["a", "b", "c"], [0, 1, 2], [5, 7]):
        square = pd.DataFrame(np.eye(len(labels), dtype=int), labels, labels)
        with pytest.raises(EdgeInputError, match="adjacency matrix have. Pass networkx.from_pandas_adjacency"):
            edge_list(square)
    assert pairs(edge_list(pd.DataFrame([[1, 2], [2, 3]]))) == [(1, 2), (2, 3)]
    assert pairs(edge_list(pd.DataFrame([[1, 2], [2, 3]], ["b", "a"], ["a", "b"]))) == [(1, 2), (2, 3)]
    named = pd.DataFrame([["x", "y"], ["y", "z"]], ["a", "b"], ["a", "b"])
    assert pairs(edge_list(named, source="a", target="b")) == [("x", "y"), ("y", "z")]


def test_load_takes_strings_and_says_what_it_leaves_out(
    client: distributed.Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a title\nsource;target;weight\nNA;007;0.5\n007;1.0;2\n")
    told: dict[str, Any] = {"skip_rows": 1, "sep": ";", "missing": (), "ids": "string"}
    with caplog.at_level(logging.WARNING, "dbfs"), dbfs.load(path, client=client, **told) as graph:
        assert graph.bfs("NA").to_dict() == {"NA": 0, "007": 1, "1.0": 2}
    assert [record.getMessage() for record in caplog.records if "not used" in record.getMessage()] == [
        f"{path}: not used, since every edge counts as one step: weight"
    ]
    frame = FRAME.assign(since=2020)
    with caplog.at_level(logging.INFO, "dbfs"), dbfs.load(frame, client=client, ids="string") as graph:
        assert graph.bfs("7").to_dict() == {"7": 0, "10": 1, "0": 2, "9": 3}
    assert sum("every edge counts as one step: since" in record.getMessage() for record in caplog.records) == 1
    for graph, words in ((nx.Graph([(1, 2, {"weight": 3})]), "weight"), (sp.csr_array([[0, 2], [2, 0]]), "value")):
        caplog.clear()
        tell_left_out(edge_list(graph))
        assert [record.getMessage().split(": ")[-1] for record in caplog.records] == [words]
    with pytest.raises(InvalidOptionError, match="unknown ids 'str'; choose one of given, dense, string"):
        dbfs.load(FRAME, client=client, ids="str")

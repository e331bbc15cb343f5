"""Tables in memory as edges: every library's table gives the same ids, and bad values are refused with their row."""

import datetime
import decimal
import pickle

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbfs.edges.resolve import edge_list
from dbfs.errors import EdgeInputError, InvalidOptionError, InvalidOptionTypeError

NAMES = {"from": ["alice", "bob", "carol"], "to": ["bob", "carol", "dán"]}
NUMBERS = {"from": [7, 0, 2**40], "to": [0, 3, 7]}


def read(edges, piece_edges=2, **options):
    """Read all pieces, each pickled on its way, as lists."""
    found = ([], [])
    for piece in edge_list(edges, **options).cut(piece_edges):
        for whole, part in zip(found, pickle.loads(pickle.dumps(piece)).read(), strict=True):
            whole += part.tolist() if isinstance(part, np.ndarray) else part.to_pylist()
    return found


def as_columns(columns):
    return columns["from"], columns["to"]


TABLES = {
    "pandas": pd.DataFrame,
    "pandas-object": lambda columns: pd.DataFrame(columns, dtype=object),
    "pandas-category": lambda columns: pd.DataFrame(columns).astype("category"),
    "pandas-arrow": lambda columns: pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
    "pyarrow-batch": pa.record_batch,
    "pyarrow-reader": lambda columns: pa.table(columns).to_reader(),
    "pyarrow-chunks": lambda columns: pa.concat_tables([pa.table(columns).slice(0, 1), pa.table(columns).slice(1)]),
    "duckdb": lambda columns: duckdb.from_arrow(pa.table(columns)),
    "series": lambda columns: tuple(pd.DataFrame(columns)[name] for name in columns),
    "arrays": lambda columns: tuple(np.array(values) for values in columns.values()),
    "arrow-arrays": lambda columns: tuple(pa.array(values) for values in columns.values()),
}


@pytest.mark.parametrize("library", TABLES)
def test_names_of_every_library(library):
    assert read(TABLES[library](NAMES)) == as_columns(NAMES)


@pytest.mark.parametrize(
    "library", [library for library in TABLES if library not in ("series", "arrays", "arrow-arrays")]
)
def test_numbers_of_every_library(library):
    assert read(TABLES[library](NUMBERS)) == as_columns(NUMBERS)


def test_polars_categories():
    table = pl.DataFrame(NAMES).with_columns(pl.all().cast(pl.Categorical))
    assert read(table) == as_columns(NAMES)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_of_every_width(dtype):
    values = np.array([0, 1, 127], dtype)
    src, dst = edge_list(pd.DataFrame({"a": values, "b": values[::-1]})).cut(10)[0].read()
    assert src.dtype == dst.dtype == np.int64
    assert (src.tolist(), dst.tolist()) == ([0, 1, 127], [127, 1, 0])


def test_several_columns_are_tuples():
    table = pd.DataFrame({"host": ["a", "b"], "port": [1, 2], "to": ["b", "a"], "at": [2, 3]})
    src, dst = edge_list(table, source=["host", "port"], target=["to", "at"]).cut(10)[0].read()
    assert src.type == dst.type == pa.struct([("host", pa.large_string()), ("port", pa.int64())])
    assert dst.to_pylist() == [{"host": "b", "port": 2}, {"host": "a", "port": 3}]


def test_named_columns_among_others_of_any_type():
    table = pd.DataFrame({"w": [1.5, None], "b": [3, 4], "mixed": ["x", 1], "a": [1, 2]})
    assert read(table, source="a", target="b") == ([1, 2], [3, 4])


@pytest.mark.parametrize("column", ["a", ["a"], ["a", "b"]])
def test_a_column_is_not_both_ends(column):
    for make in (pd.DataFrame, pl.DataFrame, pa.table):
        with pytest.raises(InvalidOptionError, match="source= and target= both name 'a'.*self-loop"):
            read(make({"a": [1, 2], "b": [2, 3]}), source=column, target=column)


def test_columns_of_pandas_whose_labels_are_numbers():
    assert read(pd.DataFrame(np.arange(6).reshape(3, 2))) == ([0, 2, 4], [1, 3, 5])


def test_an_empty_table_has_one_empty_piece():
    assert read(pa.table({"a": pa.array([], pa.int32()), "b": pa.array([], pa.int64())})) == ([], [])


def test_a_piece_pickles_its_rows_only():
    table = pa.table({"a": np.arange(100_000), "b": np.arange(100_000)})
    assert len(pickle.dumps(edge_list(table).cut(10)[5])) < 3000


@given(st.lists(st.tuples(st.text(), st.text()), max_size=40), st.integers(1, 50))
def test_any_text_comes_back(pairs, piece_edges):
    table = pa.table(
        {"a": pa.array([a for a, _ in pairs], pa.string()), "b": pa.array([b for _, b in pairs], pa.string())}
    )
    assert list(zip(*read(table, piece_edges), strict=True)) == pairs


A, B = {"a": [1, 2, 3]}, {"b": [4, 5, 6]}
TIME = datetime.datetime(2020, 1, 1)
BAD = {
    "null": (pa.table({"a": [1, None, 3], **B}), "table, row 1: column 'a' is null; an edge needs both ends"),
    "null-name": (pd.DataFrame({"a": ["x", "y"], "b": ["x", None]}), "table, row 1: column 'b' is null"),
    "null-category": (pd.DataFrame({"a": ["x", None], "b": ["x", "y"]}, dtype="category"), "row 1: column 'a' is null"),
    "null-in-dictionary": (
        pa.table({"a": pa.DictionaryArray.from_arrays([0, 1], ["x", None]), "b": ["x", "y"]}),
        "row 1: column 'a' is null",
    ),
    "all-null": (pa.table({"a": pa.nulls(3), **B}), "column 'a' holds null; ids are integers from 0 to 2^63-1"),
    "nan": (pd.DataFrame({"a": [1, None, 3], **B}), "column 'a' holds float64; ids are integers"),
    "nan-objects": (
        pd.DataFrame({"a": [1.5, None, 3], **B}, dtype=object),
        "column 'a' holds double; ids are integers",
    ),
    "labelled-rows": (
        pd.DataFrame({"a": ["x", "y"], "b": ["x", None]}, index=["one", "two"]),
        "table, row 'two' of the index: column 'b' is null",
    ),
    "filtered-rows": (
        pd.DataFrame({"a": range(5), "b": range(-4, 1)})[2:],
        "table, row 2 of the index: column 'b' is -2",
    ),
    "mixed-labels": (
        pd.DataFrame({"a": ["x", "y", 3], **B}, index=pd.date_range("2020", periods=3)),
        "str in row Timestamp('2020-01-01 00:00:00') of the index and int in row Timestamp('2020-01-03 00:00:00')",
    ),
    "float": (pd.DataFrame({**A, "b": [0.5, 1, 2]}), "Missing values turn integers into floats in pandas"),
    "negative": (pa.table({**A, "b": [4, -5, 6]}), "table, row 1: column 'b' is -5; integer ids are 0 or more"),
    "past-int64": (
        pa.table({"a": pa.array([1, 2**63], pa.uint64()), "b": [1, 2]}),
        "row 1: column 'a' is 9223372036854775808; the largest integer id is 9223372036854775807",
    ),
    "python-integers": (
        pd.DataFrame({"a": [1, 2**64], "b": [1, 2]}, dtype=object),
        "column 'a' is 18446744073709551616 in row 1",
    ),
    "mixed": (
        pd.DataFrame({"a": ["x", "y", 3], **B}),
        "column 'a' mixes types: str in row 0 and int in row 2; ids must be of one type",
    ),
    "ends-differ": (pd.DataFrame({"a": ["x"], "b": [1]}), "column 'a' holds strings and column 'b' integers"),
    "bool": (pa.table({"a": [True], "b": [False]}), "column 'a' holds bool; ids are integers"),
    "time": (pd.DataFrame({"a": [TIME], "b": [TIME]}), "column 'a' holds datetime64["),
    "decimal": (pa.table({"a": [decimal.Decimal(1)], "b": [1]}), "column 'a' holds decimal128(1, 0)"),
    "binary": (pa.table({"a": [b"x"], "b": ["x"]}), "column 'a' holds binary; ids are"),
    "list": (pa.table({"a": [[1, 2]], "b": [1]}), "For ids that are tuples, name a column for each part"),
    "not-utf-8": (
        pa.table({"a": pa.array([b"\xff"]).view(pa.string()), "b": ["x"]}),
        "column 'a' holds text that is not UTF-8",
    ),
    "broken-categories": (
        pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([0, 9]), pa.array(["x"]), safe=False), "b": ["x", "y"]}),
        "column 'a' holds broken categories",
    ),
    "one-column": (pa.table(A), "table has 1 column ('a'); name those of an edge's ends by source= and target="),
    "three-columns": (pa.table({**A, **B, "w": [1, 2, 3]}), "table has 3 columns ('a', 'b', 'w'); name those"),
    "a-long-column": (pa.table({"x" * 9999: [1]}), f"table has 1 column ('{'x' * 15}…{'x' * 14}')"),
    "two-long-columns": (
        pa.table({"x" * 9999: [1], "y": [2]}),
        f"the name of column '{'x' * 15}…{'x' * 14}' has 9,999 characters; at most 255 are read",
    ),
    "no-columns": (pd.DataFrame(), "table has 0 columns (none)"),
    "same-names": (pd.DataFrame([[1, 2]], columns=["a", "a"]), "table has 2 columns named 'a'; expected one"),
    "series": (pl.Series([1, 2]), "the Series can't be read as a table"),
    "duckdb-fails": (duckdb.sql("select error('boom') a, 1 b"), "can't be read as a table"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tables(name):
    table, words = BAD[name]
    with pytest.raises(EdgeInputError) as caught:
        read(table)
    assert words in str(caught.value)


OPTIONS = {
    "missing": ({"source": "a", "target": "bee"}, EdgeInputError, "table has no column 'bee'; did you mean 'bees'?"),
    "lists": ({"source": "nowhere", "target": "a"}, EdgeInputError, "Its columns: 'a', 'bees', 'c'"),
    "one": ({"source": "a"}, InvalidOptionError, "target= is missing"),
    "lengths": ({"source": ["a", "c"], "target": "c"}, InvalidOptionError, "source= names 2 columns and target= 1"),
    "none": ({"source": [], "target": []}, InvalidOptionError, "source= names no column"),
    "number": ({"source": 3, "target": "a"}, InvalidOptionTypeError, "source must be a column's name or a list"),
    "format": ({"format": "csv"}, InvalidOptionError, "format= is for files; a table has none"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_bad_names(name):
    options, error, words = OPTIONS[name]
    with pytest.raises(error) as caught:
        edge_list(pd.DataFrame({"a": [1], "bees": [2], "c": [3]}), **options)
    assert words in str(caught.value)


def test_only_tables_have_columns():
    for edges in ("kronecker:scale=3", (np.arange(2), np.arange(2)), edge_list("path:n=3")):
        with pytest.raises(InvalidOptionError, match="name columns of a table"):
            edge_list(edges, source="a", target="b")


def test_the_row_of_a_bad_value_counts_from_the_start_of_the_table():
    table = pa.table({"a": pa.array([b"x"] * 7 + [b"\xff"]).view(pa.string()), "b": ["x"] * 8})
    edges = edge_list(table)
    with pytest.raises(EdgeInputError, match="UTF-8"):
        edges.cut(4)[1].read()
    assert edges.cut(4)[0].read()[0].to_pylist() == ["x"] * 4


def test_a_table_is_named_by_its_columns():
    frame = pd.DataFrame({"who": ["a"], "whom": ["b"], "w": [1]})
    assert edge_list(frame, source="who", target="whom").name == "who -> whom"
    assert edge_list(pl.from_pandas(frame), source=["who", "w"], target=["whom", "w"]).name == "who, w -> whom, w"

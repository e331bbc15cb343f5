"""Views against SciPy on the filtered table: any table, condition, order and number of ranks."""

from __future__ import annotations

import contextlib
import datetime
import tempfile
from pathlib import Path
from typing import Any

import dask
import distributed
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import (
    EdgeInputError,
    InvalidOptionError,
    InvalidOptionTypeError,
    InvalidVertexError,
    InvalidVertexTypeError,
    NameTakenError,
    ResultReleasedError,
)
from tests.support import oracle

COLUMNS = ["kind", "year", "length", "open", "day"]
DAYS = [datetime.date(2020, 1, day) for day in (1, 2, 3)]


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    """Rows (source, target, and the values of ``COLUMNS``)."""
    kinds = [pa.string(), pa.string(), pa.string(), pa.int32(), pa.float64(), pa.bool_(), pa.date32()]
    columns = [*zip(*rows, strict=True)] or [()] * len(kinds)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, ["source", "target", *COLUMNS])


def values(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | of


names = st.integers(0, 8).map(lambda number: f"v{number:02}")
rows = st.tuples(
    names,
    names,
    values(st.sampled_from(["road", "rail", ""])),
    values(st.integers(-3, 3)),
    values(st.sampled_from([0.0, -1.5, 2.5, float("inf"), float("nan")])),
    values(st.booleans()),
    values(st.sampled_from(DAYS)),
)
comparisons = st.one_of(
    st.builds(lambda value: pc.field("kind") == value, st.sampled_from(["road", "rail", "boat"])),
    st.builds(lambda some: pc.field("kind").isin(some), st.lists(st.sampled_from(["road", ""]), min_size=1)),
    st.builds(lambda value: pc.field("year") < value, st.integers(-4, 4)),
    st.builds(lambda value: pc.field("year") + 1 >= value, st.integers(-4, 4)),
    st.builds(lambda value: pc.field("length") > value, st.floats(-3, 3)),
    st.builds(lambda value: pc.field("day") <= value, st.sampled_from(DAYS)),
    st.just(pc.field("open")),
    st.sampled_from(COLUMNS).map(lambda column: pc.field(column).is_null()),
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=4,
)


def assert_distances(view: Graph, passing: pa.Table, *, directed: bool) -> None:
    """The counts, and the distances from some sources, are SciPy's on the rows that pass, and validate."""
    ids = view.ids().tolist()
    place = {name: vertex for vertex, name in enumerate(ids)}
    src, dst = (np.array([place[name] for name in passing[end].to_pylist()], np.int64) for end in ("source", "target"))
    matrix = oracle.adjacency(len(ids), src, dst, directed=directed)
    loops = int((src == dst).sum())
    assert view.m == (src.size if directed else 2 * src.size - loops)
    assert view.self_loops == loops
    assert view.input_edges == src.size
    assert view.m - view.duplicates == matrix.nnz
    for vertex, name in enumerate(ids[:3]):
        result = view.bfs(name, predecessors=True, validate=True)
        np.testing.assert_array_equal(result.distances(), oracle.distances(matrix, [vertex]))


@pytest.mark.full
@pytest.mark.timeout(300)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(rows, min_size=1, max_size=30),
    condition=conditions,
    second=conditions,
    ranks=st.integers(1, 4),
    directed=st.booleans(),
    order=st.sampled_from(["given", "degree"]),
    in_edges=st.booleans(),
    layout=st.sampled_from(["1d", "2d"]),
    saved=st.none() | st.integers(1, 4),
)
def test_a_view_is_the_graph_of_the_filtered_table(
    client: distributed.Client,
    rows: list[tuple[Any, ...]],
    condition: pc.Expression,
    second: pc.Expression,
    ranks: int,
    directed: bool,
    order: str,
    in_edges: bool,
    layout: str,
    saved: int | None,
) -> None:
    """Of a graph in either layout, or of one that it was saved as, on as many ranks or on others."""
    table = table_of(rows)
    options: dict[str, Any] = {"directed": directed, "order": order, "in_edges": in_edges, "layout": layout}
    with contextlib.ExitStack() as stack:
        graph = stack.enter_context(dbfs.load(table, edge_columns=COLUMNS, client=client, ranks=ranks, **options))
        if saved is not None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            graph.save(f"{folder}/graph")
            graph = stack.enter_context(dbfs.load(f"{folder}/graph", client=client, ranks=saved))
        view = stack.enter_context(graph.where(edges=condition))
        inner = stack.enter_context(view.where(edges=second))
        passing = table.filter(condition)
        assert_distances(view, passing, directed=directed)
        assert_distances(inner, passing.filter(second), directed=directed)


@pytest.mark.full
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("directed", [False, True])
def test_parallel_edges_pass_one_by_one(client: distributed.Client, directed: bool, order: str) -> None:
    generator = np.random.default_rng(3)
    m = 400
    table = pa.table(
        {
            "source": generator.integers(0, 30, m) * 7,
            "target": generator.integers(0, 30, m) * 7,
            "weight": generator.integers(0, 10, m),
            "name": pa.array([None if value == 3 else f"n{value}" for value in generator.integers(0, 8, m)]),
        }
    )
    options: dict[str, Any] = {"directed": directed, "order": order, "in_edges": True, "ranks": 3, "client": client}
    with dbfs.load(table, edge_columns=["weight", "name"], **options) as graph:
        assert graph.edge_columns == {"weight": pa.int64(), "name": pa.string()}
        assert graph.duplicates
        for condition in (pc.field("weight") < 3, pc.field("name") != "n1", pc.field("weight") > 99):
            with graph.where(edges=condition) as view:
                assert view.edge_columns == graph.edge_columns
                assert_distances(view, table.filter(condition), directed=directed)


TABLE = table_of(
    [
        ("a", "b", "road", 1, 0.5, True, DAYS[0]),
        ("b", "c", "rail", 2, 1.5, False, DAYS[1]),
        ("c", "d", "road", 3, None, True, DAYS[2]),
        ("d", "a", None, None, 2.5, None, None),
        ("a", "a", "road", 2, 3.5, True, DAYS[0]),
    ]
)


@pytest.fixture(scope="module")
def graph(client: distributed.Client) -> Any:
    with dbfs.load(TABLE, edge_columns=COLUMNS, client=client, ranks=2) as graph:
        yield graph


@pytest.mark.parametrize(
    "kind",
    ["pandas", "reader", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("polars", "arrow", "categories"))],
)
def test_every_kind_of_table(client: distributed.Client, kind: str) -> None:
    categories = TABLE.set_column(2, "kind", TABLE["kind"].dictionary_encode())
    given = {
        "pandas": lambda: TABLE.to_pandas(),
        "polars": lambda: pl.DataFrame(pl.from_arrow(TABLE)),
        "arrow": lambda: TABLE,
        "reader": lambda: TABLE.to_reader(2),
        "categories": lambda: categories.to_pandas(),
    }[kind]()
    with dbfs.load(given, edge_columns=["kind", "length"], client=client, ranks=2) as graph:
        for condition in (pc.field("kind") == "road", pc.field("length") > 1):
            with graph.where(edges=condition) as view:
                assert_distances(view, TABLE.filter(condition), directed=False)


@pytest.mark.parametrize(
    "kind", ["parquet", "csv", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("arrow", "csv.gz", "folder"))]
)
def test_every_kind_of_file(client: distributed.Client, kind: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(8)
    m = 900
    table = pa.table(
        {
            "source": generator.integers(0, 50, m),
            "target": generator.integers(0, 50, m),
            "kind": pa.array([None if value == 1 else f"k,{value}" for value in generator.integers(0, 5, m)]),
            "length": generator.integers(0, 99, m) / 4,
            "open": generator.random(m) < 0.5,
            "day": pa.array([DAYS[value] for value in generator.integers(0, 3, m)]),
            "code": pa.array([f"{value:03}" for value in generator.integers(0, 200, m)]),
        }
    )
    path = tmp_path / f"edges.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=200)
    elif kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=200)
    elif kind == "folder":
        path.mkdir()
        for part in range(3):
            pq.write_table(table.slice(300 * part, 300), path / f"{part}.parquet")
    else:
        table.to_pandas().to_csv(path, index=False)
    columns = ["kind", "length", "open", "day", "code"]
    written = {"format": "csv"} if kind.startswith("csv") else {}
    with (
        dask.config.set({"dbfs.build.piece-edges": 128}),
        dbfs.load(path, edge_columns=columns, client=client, ranks=3, **written) as graph,
    ):
        types = [pa.string(), pa.float64(), pa.bool_(), pa.date32(), pa.string()]
        assert graph.edge_columns == dict(zip(columns, types, strict=True))
        for condition in (
            pc.field("kind") != "k,2",
            pc.field("length") < 5,
            pc.field("open"),
            pc.field("day") == DAYS[1],
            pc.field("code") == "007",
        ):
            with graph.where(edges=condition) as view:
                assert_distances(view, table.filter(condition), directed=False)
        with pytest.raises(EdgeInputError, match="no column 'kinds'"):
            dbfs.load(path, edge_columns=["kinds"], client=client, **written)


def test_files_whose_values_change_their_type(client: distributed.Client, tmp_path: Path) -> None:
    rows = [f"{row},{row + 1},{row}" for row in range(100_000)]
    for last, word in (("12.5", "12.5"), ("x", "'x'")):
        path = tmp_path / "late.csv"
        path.write_text("\n".join(["source,target,year", *rows, f"1,2,{last}"]))
        with pytest.raises(EdgeInputError, match=f"column 'year' can't be kept as int64.*{word}"):
            dbfs.load(path, edge_columns="year", client=client, format="csv")
    for part, value in enumerate(["1", "1.5"]):
        (tmp_path / "set").mkdir(exist_ok=True)
        (tmp_path / "set" / f"{part}.csv").write_text(f"source,target,year\n1,2,{value}\n")
    with pytest.raises(EdgeInputError, match="'year' holds int64 in .* and double in"):
        dbfs.load(tmp_path / "set", edge_columns="year", client=client, format="csv")
    (tmp_path / "names.ncol").write_text("ann bob 2.5\nbob cat\t1\ncat ann 3\n")
    (tmp_path / "places.csv").write_text("ann,bob,2.5\nbob,cat,1\ncat,ann,3\n")
    for name, column in (("names.ncol", "weight"), ("places.csv", "2")):
        told = {"header": False} if column == "2" else {}
        edges = dbfs.from_file(tmp_path / name, **told)
        with dbfs.load(edges, edge_columns=column, client=client, ranks=2) as graph:
            assert graph.edge_columns == {column: pa.float64()}
            with graph.where(edges=pc.field(column) > 2) as view:
                assert view.bfs("ann").to_dict() == {"ann": 0, "bob": 1, "cat": 1}
                assert view.input_edges == 2
    (tmp_path / "list.txt").write_text("1 2\n2 3\n")
    with pytest.raises(InvalidOptionError, match="edge_columns="):
        dbfs.load(tmp_path / "list.txt", edge_columns="year", client=client)


@pytest.mark.parametrize(
    ("condition", "same"),
    [
        ("kind = 'road' and year < 3", (pc.field("kind") == "road") & (pc.field("year") < 3)),
        ("kind in ('rail', 'boat') or not (year < 3)", (pc.field("kind") == "rail") | ~(pc.field("year") < 3)),
        ("length between 1 and 3", (pc.field("length") >= 1) & (pc.field("length") <= 3)),
        ("year % 2 = 0 and open is not null", (pc.field("year") == 2) & pc.field("open").is_valid()),
        (pl.col("day") > datetime.date(2020, 1, 1), pc.field("day") > DAYS[0]),
        (pl.col("kind").str.starts_with("r"), pc.field("kind").is_valid()),
        (pl.lit(True), pc.scalar(True)),
    ],
)
def test_polars_and_sql(graph: Graph, condition: Any, same: pc.Expression) -> None:
    with graph.where(edges=condition) as view:
        assert_distances(view, TABLE.filter(same), directed=False)


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (pc.field("yeer") > 1, "no column 'yeer'; did you mean 'year'"),
        (pl.col("yeer") > 1, "no column 'yeer'; did you mean 'year'"),
        ("yeer > 1", "no column 'yeer'; did you mean 'year'"),
        (pc.field("kind") > 1, "(?s)can't be computed.*'kind', 'year'"),
        (pl.col("kind") > 1, "(?s)can't be computed.*'kind', 'year'"),
        (pc.field("year") + 1, "no condition: its values are int32"),
        (pl.col("year") + 1, "no condition: its values are Int32"),
        (pc.field(1) > 1, "name the columns"),
        ("year > ", "no expression of SQL"),
        ("year > max(year)", "other rows"),
        (pl.col("year") > pl.col("year").mean(), "other rows"),
        (pl.col("year").shift() > 1, "other rows"),
        (pl.col("year") > pl.len(), "other rows"),
        (pl.col("open").is_first_distinct() & pl.col("open"), "other rows"),
        (pl.col("year").fill_null(strategy="forward") > 1, "other rows"),
        (pl.col("open").shuffle(), "other rows"),
        (pl.col("year").over("kind") > 1, "other rows"),
        (pl.col("year").map_elements(bool, return_dtype=pl.Boolean), "other rows"),
    ],
)
def test_conditions_that_are_none(graph: Graph, condition: Any, words: str) -> None:
    with pytest.raises(InvalidOptionError, match=words):
        graph.where(edges=condition)


def test_wrong_calls(client: distributed.Client, graph: Graph) -> None:
    with pytest.raises(InvalidOptionTypeError, match="not list"):
        graph.where(edges=[1])
    with pytest.raises(InvalidOptionError, match="where\\(\\) takes"):
        graph.where()
    with pytest.raises(InvalidVertexError, match="zz"):
        graph.where(vertices=["a", "zz"])
    with pytest.raises(EdgeInputError, match="divide by zero"):
        graph.where(edges=pc.divide(pc.field("year"), pc.field("year") - 2) == 1)
    with dbfs.load(TABLE, client=client, source="source", target="target", ranks=2) as plain:
        with pytest.raises(InvalidOptionError, match="edge_columns="):
            plain.where(edges=pc.field("kind") == "road")
        assert plain.edge_columns == {}


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"edge_columns": ["kinds"]}, EdgeInputError, "no column 'kinds'; did you mean 'kind'"),
        ({"edge_columns": ["source"]}, EdgeInputError, "'source' is an end"),
        ({"edge_columns": ["kind", "kind"]}, InvalidOptionError, "'kind' twice"),
        ({"edge_columns": 3}, InvalidOptionTypeError, "not 3"),
    ],
)
def test_columns_that_are_not_kept(
    client: distributed.Client, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        dbfs.load(TABLE, client=client, **options)


def test_edges_without_columns(client: distributed.Client) -> None:
    with pytest.raises(InvalidOptionError, match="edge_columns= is for generators, tables"):
        dbfs.load([(1, 2)], edge_columns=["weight"], client=client)
    lists = TABLE.append_column("list", pa.array([[1]] * 5))
    for column, table in (("list", lists), ("none", TABLE.append_column("none", pa.nulls(5)))):
        with pytest.raises(EdgeInputError, match=f"column '{column}' holds"):
            dbfs.load(table, edge_columns=[column], client=client)
    frame = pd.DataFrame({"source": [1, 2], "target": [2, 3], "mixed": [1, "a"]})
    with pytest.raises(EdgeInputError, match="column 'mixed'"):
        dbfs.load(frame, edge_columns="mixed", client=client)


@pytest.mark.parametrize("order", [pytest.param("given", marks=pytest.mark.full), "degree"])
def test_a_view_is_a_graph_like_any_other(client: distributed.Client, order: str) -> None:
    generator = np.random.default_rng(4)
    m = 260
    table = pa.table(
        {
            "source": generator.integers(0, 50, m),
            "target": generator.integers(0, 50, m),
            "open": generator.random(m) < 0.6,
        }
    )
    kept = np.flatnonzero(generator.random(50) < 0.8)
    options: dict[str, Any] = {"order": order, "keep_edges": True, "ranks": 3, "client": client}
    with (
        dbfs.load(table, edge_columns="open", **options) as graph,
        graph.where(edges=pc.field("open"), vertices=kept) as view,
    ):
        passing = table.filter(table["open"]).to_pandas()
        passing = passing[passing["source"].isin(kept) & passing["target"].isin(kept)]
        expected = nx.from_pandas_edgelist(passing)
        expected.add_nodes_from(kept.tolist())
        sources = kept[:4].tolist()
        distances = dict(nx.all_pairs_shortest_path_length(expected))
        for engine in ("resident", "taskgraph"):
            for source in sources:
                result = view.bfs(source, engine=engine, validate=True, predecessors=True)
                assert result.to_dict() == distances[source]
        batch = view.bfs_batch(sources, keep="distances").distances()
        alone = [view.bfs(source, direction="bottom-up").distances() for source in sources]
        np.testing.assert_array_equal(batch.T.astype(np.int8), alone)
        closeness = view.closeness_centrality().to_pandas().set_index("vertex").iloc[:, 0].to_dict()
        assert closeness == pytest.approx(nx.closeness_centrality(expected))
        assert sorted(view.components().sizes) == sorted(map(len, nx.connected_components(expected)))
        part = view.subgraph(sources).to_networkx()
        assert sorted(map(sorted, part.edges())) == sorted(map(sorted, expected.subgraph(sources).edges()))
        assert sorted(view.neighbors(sources[0])) == sorted(expected[sources[0]])


@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("directed", [False, True])
def test_subgraphs_with_columns(client: distributed.Client, directed: bool, order: str) -> None:
    generator = np.random.default_rng(2)
    m = 200
    table = pa.table(
        {
            "source": generator.integers(0, 20, m),
            "target": generator.integers(0, 20, m),
            "km": generator.integers(0, 9, m),
            "kind": pa.array([None if value == 2 else f"k{value}" for value in generator.integers(0, 3, m)]),
        }
    )
    options: dict[str, Any] = {"order": order, "directed": directed, "client": client, "ranks": 3}
    with dbfs.load(table, edge_columns=["km", "kind"], **options) as graph:
        some = [7, 3, 0, 11, 12, 5]
        place = {one: at for at, one in enumerate(some)}
        expected = sorted(
            (source, target, km, kind or "")
            if directed or place[source] <= place[target]
            else (target, source, km, kind or "")
            for source, target, km, kind in zip(*(table[name].to_pylist() for name in table.schema.names), strict=True)
            if {source, target} <= set(some)
        )
        part = graph.subgraph(some, columns=["km", "kind"])
        found = part.to_arrow()
        assert found.schema.names == ["source", "target", "km", "kind"]
        rows = [*zip(*(found[name].to_pylist() for name in found.schema.names), strict=True)]
        assert sorted((*row[:3], row[3] or "") for row in rows) == expected
        # Parallel edges ascend by their values, whatever rank they come from.
        keys = [(place[source], place[target], km) for source, target, km, _ in rows]
        assert keys == sorted(keys)
        multi = part.to_networkx()
        assert multi.is_multigraph()
        assert multi.is_directed() is directed
        assert sorted(data["km"] for *_, data in multi.edges(data=True)) == sorted(row[2] for row in rows)
        with dbfs.load(part, edge_columns="km", client=client, ranks=2) as again:
            assert again.input_edges == len(expected)
            with again.where(edges=pc.field("km") > 4) as view:
                assert view.input_edges == sum(row[2] > 4 for row in rows)
        near = graph.khop(3, 1).subgraph(columns="km")
        assert near.to_arrow().schema.names == ["source", "target", "km"]
        assert graph.subgraph(some).edges == len({row[:2] for row in rows})
        for columns, words in (("kms", "no column 'kms'"), (["km", "x"], "no column 'x'")):
            with pytest.raises(InvalidOptionError, match=words):
                graph.subgraph(some, columns=columns)
    with dbfs.load(table.select(["source", "target"]), client=client) as plain:
        with pytest.raises(InvalidOptionError, match="no column 'km'"):
            plain.subgraph(some, columns="km")


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.full) for kind in (nx.Graph, nx.DiGraph)), nx.MultiGraph]
)
def test_attributes_of_networkx(client: distributed.Client, kind: type[nx.Graph[Any]]) -> None:
    generator = np.random.default_rng(12)
    made = kind()
    made.add_nodes_from(range(20))
    for source, target in generator.integers(0, 20, (60, 2)).tolist():
        made.add_edge(source, target, **({"km": source * target % 7} if source % 3 else {"kind": "x"}))
    with dbfs.load(made, edge_columns=["km", "kind"], client=client, ranks=2) as graph:
        assert graph.edge_columns == {"km": pa.int64(), "kind": pa.string()}
        for condition, passes in (
            (pc.field("km") > 2, lambda data: data.get("km", 0) > 2),
            (pc.field("kind") == "x", lambda data: "kind" in data),
        ):
            passing = kind(made)
            passing.remove_edges_from([edge for edge in made.edges if not passes(made.edges[edge])])
            with graph.where(edges=condition) as view:
                assert view.input_edges == passing.number_of_edges()
                for source in range(5):
                    assert view.bfs(source, validate=True).to_dict() == nx.single_source_shortest_path_length(
                        passing, source
                    )
    with pytest.raises(EdgeInputError, match="no column 'kms'; did you mean 'km'"):
        dbfs.load(made, edge_columns="kms", client=client)
    made.add_edge(1, 2, km="far")
    with pytest.raises(EdgeInputError, match="attribute 'km' can't be kept"):
        dbfs.load(made, edge_columns="km", client=client)


@pytest.mark.parametrize("directed", [False, True])
def test_weights_of_matrices(client: distributed.Client, directed: bool) -> None:
    generator = np.random.default_rng(9)
    dense = generator.integers(0, 5, (30, 30)) * (generator.random((30, 30)) < 0.2)
    dense = dense if directed else np.triu(dense) + np.triu(dense, 1).T
    with dbfs.load(scipy.sparse.csr_array(dense), edge_columns="weight", client=client, ranks=3) as graph:
        with graph.where(edges=pc.field("weight") > 2) as view:
            assert view.directed is directed
            matrix = scipy.sparse.csr_array((dense > 2).astype(int))
            assert view.m == view.input_edges == matrix.nnz
            for source in (0, 11, 29):
                result = view.bfs(source, validate=True)
                np.testing.assert_array_equal(result.distances(), oracle.distances(matrix, [source]))
    if not directed:
        i, j = np.argwhere(np.triu(dense, 1))[0]
        dense[i, j] += 7
        with pytest.raises(EdgeInputError, match=rf"entry \({i}, {j}\) is .* and entry \({j}, {i}\) is"):
            dbfs.load(scipy.sparse.csr_array(dense), edge_columns="weight", client=client, directed=False)
        with pytest.raises(EdgeInputError, match="no column 'km'"):
            dbfs.load(scipy.sparse.csr_array(dense), edge_columns="km", client=client)


@pytest.mark.parametrize("order", [pytest.param("given", marks=pytest.mark.full), "degree"])
def test_vertices_that_are_left_out(client: distributed.Client, order: str) -> None:
    generator = np.random.default_rng(5)
    src, dst = generator.integers(0, 60, (2, 150))
    kept = np.flatnonzero(generator.random(60) < 0.7)
    edges = dbfs.from_arrays(src, dst, n=60)
    with dbfs.load(edges, client=client, ranks=3, order=order) as base, base.where(vertices=kept) as view:
        inside = np.isin(src, kept) & np.isin(dst, kept)
        matrix = oracle.adjacency(60, src[inside], dst[inside], directed=False)
        for source in kept[:5].tolist():
            result = view.bfs(source, validate=True)
            np.testing.assert_array_equal(result.distances(), oracle.distances(matrix, [source]))
        gone = np.setdiff1d(np.arange(60), kept)
        assert view.deleted == gone.size
        assert [vertex in view for vertex in range(60)] == np.isin(np.arange(60), kept).tolist()
        with pytest.raises(InvalidVertexError, match=f"vertex {gone[0]} is left out of this graph"):
            view.bfs(int(gone[0]))
        with pytest.raises(InvalidVertexError, match="left out"):
            view.bfs(int(kept[0]), targets=int(gone[0]))
        components = view.components()
        assert (components.labels < 0).tolist() == (~np.isin(np.arange(60), kept)).tolist()
        with view.where(without=kept[:10]) as inner:
            assert inner.deleted == gone.size + 10
            again = base.where(vertices=kept[10:])
            assert inner.m == again.m
            again.unload()


@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize(
    "kind", ["arrow", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("pandas", "polars"))]
)
def test_vertices_by_their_columns(client: distributed.Client, kind: str, order: str) -> None:
    generator = np.random.default_rng(6)
    m, ids = 300, np.arange(40) * 3
    table = pa.table({"source": generator.choice(ids, m), "target": generator.choice(ids, m)})
    ids = np.unique([table["source"].to_numpy(), table["target"].to_numpy()])
    some = generator.permutation(ids)[:30]
    groups = pa.table({"group": [f"g{one % 4}" for one in some], "vertex": some, "size": some % 7, "other": some})
    given = {"pandas": groups.to_pandas, "polars": lambda: pl.DataFrame(pl.from_arrow(groups)), "arrow": lambda: groups}
    options: dict[str, Any] = {"vertices": given[kind](), "vertex_columns": ["size", "group"], "order": order}
    with dbfs.load(table, client=client, ranks=3, **options) as graph:
        assert graph.vertex_columns == {"size": pa.int64(), "group": pa.string()}
        for condition in (pc.field("group") == "g1", pl.col("size") > 3, pc.field("size").is_null()):
            # The vertices that have no row have nulls.
            frame = pl.DataFrame({"vertex": ids}).join(pl.DataFrame(pl.from_arrow(groups)), on="vertex", how="left")
            if isinstance(condition, pl.Expr):
                kept = frame.filter(condition)["vertex"].to_numpy()
            else:
                kept = frame.to_arrow().filter(condition)["vertex"].to_numpy()
            with graph.where(vertices=condition) as view, view.where(vertices=pc.field("size") != 5) as inner:
                assert sorted(kept) == [one for one in ids.tolist() if one in view]
                passing = table.filter(
                    pc.is_in(table["source"], pa.array(kept)).combine_chunks().to_numpy(zero_copy_only=False)
                    & pc.is_in(table["target"], pa.array(kept)).combine_chunks().to_numpy(zero_copy_only=False)
                )
                assert view.input_edges == passing.num_rows
                assert inner.vertex_columns == graph.vertex_columns
                assert all(one % 7 != 5 for one in ids.tolist() if one in inner)


@pytest.mark.parametrize(
    ("vertices", "columns", "error", "words"),
    [
        ({"vertex": ["a", "zz"], "x": [1, 2]}, ["x"], InvalidVertexError, "table of vertices, column 'vertex'.*'zz'"),
        ({"vertex": ["a", "b", "a"], "x": [1, 2, 3]}, ["x"], EdgeInputError, "rows 0 and 2 are both of 'a'"),
        ({"vertex": ["a", None], "x": [1, 2]}, ["x"], EdgeInputError, "row 1: column 'vertex' is null"),
        ({"vertex": ["a"], "x": [1]}, ["y"], EdgeInputError, "no column 'y'"),
        ({"p": ["a"], "q": ["a"], "x": [1]}, ["x"], EdgeInputError, "must be called 'vertex'.*'p', 'q'"),
        ({"vertex": [1], "x": [1]}, ["x"], InvalidVertexTypeError, "string"),
        (None, ["x"], InvalidOptionError, "vertex_columns= needs vertices="),
        ({"vertex": ["a"]}, None, InvalidOptionError, "vertices= needs vertex_columns="),
    ],
)
def test_tables_of_vertices_that_do_not_fit(
    client: distributed.Client, vertices: Any, columns: Any, error: type[Exception], words: str, leaves_nothing: None
) -> None:
    table = None if vertices is None else pa.table(vertices)
    with pytest.raises(error, match=words):
        dbfs.load(TABLE, client=client, source="source", target="target", vertices=table, vertex_columns=columns)


def test_the_estimate_counts_columns(client: distributed.Client) -> None:
    plain, kept = (
        dbfs.estimate(TABLE, 2, source="source", target="target", edge_columns=columns) for columns in (None, COLUMNS)
    )
    assert kept.partition_bytes > plain.partition_bytes
    assert set(kept.partition) - set(plain.partition) == {"attributes"}


def test_a_view_outlives_its_graph_and_does_not_change(client: distributed.Client, leaves_nothing: None) -> None:
    base = dbfs.load(TABLE, edge_columns=COLUMNS, client=client, ranks=2, order="degree")
    with base.where(edges=pc.field("kind") == "road", name="roads") as view:
        base.unload()
        with pytest.raises(ResultReleasedError):
            base.where(edges=pc.field("kind") == "road")
        assert_distances(view, TABLE.filter(pc.field("kind") == "road"), directed=False)
        assert dbfs.open("roads", client=client).edge_columns == view.edge_columns
        inner = view.where(edges=pc.field("year") > 1, name="later")
        assert [(status.name, status.m) for status in view.views()] == [("later", inner.m)]
        assert inner.views() == []
        inner.unload()
        assert view.views() == []
        with pytest.raises(NameTakenError):
            view.where(edges=pc.field("year") > 1, name="roads")
        for change in (
            lambda: view.insert_edges([("a", "c")]),
            lambda: view.delete_vertices("a"),
            view.thaw,
        ):
            with pytest.raises(InvalidOptionError, match="can't be changed"):
                change()

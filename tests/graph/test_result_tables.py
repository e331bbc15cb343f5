"""Every kind of result is of one piece: the same table in Arrow, pandas, Polars and Parquet, in ids, and as HTML."""

import asyncio
import pickle
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbfs
from dbfs import asynchronous
from dbfs.assembly import Graph
from dbfs.errors import EdgeInputError, InvalidOptionError, MissingPackageError, OutputError, ResultReleasedError
from dbfs.graph.distances import DistanceMatrix
from dbfs.graph.tabular import Tabular

# Two components; one id is hostile in HTML.
HOSTILE = "<script>&'\"ü"
PAIRS = [("a", "b"), ("b", "c"), ("c", HOSTILE), ("x", "y")]
NAMES = sorted({one for pair in PAIRS for one in pair}, key=str.encode)

RESULTS: dict[str, Callable[[Any, Callable[[str], Any]], Any]] = {
    "bfs": lambda graph, of: graph.bfs(of("a"), predecessors=True),
    "bfs of several": lambda graph, of: graph.bfs([of("a"), of("x")]),
    "nearest": lambda graph, of: graph.bfs([of("a"), of("c")]).nearest(),
    "batch": lambda graph, of: graph.bfs_batch([of("c"), of("a")]),
    "reached": lambda graph, of: graph.bfs_batch([of("c"), of("x")], keep="reached"),
    "distances": lambda graph, of: graph.bfs_batch([of("c"), of("x")], keep="distances"),
    "targets": lambda graph, of: graph.bfs_batch([of("c"), of("x")], targets=[of("a")]).target_distances(),
    "nearest of a batch": lambda graph, of: graph.bfs_batch([of("c"), of("a")], nearest=True).nearest(),
    "matrix": lambda graph, of: graph.distance_matrix([of("c"), of("x"), of("c")], [of("a"), of("y")]),
    "empty matrix": lambda graph, of: graph.distance_matrix([], [of("a")]),
    "khop": lambda graph, of: graph.khop(of("b"), 1),
    "subgraph": lambda graph, of: graph.subgraph([of("c"), of("b"), of("y")]),
    "tree": lambda graph, of: graph.bfs(of("a"), predecessors=True).tree(),
    "components": lambda graph, of: graph.components(),
    "measure": lambda graph, of: graph.closeness_centrality(),
    "sample": lambda graph, of: graph.harmonic_centrality(sample=4),
    "edge measure": lambda graph, of: graph.edge_betweenness_centrality(),
    "neighbourhood function": lambda graph, of: graph.neighbourhood_function(),
    "landmarks": lambda graph, of: graph.landmarks(2),
    "degrees": lambda graph, of: graph.degree_counts(),
}
KINDS: dict[str, Callable[[str], Any]] = {
    "strings": lambda name: name,
    "integers": lambda name: 1 + 10**12 * NAMES.index(name),
    "dense": NAMES.index,
    "tuples": lambda name: (name, NAMES.index(name)),
}


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of an Arrow table as Python's values, with tuples for structs and no NaN."""
    rows = [
        tuple(tuple(value.values()) if isinstance(value, dict) else value for value in row.values())
        for row in table.to_pylist()
    ]
    return [tuple(None if value != value else value for value in row) for row in rows]


def in_pandas(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(None if pd.isna(v) is True else v for v in row) for row in frame.itertuples(index=False, name=None)]


def words_of(result: Any) -> str:
    """The text of a result's HTML, which must be well formed."""
    return " ".join("".join(ET.fromstring(f"<body>{result._repr_html_()}</body>").itertext()).split())


@pytest.fixture(scope="module", params=KINDS)
def given(client: distributed.Client, request: pytest.FixtureRequest) -> Iterator[tuple[Graph, Callable[[str], Any]]]:
    of = KINDS[request.param]
    with dbfs.load([(of(u), of(v)) for u, v in PAIRS], client=client, ranks=2, name=f"{HOSTILE} graph") as graph:
        yield graph, of


@pytest.mark.parametrize("kind", RESULTS)
def test_every_form_has_the_same_rows(given: tuple[Graph, Any], tmp_path: Path, kind: str) -> None:
    graph, of = given
    result = RESULTS[kind](graph, of)
    assert isinstance(result, Tabular)
    table = result.to_arrow()
    rows = rows_of(table)
    known = {of(name) for name in NAMES}
    for name in {"source", "target", "vertex", "nearest", "landmark", "predecessor"} & {*table.column_names}:
        ids = [row[table.column_names.index(name)] for row in rows]
        assert {*ids} - {None} <= known, name
    for name in {"distance", "vertices", "component"} & {*table.column_names}:
        assert -1 not in table[name].to_pylist()
    streamed = pa.RecordBatchReader.from_stream(result).read_all()
    assert (streamed.schema, rows_of(streamed), rows_of(pa.table(result))) == (table.schema, rows, rows)
    frame, polars = result.to_pandas(), result.to_polars()
    assert (list(frame), polars.columns) == (table.column_names, table.column_names)
    assert in_pandas(frame) == rows
    assert rows_of(polars.to_arrow()) == rows
    if not isinstance(result, np.ndarray):
        assert pl.DataFrame(result).equals(polars)
    path = tmp_path / "table.parquet"
    result.to_parquet(path)
    assert sorted(map(repr, rows_of(pq.read_table(path)))) == sorted(map(repr, rows))
    with pytest.raises(InvalidOptionError, match="unknown compression 'lzma'; choose one of snappy"):
        result.to_parquet(tmp_path / "other.parquet", compression="lzma")
    with pytest.raises((InvalidOptionError, OutputError), match="no folder|can't be written"):
        result.to_parquet("/proc/no/such/folder.parquet")
    if kind not in ("subgraph", "tree", "edge measure"):
        with pytest.raises(EdgeInputError, match="edges must not be a .*, which has none"):
            dbfs.load(result, client=graph.gang.client)
    assert "<script>" not in result._repr_html_()
    assert words_of(result).startswith(f"dbfs.{type(result).__name__}")


def test_the_rows_of_each_kind(client: distributed.Client) -> None:
    with dbfs.load([("a", "b"), ("b", "c"), ("x", "y")], client=client, ranks=2) as graph:
        made = {kind: make(graph, lambda name: name) for kind, make in RESULTS.items()}
        rows = {kind: rows_of(result.to_arrow()) for kind, result in made.items()}
        assert rows["bfs"] == [("a", 0, None), ("b", 1, "a"), ("c", 2, "b")]
        near = [("a", "a", 0), ("b", "a", 1), ("c", "c", 0), ("x", None, None), ("y", None, None)]
        assert rows["nearest"] == rows["nearest of a batch"] == near
        assert rows["batch"] == [(one, distance, 1) for one in "ca" for distance in range(3)]
        assert rows["distances"] == [("c", "a", 2), ("c", "b", 1), ("c", "c", 0), ("x", "x", 0), ("x", "y", 1)]
        assert rows["reached"] == [row[:2] for row in rows["distances"]]
        assert rows["targets"] == [("c", "a", 2), ("x", "a", None)]
        far = [("c", "a", 2), ("c", "y", None)]
        assert rows["matrix"] == [*far, ("x", "a", None), ("x", "y", 1), *far]
        assert rows["khop"] == [("a", 1), ("b", 0), ("c", 1)]
        assert rows["components"] == [("a", 0), ("b", 0), ("c", 0), ("x", 1), ("y", 1)]
        assert rows["degrees"] == [(1, 4), (2, 1)]
        reach = [("b", "a", 1), ("b", "b", 0), ("b", "c", 1), ("b", "x", None), ("b", "y", None)]
        assert rows["landmarks"][:5] == reach
        # Unreached vertices beside the rows of the others.
        assert made["bfs"].to_polars(unreached=True)["distance"].to_list() == [0, 1, 2, None, None]
    with dbfs.load([(0, 1), (1, 2)], client=client, ranks=2) as graph:
        assert rows_of(graph.average_shortest_path_length().to_arrow()) == [(4 / 3, 0.0, 3)]
        assert "1.33333" in graph.average_shortest_path_length()._repr_html_()


def test_pairs_and_arrays_stay_what_they_were(client: distributed.Client) -> None:
    with dbfs.load("path:n=4", client=client, ranks=2) as graph:
        degrees, counts = graph.degree_counts()
        assert (degrees.tolist(), counts.tolist(), len(graph.degree_counts())) == ([1, 2], [2, 2], 2)
        nearest = graph.bfs_batch([0, 3], nearest=True).nearest()
        vertices, distances = nearest
        assert (vertices.tolist(), nearest[1].tolist()) == ([0, 0, 3, 3], distances.tolist())
        again = pickle.loads(pickle.dumps(nearest))
        assert [part.tolist() for part in again] == [vertices.tolist(), distances.tolist()]
        matrix = graph.distance_matrix([0, 3], [1, 2, 3])
        assert (matrix.dtype, matrix.shape, matrix.tolist()) == (np.dtype("i4"), (2, 3), [[1, 2, 3], [2, 1, 0]])
        assert (matrix.max(), matrix[1, 0], int(matrix[0].sum())) == (3, 2, 6)
        for plain in (matrix[0], matrix + 1, matrix == matrix, matrix.sum(axis=0)):
            assert type(plain) is np.ndarray
        assert rows_of(pickle.loads(pickle.dumps(matrix)).to_arrow()) == rows_of(matrix.to_arrow())
        for made in (matrix.T, matrix.copy(), matrix.astype(float)):
            assert isinstance(made, DistanceMatrix)
            assert made._repr_html_() is None
            assert pickle.loads(pickle.dumps(made)).tolist() == made.tolist()
            with pytest.raises(InvalidOptionError, match="its rows and columns have no ids"):
                made.to_pandas()


def test_tables_that_are_gone_or_absent(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with dbfs.load([("a", "b")], client=client, ranks=2) as graph:
        counts, kept = graph.bfs_batch(["a"]), graph.bfs_batch(["a"], keep="distances")
        kept.release()
        counts.release()
        with pytest.raises(ResultReleasedError):
            kept.to_pandas()
        assert rows_of(counts.to_arrow()) == [("a", 0, 1), ("a", 1, 1)]
        for result in (kept, counts):
            assert "Reached 2 to 2 of 2 vertices" in words_of(result)
        monkeypatch.setitem(sys.modules, "polars", None)
        for each in (graph.bfs("a"), graph.khop("a", 1)):
            with pytest.raises(MissingPackageError, match="to_polars needs Polars: pip install polars"):
                each.to_polars()


@pytest.mark.parametrize("columns", [["vertex", "distance"], ["source", "Vertex"], ["degree", "vertices"]])
def test_tables_of_values_are_no_edges(client: distributed.Client, tmp_path: Path, columns: list[str]) -> None:
    table = pa.table([[0, 1], [1, 2]], names=columns)
    pq.write_table(table, tmp_path / "values.parquet")
    for source in (table, table.to_pandas(), tmp_path / "values.parquet"):
        with pytest.raises(EdgeInputError, match="is that of a table of values, with a vertex in each row"):
            dbfs.load(source, client=client)
        with dbfs.load(source, client=client, ranks=1, source=columns[0], target=columns[1]) as graph:
            assert graph.n == 3


def test_an_asynchronous_client(client: distributed.Client, tmp_path: Path) -> None:
    async def go(address: str) -> None:
        async with distributed.Client(address, asynchronous=True, set_as_default=False) as there:
            graph = await asynchronous.load([("a", "b"), ("b", "c"), ("x", "y")], client=there, ranks=2)
            result = await graph.bfs(["a", "c"])
            batch = await graph.bfs_batch(["a", "c"], nearest=True)
            nearest = await batch.nearest()
            vertices, distances = nearest
            assert (vertices.tolist(), distances.tolist()) == ([0, 0, 2, -1, -1], [0, 1, 0, -1, -1])
            with pytest.raises(dbfs.errors.ClientError, match="send its two arrays instead"):
                pickle.dumps(nearest)
            many: list[Any] = [
                result,
                batch,
                nearest,
                await result.nearest(),
                await graph.components(),
                await graph.landmarks(1),
            ]
            for at, each in enumerate(many):
                table = await each.to_arrow()
                assert (
                    in_pandas(await each.to_pandas()) == rows_of(table) == rows_of((await each.to_polars()).to_arrow())
                )
                await each.to_parquet(tmp_path / f"{at}")
                assert sorted(rows_of(pq.read_table(tmp_path / f"{at}")), key=repr) == sorted(rows_of(table), key=repr)
                assert "dbfs." in (each._repr_html_() or "")
            near = await graph.khop("a", 1)
            assert rows_of(pa.table(near)) == rows_of(near.to_arrow()) == [("a", 0), ("b", 1)]
            assert "dbfs.Neighbourhood" in (near._repr_html_() or "")
            with pytest.raises(EdgeInputError, match="which has none"):
                await asynchronous.load(near, client=there)
            await graph.unload()

    with dask.config.set({"dbfs.write.folders": [str(tmp_path)]}):
        asyncio.run(go(client.scheduler.address))

"""Saved graphs have the columns of their edges and vertices again: on any ranks, whole or in pieces, or not damaged."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import DbfsError, EdgeInputError, FormatError, InvalidOptionError
from dbfs_workers.features.saved import blocks, writing
from tests.support.saved import Json, change_manifest, copied, read_manifest

M = 400
DAYS = [datetime.date(2020, 1, day) for day in (1, 2, 3)]
VALUES = {
    "whole": pa.int64(),
    "small": pa.uint8(),
    "share": pa.float32(),
    "open": pa.bool_(),
    "kind": pa.string(),
    "day": pa.date32(),
    "time": pa.time64("us"),
    "stamp": pa.timestamp("ms", "Europe/Berlin"),
    "took": pa.duration("s"),
    "none": pa.int16(),
}


def table_of(m: int, ids: list[str], seed: int) -> pa.Table:
    """A table with a column of each kind, with nulls; some edges are parallel."""
    generator = np.random.default_rng(seed)

    def column(kind: pa.DataType) -> pa.Array:
        numbers = [None if value == 0 else int(value) for value in generator.integers(0, 7, m)]
        if pa.types.is_boolean(kind):
            return pa.array([value and value > 3 for value in numbers], kind)
        if pa.types.is_string(kind):
            return pa.array([value and f"äöü {value}" * value for value in numbers], kind)
        return pa.array(numbers, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)

    columns = {name: column(kind) for name, kind in VALUES.items()} | {"none": pa.nulls(m, pa.int16())}
    ends = {end: [ids[value] for value in generator.integers(0, len(ids), m)] for end in ("source", "target")}
    return pa.table(ends | columns)


IDS = [f"v{number:03}" for number in range(70)]
TABLE = table_of(M, IDS, 3)
VERTICES = table_of(60, IDS, 4).drop_columns(["source", "target"]).append_column("vertex", pa.array(IDS[5:65]))

PRESENT = VERTICES.filter(pc.field("took").is_null())["vertex"][0].as_py()
"""A vertex of which the conditions below hold."""


def load(client: distributed.Client, **options: Any) -> Graph:
    vertices: dict[str, Any] = {"vertices": VERTICES, "vertex_columns": [*VALUES]}
    return dbfs.load(TABLE, edge_columns=[*VALUES], client=client, **vertices | options)


def rows_of(graph: Graph) -> list[Any]:
    """All rows of the edges, in an order that the ranks do not change."""
    found = graph.subgraph(graph.ids(), columns=list(graph.edge_columns)).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def assert_same(again: Graph, graph: Graph) -> None:
    assert again.edge_columns == graph.edge_columns
    assert again.vertex_columns == graph.vertex_columns
    assert rows_of(again) == rows_of(graph)
    for conditions in (
        {"edges": (pc.field("whole") < 4) | (pc.field("kind") == "äöü 1") | pc.field("open")},
        {"vertices": ((pc.field("small") > 2) & pc.field("kind").is_valid()) | pc.field("took").is_null()},
    ):
        with again.where(**conditions) as view, graph.where(**conditions) as same:
            assert (view.m, view.input_edges, view.self_loops) == (same.m, same.input_edges, same.self_loops)
            assert view.record.infos[0].deleted == same.record.infos[0].deleted
            assert view.bfs(PRESENT, validate=True).to_dict() == same.bfs(PRESENT).to_dict()


@pytest.mark.matrix
@pytest.mark.parametrize("saving", [1, 3])
@pytest.mark.parametrize("loading", [1, 2, 3])
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("new_order", [None, "degree"])
@pytest.mark.parametrize("shape", ["undirected", "directed", "in-edges"])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("mapped", [True, False])
def test_columns_are_saved_and_loaded(
    client: distributed.Client,
    leaves_nothing: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    saving: int,
    loading: int,
    order: str,
    new_order: str | None,
    shape: str,
    kept: bool,
    mapped: bool,
) -> None:
    monkeypatch.setattr(writing, "BLOCK_BYTES", 64)
    monkeypatch.setattr(writing, "ROWS_EVERY", 10)
    monkeypatch.setattr(blocks, "_GROUP_BYTES", 192)
    of_edges = {"directed": shape != "undirected", "in_edges": shape == "in-edges", "keep_edges": kept}
    with (
        load(client, ranks=saving, order=order, **of_edges) as graph,
        dask.config.set({"dbfs.build.piece-edges": 99}),
    ):
        graph.save(tmp_path / "graph")
        with dbfs.load(tmp_path / "graph", client=client, ranks=loading, mapped=mapped, order=new_order) as again:
            assert_same(again, graph)
            again.save(tmp_path / "again")
        with dbfs.load(tmp_path / "again", client=client, ranks=loading) as again:
            assert rows_of(again) == rows_of(graph)


def test_a_part_of_the_columns(client: distributed.Client, leaves_nothing: None, tmp_path: Path) -> None:
    with load(client, ranks=2) as graph:
        graph.save(tmp_path / "graph")
        rows = graph.subgraph(IDS, columns=["kind", "whole"]).to_arrow().to_pylist()
    for ranks in (2, 3):
        options: dict[str, Any] = {"client": client, "ranks": ranks}
        with dbfs.load(tmp_path / "graph", edge_columns=["kind", "whole"], vertex_columns=[], **options) as some:
            assert [*some.edge_columns] == ["kind", "whole"]
            assert some.vertex_columns == {}
            found = some.subgraph(IDS, columns=["kind", "whole"]).to_arrow().to_pylist()
            assert sorted(found, key=repr) == sorted(rows, key=repr)
        with dbfs.load(tmp_path / "graph", edge_columns=[], **options) as none:
            assert none.edge_columns == {}
            assert [*none.vertex_columns] == [*VALUES]
        table = pa.table({"vertex": IDS[:2], "name": ["Ann", "Bob"]})
        with dbfs.load(tmp_path / "graph", vertices=table, vertex_columns="name", **options) as other:
            assert [*other.vertex_columns] == ["name"]
            assert other.where(vertices=pc.field("name") == "Bob").bfs(IDS[1]).to_dict() == {IDS[1]: 0}
    with pytest.raises(EdgeInputError, match="no column 'kinds'; did you mean 'kind'"):
        dbfs.load(tmp_path / "graph", client=client, edge_columns=["kinds"])
    with dbfs.load(tmp_path / "graph", client=client, mutable=True, edge_columns=[], vertex_columns=[]) as plain:
        assert plain.edge_columns == {}
    as_saved, built = (dbfs.estimate(tmp_path / "graph", ranks) for ranks in (2, 3))
    assert as_saved.partition["attributes"] > built.partition["attributes"] // 2 > 0
    few = dbfs.estimate(tmp_path / "graph", 2, edge_columns=["small"])
    assert few.partition["attributes"] < as_saved.partition["attributes"] // 3


def test_a_view_is_saved_as_the_graph_that_it_is(
    client: distributed.Client, leaves_nothing: None, tmp_path: Path
) -> None:
    with load(client, ranks=3, order="degree") as graph, graph.where(edges=pc.field("whole") > 2) as view:
        view.save(tmp_path / "view")
        for ranks in (3, 2):
            with dbfs.load(tmp_path / "view", client=client, ranks=ranks) as again:
                assert_same(again, view)
        with graph.where(without=IDS[:2]) as fewer, pytest.raises(InvalidOptionError, match="2 deleted vertices"):
            fewer.save(tmp_path / "fewer")


def test_no_edges_and_no_vertices(client: distributed.Client, tmp_path: Path) -> None:
    table = TABLE.slice(0, 0)
    with dbfs.load(table, edge_columns=[*VALUES], client=client, ranks=2) as graph:
        graph.save(tmp_path / "graph")
        for ranks in (2, 1):
            with dbfs.load(tmp_path / "graph", client=client, ranks=ranks) as again:
                assert again.edge_columns == graph.edge_columns
    with dbfs.load(TABLE.slice(0, 1), edge_columns=["kind"], client=client, ranks=4) as graph:
        graph.save(tmp_path / "one")
        for ranks in (4, 3):
            with dbfs.load(tmp_path / "one", client=client, ranks=ranks) as again:
                assert rows_of(again) == rows_of(graph)


def test_the_files_of_columns_are_arrow(client: distributed.Client, tmp_path: Path) -> None:
    with load(client, ranks=1, directed=True) as graph:
        graph.save(tmp_path / "graph")
        rows = rows_of(graph)
    columns = read_manifest(tmp_path / "graph").columns
    assert columns is not None
    assert columns.ranks[0].out is not None
    found = pa.ipc.open_file(pa.memory_map(str(tmp_path / "graph" / columns.ranks[0].out.name))).read_all()
    found.validate(full=True)
    values = (tuple(row.values()) for row in found.to_pylist())
    assert sorted(values, key=repr) == sorted((row[2:] for row in rows), key=repr)


@pytest.fixture(scope="module")
def saved(client: distributed.Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("columns") / "graph"
    with load(client, ranks=2, directed=True, in_edges=True) as graph:
        graph.save(path)
    return path


def _set(*keys: Any, to: Any) -> Callable[[Json], None]:
    def change(graph: Any) -> None:
        for key in keys[:-1]:
            graph = graph[key]
        graph[keys[-1]] = to

    return change


RANK = ("columns", "ranks", 0)
LIES: dict[str, tuple[Callable[[Json], object], str]] = {
    "another type": (_set("columns", "edges", 0, "kind", to="int32"), r"value.whole is int64\[.*\]; expected int32"),
    "no type": (_set("columns", "edges", 0, "kind", to="list<int8>"), "column 'whole' holds 'list<int8>', which no"),
    "a name twice": (_set("columns", "edges", 0, "name", to="small"), "two columns have one name"),
    "a column less": (lambda graph: graph["columns"]["edges"].pop(), "has the arrays .*; expected"),
    "a rank less": (lambda graph: graph["columns"]["ranks"].pop(), "1 ranks have columns, of 2"),
    "no file": (_set(*RANK, "out", to=None), r"columns.ranks\[0\].out is missing"),
    "no in-edges": (_set(*RANK, "into", to=None), r"columns.ranks\[0\].into is missing"),
    "no columns": (_set("columns", "vertices", to=[]), r"columns.ranks\[0\].vertices is of no column"),
    "other rows": (
        lambda graph: graph["columns"]["ranks"].reverse(),
        r"ends.kind|value.small is uint8\[.*\]; expected|valid.whole is uint8\[.*\]; expected",
    ),
    "a path": (_set(*RANK, "vertices", "name", to="/etc/passwd"), "'/etc/passwd' is not the name of a file"),
    "no strings": (_set(*RANK, "out", "arrays", 0, "length", to=0), r"ends.kind is int32\[0\]; expected int32\[1\]"),
}


@pytest.mark.parametrize("lie", LIES)
def test_manifests_that_lie_of_columns(client: distributed.Client, saved: Path, tmp_path: Path, lie: str) -> None:
    path = copied(saved, tmp_path / "graph")
    change, words = LIES[lie]
    change_manifest(path, change)
    with pytest.raises(FormatError, match=words):
        dbfs.load(path, client=client, ranks=2)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(
    ("array", "value", "words"),
    [
        ("value.kind", 99, "column 'kind': .*(index|bounds|dictionary)"),
        ("ends.kind", -1, "column 'kind': "),
        ("text.kind", 0xFF, "column 'kind': .*UTF8"),
        ("value.time", -1, "column 'time': "),
    ],
)
def test_values_that_are_none(
    client: distributed.Client,
    leaves_nothing: None,
    saved: Path,
    tmp_path: Path,
    ranks: int,
    array: str,
    value: int,
    words: str,
) -> None:
    path = copied(saved, tmp_path / "graph")
    change_columns(path, array, value)
    with pytest.raises(FormatError, match=rf"columns-0-\w+.arrow, {words}"):
        dbfs.load(path, client=client, ranks=ranks)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("kind", ["columns-1", "vertices-0"])
def test_damaged_files_of_columns(
    client: distributed.Client, leaves_nothing: None, saved: Path, tmp_path: Path, ranks: int, kind: str
) -> None:
    path = copied(saved, tmp_path / "graph")
    (file,) = path.glob(f"{kind}*.arrow")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(FormatError, match=rf"{kind}-\w+.arrow is damaged"):
        dbfs.load(path, client=client, ranks=ranks)
    file.unlink()
    with pytest.raises(DbfsError, match=rf"{kind}-\w+.arrow: no such file"):
        dbfs.load(path, client=client, ranks=ranks)


def change_columns(path: Path, name: str, value: int) -> None:
    """Put a value into each item of an array of the columns of rank 0, and compute the checksums again."""
    import zlib

    def apply(graph: Json) -> None:
        file = graph["columns"]["ranks"][0]["out"]
        place = next(place for place in file["arrays"] if place["name"] == name)
        content = bytearray((path / file["name"]).read_bytes())
        array = np.frombuffer(content, place["dtype"], place["length"], place["offset"])
        array[:] = value
        (path / file["name"]).write_bytes(content)
        size = file["block_bytes"]
        file["checksums"] = [zlib.crc32(content[at : at + size]) for at in range(0, len(content), size)]

    change_manifest(path, apply)

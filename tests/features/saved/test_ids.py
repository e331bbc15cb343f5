"""The ids of a saved graph: any type, on any number of ranks, in order and in whole."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.edges.readers import from_file
from dbfs.edges.writers import write_edges
from dbfs.errors import FormatError, InvalidOptionError
from dbfs_workers.base.folder import Folder
from dbfs_workers.features.saved import manifest, parts, writing
from dbfs_workers.ids.sequence import IdSequence
from dbfs_workers.ids.table import IdTable
from tests.support.graphs import random
from tests.support.saved import change_array, change_manifest, copied, put

_, SRC, DST = random(60, 150, 1)
NAMES = np.array([f"näme {'x' * (v % 7)}{v}" for v in range(60)])


def strings(client: distributed.Client, **options: Any) -> Graph:
    return dbfs.load((NAMES[SRC], NAMES[DST]), client=client, **options)


def integers(client: distributed.Client, **options: Any) -> Graph:
    return dbfs.load(dbfs.from_arrays(SRC * 1_000_003, DST * 1_000_003), client=client, **options)


def tuples(client: distributed.Client, **options: Any) -> Graph:
    table = pd.DataFrame({"a": NAMES[SRC], "b": SRC % 3, "c": NAMES[DST], "d": DST % 3})
    return dbfs.load(table, source=["a", "b"], target=["c", "d"], client=client, **options)


def equal(one: Any, other: Any) -> bool:
    """Whether two arrays of ids have one type and the same ids."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and np.array_equal(one, other)
    one, other = (ids.to_arrow() if isinstance(ids, IdSequence) else ids for ids in (one, other))
    return isinstance(other, pa.Array) and one.type == other.type and one.equals(other)


@pytest.mark.parametrize(
    "make", [strings, pytest.param(integers, marks=pytest.mark.full), pytest.param(tuples, marks=pytest.mark.full)]
)
def test_ids_on_other_ranks(
    client: distributed.Client, leaves_nothing: None, tmp_path: Path, make: Callable[..., Graph]
) -> None:
    with make(client, ranks=3, order="degree") as graph:
        assert graph.record.ids.kind == "table"
        everything, start = graph.ids(), graph.id_of(5)
        expected = graph.bfs(start).distances()
        graph.save(tmp_path / "graph")
        for ranks in (1, 2, 3, 4):
            with dbfs.load(tmp_path / "graph", client=client, ranks=ranks) as again:
                assert again.id_type == graph.id_type
                assert equal(again.ids(), everything)
                np.testing.assert_array_equal(again.vertices_of(everything), np.arange(graph.n))
                result = again.bfs(start, predecessors=True, validate=True)
                np.testing.assert_array_equal(result.distances(), expected)
                assert result.path_to(graph.id_of(int(expected.argmax())))[0] == start
                again.save(tmp_path / f"again-{ranks}")
        with dbfs.load(tmp_path / "again-2", client=client, ranks=4) as again:
            assert equal(again.ids(), everything)
        with dbfs.load(tmp_path / "graph", client=client, ranks=3, ids="dense") as again:
            assert again.record.ids.kind == "dense"
            np.testing.assert_array_equal(again.bfs(5).distances(), expected)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ids_that_start_at_1(client: distributed.Client, tmp_path: Path, ranks: int) -> None:
    (tmp_path / "path.mtx").write_text("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n")
    with dbfs.load(tmp_path / "path.mtx", client=client, ranks=2) as graph:
        graph.save(tmp_path / "graph")
    with dbfs.load(tmp_path / "graph", client=client, ranks=ranks) as again:
        assert again.ids().tolist() == [1, 2, 3]
        assert again.bfs(1, predecessors=True).path_to(3) == [1, 2, 3]


def test_more_ranks_than_ids(client: distributed.Client, tmp_path: Path) -> None:
    with dbfs.load((np.array(["b"]), np.array(["a"])), client=client, ranks=4) as graph:
        graph.save(tmp_path / "graph")
        for ranks in (1, 4):
            with dbfs.load(tmp_path / "graph", client=client, ranks=ranks) as again:
                assert again.bfs("a", predecessors=True).path_to("b") == ["a", "b"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["", "a", "b"], pa.large_string()),
        pa.array(["x", "a", "ab", "b"], pa.large_string())[1:],
        pa.array([""], pa.large_string()),
        pa.StructArray.from_arrays([pa.array([1, 2]), pa.array(["", ""], pa.large_string())], ["n", "t"]),
        pa.StructArray.from_arrays([pa.array([1, 1, 2]), pa.array(["a", "b", "c"], pa.large_string())], ["n", "t"])[1:],
        np.array([0, 7, 2**63 - 1]),
    ],
)
def test_tables_come_back(tmp_path: Path, column: Any) -> None:
    folder = Folder(str(tmp_path))
    table = IdTable(0, column)
    saved = writing.write_ids(folder, "0" * 12, 0, table, lambda: None)
    assert saved is not None
    kind = manifest.IdType.of(column)
    assert equal(parts.id_table(folder, [saved], kind, 0, len(column)).ids, column)
    for start in range(len(column)):
        assert equal(parts.id_table(folder, [saved], kind, start, len(column)).ids, column[start:])
    read = pa.ipc.open_file(pa.memory_map(str(tmp_path / saved.file.name))).read_all()
    read.validate(full=True)
    assert read.num_rows == len(column)


def test_an_empty_table_has_no_file(tmp_path: Path) -> None:
    empty = IdTable(0, pa.array([], pa.large_string()))
    assert writing.write_ids(Folder(str(tmp_path)), "0" * 12, 0, empty, lambda: None) is None
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def saved(client: distributed.Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "graph"
    with strings(client, ranks=2) as graph:
        graph.save(path)
    return path


def swap(array: Any) -> None:
    array[[3, 4]] = array[[4, 3]]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("ends.0", swap, "a string begins or ends outside of the text"),
        ("ends.0", put(0, -1), "a string begins or ends outside of the text"),
        ("ends.0", put(-1, 2**40), "a string begins or ends outside of the text"),
        ("text.0", put(0, 0xFF), "Invalid UTF8"),
        ("text.0", put(0, 0x7A), "the ids of the vertices are negative, or do not ascend"),
    ],
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_tables_that_lie(
    client: distributed.Client, saved: Path, tmp_path: Path, name: str, change: Any, message: str, ranks: int
) -> None:
    path = copied(saved, tmp_path / "graph")
    change_array(path, 0, name, change, "ids")
    with pytest.raises(FormatError, match=message) as found:
        dbfs.load(path, client=client, ranks=ranks)
    assert str(path) in str(found.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids: ids.update(columns=["float64"]), "columns of .'float64',.*; expected columns of int64 or string"),
        (lambda ids: ids.update(columns=[]), "the ids have columns of"),
        (lambda ids: ids.update(columns=["string", "string"]), "the ids have columns of"),
        (lambda ids: ids.update(columns=["int64"]), "has the arrays ends.0, text.0; expected id.0"),
        (lambda ids: ids.update(tables=[]), "ids of the type string need tables"),
        (lambda ids: ids["tables"].pop(), "ids of 60 vertices"),
        (lambda ids: ids["tables"].reverse(), "has the ids from vertex .* on; expected 0"),
        (lambda ids: ids["tables"][0].update(length=10**6), r"ends.0 is int64\[.*\]; expected int64\[1000001\]"),
    ],
)
def test_manifests_that_lie_about_ids(
    client: distributed.Client, saved: Path, tmp_path: Path, change: Any, message: str
) -> None:
    path = copied(saved, tmp_path / "graph")
    change_manifest(path, lambda graph: change(graph["ids"]))
    with pytest.raises(FormatError, match=message):
        dbfs.load(path, client=client, ranks=2)


def test_tables_of_another_order(client: distributed.Client, saved: Path, tmp_path: Path) -> None:
    path = copied(saved, tmp_path / "graph")

    def exchange(graph: Any) -> None:
        one, other = (table["file"] for table in graph["ids"]["tables"])
        lengths = [table["length"] for table in graph["ids"]["tables"]]
        graph["ids"]["tables"] = [
            {"file": other, "first": 0, "length": lengths[1]},
            {"file": one, "first": lengths[1], "length": lengths[0]},
        ]

    change_manifest(path, exchange)
    with pytest.raises(FormatError, match="do not ascend from one file to the next"):
        dbfs.load(path, client=client, ranks=2)


def test_names_are_written_wherever_a_format_holds_them(
    client: distributed.Client, saved: Path, tmp_path: Path
) -> None:
    with dbfs.load(saved, client=client, ranks=2) as graph:
        names, pairs = graph.ids().to_pylist(), list(zip(*(ends.tolist() for ends in (SRC, DST)), strict=True))
        expected = Counter(tuple(sorted((NAMES[u], NAMES[v]))) for u, v in pairs)
        for name in ("a.parquet", "a.csv"):
            written = write_edges(from_file(saved), tmp_path / name)
            assert (written.numbered, written.lone, written.n) == (None, 0, graph.n)
            again = from_file(tmp_path / name)
            found = Counter[Any]()
            for piece in again.cut(1000):
                found.update(
                    tuple(sorted(pair)) for pair in zip(*(ends.to_pylist() for ends in piece.read()), strict=True)
                )
            assert found == expected
    assert write_edges(from_file(saved), tmp_path / "a.mtx").numbered == 1
    assert from_file(tmp_path / "a.mtx").n == len(names)
    with pytest.raises(InvalidOptionError, match="an edge list holds integers, and the ids of .* are strings"):
        write_edges(from_file(saved), tmp_path / "a.txt")


def test_tuples_are_written_to_tables(client: distributed.Client, leaves_nothing: None, tmp_path: Path) -> None:
    with tuples(client, ranks=2, directed=True) as graph:
        graph.save(tmp_path / "graph")
    write_edges(from_file(tmp_path / "graph"), tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet").to_pydict()
    assert list(table) == ["src_0", "src_1", "dst_0", "dst_1"]
    assert Counter(zip(*table.values(), strict=True)) == Counter(
        zip(NAMES[SRC].tolist(), (SRC % 3).tolist(), NAMES[DST].tolist(), (DST % 3).tolist(), strict=True)
    )

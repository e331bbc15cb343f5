"""Zip archives of one file, as pandas reads them, and numbers of vertices in NumPy's archives."""

import zipfile
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbfs
from dbfs import from_file
from dbfs.errors import DbfsError, FormatError, TruncatedFileError
from tests.support.edge_files import read_all

ROWS = "source,target\n5,6\n6,7\n"


def pack(path: Path, files: dict[str, str | bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_one_file(tmp_path: Path, kind: int) -> None:
    path = pack(tmp_path / "e.csv.zip", {"e.csv": ROWS}, kind)
    assert read_all(from_file(path)) == list(pd.read_csv(path).itertuples(index=False, name=None))
    # The name of the archive says nothing, and what macOS adds is no second file.
    files: dict[str, str | bytes] = {
        "folder/": "",
        "folder/g.mtx": "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n",
    }
    path = pack(tmp_path / "any", {**files, "__MACOSX/folder/._g.mtx": b"\0\5\26\7"}, kind)
    assert read_all(from_file(path)) == [(0, 1)]
    pandas_way = tmp_path / "p.csv.zip"
    pd.DataFrame({"source": [1], "target": [2]}).to_csv(pandas_way, index=False)
    assert read_all(from_file(pandas_way)) == [(1, 2)]


def test_a_long_file_in_an_archive_with_a_comment(tmp_path: Path) -> None:
    edges = [(i, i + 1) for i in range(200_000)]
    path = pack(tmp_path / "e.zip", {"e.txt": "".join(f"{u} {v}\n" for u, v in edges)})
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"x" * 60_000
    opened = from_file(path)
    assert read_all(opened, 1000) == edges
    assert opened.sampled_edges() == len(edges)


def test_what_is_refused(tmp_path: Path) -> None:
    two = pack(tmp_path / "two.zip", {"a.csv": ROWS, "b.csv": ROWS})
    with pytest.raises(FormatError, match=r"two\.zip is a zip archive of 2 files \(a\.csv, b\.csv\); expected one"):
        from_file(two)
    inner = pack(tmp_path / "inner.zip", {"a.csv": ROWS}).read_bytes()
    cases: dict[str, tuple[dict[str, str | bytes], str]] = {
        "many.zip": ({f"{i}.csv": ROWS for i in range(30)}, r"of 30 files \(0\.csv, .*9\.csv, \.\.\.\)"),
        "nested.zip": ({"a.zip": inner}, r"its file 'a\.zip' is compressed again"),
        "gz.zip": ({"a.csv.gz": b"\x1f\x8b\x08\0"}, r"its file 'a\.csv\.gz' is compressed again"),
        "folders.zip": ({"a/": ""}, "of 0 files"),
        "sheet.xlsx": (
            {"[Content_Types].xml": "<a/>", "xl/workbook.xml": "<a/>"},
            r"a workbook; dbfs\.load\(pandas\.read_excel",
        ),
        "empty.zip": ({"a.csv": ""}, r"is empty: its file 'a\.csv' is"),
        "table.zip": ({"a.parquet": b"PAR1" + bytes(99)}, "holds a Parquet table"),
        "dot.zip": ({"a.txt": "digraph { a -> b }"}, r"is DOT"),
    }
    for name, (files, words) in cases.items():
        with pytest.raises((FormatError, TruncatedFileError), match=rf"{name}.*{words}"):
            from_file(pack(tmp_path / name, files))
    secret = bytearray(pack(tmp_path / "secret.zip", {"a.csv": ROWS}).read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        secret[secret.find(mark) + at] |= 1
    (tmp_path / "secret.zip").write_bytes(secret)
    with pytest.raises(FormatError, match=r"secret\.zip is an encrypted zip archive"):
        from_file(tmp_path / "secret.zip")


@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_a_broken_archive_is_a_typed_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("zip")
    raw = bytearray(pack(folder / "a.zip", {"a.csv": ROWS * 50}).read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    (folder / "a.zip").write_bytes(raw[: data.draw(st.integers(at, len(raw)))])
    try:
        found = read_all(from_file(folder / "a.zip"))
    except DbfsError:
        return
    # The archive's checksum is right, or only its names changed.
    assert found in ([], [(5, 6), (6, 7)] * 50) or len(found) == 149


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


EDGES = np.array([[0, 1], [1, 2]])


@pytest.mark.parametrize("name", ["num_nodes", "num_vertices", "n_nodes", "n_vertices", "number_of_nodes", "n"])
@pytest.mark.parametrize("count", [5, np.array([5]), np.uint8(5), 5.0, np.int64(3)])
def test_numbers_of_vertices(tmp_path: Path, name: str, count: Any) -> None:
    for arrays in ({"edge_index": EDGES}, {"src": EDGES[0], "dst": EDGES[1]}):
        edges = from_file(save(tmp_path / "a.npz", **arrays, **{name: count}))
        assert edges.n == int(np.asarray(count).ravel()[0])
        assert read_all(edges) == [(0, 1), (1, 2)]


def test_the_shape_of_a_matrix(tmp_path: Path) -> None:
    arrays = {"row": EDGES[0], "col": EDGES[1], "data": np.ones(2)}
    edges = from_file(save(tmp_path / "a.npz", **arrays, shape=np.array([4, 4])), source="row", target="col")
    assert (edges.n, read_all(edges)) == (4, [(0, 1), (1, 2)])
    with pytest.raises(
        FormatError, match="the array 'shape' is no number of vertices, nor the shape of a square matrix"
    ):
        from_file(save(tmp_path / "a.npz", **arrays, shape=np.array([4, 5])), source="row", target="col")


def test_contradictions(tmp_path: Path) -> None:
    (piece,) = from_file(save(tmp_path / "a.npz", edge_index=EDGES, num_nodes=2)).cut(9)
    with pytest.raises(FormatError, match=r"a\.npz: the id 2, and 2 vertices, from 0 on"):
        piece.read()
    with pytest.raises(FormatError, match=r"in two ways how many vertices there are: num_nodes=5, n=6"):
        from_file(save(tmp_path / "a.npz", edge_index=EDGES, num_nodes=5, n=6))
    for count in (-1, 2.5, np.nan, True, "5"):
        with pytest.raises(FormatError, match="the array 'num_nodes' is no number of vertices"):
            from_file(save(tmp_path / "a.npz", edge_index=EDGES, num_nodes=count))
    with pytest.raises(FormatError, match="counts vertices 0 to n-1, and the ids are no integers"):
        from_file(save(tmp_path / "a.npz", src=np.array(["a"]), dst=np.array(["b"]), n=3))


def test_a_column_is_no_number(tmp_path: Path) -> None:
    edges = from_file(save(tmp_path / "a.npz", n=EDGES[0], m=EDGES[1]), source="n", target="m")
    assert (edges.n, read_all(edges)) == (None, [(0, 1), (1, 2)])
    edges = from_file(save(tmp_path / "a.npz", n=[3], m=[4]), source="n", target="m")
    assert (edges.n, read_all(edges)) == (None, [(3, 4)])


def test_lone_vertices_at_the_end(client: distributed.Client, tmp_path: Path, leaves_nothing: None) -> None:
    with dbfs.load(save(tmp_path / "a.npz", edge_index=EDGES, num_nodes=7), client=client, progress=False) as graph:
        assert (graph.n, list(graph.ids())) == (7, list(range(7)))
        assert graph.bfs(6).to_dict() == {6: 0}

"""Files of tables as edges: what a library wrote is what the pieces hold, however the file is cut."""

import json
import pickle
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbfs.edges.readers import from_file
from dbfs.edges.resolve import edge_list
from dbfs.edges.writers import write_edges
from dbfs.errors import EdgeInputError, InvalidOptionError, MissingFileError

NAMES = [("alice", "bob"), ("bob", "cärol"), ("cärol", "dan"), ("alice", "dan"), ("x", "x")]
FRAME = pd.DataFrame(NAMES, columns=["from", "to"]).assign(w=0.5, a=[1, 0, 2**40, 3, 3], b=[7, 7, 8, 9, 10])
NUMBERS = list(zip(FRAME["a"].tolist(), FRAME["b"].tolist(), strict=True))


def rows_of(edges, piece_edges=2):
    """Read all pieces, each pickled on its way, as a list of edges."""
    found = []
    for piece in edges.cut(piece_edges):
        src, dst = pickle.loads(pickle.dumps(piece)).read()
        found += zip(
            *(ids.tolist() if isinstance(ids, np.ndarray) else ids.to_pylist() for ids in (src, dst)), strict=True
        )
    return found


def structured(frame, path):
    np.save(path, np.array(list(frame.itertuples(index=False)), [(name, "i8") for name in frame.columns]))


WRITERS = {
    "a.parquet": lambda frame, path: frame.to_parquet(path, row_group_size=2),
    "zstd.parquet": lambda frame, path: frame.to_parquet(path, row_group_size=2, compression="zstd"),
    "plain.parquet": lambda frame, path: pq.write_table(pa.table(dict(frame.items())), path, use_dictionary=False),
    "a.csv": lambda frame, path: frame.to_csv(path, index=False),
    "quoted.csv": lambda frame, path: frame.to_csv(path, index=False, quoting=1),
    "crlf.csv": lambda frame, path: frame.to_csv(path, index=False, lineterminator="\r\n"),
    "semicolons.csv": lambda frame, path: frame.to_csv(path, index=False, sep=";"),
    "a.tsv.gz": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "a.csv.xz": lambda frame, path: frame.to_csv(path, index=False),
    "a.csv.zst": lambda frame, path: pa.output_stream(path, compression="zstd").write(
        frame.to_csv(index=False).encode()
    ),
    "a.feather": lambda frame, path: feather.write_feather(frame, path, chunksize=2),
    "zstd.arrow": lambda frame, path: feather.write_feather(frame, path, "zstd", chunksize=2),
    "plain.arrow": lambda frame, path: feather.write_feather(frame, path, "uncompressed", chunksize=2),
    "a.npz": lambda frame, path: np.savez(path, **{name: frame[name].to_numpy() for name in ("a", "b")}),
    "a.npy": lambda frame, path: structured(frame[["a", "b"]], path),
}
NUMERIC = ("a.npz", "a.npy")


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("piece_edges", [1, 3, 100])
def test_named_columns_of_every_format(tmp_path, name, piece_edges):
    WRITERS[name](FRAME, str(tmp_path / name))
    assert rows_of(from_file(tmp_path / name, source="a", target="b"), piece_edges) == NUMBERS
    if name not in NUMERIC:
        assert rows_of(from_file(tmp_path / name, source="from", target="to"), piece_edges) == NAMES


@pytest.mark.parametrize("name", [name for name in WRITERS if name not in NUMERIC])
def test_two_columns_need_no_names(tmp_path, name):
    WRITERS[name](FRAME[["from", "to"]], str(tmp_path / name))
    assert rows_of(from_file(tmp_path / name)) == NAMES


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.feather"])
def test_several_columns_are_tuples(tmp_path, name):
    WRITERS[name](FRAME, str(tmp_path / name))
    found = rows_of(from_file(tmp_path / name, source=["from", "a"], target=["to", "b"]))
    assert [tuple(src.values()) for src, _ in found] == list(zip(FRAME["from"], FRAME["a"], strict=True))
    assert [tuple(dst.values()) for _, dst in found] == list(zip(FRAME["to"], FRAME["b"], strict=True))


@pytest.mark.parametrize("dtype", ["<i2", ">i4", "u8", "<i8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_any_order(tmp_path, dtype, order):
    np.save(tmp_path / "a.npy", np.array([[1, 2], [3, 4], [5, 6]], dtype, order=order))
    assert rows_of(from_file(tmp_path / "a.npy")) == [(1, 2), (3, 4), (5, 6)]


def test_an_array_of_strings(tmp_path):
    np.save(tmp_path / "a.npy", np.array(NAMES))
    assert rows_of(from_file(tmp_path / "a.npy")) == NAMES


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
@pytest.mark.parametrize("array", [sp.csr_array, sp.csr_matrix])
def test_a_matrix_has_an_edge_for_each_entry(tmp_path, layout, array):
    matrix = array(np.array([[0, 2, 0, 1], [0, 0, 0, 4], [0, 0, 1, 0], [5, 0, 0, 0]])).asformat(layout)
    matrix.data[0] = 0
    sp.save_npz(tmp_path / "a.npz", matrix)
    entries = matrix.tocoo()
    expected = set(zip(entries.row.tolist(), entries.col.tolist(), strict=True))
    assert len(expected) == 5
    for directed in (True, False, None):
        edges = from_file(tmp_path / "a.npz", directed=directed)
        assert (edges.n, edges.directed) == (4, directed is not False)
        assert set(rows_of(edges)) == expected


def test_a_symmetric_matrix_is_undirected(tmp_path):
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(np.array([[0, 1], [1, 0]])))
    edges = from_file(tmp_path / "a.npz")
    assert (edges.n, edges.m, edges.directed, edges.symmetrise) == (2, 2, False, False)


@pytest.mark.parametrize("spec", ["kronecker:scale=5", "path:n=9", "rmat:scale=4,directed=true"])
@pytest.mark.parametrize("name", ["a.npz", "a.parquet"])
def test_what_dbfs_writes_loads_again(tmp_path, spec, name):
    edges = edge_list(spec)
    write_edges(edges, tmp_path / name)
    again = from_file(tmp_path / name)
    assert (again.n, again.directed) == (edges.n, edges.directed)

    def crossed(rows, listed):
        both = [(dst, src) for src, dst in rows if listed.symmetrise]
        return {*rows, *both}

    assert crossed(rows_of(again), again) == crossed(rows_of(edges), edges)
    assert again.m == len(rows_of(again))
    assert isinstance(sp.load_npz(tmp_path / name), sp.csr_array) if name == "a.npz" else pq.read_table(tmp_path / name)


def test_a_folder_and_a_pattern_are_one_graph(tmp_path, monkeypatch):
    (tmp_path / "edges" / "day=2").mkdir(parents=True)
    FRAME[:2].to_parquet(tmp_path / "edges" / "1.parquet")
    FRAME[2:].to_parquet(tmp_path / "edges" / "day=2" / "2.parquet")
    (tmp_path / "edges" / "_SUCCESS").write_text("")
    (tmp_path / "edges" / ".crc").write_text("x")
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "edges", "edges", "edges/**/*.parquet", f"file://{tmp_path}/edges"):
        edges = from_file(path, source="from", target="to")
        assert rows_of(edges) == NAMES
        assert (edges.n, edges.m, edges.id_kinds) == (None, 5, ("string",))
    assert rows_of(from_file("edges/*.parquet", source="a", target="b")) == NUMBERS[:2]


def test_files_of_several_formats_are_one_graph(tmp_path):
    frame = FRAME[["a", "b"]]
    frame[:2].to_parquet(tmp_path / "1.parquet")
    frame[2:4].to_csv(tmp_path / "2.csv", index=False)
    (tmp_path / "3.txt").write_text("3 10\n")
    edges = from_file(tmp_path)
    assert rows_of(edges) == NUMBERS
    assert edges.m is None


def test_a_parquet_file_with_a_number_of_vertices_in_a_set(tmp_path):
    for name in ("1.parquet", "2.parquet"):
        write_edges(edge_list("path:n=4"), tmp_path / name)
    edges = from_file(tmp_path)
    assert (edges.n, edges.m) == (None, 6)


SETS = {
    "kinds": (
        {"2.csv": "from,to\n1,2\n"},
        "2.csv has ids of integers, and",
        "of strings; all files of a graph need ids",
    ),
    "numbers": (
        {"2.mtx": "%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2\n"},
        "vertices of its own",
    ),
    "direction": ({"2.txt": "# Directed graph: x\n1 2\n"}, "2.txt is directed and", "pass directed="),
    "columns": ({"2.csv": "a,b,c\nx,y,z\n"}, "2.csv has the columns 'a', 'b', 'c', and", "1.parquet 'from', 'to'"),
    "a column more": ({"2.csv": "to,from,c\nx,y,z\n"}, "2.csv has the columns 'to', 'from', 'c', and", "1.parquet"),
    "a column less": ({"2.csv": "from,too\nx,y\n"}, "2.csv has the columns 'from', 'too', and", "1.parquet 'from'"),
}


@pytest.mark.parametrize("name", SETS)
def test_files_that_do_not_go_together(tmp_path, name):
    others, *words = SETS[name]
    FRAME[["from", "to"]].to_parquet(tmp_path / "1.parquet")
    for other, text in others.items():
        (tmp_path / other).write_text(text)
    with pytest.raises(EdgeInputError) as caught:
        from_file(tmp_path)
    assert all(word in str(caught.value) for word in words)


def test_a_folder_or_pattern_without_files(tmp_path):
    for path in (tmp_path, tmp_path / "*.parquet", f"file://{tmp_path}/*.csv"):
        with pytest.raises(MissingFileError, match="no file there; expected files of edges"):
            from_file(path)


def test_names_are_for_tables(tmp_path):
    (tmp_path / "a.txt").write_text("1 2\n")
    with pytest.raises(InvalidOptionError, match="name columns of a table; format 'edge-list' has none"):
        from_file(tmp_path / "a.txt", format="edge-list", source="a", target="b")
    sp.save_npz(tmp_path / "a.npz", sp.eye_array(3))
    with pytest.raises(InvalidOptionError, match="holds a matrix"):
        from_file(tmp_path / "a.npz", source="a", target="b")


def test_a_csv_of_integers_is_an_edge_list_as_ever(tmp_path):
    (tmp_path / "a.csv").write_text("u,v,w\n1, 2,x\n3,4,y\n")
    assert rows_of(from_file(tmp_path / "a.csv")) == [(1, 2), (3, 4)]


def test_post_codes_keep_their_zeros(tmp_path):
    (tmp_path / "a.csv").write_text("u,v\n01067,7\n04109,01067\n")
    assert rows_of(from_file(tmp_path / "a.csv", format="csv")) == [("01067", "7"), ("04109", "01067")]


def test_only_columns_of_the_ends_are_read(tmp_path):
    # The other column's pages are broken.
    table = pa.table({"a": np.arange(2000), "junk": np.arange(2000), "b": np.arange(2000)})
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False, compression="none", write_statistics=False)
    chunk = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0).column(1)
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[chunk.data_page_offset : chunk.data_page_offset + 50] = b"\xff" * 50
    (tmp_path / "a.parquet").write_bytes(content)
    assert len(rows_of(from_file(tmp_path / "a.parquet", source="a", target="b"), 10**6)) == 2000


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(*[st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), min_size=1)] * 2)
    ),
    st.integers(1, 20),
)
def test_any_names_in_a_csv_come_back(tmp_path, pairs, piece_edges):
    pairs = [("k", "k"), *((a, b) for a, b in pairs if a.strip() and b.strip())]
    frame = pd.DataFrame(pairs, columns=["one", "other"])
    frame.to_csv(tmp_path / "a.csv", index=False, quoting=2)
    found = from_file(tmp_path / "a.csv", source="one", target="other", missing=(), ids="string")
    assert rows_of(found, piece_edges) == [(str(a), str(b)) for a, b in pairs]


def test_the_metadata_of_parquet_is_checked(tmp_path):
    for about in ("x", "[]", json.dumps({"n": -1, "directed": True}), json.dumps({"n": 3})):
        table = pa.table({"src": [1], "dst": [2]}).replace_schema_metadata({"dbfs": about})
        pq.write_table(table, tmp_path / "a.parquet")
        with pytest.raises(ValueError, match="its metadata 'dbfs' is"):
            from_file(tmp_path / "a.parquet")


def test_pieces_are_of_the_size_that_is_estimated(tmp_path):
    FRAME.to_parquet(tmp_path / "a.parquet", row_group_size=3)
    edges = from_file(tmp_path / "a.parquet", source="a", target="b")
    assert [len(piece.read()[0]) for piece in edges.cut(1)] == [3, 2]
    assert edges.largest_piece(1, 5) == 3
    shutil.rmtree(tmp_path)

"""A written file is read back as the same graph, in every format, by our readers, SciPy or pyarrow."""

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as pafeather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import complete, geometric, grid2d, kronecker, path, star, uniform
from dbfs.edges.readers import from_file
from dbfs.edges.writers import WriteReport, write_edges
from dbfs.errors import FormatError

LINES = (".mtx", ".gr", ".txt", ".csv", ".tsv.gz", ".mtx.xz", ".gr.bz2", ".EDGES")
KEEPS_N = (".mtx", ".gr")

ARRAYS = st.integers(1, 30).flatmap(
    lambda n: st.tuples(
        st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60), st.booleans()
    )
)
PER_TEST = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def edge_list(n: int, pairs: list[tuple[int, int]], directed: bool) -> EdgeList:
    src, dst = np.array(pairs, np.int64).reshape(-1, 2).T
    return dbfs.from_arrays(src, dst, n=n, directed=directed, name="some\nname")


def multiset(edges: EdgeList) -> Counter[tuple[int, ...]]:
    """Edges by their vertices with their multiplicities; the ends of undirected edges in ascending order."""
    pairs: Counter[tuple[int, ...]] = Counter()
    for piece in edges.cut(2**20):
        for pair in zip(*(ends.tolist() for ends in piece.read()), strict=True):
            pairs[pair if edges.directed else tuple(sorted(pair))] += 1
    if edges.mirrored and not edges.directed:
        return Counter({pair: count // (1 if pair[0] == pair[1] else 2) for pair, count in pairs.items()})
    return pairs


def by_ids(edges: EdgeList) -> Counter[tuple[int, ...]]:
    first = edges.first_id if edges.n is not None else 0
    return Counter({(u + first, v + first): count for (u, v), count in multiset(edges).items()})


@pytest.mark.parametrize("suffix", LINES)
@PER_TEST
@given(ARRAYS)
def test_text_formats_come_back(tmp_path: Path, suffix: str, arrays: tuple[int, list[tuple[int, int]], bool]) -> None:
    n, pairs, directed = arrays
    edges = edge_list(*arrays)
    out = tmp_path / f"graph{suffix}"
    if suffix.startswith(KEEPS_N):
        expected = WriteReport(n, len(pairs), directed, numbered=1)
    else:
        expected = WriteReport(n, len(pairs), directed, lone=n - len({vertex for pair in pairs for vertex in pair}))
    assert write_edges(edges, out) == expected
    if not pairs and suffix not in KEEPS_N and not suffix.startswith(KEEPS_N):
        # An edge list of comments only counts as truncated.
        return
    again = from_file(out)
    assert again.directed == directed
    assert again.n in (n, None)
    assert (again.stated if again.m is None else again.m) == len(pairs)
    assert multiset(again) == multiset(edges)


@PER_TEST
@given(ARRAYS)
def test_metis_comes_back(tmp_path: Path, arrays: tuple[int, list[tuple[int, int]], bool]) -> None:
    n, pairs, _ = arrays
    simple = {tuple(sorted(pair)) for pair in pairs if pair[0] != pair[1]}
    out = tmp_path / "graph.metis"
    written = write_edges(edge_list(n, pairs, False), out)
    assert written == WriteReport(n, len(simple), False, len(pairs) - len(simple), numbered=1)
    again = from_file(out)
    assert (again.n, again.m, again.directed, again.mirrored) == (n, 2 * len(simple), False, True)
    assert multiset(again) == Counter(simple)


@PER_TEST
@given(ARRAYS)
def test_npz_is_the_matrix(tmp_path: Path, arrays: tuple[int, list[tuple[int, int]], bool]) -> None:
    n, pairs, directed = arrays
    out = tmp_path / "graph.npz"
    assert write_edges(edge_list(*arrays), out) == WriteReport(n, len(pairs), directed)
    matrix = sp.load_npz(out)
    expected = np.zeros((n, n), int)
    for src, dst in pairs:
        expected[src, dst] += 1
        if not directed and src != dst:
            expected[dst, src] += 1
    np.testing.assert_array_equal(matrix.toarray(), expected)
    assert dbfs.from_scipy(matrix).n == n
    assert multiset(from_file(out)) == multiset(edge_list(*arrays))


@PER_TEST
@given(ARRAYS)
def test_parquet_has_the_edges_and_the_metadata(
    tmp_path: Path, arrays: tuple[int, list[tuple[int, int]], bool]
) -> None:
    n, pairs, directed = arrays
    out = tmp_path / "graph.parquet"
    assert write_edges(edge_list(*arrays), out) == WriteReport(n, len(pairs), directed)
    table = pq.read_table(out)
    assert list(zip(table["src"].to_pylist(), table["dst"].to_pylist(), strict=True)) == pairs
    assert json.loads(table.schema.metadata[b"dbfs"]) == {
        "name": "some\\nname",
        "n": n,
        "first_id": 0,
        "directed": directed,
        "edges": len(pairs),
    }


GENERATED = [
    path(1),
    path(2),
    star(50),
    complete(30),
    grid2d(20),
    grid2d(5, loops=True),
    kronecker(8),
    uniform(100, 700),
    geometric(900, 0.1),
]


@pytest.mark.parametrize("suffix", [".mtx", ".gr", ".graph", ".txt"])
@pytest.mark.parametrize("edges", GENERATED, ids=lambda edges: edges.name)
def test_generated_edges_come_back(tmp_path: Path, edges: EdgeList, suffix: str) -> None:
    """Generators; geometric's number of edges is unknown beforehand."""
    if suffix == ".txt" and edges.m == 0:
        return
    write_edges(edges, tmp_path / f"graph{suffix}")
    again, expected = from_file(tmp_path / f"graph{suffix}"), multiset(edges)
    if suffix == ".graph":
        expected = Counter(pair for pair in expected if pair[0] != pair[1])
    assert multiset(again) == expected
    assert suffix != ".txt" or by_ids(again) == by_ids(edges)


def test_external_ids_are_kept_or_numbered(tmp_path: Path) -> None:
    given_file = tmp_path / "gaps.txt"
    given_file.write_text("# Directed graph\n70 5\n5 900000000000\n70 70\n")
    edges = from_file(given_file)
    write_edges(edges, tmp_path / "same.csv")
    write_edges(edges, tmp_path / "table.parquet")
    assert multiset(from_file(tmp_path / "same.csv")) == multiset(edges)
    assert pq.read_table(tmp_path / "table.parquet")["dst"].to_pylist() == [5, 900000000000, 70]
    assert write_edges(edges, tmp_path / "numbered.mtx") == WriteReport(3, 3, True, numbered=1)
    assert multiset(from_file(tmp_path / "numbered.mtx")) == Counter([(1, 0), (0, 2), (1, 1)])


@pytest.mark.parametrize("suffix", [".mtx", ".gr", ".graph", ".txt"])
def test_names_that_are_no_text(tmp_path: Path, suffix: str) -> None:
    source = tmp_path / os.fsdecode(b"\xff\n.gr")
    source.write_text("p tw 2 1\n1 2\n")
    write_edges(from_file(source), tmp_path / f"graph{suffix}")
    assert by_ids(from_file(tmp_path / f"graph{suffix}")) == Counter([(1, 2)])


def test_files_of_several_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mirrored edges, from METIS, in pieces of a few edges and blocks of a few rows."""
    monkeypatch.setattr("dbfs.edges.writers.edge_stream.PIECE_EDGES", 10)
    monkeypatch.setattr("dbfs.edges.writers.matrix._BLOCK_ENTRIES", 7)
    edges = uniform(60, 300, 4)
    simple = Counter(pair for pair in multiset(edges) if pair[0] != pair[1])
    assert write_edges(edges, tmp_path / "first.graph").numbered == 1
    for name in ("second.mtx", "third.graph", "fourth.gr", "fifth.txt", "sixth.graph"):
        source = sorted(tmp_path.iterdir(), key=lambda file: file.stat().st_mtime_ns)[-1]
        assert write_edges(from_file(source), tmp_path / name).numbered is None
        # The ids 1 to 60 stay what they are.
        assert by_ids(from_file(tmp_path / name)) == Counter({(u + 1, v + 1): m for (u, v), m in simple.items()}), name


def test_progress_counts_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbfs.edges.writers.edge_stream.PIECE_EDGES", 10)
    seen: list[int] = []
    write_edges(path(36), tmp_path / "path.txt", progress=seen.append)
    assert seen == [8, 17, 26, 35]


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".parquet"])
def test_ids_of_formats_that_count_from_1_are_kept(tmp_path: Path, suffix: str) -> None:
    """Vertex 4 has no edge: a table has a place for it, an edge list has none, and says so."""
    (tmp_path / "a.gr").write_text("p tw 4 2\n1 2\n2 3\n")
    written = write_edges(from_file(tmp_path / "a.gr"), tmp_path / f"a{suffix}")
    again = from_file(tmp_path / f"a{suffix}")
    assert by_ids(again) == Counter([(1, 2), (2, 3)])
    if suffix == ".parquet":
        assert (again.n, again.first_id, written) == (4, 1, WriteReport(4, 2, False))
        assert pq.read_table(tmp_path / "a.parquet")["src"].to_pylist() == [1, 2]
        write_edges(again, tmp_path / "b.gr")
        assert (tmp_path / "b.gr").read_text().splitlines()[1:] == ["p tw 4 2", "1 2", "2 3"]
        # Several files have no vertices of their own: the ids are what the columns hold.
        both = from_file(str(tmp_path / "*.parquet"))
        assert (both.n, multiset(both)) == (None, Counter([(1, 2), (2, 3)]))
    else:
        assert written == WriteReport(4, 2, False, lone=1)


@pytest.mark.parametrize("first", [-1, 2**63, "1", 1.0, None])
def test_a_wrong_first_id_in_a_table(tmp_path: Path, first: object) -> None:
    about = json.dumps({"name": "x", "n": 3, "first_id": first, "directed": False})
    table = pa.table({"src": [1], "dst": [2]}).replace_schema_metadata({"dbfs": about})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(FormatError, match="its metadata 'dbfs' is"):
        from_file(tmp_path / "a.parquet")


WEIGHTED: dict[str, tuple[str, dict[str, int]]] = {
    "pattern.mtx": ("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n", {}),
    "real.mtx": ("%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 .5\n3 2 7\n", {"value": 2}),
    "complex.mtx": (
        "%%MatrixMarket matrix coordinate complex general\n3 3 2\n2 1 .5 1\n3 2 7 2\n",
        {"real part": 2, "imaginary part": 2},
    ),
    "plain.graph": ("3 2\n2\n1 3\n2\n", {}),
    "edges.graph": ("3 2 1\n2 9\n1 9 3 8\n2 8\n", {"edge weight": 2}),
    "all.graph": (
        "3 2 111 2\n1 2 3 2 9\n1 2 3 1 9 3 8\n1 2 3 2 8\n",
        {"edge weight": 2, "sizes and weights of vertices": 9},
    ),
    "pace.gr": ("p tw 3 2\n1 2\n2 3\n", {}),
    "dimacs.gr": ("p sp 3 2\na 1 2 803\na 3 1 5\n", {"length": 2}),
    "plain.txt": ("1 2\n2 3\n", {}),
    "weights.wel": ("1 2 .5\n2 3 .25\n", {"column 2": 2}),
    "comma.csv": ("1,2,.5,x\n2,3,.25,y\n", {"column 2": 2, "column 3": 2}),
    "named.csv": ("src,dst\na,b\nb,c\n", {}),
    "tabs.tsv": ("u\tsince\tv\n1\t1999\t2\n2\t2000\t3\n", {"since": 2}),
    "names.ncol": ("a b 1\nb c 2\n", {"column 2": 2}),
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_are_counted(tmp_path: Path, name: str) -> None:
    text, values = WEIGHTED[name]
    (tmp_path / name).write_text(text)
    assert write_edges(from_file(tmp_path / name), tmp_path / "out.parquet").values == values


def test_columns_beside_the_ends_are_counted(tmp_path: Path) -> None:
    table = pa.table({"from": [1, 2], "to": [2, 3], "since": [3, 4], "kind": ["a", "b"]})
    pq.write_table(table, tmp_path / "a.parquet")
    pafeather.write_feather(table, tmp_path / "a.arrow")
    pacsv.write_csv(table, tmp_path / "a.csv")
    np.savez(tmp_path / "a.npz", **{name: table[name].to_numpy() for name in table.column_names if name != "kind"})
    records = np.array([(1, 2, 3), (2, 3, 4)], [("from", "i8"), ("to", "i8"), ("since", "i8")])
    np.save(tmp_path / "a.npy", records)
    for name in ("a.parquet", "a.arrow", "a.csv", "a.npz", "a.npy"):
        edges = from_file(tmp_path / name, source="from", target="to")
        more = {"kind": 2} if name in ("a.parquet", "a.arrow", "a.csv") else {}
        assert write_edges(edges, tmp_path / "out.txt" if name != "a.csv" else tmp_path / "out.csv").values == {
            "since": 2,
            **more,
        }


def test_the_values_of_a_matrix_are_counted(tmp_path: Path) -> None:
    """Ones say nothing more than that an entry is there, and so do the numbers of edges in a matrix of dbfs."""
    matrix = sp.csr_array(np.array([[0, 1], [1, 0]]))
    for weight, directed, values in ((1, None, {}), (5, None, {"value": 1}), (5, True, {"value": 2})):
        sp.save_npz(tmp_path / "a.npz", matrix * weight)
        assert write_edges(from_file(tmp_path / "a.npz", directed=directed), tmp_path / "a.txt").values == values
    write_edges(path(3), tmp_path / "a.npz")
    assert write_edges(from_file(tmp_path / "a.npz"), tmp_path / "a.txt").values == {}


def test_values_of_some_files_of_a_graph_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 2\n2 3\n")
    (tmp_path / "b.txt").write_text("1 3 .5\n")
    assert write_edges(from_file(str(tmp_path / "*.txt")), tmp_path / "c.csv").values == {"column 2": 1}


@pytest.mark.parametrize(("ids", "lone"), [(("1", "2", "9"), 1), (("a", "b", "z"), 1), (("1", "2", "1"), 0)])
def test_vertices_alone_in_their_lines_are_counted(tmp_path: Path, ids: tuple[str, ...], lone: int) -> None:
    """Vertices with edges may be alone in a line as well."""
    one, other, last = ids
    (tmp_path / "a.adjlist").write_text(f"{last}\n{one} {other}\n{other}\n")
    assert write_edges(from_file(tmp_path / "a.adjlist"), tmp_path / "a.csv").lone == lone
    assert write_edges(from_file(tmp_path / "a.adjlist"), tmp_path / "a.mtx").lone == 0
    assert from_file(tmp_path / "a.mtx").n == 2 + lone

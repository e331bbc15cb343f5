"""A written file is read back as the same graph, in every format, by our readers, SciPy or pyarrow."""

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import complete, geometric, grid2d, kronecker, path, star, uniform
from dbfs.edges.readers import from_file
from dbfs.edges.writers import Written, write_edges

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
    """Edges with their multiplicities; the ends of undirected edges in ascending order."""
    pairs: Counter[tuple[int, ...]] = Counter()
    for piece in edges.cut(2**20):
        for pair in zip(*(ends.tolist() for ends in piece.read()), strict=True):
            pairs[pair if edges.directed else tuple(sorted(pair))] += 1
    if edges.mirrored and not edges.directed:
        return Counter({pair: count // (1 if pair[0] == pair[1] else 2) for pair, count in pairs.items()})
    return pairs


@pytest.mark.parametrize("suffix", LINES)
@PER_TEST
@given(ARRAYS)
def test_text_formats_come_back(tmp_path: Path, suffix: str, arrays: tuple[int, list[tuple[int, int]], bool]) -> None:
    n, pairs, directed = arrays
    edges = edge_list(*arrays)
    out = tmp_path / f"graph{suffix}"
    assert write_edges(edges, out) == Written(n, len(pairs), directed)
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
    assert written == Written(n, len(simple), False, len(pairs) - len(simple))
    again = from_file(out)
    assert (again.n, again.m, again.directed, again.mirrored) == (n, 2 * len(simple), False, True)
    assert multiset(again) == Counter(simple)


@PER_TEST
@given(ARRAYS)
def test_npz_is_the_matrix(tmp_path: Path, arrays: tuple[int, list[tuple[int, int]], bool]) -> None:
    n, pairs, directed = arrays
    out = tmp_path / "graph.npz"
    assert write_edges(edge_list(*arrays), out) == Written(n, len(pairs), directed)
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
    assert write_edges(edge_list(*arrays), out) == Written(n, len(pairs), directed)
    table = pq.read_table(out)
    assert list(zip(table["src"].to_pylist(), table["dst"].to_pylist(), strict=True)) == pairs
    assert json.loads(table.schema.metadata[b"dbfs"]) == {"name": "some\\nname", "n": n, "directed": directed}


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


def test_external_ids_are_kept_or_numbered(tmp_path: Path) -> None:
    given_file = tmp_path / "gaps.txt"
    given_file.write_text("# Directed graph\n70 5\n5 900000000000\n70 70\n")
    edges = from_file(given_file)
    write_edges(edges, tmp_path / "same.csv")
    write_edges(edges, tmp_path / "table.parquet")
    assert multiset(from_file(tmp_path / "same.csv")) == multiset(edges)
    assert pq.read_table(tmp_path / "table.parquet")["dst"].to_pylist() == [5, 900000000000, 70]
    assert write_edges(edges, tmp_path / "numbered.mtx") == Written(3, 3, True)
    assert multiset(from_file(tmp_path / "numbered.mtx")) == Counter([(1, 0), (0, 2), (1, 1)])


@pytest.mark.parametrize("suffix", [".mtx", ".gr", ".graph", ".txt"])
def test_names_that_are_no_text(tmp_path: Path, suffix: str) -> None:
    source = tmp_path / os.fsdecode(b"\xff\n.gr")
    source.write_text("p tw 2 1\n1 2\n")
    write_edges(from_file(source), tmp_path / f"graph{suffix}")
    assert multiset(from_file(tmp_path / f"graph{suffix}")) == Counter([(0, 1)])


def test_files_of_several_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mirrored edges, from METIS, in pieces of a few edges and blocks of a few rows."""
    monkeypatch.setattr("dbfs.edges.writers.stream.PIECE_EDGES", 10)
    monkeypatch.setattr("dbfs.edges.writers.matrix._BLOCK_ENTRIES", 7)
    edges = uniform(60, 300, 4)
    simple = Counter(pair for pair in multiset(edges) if pair[0] != pair[1])
    write_edges(edges, tmp_path / "first.graph")
    for name in ("second.mtx", "third.graph", "fourth.gr", "fifth.txt", "sixth.graph"):
        source = sorted(tmp_path.iterdir(), key=lambda file: file.stat().st_mtime_ns)[-1]
        write_edges(from_file(source), tmp_path / name)
        assert multiset(from_file(tmp_path / name)) == simple, name


def test_progress_counts_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbfs.edges.writers.stream.PIECE_EDGES", 10)
    seen: list[int] = []
    write_edges(path(36), tmp_path / "path.txt", progress=seen.append)
    assert seen == [8, 17, 26, 35]

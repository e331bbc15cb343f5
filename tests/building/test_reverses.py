"""Sources that list each edge in both directions: a reverse that is missing is an error, or is added where asked for.

Axes: METIS files, SciPy's matrices, saved graphs; both layouts, both orders, 1 to 4 ranks; builds, updates, conversion.
NetworkX has the answers.
"""

import gzip
import re
from collections import Counter
from pathlib import Path
from typing import Any

import distributed
import networkx as nx
import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.assembly import Graph
from dbfs.edges.readers import from_file
from dbfs.edges.writers import write_edges
from dbfs.errors import FormatError, GraphTooLargeError, InvalidVertexError
from dbfs.features.living import living
from tests.support.saved import change_array, change_manifest, counts, load_arrays

Edge = tuple[int, int]
RING = "% a ring, each edge listed once\n4 2\n2\n3\n% here\n4\n1\n"
PETERSEN = nx.petersen_graph()


def metis(folder: Path, rows: dict[int, list[int]], name: str = "g.graph") -> Path:
    """Write the neighbours of each vertex, from 1 on."""
    lines = [" ".join(map(str, rows[vertex])) for vertex in sorted(rows)]
    listed = sum(map(len, rows.values()))
    path = folder / name
    path.write_text("\n".join([f"{len(rows)} {listed // 2}", *lines]) + "\n")
    return path


def rows_of(graph: nx.Graph) -> dict[int, list[int]]:
    return {node + 1: sorted(other + 1 for other in graph[node]) for node in graph}


def assert_distances(graph: Graph, expected: nx.Graph, first: int) -> None:
    for source in list(expected)[:5]:
        found = graph.bfs(source + first).to_dict()
        assert found == {
            node + first: far for node, far in nx.single_source_shortest_path_length(expected, source).items()
        }


def one_less(graph: nx.Graph, *edges: Edge) -> dict[int, list[int]]:
    """The rows of a graph without some entries; the header of the file needs an even number of them."""
    rows = rows_of(graph)
    for u, v in edges:
        rows[u].remove(v)
    return rows


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [*(pytest.param(p, marks=pytest.mark.full) for p in (1, 3)), 2, 4])
@pytest.mark.parametrize("layout", ["1d", "2d"])
@pytest.mark.parametrize("order", ["given", "degree"])
def test_a_one_sided_metis_file(
    client: distributed.Client, leaves_nothing: None, tmp_path: Path, ranks: int, layout: str, order: str
) -> None:
    """Refused with vertex, line and neighbour; completed by ``directed=False``; read as listed by ``directed=True``."""
    path = tmp_path / "ring.graph"
    path.write_text(RING)
    options: dict[str, Any] = {"client": client, "ranks": ranks, "layout": layout, "order": order}
    with pytest.raises(FormatError) as error:
        dbfs.load(path, **options)
    wanted = (
        f"{path}: vertex 1 (line 3) lists 2, and vertex 2 (line 4) does not list 1. Each edge of an undirected graph"
    )
    assert str(error.value).startswith(wanted)
    assert "4 edges are not. directed=False adds" in str(error.value)
    ring = nx.cycle_graph(4)
    with dbfs.load(path, directed=False, **options) as graph:
        assert (graph.directed, graph.n, graph.m) == (False, 4, 8)
        assert_distances(graph, ring, 1)
        assert graph.bfs(3, validate=True).reached == 4
    with dbfs.load(path, directed=True, **options) as graph:
        assert graph.m == 4
        assert_distances(graph, nx.cycle_graph(4, create_using=nx.DiGraph), 1)


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [*(pytest.param(p, marks=pytest.mark.full) for p in (1, 2)), 3, 4])
@pytest.mark.parametrize("keep_edges", [False, True])
def test_a_mixed_file_becomes_the_graph_that_it_means(
    client: distributed.Client, leaves_nothing: None, tmp_path: Path, ranks: int, keep_edges: bool
) -> None:
    """An edge that is listed at both ends stays one edge; a symmetric file is the same with ``directed=False``."""
    whole = metis(tmp_path, rows_of(PETERSEN), "whole.graph")
    mixed = metis(tmp_path, one_less(PETERSEN, (2, 1), (4, 9)), "mixed.graph")
    options: dict[str, Any] = {"client": client, "ranks": ranks, "keep_edges": keep_edges}
    with dbfs.load(whole, **options) as graph:
        expected = counts(graph)
        assert expected[:2] == (10, 30)
        assert_distances(graph, PETERSEN, 1)
    for path in (whole, mixed):
        with dbfs.load(path, directed=False, **options) as graph:
            assert counts(graph) == expected
            assert_distances(graph, PETERSEN, 1)
            assert graph.bfs(7, validate=True).reached == 10


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            {1: [2, 2], 2: [1, 3], 3: [2, 1]},
            r"vertex 1 \(line 2\) lists 2 2 times, and vertex 2 \(line 3\) lists only 1 t",
        ),
        (
            {1: [3], 2: [], 3: [1, 2]},
            r"vertex 3 \(line 4\) lists 2, and vertex 2 \(line 3\) does not list 3\. .*; 1 edge i",
        ),
        (
            {1: [], 2: [], 3: [2, 1]},
            r"vertex 3 \(line 4\) lists 1, and vertex 1 \(line 2\) does not list 3\. .*; 2 edges",
        ),
    ],
)
def test_the_first_edge_is_named(
    client: distributed.Client, tmp_path: Path, rows: dict[int, list[int]], words: str
) -> None:
    if sum(map(len, rows.values())) % 2:
        # The header counts an edge more, of two further vertices.
        rows |= {4: [5], 5: [4], 6: [7]}
        rows |= {7: []}
        words = words.replace("1 edge i", "2 edges a")
    path = metis(tmp_path, rows)
    packed = tmp_path / "g.graph.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for file in (path, packed):
        with pytest.raises(FormatError, match=words):
            dbfs.load(file, client=client, ranks=2)


def test_a_matrix_that_dbfs_wrote_and_another_program_changed(client: distributed.Client, tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    write_edges(dbfs.from_arrays([0, 1, 2], [1, 2, 3], n=4), path)
    parts = dict(np.load(path))
    parts["indices"][0] = 3
    np.savez_compressed(path, **parts)
    with pytest.raises(FormatError, match=r"vertex 0 lists 3, and vertex 3 does not list 0\..*directed=False adds"):
        dbfs.load(path, client=client, ranks=2)
    with dbfs.load(path, client=client, ranks=2, directed=False) as graph:
        assert graph.m == 8
        assert_distances(graph, nx.Graph([(0, 3), (0, 1), (1, 2), (2, 3)]), 0)


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_matrix_of_unknown_direction(client: distributed.Client, tmp_path: Path, symmetric: bool) -> None:
    """With ``directed=False`` a symmetric matrix is the graph that it is without; another one gets its reverses."""
    path = tmp_path / "g.npz"
    matrix = nx.to_scipy_sparse_array(PETERSEN, format="csr")
    scipy.sparse.save_npz(path, matrix if symmetric else scipy.sparse.triu(matrix, format="csr"))
    with dbfs.load(path, client=client, directed=False) as graph:
        assert (graph.directed, graph.m) == (False, 30)
        assert_distances(graph, PETERSEN, 0)


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("order", ["given", "degree"])
def test_a_saved_graph_whose_rows_are_one_sided(
    client: distributed.Client, leaves_nothing: None, tmp_path: Path, ranks: int, order: str
) -> None:
    """On as many ranks as saved it, where nothing is built, and on others; the checksums are right."""
    path = tmp_path / "graph"
    src, dst = (np.array(ends) for ends in zip(*PETERSEN.edges(), strict=True))
    with load_arrays(client, (10, src, dst), ranks=2, order=order) as graph:
        graph.save(path)

    def point_elsewhere(columns: Any) -> None:
        # Vertices 0 to 9 on two ranks: their internal ids are 0 to 4 and 32 to 36.
        columns[0] = 36 if columns[0] != 36 else 35

    change_array(path, 0, "columns", point_elsewhere)
    with pytest.raises(
        FormatError, match=r"vertex \d lists \d, and vertex \d .* Each edge of an undirected.* are not$"
    ):
        dbfs.load(path, client=client, ranks=ranks)


def test_a_saved_graph_with_an_edge_to_padding(
    client: distributed.Client, leaves_nothing: None, tmp_path: Path
) -> None:
    """A row past the last vertex is empty, and so such an edge has no reverse."""
    path = tmp_path / "graph"
    with dbfs.load("path:n=10", client=client, ranks=2) as graph:
        graph.save(path)
    change_array(path, 0, "columns", lambda columns: columns.__setitem__(0, 37))
    with pytest.raises(InvalidVertexError, match=r"graph: edge \(0, 11\) has an id outside 0\.\.9"):
        dbfs.load(path, client=client, ranks=2)


def test_a_directed_graph_that_is_said_to_be_undirected(
    client: distributed.Client, leaves_nothing: None, tmp_path: Path
) -> None:
    path = tmp_path / "graph"
    with dbfs.load(dbfs.from_arrays([0, 1], [1, 2], n=3, directed=True), client=client, ranks=1) as graph:
        graph.save(path)
    change_manifest(path, lambda graph: graph.update(directed=False))
    with pytest.raises(FormatError, match="vertex 0 lists 1, and vertex 1 does not list 0"):
        dbfs.load(path, client=client, ranks=1)


def test_no_memory_to_find_the_edge(
    client: distributed.Client, leaves_nothing: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is refused nevertheless; what ``directed=False`` asks for is too large."""
    path = tmp_path / "ring.graph"
    path.write_text(RING)
    monkeypatch.setattr("dbfs_workers.building.symmetry.MISSING_BYTES", 2**60)
    monkeypatch.setattr("dbfs.building.reverses.MISSING_BYTES", 2**60)
    with pytest.raises(FormatError, match="ring.graph: an edge is listed at one end only. To find it: .* takes about"):
        dbfs.load(path, client=client, ranks=1)
    with pytest.raises(GraphTooLargeError, match="comparing the edges of rank 0 takes about"):
        dbfs.load(path, client=client, ranks=1, directed=False)


@pytest.mark.matrix
@pytest.mark.parametrize("most", [0, 1 << 23])
@pytest.mark.parametrize("ids", ["given", "dense", "named"])
def test_a_batch_of_one_sided_edges(
    client: distributed.Client,
    leaves_nothing: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ids: str,
    most: int,
) -> None:
    """In an undirected graph an edge of a batch can be crossed both ways, however a file lists the edge."""
    monkeypatch.setattr(living, "_FEW_EDGES", 0)
    monkeypatch.setattr(living, "_WHOLE_EDGES", most)
    mixed = metis(tmp_path, one_less(PETERSEN, (2, 1), (4, 9)))
    # Ids with gaps have a table, by which the client maps those of the batch.
    lone = np.array([*range(1, 11), 20]) if ids == "named" else np.arange(1, 11)
    start: Any = dbfs.from_arrays(lone, lone) if ids == "named" else dbfs.from_arrays([0], [0], n=11)
    if ids == "dense":
        start = dbfs.from_arrays(np.arange(12), np.arange(12))
    with dbfs.load(start, client=client, ranks=2, mutable=True) as graph:
        loops = graph.m
        assert graph.insert_edges(mixed, strict=True).skipped == 0
        assert graph.m == loops + 30
        assert_distances(graph, PETERSEN, 1)
        assert graph.delete_edges(mixed, strict=True).skipped == 0
        assert graph.m == loops


@pytest.mark.parametrize("suffix", [".mtx", ".graph", ".txt", ".npz", ".parquet"])
def test_a_one_sided_file_is_not_converted_unless_asked(tmp_path: Path, suffix: str) -> None:
    source, out = tmp_path / "ring.graph", tmp_path / f"out{suffix}"
    source.write_text(RING)
    with pytest.raises(FormatError, match=r"vertex 1 \(line 3\) lists 2, and vertex 2 \(line 4\) does not list 1"):
        write_edges(from_file(source), out)
    assert not out.exists()
    written = write_edges(from_file(source, directed=False), out)
    assert (written.m, written.directed) == (4, False)
    pairs = Counter[Edge]()
    for piece in from_file(out).cut(100):
        pairs.update(tuple(sorted(pair)) for pair in zip(*(ends.tolist() for ends in piece.read()), strict=True))
    first = 1 if suffix == ".txt" else 0
    assert set(pairs) == {(first + u, first + v) for u, v in nx.cycle_graph(4).edges()}


ENTRIES = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)).filter(lambda edge: edge[0] != edge[1]), max_size=14)


@pytest.mark.full
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ENTRIES, st.integers(1, 3), st.sampled_from(["1d", "2d"]))
def test_any_metis_file_is_right_or_refused(
    client: distributed.Client, tmp_path: Path, edges: list[Edge], ranks: int, layout: str
) -> None:
    edges = edges[: len(edges) // 2 * 2]
    rows = {vertex: [v for u, v in edges if u == vertex] for vertex in range(1, 9)}
    path, expected = metis(tmp_path, rows), nx.Graph([(u - 1, v - 1) for u, v in edges])
    expected.add_nodes_from(range(8))
    lacking = Counter((v, u) for u, v in edges) - Counter(edges)
    if lacking:
        v, u = min(lacking, key=lambda edge: edge[::-1])
        with pytest.raises(FormatError, match=re.escape(f"vertex {u} (line {u + 1}) lists {v}")):
            dbfs.load(path, client=client, ranks=ranks, layout=layout)
    with dbfs.load(path, client=client, ranks=ranks, layout=layout, directed=False if lacking else None) as graph:
        assert graph.m == len(edges) + lacking.total()
        assert_distances(graph, expected, 1)

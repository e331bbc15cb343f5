"""A graph that was saved and loaded gives the answers of the graph that was saved, on any number of ranks."""

import pickle
from pathlib import Path

import dask
import distributed
import fsspec
import numpy as np
import pyarrow as pa
import pytest

import dbfs
from dbfs.building.build import BuildOptions
from dbfs.edges.readers import from_file
from dbfs.errors import InvalidOptionError
from dbfs_workers.base.folder import Folder
from dbfs_workers.features.saved import blocks, manifest, tasks, writing
from dbfs_workers.features.saved.parts import RankFacts
from tests.support import oracle
from tests.support.graphs import GRAPHS, random
from tests.support.saved import assert_same, counts, load_arrays, read_manifest


@pytest.mark.matrix
@pytest.mark.parametrize("keep_edges", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("mapped", [False, True])
def test_any_ranks_load_what_any_ranks_saved(
    client: distributed.Client,
    leaves_nothing: None,
    tmp_path: Path,
    ranks: int,
    order: str,
    directed: bool,
    keep_edges: bool,
    mapped: bool,
) -> None:
    arrays = random(300, 900, ranks)
    with load_arrays(client, arrays, directed=directed, ranks=ranks, order=order, keep_edges=keep_edges) as graph:
        graph.save(tmp_path / "graph")
        for loading in (1, 2, 3, 4):
            with dbfs.load(tmp_path / "graph", client=client, ranks=loading, mapped=mapped) as again:
                assert again.ranks == loading
                assert_same(again, arrays, graph, source=7)


@pytest.mark.full
@pytest.mark.parametrize("name", GRAPHS)
def test_small_graphs(client: distributed.Client, tmp_path: Path, name: str) -> None:
    arrays = GRAPHS[name]()
    with load_arrays(client, arrays, ranks=3) as graph:
        graph.save(tmp_path / "graph")
        for ranks in (3, 2):
            with dbfs.load(tmp_path / "graph", client=client, ranks=ranks) as again:
                assert_same(again, arrays, graph)


def test_no_vertices(client: distributed.Client, tmp_path: Path) -> None:
    nothing = np.empty(0, np.int64)
    with load_arrays(client, (0, nothing, nothing), ranks=2, keep_edges=True) as graph:
        graph.save(tmp_path / "graph")
        for ranks in (2, 1):
            with dbfs.load(tmp_path / "graph", client=client, ranks=ranks) as again:
                assert counts(again) == counts(graph)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("keep_edges", [False, True])
def test_files_of_many_blocks_and_many_pieces(
    client: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, keep_edges: bool
) -> None:
    monkeypatch.setattr(writing, "BLOCK_BYTES", 64)
    monkeypatch.setattr(writing, "ROWS_EVERY", 10)
    monkeypatch.setattr(blocks, "_GROUP_BYTES", 192)
    arrays = random(100, 300, 5)
    with (
        load_arrays(client, arrays, ranks=2, order="degree", keep_edges=keep_edges) as graph,
        dask.config.set({"dbfs.build.piece-edges": 25}),
    ):
        graph.save(tmp_path / "graph")
        found = read_manifest(tmp_path / "graph")
        assert len(found.ranks[0].partition.checksums) > 10
        assert len(found.ranks[0].rows) > 20
        edges = from_file(tmp_path / "graph")
        assert edges.m is not None
        largest = max(piece.read()[0].size for piece in edges.cut(25))
        assert 0 < largest <= edges.largest_piece(25, edges.m) <= 25
        with dbfs.load(tmp_path / "graph", client=client, ranks=ranks) as again:
            assert_same(again, arrays, graph)


def test_a_hub_of_more_edges_than_a_piece(
    client: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ROWS_EVERY", 7)
    arrays = GRAPHS["hub"]()
    with load_arrays(client, arrays, ranks=1) as graph, dask.config.set({"dbfs.build.piece-edges": 25}):
        graph.save(tmp_path / "graph")
        with dbfs.load(tmp_path / "graph", client=client, ranks=4) as again:
            assert_same(again, arrays, graph)


@pytest.mark.parametrize("way", [("taskgraph", "top-down"), ("taskgraph", "bottom-up"), ("resident", "bottom-up")])
def test_mapped_partitions_serve_both_engines(client: distributed.Client, tmp_path: Path, way: tuple[str, str]) -> None:
    arrays = n, src, dst = random(400, 1600, 3)
    with load_arrays(client, arrays, directed=True, ranks=2) as graph:
        graph.save(tmp_path / "graph")
    engine, direction = way
    with dbfs.load(tmp_path / "graph", client=client, ranks=2) as again:
        found = again.bfs([3, 9], engine=engine, direction=direction, predecessors=True, validate=True)
        expected = oracle.distances(oracle.adjacency(n, src, dst, directed=True), [3, 9])
        np.testing.assert_array_equal(found.distances(), expected)


def test_mapped_partitions_are_read_only_and_survive_a_move(client: distributed.Client, tmp_path: Path) -> None:
    with load_arrays(client, random(100, 400, 3), directed=True, ranks=1) as graph:
        graph.save(tmp_path / "graph")
        nbytes = graph.nbytes
    found = read_manifest(tmp_path / "graph")
    facts = RankFacts(found.stripe, 0, found.directed, found.input_edges)
    part = tasks.load_partition(
        Folder(str(tmp_path / "graph"), mapped=True), found.ranks[0], facts, "cpu", 1, None, found.ids.id_type
    )
    assert part.in_edges is not None
    assert not any(array.flags.writeable for array in (part.row_offsets, part.columns, part.in_edges.columns))
    assert all(array.flags.aligned for array in (part.row_offsets, part.columns, part.in_edges.row_offsets))
    assert (part.nbytes, part.__sizeof__()) == (nbytes[0], nbytes[0])
    moved = pickle.loads(pickle.dumps(part, protocol=5))
    np.testing.assert_array_equal(moved.columns, part.columns)


def test_a_replaced_graph_stays_with_those_who_have_loaded_it(client: distributed.Client, tmp_path: Path) -> None:
    old, new = random(200, 600, 1), random(300, 900, 2)
    with load_arrays(client, old, ranks=2) as first, load_arrays(client, new, ranks=2) as second:
        first.save(tmp_path / "graph")
        with dbfs.load(tmp_path / "graph", client=client, ranks=2) as mapped:
            second.save(tmp_path / "graph", replace=True)
            assert_same(mapped, old, first)
            with dbfs.load(tmp_path / "graph", client=client, ranks=2) as again:
                assert_same(again, new, second)
            # The files of the graph that was replaced are gone.
            assert len(list((tmp_path / "graph").iterdir())) == 3


def test_a_loaded_graph_replaces_the_graph_that_it_is_mapped_from(client: distributed.Client, tmp_path: Path) -> None:
    arrays = random(200, 600, 1)
    with load_arrays(client, arrays, ranks=2) as graph:
        graph.save(tmp_path / "graph")
        with dbfs.load(tmp_path / "graph", client=client, ranks=2) as mapped:
            mapped.save(tmp_path / "graph", replace=True)
            with dbfs.load(tmp_path / "graph", client=client, ranks=3) as again:
                assert_same(again, arrays, graph)


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_store_that_fsspec_opens(client: distributed.Client, leaves_nothing: None, ranks: int) -> None:
    arrays = random(200, 600, 1)
    url = f"memory://graphs-{ranks}/web.dbfs"
    with load_arrays(client, arrays, ranks=2, order="degree", keep_edges=True) as graph:
        graph.save(url)
        with pytest.raises(InvalidOptionError, match="has a saved graph already"):
            graph.save(url)
        graph.save(url, replace=True)
        with dbfs.load(url, client=client, ranks=ranks) as again:
            assert_same(again, arrays, graph)
    assert len(fsspec.filesystem("memory").ls(f"/graphs-{ranks}/web.dbfs")) == 6


def test_the_files_are_arrow(client: distributed.Client, tmp_path: Path) -> None:
    n, src, dst = arrays = random(50, 200, 1)
    with load_arrays(client, arrays, directed=True, ranks=2, order="degree", keep_edges=True) as graph:
        graph.save(tmp_path / "graph")
    found = read_manifest(tmp_path / "graph")

    def table(file: manifest.SavedFile | None) -> pa.Table:
        assert file is not None
        read = pa.ipc.open_file(pa.memory_map(str(tmp_path / "graph" / file.name))).read_all()
        read.validate(full=True)
        return read

    stripe, vertex = found.stripe, table(found.order)["vertex"].to_numpy()
    edges = set()
    for rank, saved in enumerate(found.ranks):
        for row, neighbours in enumerate(table(saved.partition)["neighbours"].to_pylist()):
            edges |= {(int(vertex[row * 2 + rank]), int(vertex[stripe.vertex(column)])) for column in neighbours}
    assert edges == set(zip(src.tolist(), dst.tolist(), strict=True))
    kept = pa.concat_tables([table(saved.edges) for saved in found.ranks])
    assert sorted(zip(*(kept[name].to_pylist() for name in ("source", "target")), strict=True)) == sorted(
        zip(src.tolist(), dst.tolist(), strict=True)
    )
    assert n == found.n


def test_options_of_a_load(client: distributed.Client, tmp_path: Path) -> None:
    arrays = random(200, 600, 1)
    n, src, dst = arrays
    edges = dbfs.from_arrays(src, dst, n=n, directed=True)
    with dbfs.load(edges, client=client, ranks=2) as graph, load_arrays(client, arrays, directed=True, ranks=2) as into:
        graph.save(tmp_path / "graph")
        # What a saved graph lacks is built.
        with dbfs.load(tmp_path / "graph", client=client, ranks=2, in_edges=True, order="degree") as again:
            assert again.order is not None
            assert counts(again) == counts(graph)
            found = again.bfs(3, direction="bottom-up", validate=True)
            np.testing.assert_array_equal(found.distances(), graph.bfs(3).distances())
            again.save(tmp_path / "ordered")
        with dbfs.load(tmp_path / "ordered", client=client, ranks=2, order="given") as again:
            assert_same(again, arrays, into)
    with pytest.raises(InvalidOptionError, match="was saved without its input edges; load it with keep_edges=False"):
        dbfs.load(tmp_path / "graph", client=client, keep_edges=True)
    with pytest.raises(InvalidOptionError, match="directed= is for files of edges; .* is a saved graph"):
        dbfs.load(tmp_path / "graph", client=client, directed=True)
    with pytest.raises(InvalidOptionError, match="format= is for files of edges"):
        dbfs.load(tmp_path / "graph", client=client, format="metis")


def test_a_rank_leads_small_levels_of_a_saved_graph(client: distributed.Client, tmp_path: Path) -> None:
    edges = dbfs.path(500)
    with dbfs.load(edges, client=client, ranks=2) as graph:
        graph.save(tmp_path / "graph")
    with dbfs.load(tmp_path / "graph", client=client, ranks=2) as again:
        reports = again.bfs(0).reports
        # Levels that another rank leads take a rank no time.
        assert [any(report.phase_seconds[1].values()) for report in reports[20:]] == [False] * (len(reports) - 20)


def test_the_manifest_or_a_url_of_the_folder_names_the_graph(client: distributed.Client, tmp_path: Path) -> None:
    with load_arrays(client, random(50, 90, 1), ranks=1) as graph:
        graph.save(f"file://{tmp_path}/graph/")
        for path in (tmp_path / "graph" / "manifest.json", f"file://{tmp_path}/graph", f"{tmp_path}/graph/"):
            assert from_file(path).m == graph.m


def test_the_estimate_of_a_saved_graph(client: distributed.Client, tmp_path: Path) -> None:
    arrays = random(3000, 20_000, 1)
    with load_arrays(client, arrays, ranks=2, order="degree", keep_edges=True) as graph:
        graph.save(tmp_path / "graph")
    as_saved = dbfs.estimate(tmp_path / "graph", 2)
    built = dbfs.estimate(tmp_path / "graph", 3)
    assert not as_saved.build
    assert built.build
    assert as_saved.partition["columns"] == 4 * max(info.m_local for info in graph.record.infos)
    # All edges were in one piece, which one rank keeps.
    assert as_saved.partition["input edges"] == 8 * 20_000
    assert as_saved.partition_bytes > built.partition_bytes
    assert dbfs.estimate(tmp_path / "graph", 2, BuildOptions(order="given")).build
    assert not dbfs.estimate(tmp_path / "graph", 2, backend="cuda", memory="1GiB").build

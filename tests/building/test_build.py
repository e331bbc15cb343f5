import uuid
from collections.abc import Hashable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import distributed
import numpy as np
import pyarrow as pa
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.building import on_cpu, on_gpu
from dbfs.building.build import BuildOptions, build
from dbfs.building.builder import BuildSize
from dbfs.building.memory import Estimate, estimate_bytes
from dbfs.building.on_gpu import CudaBuilder
from dbfs.cluster.gang import Ref, TaskGraph
from dbfs.edges.arrays import ArrayEdges
from dbfs.errors import (
    EdgeInputError,
    ExchangeUnavailableError,
    FormatError,
    GraphTooLargeError,
    InvalidOptionError,
    InvalidVertexError,
    TruncatedFileError,
)
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import oracle
from tests.support.graphs import random


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [1, 3, 4])
@pytest.mark.parametrize("piece_edges", [1, 7, 100_000])
def test_any_cut_gives_the_same_graph(client: distributed.Client, ranks: int, piece_edges: int) -> None:
    n, src, dst = random(40, 60, 5)
    with dask.config.set({"dbfs.build.piece-edges": piece_edges, "dbfs.build.max-rounds": 64}):
        with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, ranks=ranks) as graph:
            assert graph.m == 2 * src.size - (src == dst).sum()
            matrix = oracle.adjacency(n, src, dst, directed=False)
            np.testing.assert_array_equal(graph.bfs(0).distances(), oracle.distances(matrix, [0]))


def test_rounds_are_bounded(client: distributed.Client) -> None:
    with dask.config.set({"dbfs.build.piece-edges": 1, "dbfs.build.max-rounds": 2}):
        with dbfs.load("uniform:n=100,m=5000", client=client, ranks=2) as graph:
            assert graph.input_edges == 5000


def test_ids_come_back_from_an_edge_list(client: distributed.Client, tmp_path: Path) -> None:
    (tmp_path / "sparse.txt").write_text("# ids with gaps\n1000000007 5\n5 77\n77 1000000007\n900 900\n")
    with dask.config.set({"dbfs.build.piece-edges": 1}):
        with dbfs.load(tmp_path / "sparse.txt", client=client, ranks=3) as graph:
            assert graph.ids().tolist() == [5, 77, 900, 1000000007]
            assert graph.bfs(5).distances().tolist() == [0, 1, -1, 1]
            assert graph.bfs(900).reached == 1


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("order", ["given", "degree"])
def test_edges_are_kept_as_they_were_read(
    client: distributed.Client, leaves_nothing: None, order: str, ranks: int
) -> None:
    n, src, dst = random(40, 60, 5)
    with dask.config.set({"dbfs.build.piece-edges": 7}):
        edges = dbfs.from_arrays(src, dst, n=n)
        with dbfs.load(edges, client=client, ranks=ranks, order=order, keep_edges=True) as graph:
            assert 0 < graph.read_seconds < graph.build_seconds
            kept = [edges for key in graph.record.input_edge_keys for edges in fetched(graph, key)]
            assert {ids.dtype for pair in kept for ids in pair} == {np.dtype(np.uint32)}
            found = sorted(zip(*(np.concatenate(ids).tolist() for ids in zip(*kept, strict=True)), strict=True))
            assert found == sorted(zip(src.tolist(), dst.tolist(), strict=True))
            matrix = oracle.adjacency(n, src, dst, directed=False)
            np.testing.assert_array_equal(graph.bfs(0).distances(), oracle.distances(matrix, [0]))


def test_edges_between_sparse_ids_are_kept_as_vertices(client: distributed.Client, tmp_path: Path) -> None:
    (tmp_path / "sparse.txt").write_text("1000000007 5\n5 77\n77 1000000007\n900 900\n")
    with dask.config.set({"dbfs.build.piece-edges": 1}):
        with dbfs.load(tmp_path / "sparse.txt", client=client, ranks=2, keep_edges=True) as graph:
            kept = [edges for key in graph.record.input_edge_keys for edges in fetched(graph, key)]
            assert sorted((int(u), int(v)) for src, dst in kept for u, v in zip(src, dst, strict=True)) == [
                (0, 1),
                (1, 3),
                (2, 2),
                (3, 0),
            ]
            assert graph.bfs(5).distances().tolist() == [0, 1, -1, 1]


def fetched(graph: Graph, key: Hashable) -> Any:
    """A graph's data, which the service holds and not this client."""
    tasks, copy = TaskGraph(), f"copy-{uuid.uuid4().hex}"
    tasks.add(0, copy, list, Ref(key))
    return graph.gang.submit(tasks, [copy])[copy].result(timeout=30)


def test_a_wrong_count_is_an_error_and_leaves_nothing(client: distributed.Client, leaves_nothing: None) -> None:
    ids = np.arange(5)
    edges = ArrayEdges("five edges", 5, 6, directed=False, mirrored=False, src=ids, dst=ids)
    with pytest.raises(TruncatedFileError, match=r"five edges promises 6 edges .* has 5") as kept:
        dbfs.load(edges, client=client)
    assert kept.value.__traceback__ is not None


@pytest.mark.parametrize("keep_edges", [False, True])
def test_ids_past_n_leave_nothing(client: distributed.Client, leaves_nothing: None, keep_edges: bool) -> None:
    ids = np.arange(5)
    edges = ArrayEdges("five edges", 4, 5, directed=False, mirrored=False, src=ids, dst=ids)
    with pytest.raises(InvalidVertexError, match=r"five edges: edge \(4, 4\)") as kept:
        dbfs.load(edges, client=client, keep_edges=keep_edges)
    assert kept.value.__traceback__ is not None


def test_a_junk_line_names_file_and_line_and_leaves_nothing(
    client: distributed.Client, tmp_path: Path, leaves_nothing: None
) -> None:
    lines = [f"{v} {v + 1}\n" for v in range(1000)]
    lines[700] = "700 junk\n"
    (tmp_path / "bad.txt").write_text("".join(lines))
    with dask.config.set({"dbfs.build.piece-edges": 100}), pytest.raises(FormatError, match=r"bad\.txt.*701.*junk"):
        dbfs.load(tmp_path / "bad.txt", client=client)


def test_what_will_not_fit_is_refused_before_anything_moves(client: distributed.Client, leaves_nothing: None) -> None:
    with pytest.raises(
        GraphTooLargeError, match=r"kronecker:scale=30.*need about [\d,]+ bytes \(.*\) per rank; rank 0 \(.*\) may"
    ):
        dbfs.load("kronecker:scale=30", client=client)
    with pytest.raises(MemoryError, match="internal ids; 32 bits hold"):
        dbfs.load("path:n=5000000000", client=client)
    with dask.config.set({"dbfs.build.memory-share": 1e-9}), pytest.raises(GraphTooLargeError, match="path:n=9"):
        dbfs.load("path:n=9", client=client)


def test_a_table_that_will_not_fit_is_refused_before_anything_moves(
    client: distributed.Client, leaves_nothing: None
) -> None:
    names = pa.table({"from": [f"user {v}" for v in range(1000)], "to": ["user 0"] * 1000})
    with dask.config.set({"dbfs.build.memory-share": 1e-9}):
        with pytest.raises(
            GraphTooLargeError, match=r"from -> to: 1,000 edges on 4 ranks need about [\d,]+ bytes"
        ) as kept:
            dbfs.load(names, client=client, ranks=4)
    assert "which it holds" not in str(kept.value)


def test_the_estimate_of_names_is_what_decides(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    names = pa.table({"from": [f"user {v}" for v in range(1000)], "to": ["user 0"] * 1000})
    asked: list[tuple[Estimate, int]] = []
    monkeypatch.setattr(on_cpu, "require_fit", lambda *given: asked.append((given[2], given[4])))
    with dbfs.load(names, client=client, ranks=4, order="degree"):
        pass
    ((needed, held),) = asked
    expected = dbfs.estimate(names, 4, BuildOptions(order="degree"))
    assert expected.numbering
    assert (needed.build, needed.run, needed.numbering) == (expected.build, expected.run, {})
    # Each rank's table ends with an offset of its own.
    assert 0 <= needed.partition.pop("ids") - expected.partition.pop("ids") <= 32
    assert needed.partition == expected.partition
    # The edges between vertices of 4 bytes, and the rank's names.
    assert 8 * 250 + 3973 <= held <= 8 * 250 + 3973 + 32


def test_the_estimate_is_what_the_partition_takes(client: distributed.Client) -> None:
    with dbfs.load("uniform:n=20000,m=400000", client=client, ranks=4) as graph:
        expected = estimate_bytes(Stripe(graph.n, 4), graph.m, 1, in_edges=False, ordered=False).partition_bytes
        for nbytes in graph.nbytes:
            assert abs(nbytes - expected) < 0.02 * expected


def test_the_estimate_counts_in_edges(client: distributed.Client) -> None:
    edges = dbfs.uniform(n=2000, m=40_000, directed=True)
    with dbfs.load(edges, client=client, ranks=2, in_edges=True) as graph:
        expected = dbfs.estimate(edges, 2, BuildOptions(in_edges=True)).partition_bytes
        for nbytes in graph.nbytes:
            assert abs(nbytes - expected) < 0.05 * expected


def test_the_estimate_of_a_gpu() -> None:
    edges = dbfs.kronecker(24)
    assert edges.m is not None
    given = dbfs.estimate(edges, 4, backend="cuda")
    # Keys of 8 bytes, and as much to sort them; a part of it is the partition's.
    assert given.peak_bytes == 16 * 2 * edges.m // 4
    assert given.partition["columns"] == 4 * 2 * edges.m // 4
    ordered = dbfs.estimate(edges, 4, BuildOptions(order="degree"), backend="cuda")
    assert ordered.partition == given.partition
    assert ordered.peak_bytes >= given.peak_bytes
    kept = dbfs.estimate(edges, 4, BuildOptions(keep_edges=True), backend="cuda")
    assert kept.peak_bytes == given.peak_bytes + 8 * edges.m // 4
    # In-edges are binned, and sent, as edges are; one rank sends nothing.
    directed = dbfs.uniform(2_000_000, 128_000_000, directed=True)
    for p, sides in ((1, 3), (4, 4)):
        both = dbfs.estimate(directed, p, BuildOptions(in_edges=True), backend="cuda")
        assert both.peak_bytes == sides * 8 * 128_000_000 // p
    # Of a path there is more to a run than to its build.
    path = dbfs.estimate(dbfs.path(10**8), 1, backend="cuda")
    assert path.peak_bytes == path.partition_bytes + sum(path.run.values())
    with pytest.raises(InvalidOptionError, match="unknown backend 'auto'; choose one of cpu, cuda"):
        dbfs.estimate(edges, 4, backend="auto")


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("order", ["given", "degree"])
def test_bands_save_memory(directed: bool, order: str) -> None:
    edges, options = dbfs.rmat(26, directed=directed), BuildOptions(in_edges=True, order=order)
    stripe = Stripe(edges.n or 0, 2)
    peaks = [
        CudaBuilder.in_bands(BuildSize(edges, stripe, edges.m or 0, options), bands).peak_bytes for bands in (1, 2, 3)
    ]
    assert peaks[0] > peaks[1] > peaks[2]
    assert peaks[2] < 0.7 * peaks[0]


@pytest.mark.parametrize(("free", "bands"), [(1.0, 1), (0.8, 2), (0.6, 3)])
def test_a_build_takes_as_few_bands_as_fit(monkeypatch: pytest.MonkeyPatch, free: float, bands: int) -> None:
    edges, options = dbfs.kronecker(24), BuildOptions()
    gang: Any = SimpleNamespace(p=2, addresses=("a", "b"))
    builder = CudaBuilder(edges, gang, options)
    room = int(free * dbfs.estimate(edges, 2, backend="cuda").peak_bytes)
    monkeypatch.setattr(on_gpu, "free_gpu_bytes", lambda gang, wanted: [2 * room, room])
    builder.require_fit(edges.n or 0, edges.m or 0)
    assert builder.bands == bands
    monkeypatch.setattr(on_gpu, "free_gpu_bytes", lambda gang, wanted: [2 * room, room // 4])
    with pytest.raises(
        GraphTooLargeError, match=rf"of each GPU, even in 3 bands; rank 1's has {room // 4:,} bytes free .* partition"
    ):
        builder.require_fit(edges.n or 0, edges.m or 0)


def test_gpus_that_cannot_map_each_other_build_through_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = []

    graph: Any = SimpleNamespace(infos=())

    def run(self: CudaBuilder) -> Any:
        ways.append(self.through_host)
        if not self.through_host:
            raise ExchangeUnavailableError("a peer's GPU memory can't be mapped")
        return graph

    monkeypatch.setattr(CudaBuilder, "run", run)
    gang: Any = SimpleNamespace(p=2, addresses=("tcp://a:1", "tcp://a:2"))
    assert build(dbfs.path(9), gang, BuildOptions(), "cuda") is graph
    assert ways == [False, True]
    gang.addresses = ("tcp://a:1", "tcp://b:1")
    assert build(dbfs.path(9), gang, BuildOptions(), "cuda") is graph
    assert ways[2:] == [True]


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_the_estimate_counts_edges_that_are_kept(backend: str) -> None:
    edges = dbfs.kronecker(20)
    without = dbfs.estimate(edges, 4, backend=backend)
    kept = dbfs.estimate(edges, 4, BuildOptions(keep_edges=True), backend=backend)
    assert kept.partition_bytes - without.partition_bytes == 8 * edges.m // 4
    assert edges.n is not None
    assert kept.run["validation"] >= 8 * edges.n


def test_an_edge_list_object_is_required() -> None:
    with pytest.raises(EdgeInputError, match="src has 1 ids and dst 0"):
        dbfs.from_arrays([1], [])

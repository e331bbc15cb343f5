"""The steps of a build on GPUs, tested without a GPU: real tasks, with stand-ins for CuPy and kernels (``standin``).

Axes: graphs, undirected, directed with and without in-edges, vertices as given and by degree, 1 to 9 ranks, 1 to 3
bands, bins mapped by the peers or sent through the host.
"""

import pickle
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.local
import numpy as np
import pytest
from dask._task_spec import DataNode
from dask.sizeof import sizeof

import dbfs
from dbfs.base.records import GraphIds
from dbfs.building.builder import BuildOptions, BuildSize, DealtPieces
from dbfs.building.on_gpu import CudaBuilder
from dbfs.cluster.gang import TaskGraph
from dbfs.edges.arrays import ArrayEdges
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers import from_file
from dbfs.edges.writers import write_edges
from dbfs.errors import ExchangeUnavailableError, GraphTooLargeError, InvalidVertexError
from dbfs_workers.building import cuda as building
from dbfs_workers.building import on_gpu as tasks
from dbfs_workers.building.degree_order import count_degrees, degree_order
from dbfs_workers.building.kernels.sources import BINNING
from dbfs_workers.building.pieces import GeneratedPiece
from dbfs_workers.building.symmetry import MODULUS
from dbfs_workers.search.cuda import device_memory, failures
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.search.partition.partition import Partition, describe
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import standin
from tests.support.graphs import GRAPHS
from tests.support.partitions import build

NAMES = ["one vertex", "one vertex, self-loop", "fewer vertices than ranks", "self-loops and duplicates", "hub"]


def built(
    edges: EdgeList,
    p: int,
    order: str,
    bands: int = 1,
    through_host: bool = False,
    piece_edges: int = 100,
    in_edges: bool = True,
) -> tuple[list[Partition], DegreeOrder | None]:
    """Run the builder's tasks in this process; return the partitions and the degree order."""
    gang: Any = SimpleNamespace(p=p, addresses=[str(rank) for rank in range(p)])
    builder = CudaBuilder(edges, gang, BuildOptions(in_edges=in_edges, order=order), through_host=through_host)
    builder.bands = bands
    assert edges.n is not None and edges.m is not None
    cut = list(edges.cut(piece_edges))
    # All pieces except generated ones are scattered.
    pieces: Any = [
        piece if isinstance(piece, GeneratedPiece) else SimpleNamespace(key=("piece", index))
        for index, piece in enumerate(cut)
    ]
    graph = TaskGraph()
    added = builder.add_tasks(graph, DealtPieces(edges.n, edges.m, pieces, GraphIds()), Stripe(edges.n, p))
    keys = [ref.key for ref in added.partitions] + ([added.order.key] if added.order else []) + list(added.awaited)
    scattered = {("piece", index): DataNode(("piece", index), piece) for index, piece in enumerate(cut)}
    made = list(dask.local.get_sync({**scattered, **graph.pinned(gang.addresses).tasks}, keys))
    results = dict(zip(keys, made, strict=True))
    assert all(results[key] == (edges.n if "degrees-read" in str(key) else edges.m) for key in added.awaited)
    assert len(added.awaited) == p * bands + (p if added.order and p > 1 else 0)
    return made[:p], made[p] if added.order else None


def expected(edges: EdgeList, p: int, order: str, in_edges: bool = True) -> tuple[list[Partition], DegreeOrder | None]:
    """Return the partitions and the degree order that the CPU makes of the same edges."""
    assert edges.n is not None
    read = edges.cut(2**40)[0].read()
    stripe, numbering = Stripe(edges.n, p), None
    if order == "degree":
        numbering = degree_order(count_degrees(*read, edges.n, symmetrise=edges.symmetrise, name=edges.name))
    src, dst = read if numbering is None else numbering.relabel(*read)
    options = {"directed": edges.directed, "in_edges": in_edges and edges.directed}
    return build(stripe, src, dst, hub_first=numbering is not None, **options), numbering


def assert_same(made: list[Partition], wanted: list[Partition]) -> None:
    for one, other in zip(made, wanted, strict=True):
        assert describe(one) == describe(other)
        pairs = [(one.out_edges, other.out_edges)]
        assert (one.in_edges is None) == (other.in_edges is None)
        if one.in_edges is not None and other.in_edges is not None:
            pairs.append((one.in_edges, other.in_edges))
        for csr, wanted_csr in pairs:
            assert (csr.row_offsets.dtype, csr.columns.dtype) == (np.int64, np.uint32)
            np.testing.assert_array_equal(csr.row_offsets, wanted_csr.row_offsets)
            np.testing.assert_array_equal(csr.columns, wanted_csr.columns)


@pytest.mark.matrix
@pytest.mark.parametrize("p", [1, 2, 3, 4, 8, 9])
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize(("directed", "in_edges"), [(False, False), (True, False), (True, True)])
def test_the_tasks_make_the_partitions_of_the_cpu(
    monkeypatch: pytest.MonkeyPatch, directed: bool, in_edges: bool, order: str, p: int
) -> None:
    standin.install(monkeypatch, mapped=True)
    for name in NAMES:
        n, src, dst = GRAPHS[name]()
        edges = dbfs.from_arrays(src, dst, n=n, directed=directed)
        wanted, numbering = expected(edges, p, order, in_edges)
        for bands, through_host in ((1, False), (1, True), (2, False), (3, True)):
            made, found = built(edges, p, order, bands, through_host, in_edges=in_edges)
            assert_same(made, wanted)
            assert (found is None) == (numbering is None)
            if found is not None and numbering is not None:
                np.testing.assert_array_equal(found.position, numbering.position)
                np.testing.assert_array_equal(found.vertex, numbering.vertex)


@pytest.mark.parametrize("order", ["given", "degree"])
def test_pieces_of_files_are_read_by_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, order: str) -> None:
    standin.install(monkeypatch, mapped=True)
    monkeypatch.setattr("dbfs.building.on_gpu._READ_EDGES", 300)
    monkeypatch.setattr(tasks.os, "sched_getaffinity", lambda _: set(range(4)))
    drawn, threads = dbfs.uniform(n=99, m=2000), set()
    file = tmp_path / "edges.mtx"
    write_edges(drawn, file)
    edges = from_file(file)
    read_piece = tasks.read_piece

    def noting(piece: Any) -> Any:
        threads.add(threading.current_thread().name)
        return read_piece(piece)

    monkeypatch.setattr(tasks, "read_piece", noting)
    for bands in (1, 2):
        assert_same(built(edges, 2, order, bands, piece_edges=300)[0], expected(edges, 2, order)[0])
    assert len(threads) > 1
    assert all("dbfs-read" in name for name in threads)
    gang: Any = SimpleNamespace(p=1, addresses=["a"])
    assert len(CudaBuilder(edges, gang, BuildOptions()).cut()) > 5
    assert len(CudaBuilder(drawn, gang, BuildOptions()).cut()) == 1


@pytest.mark.parametrize("order", ["given", "degree"])
def test_bands_take_about_as_many_edges(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    standin.install(monkeypatch, mapped=True)
    sizes = []
    make_csr = building.make_csr

    def counting(keys: Any, *more: Any, **options: Any) -> building.CsrBand:
        sizes.append(keys.size)
        return make_csr(keys, *more, **options)

    monkeypatch.setattr(building, "make_csr", counting)
    edges = dbfs.rmat(9) if order == "degree" else dbfs.uniform(n=999, m=8000)
    built(edges, 2, order, bands=3, piece_edges=5000)
    assert len(sizes) == 6
    assert max(sizes) < 1.5 * sum(sizes) / 6


@pytest.mark.parametrize("bands", [1, 2, 3])
def test_the_estimate_has_room_for_the_order_of_many_vertices(bands: int) -> None:
    """At its peak: the degrees, which peers may still read; their sum; the order's keys; the sort's second buffer."""
    n = 2**30
    needed = CudaBuilder.in_bands(BuildSize(dbfs.path(n), Stripe(n, 4), n - 1, BuildOptions(order="degree")), bands)
    assert needed.peak_bytes >= 4 * 8 * n


def test_a_build_is_not_over_before_all_peers_have_read_the_degrees() -> None:
    """An error in one rank's order ends the build's other tasks at once, while peers may still copy from this rank."""
    gang: Any = SimpleNamespace(p=3, addresses=["a", "b", "c"])
    builder = CudaBuilder(dbfs.path(50), gang, BuildOptions(order="degree"))
    graph = TaskGraph()
    dealt = DealtPieces(50, 49, list(dbfs.path(50).cut(10)), GraphIds())
    added = builder.add_tasks(graph, dealt, Stripe(50, 3))
    graph_tasks = graph.pinned(gang.addresses).tasks
    for key in (key for key in graph_tasks if str(key[0]).startswith("order-")):
        assert any(graph_tasks[awaited].dependencies == {key} for awaited in added.awaited)


def on_gpus(free: list[int]) -> Any:
    """A gang of one rank. Each reading of its GPU's free memory gives the next of these bytes, the last one again."""

    def read(*_: object) -> list[int]:
        return [free.pop(0) if len(free) > 1 else free[0]]

    return SimpleNamespace(p=1, addresses=["a"], run=read)


def test_memory_released_just_now_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbfs.building.memory._RETRY_SECONDS", 1e-3)
    edges, options = dbfs.kronecker(20), BuildOptions()
    assert edges.n is not None and edges.m is not None
    peak = CudaBuilder.estimate(BuildSize(edges, Stripe(edges.n, 1), edges.m, options)).peak_bytes
    for free, bands in (([peak], 1), ([0, peak], 1), ([0, peak - 2, peak], 1), ([peak - 1], 2), ([0, peak - 1], 2)):
        builder = CudaBuilder(edges, on_gpus(list(free)), options)
        builder.require_fit(edges.n, edges.m)
        assert builder.bands == bands
    with pytest.raises(GraphTooLargeError, match="rank 0's has 1,000 bytes free"):
        CudaBuilder(edges, on_gpus([0, 1000]), options).require_fit(edges.n, edges.m)


def test_a_gpu_too_full_for_a_context_raises_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise standin.CudaRuntimeError("cudaErrorMemoryAllocation: out of memory")

    standin.install(monkeypatch, mapped=True)
    monkeypatch.setattr(device_memory, "free_bytes", full)
    with pytest.raises(GraphTooLargeError, match="reading its GPU's free memory: its GPU has no memory left, unknown"):
        failures.free_bytes()


def test_gpus_that_cannot_map_each_other_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    standin.install(monkeypatch, mapped=False)
    with pytest.raises(ExchangeUnavailableError):
        built(dbfs.path(50), 2, "given")
    assert_same(built(dbfs.path(50), 2, "given", through_host=True)[0], expected(dbfs.path(50), 2, "given")[0])
    # A single rank maps no memory.
    assert_same(built(dbfs.path(50), 1, "degree")[0], expected(dbfs.path(50), 1, "degree")[0])


@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("free", [0, 200, 1200, 3000])
def test_the_error_of_a_full_gpu_has_the_bytes(monkeypatch: pytest.MonkeyPatch, free: int, order: str) -> None:
    standin.install(monkeypatch, mapped=True).free = free
    words = rf"rank \d, \w+ .*: it needs \d+ bytes on its GPU, {free} bytes are free"
    with pytest.raises(GraphTooLargeError, match=words):
        built(dbfs.path(500), 2, order)


def test_a_gpu_too_full_for_the_last_sums_raises_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    standin.install(monkeypatch, mapped=True)
    partition = built(dbfs.path(9), 1, "given")[0][0]

    def refuse(partition: Partition) -> None:
        raise standin.OutOfMemoryError("Out of memory allocating 80 bytes")

    monkeypatch.setattr(tasks, "partition_info", refuse)
    with pytest.raises(GraphTooLargeError, match=r"rank 0, describing its partition: .*80 bytes; \d+ bytes are free"):
        tasks.describe(partition)


@pytest.mark.parametrize("bad", [(-1, 0), (0, 5), (2**40, 0)])
def test_an_id_out_of_range_is_named(monkeypatch: pytest.MonkeyPatch, bad: tuple[int, int]) -> None:
    standin.install(monkeypatch, mapped=True)
    source = np.array([1, bad[0]]), np.array([2, bad[1]])
    words = rf"mine: edge \({bad[0]}, {bad[1]}\) has an id outside 0\.\.4"
    for make in (
        lambda: tasks.bin_edges([source], Stripe(5, 2), 0, True, False, "mine", None, 0, 1, 1, []),
        lambda: tasks.count_degrees([source], 0, 5, True, "mine", 1),
        lambda: tasks.keep_edges(source, 5, "mine"),
    ):
        with pytest.raises(InvalidVertexError, match=words):
            make()


def test_more_ranks_than_the_kernels_bin_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    standin.install(monkeypatch, mapped=True)
    assert f"constexpr u32 kMaxRanks = {building.MOST_RANKS};" in BINNING.text
    assert building.MOST_RANKS <= building.THREADS
    source = np.arange(9), np.arange(9)
    for p in (9, building.MOST_RANKS):
        assert tasks.bin_edges([source], Stripe(9, p), 0, True, False, "mine", None, 0, 1, 1, []).read == 9
    with pytest.raises(GraphTooLargeError, match="rank 0, binning mine: GPUs bin for up to 256 ranks, not 257"):
        tasks.bin_edges([source], Stripe(9, 257), 0, True, False, "mine", None, 0, 1, 1, [])


def test_results_on_a_gpu_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    standin.install(monkeypatch, mapped=True)
    bins = tasks.bin_edges([(np.arange(9), np.arange(9))], Stripe(9, 1), 0, True, False, "mine", None, 0, 1, 1, [])
    assert sizeof(bins) < 1000
    kept = tasks.keep_edges((np.arange(9999), np.arange(9999)), 9999, "mine")
    assert sizeof(kept) < 1000
    assert sizeof([kept, kept]) < 1000
    with pytest.raises(TypeError, match="BandEdges is in GPU memory: it can't be pickled and stays on its worker"):
        pickle.dumps(bins)


@pytest.mark.parametrize(("p", "bands", "order"), [(1, 1, "given"), (2, 3, "degree"), (3, 1, "given")])
def test_edges_in_one_direction_are_noticed(monkeypatch: pytest.MonkeyPatch, p: int, bands: int, order: str) -> None:
    """Edges that are said to be there in both directions balance if they are."""
    standin.install(monkeypatch, mapped=True)
    n, src, dst = GRAPHS["self-loops and duplicates"]()
    both = src != dst
    ends = (np.append(src, dst[both]), np.append(dst, src[both]))
    for lost, balanced in ((0, True), (1, False)):
        sides: Any = {"src": ends[0][lost + 1 :], "dst": ends[1][lost + 1 :]}
        edges = ArrayEdges("both", n, sides["src"].size, directed=False, mirrored=True, **sides)
        made, _ = built(edges, p, order, bands)
        assert (sum(part.imbalance for part in made) % MODULUS == 0) == balanced

"""Graphs built on GPUs are, array for array, those built on CPUs; and what a GPU has no room for is refused.

Axes: edges (one list of each kind of generator, files with and without external ids, arrays; directed with in-edges),
vertices as given and by degree, 1 to 4 ranks, exchange by mapped memory and through the host, all rows at once and in
bands. Where there are fewer than four GPUs, ranks share one.
"""

import importlib.util
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import pytest

import dbfs
from dbfs.building.build import build
from dbfs.building.builder import BuildOptions, BuildSize, BuiltGraph
from dbfs.building.on_gpu import CudaBuilder
from dbfs.cluster.connect import roster
from dbfs.cluster.deadline import Deadline
from dbfs.cluster.gang import Gang, Ref, TaskGraph, release
from dbfs.edges.arrays import ArrayEdges
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers import from_file
from dbfs.errors import GraphTooLargeError, InvalidVertexError, TruncatedFileError
from dbfs_workers.search.partition.partition import InputEdges, Partition, on_host
from dbfs_workers.search.partition.stripe import Stripe
from tests.support.generators import ONE_OF_EACH
from tests.support.gpus import GPUS
from tests.support.graphs import GRAPHS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="not installed: cupy"),
]
OPTIONS = [BuildOptions(order=order, in_edges=True, keep_edges=order == "degree") for order in ("given", "degree")]


@pytest.fixture(scope="module")
def four() -> Iterator[distributed.Client]:
    """Four workers with GPUs: each its own, or all the same."""
    options: dict[str, Any] = {"n_workers": 4, "memory_limit": 0, "dashboard_address": None}
    own = GPUS >= 4 and importlib.util.find_spec("dask_cuda") is not None
    with dbfs.connect(**options) if own else distributed.Client(threads_per_worker=1, **options) as client:
        dbfs.install(client)
        yield client


def compare(gpu: Partition, cpu: Partition) -> list[str]:
    """What differs."""
    facts = ("stripe", "rank", "self_loops", "duplicates", "input_edges", "directed")
    differ = [name for name in facts if getattr(gpu, name) != getattr(cpu, name)]
    pairs = {"row_offsets": (gpu.row_offsets, cpu.row_offsets), "columns": (gpu.columns, cpu.columns)}
    assert (gpu.in_edges is None) == (cpu.in_edges is None)
    if gpu.in_edges is not None and cpu.in_edges is not None:
        pairs["in_offsets"] = (gpu.in_edges.row_offsets, cpu.in_edges.row_offsets)
        pairs["in_columns"] = (gpu.in_edges.columns, cpu.in_edges.columns)
    for name, (on_gpu, on_cpu) in pairs.items():
        assert not isinstance(on_gpu, np.ndarray)
        if on_gpu.dtype != on_cpu.dtype or not np.array_equal(on_host(on_gpu), on_cpu):
            differ.append(name)
    return differ


def count_kept(kept: list[InputEdges]) -> tuple[int, int]:
    """Edges, and a sum that does not depend on how they were cut."""
    return sum(src.size for src, _ in kept), sum(int((3 * src.astype(np.int64) + dst).sum()) for src, dst in kept)


def check_same(client: distributed.Client, edges: EdgeList, ranks: int, options: BuildOptions) -> None:
    gang = Gang(client, roster(client, ranks))
    with release_after(build(edges, gang, options, "cpu")) as cpu:
        for made in (
            lambda: build(edges, gang, options, "cuda"),
            lambda: built(edges, gang, options, bands=2),
            lambda: built(edges, gang, options, bands=3, through_host=True),
        ):
            with release_after(made()) as gpu:
                check_built(gang, gpu, cpu)


def built(edges: EdgeList, gang: Gang, options: BuildOptions, bands: int, through_host: bool = False) -> BuiltGraph:
    builder = CudaBuilder(edges, gang, options, through_host=through_host)
    builder.require_fit = lambda n, m, held=0: setattr(builder, "bands", bands)  # type: ignore[method-assign]
    try:
        return builder.run()
    finally:
        release(builder.held)


class release_after:  # noqa: N801 - reads as a function
    def __init__(self, built: BuiltGraph) -> None:
        self.built = built

    def __enter__(self) -> BuiltGraph:
        return self.built

    def __exit__(self, *error: object) -> None:
        release(self.built.futures)


def check_built(gang: Gang, gpu: BuiltGraph, cpu: BuiltGraph) -> None:
    assert gpu.infos == cpu.infos
    tasks = TaskGraph()
    keys = [("compare", rank, gpu.partitions[0].key) for rank in range(gang.p)]
    for rank, key in enumerate(keys):
        tasks.add(rank, key, compare, Ref(gpu.partitions[rank].key), Ref(cpu.partitions[rank].key))
    kept = [
        ("kept", rank, which, gpu.partitions[0].key) for which, made in enumerate((gpu, cpu)) for rank in range(gang.p)
    ]
    for key in kept:
        made = (gpu, cpu)[key[2]]
        mine = Ref(made.input_edges[key[1]].key) if made.input_edges else []
        tasks.add(key[1], key, count_kept, mine)
    futures = gang.submit(tasks, [*keys, *kept])
    found = gang.gather([futures[key] for key in (*keys, *kept)], Deadline(60), "comparing")
    assert found[: gang.p] == [[]] * gang.p
    sums = np.array(found[gang.p :]).reshape(2, gang.p, 2).sum(axis=1)
    assert sums[0].tolist() == sums[1].tolist()
    assert (gpu.order is None) == (cpu.order is None)
    if gpu.order is not None and cpu.order is not None:
        on_gpu, on_cpu = gpu.order.result(), cpu.order.result()
        np.testing.assert_array_equal(on_gpu.position, on_cpu.position)
        np.testing.assert_array_equal(on_gpu.vertex, on_cpu.vertex)
    assert gpu.ids.kind == cpu.ids.kind
    for of_gpu, of_cpu in zip(gpu.id_tables, cpu.id_tables, strict=True):
        on_gpu, on_cpu = of_gpu.result(), of_cpu.result()
        assert on_gpu.first == on_cpu.first
        np.testing.assert_array_equal(on_gpu.ids, on_cpu.ids)


RANKS = pytest.mark.parametrize("ranks", [1, 2, 3, 4])
BOTH_ORDERS = pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.order)


@RANKS
@BOTH_ORDERS
@pytest.mark.parametrize("edges", ONE_OF_EACH, ids=lambda edges: edges.name)
def test_generators(four: distributed.Client, edges: EdgeList, options: BuildOptions, ranks: int) -> None:
    check_same(four, edges, ranks, options)


@RANKS
@BOTH_ORDERS
@pytest.mark.parametrize("directed", [False, True])
def test_arrays(four: distributed.Client, directed: bool, options: BuildOptions, ranks: int) -> None:
    for name in (
        "one vertex",
        "one vertex, self-loop",
        "fewer vertices than ranks",
        "self-loops and duplicates",
        "hub",
    ):
        n, src, dst = GRAPHS[name]()
        check_same(four, dbfs.from_arrays(src, dst, n=n, directed=directed, name=name), ranks, options)


@RANKS
@pytest.mark.parametrize("order", ["given", "degree"])
def test_directed_without_in_edges(four: distributed.Client, order: str, ranks: int) -> None:
    for edges in (dbfs.uniform(n=999, m=3000, directed=True), dbfs.uniform(n=99, m=0, directed=True)):
        check_same(four, edges, ranks, BuildOptions(order=order, keep_edges=order == "given"))


@RANKS
@BOTH_ORDERS
def test_files(four: distributed.Client, tmp_path: Path, options: BuildOptions, ranks: int) -> None:
    (tmp_path / "sparse.txt").write_text("# ids with gaps\n1000000007 5\n5 77\n77 1000000007\n900 900\n")
    (tmp_path / "matrix.mtx").write_text(
        "%%MatrixMarket matrix coordinate pattern general\n5 5 4\n1 2\n3 1\n5 5\n1 2\n"
    )
    for edges in (from_file(tmp_path / "sparse.txt"), from_file(tmp_path / "matrix.mtx")):
        check_same(four, edges, ranks, options)


@pytest.mark.parametrize("scale", [14])
@BOTH_ORDERS
def test_any_cut(four: distributed.Client, options: BuildOptions, scale: int) -> None:
    with dask.config.set({"dbfs.build.gpu-piece-edges": 9999}):
        check_same(four, dbfs.kronecker(scale), 3, options)
        check_same(four, dbfs.rmat(scale, directed=True), 1, options)


def keys_of(client: distributed.Client) -> set[str]:
    return set(client.run_on_scheduler(lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks]))


@pytest.mark.parametrize(
    ("edges", "error", "words"),
    [
        (
            lambda: ArrayEdges("five", 4, 5, directed=False, mirrored=False, src=np.arange(5), dst=np.arange(5)),
            InvalidVertexError,
            r"five: edge \(4, 4\) has an id outside 0\.\.3",
        ),
        (
            lambda: ArrayEdges("five", 5, 6, directed=False, mirrored=False, src=np.arange(5), dst=np.arange(5)),
            TruncatedFileError,
            "five promises 6 edges",
        ),
    ],
)
@BOTH_ORDERS
def test_bad_edges_leave_nothing(
    four: distributed.Client,
    edges: Callable[[], EdgeList],
    error: type[Exception],
    words: str,
    options: BuildOptions,
) -> None:
    with pytest.raises(error, match=words):
        build(edges(), Gang(four, roster(four, 3)), options, "cuda")
    check_same(four, dbfs.path(50), 3, options)


def binned(p: int) -> list[list[int]]:
    """The keys of each owner's bin, sorted: of a path, and its reverses."""
    import cupy

    from dbfs_workers.building.cuda import bin_edges

    stripe, src = Stripe(5000, p), cupy.arange(4999)
    rows = (0, stripe.n_local)
    made = bin_edges(src, src + 1, stripe, symmetrise=True, name="path", where="", rows=rows)
    return [np.sort(made.keys[start:end].get()).tolist() for start, end in pairwise(made.starts.tolist())]


@pytest.mark.parametrize("p", [7, 8, 9, 16, 31, 33, 255, 256])
def test_bins_of_many_ranks(four: distributed.Client, p: int) -> None:
    stripe, src = Stripe(5000, p), np.arange(4999)
    sources, targets = np.append(src, src + 1), np.append(src + 1, src)
    keys = stripe.row(sources) << 32 | stripe.internal(targets)
    (found,) = four.run(binned, p, workers=[roster(four, 1)[0]]).values()
    assert found == [np.sort(keys[stripe.owner(sources) == owner]).tolist() for owner in range(p)]


def limit_pool(nbytes: int) -> None:
    import cupy

    cupy.get_default_memory_pool().set_limit(nbytes)


def used() -> int:
    import cupy

    return int(cupy.get_default_memory_pool().used_bytes())


@BOTH_ORDERS
def test_out_of_memory_is_told_and_leaves_the_cluster_usable(four: distributed.Client, options: BuildOptions) -> None:
    gang = Gang(four, roster(four, 4))
    before = four.run(used)
    # By the estimate, before anything is built; one GPU, full, is enough.
    four.run(limit_pool, 50 << 20, workers=[gang.addresses[2]])
    try:
        with pytest.raises(
            GraphTooLargeError,
            match=r"need about [\d,]+ bytes .* of each GPU, even in 3 bands; rank 2's has [\d,]+ bytes free",
        ):
            build(dbfs.kronecker(20), gang, options, "cuda")
        # By the tasks, as they come to it: nobody may trust an estimate.
        builder = CudaBuilder(dbfs.kronecker(20), gang, options)
        builder.require_fit = lambda n, m: None  # type: ignore[method-assign]
        with pytest.raises(GraphTooLargeError, match=r"rank 2, \w+.* \d+ bytes are free"):
            try:
                builder.run()
            finally:
                release(builder.held)
        check_same(four, dbfs.path(50), 4, options)
    finally:
        four.run(limit_pool, 0)
    check_same(four, dbfs.kronecker(12), 4, options)
    # Dask lets go a little later.
    deadline = Deadline(10)
    while any(now > before[address] for address, now in four.run(used).items()):
        deadline.enforce("waiting for memory to be freed")
        time.sleep(0.1)


def test_a_graph_that_no_gpu_holds(four: distributed.Client) -> None:
    with pytest.raises(GraphTooLargeError, match=r"kronecker:scale=31.*of each GPU.*Needed: partition"):
        build(dbfs.kronecker(31), Gang(four, roster(four, 2)), OPTIONS[0], "cuda")


def test_what_does_not_fit_at_once_is_built_in_bands(four: distributed.Client) -> None:
    gang = Gang(four, roster(four, 2))
    edges, options = dbfs.kronecker(20), BuildOptions()
    peaks = [
        CudaBuilder.in_bands(BuildSize(edges, Stripe(edges.n, 2), edges.m, options), bands).peak_bytes
        for bands in (1, 2, 3)
    ]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[2] < 0.6 * peaks[0]
    with release_after(build(edges, gang, options, "cpu")) as cpu:
        # A little room for what is rounded up, and for the sort's small change.
        four.run(limit_pool, int(1.05 * peaks[2]))
        try:
            with release_after(build(edges, gang, options, "cuda")) as gpu:
                check_built(gang, gpu, cpu)
        finally:
            four.run(limit_pool, 0)

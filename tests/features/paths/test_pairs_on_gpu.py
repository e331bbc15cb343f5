"""The kernel of many pairs' distances against SciPy's: on this CPU, and on a GPU where there is one.

Axes: undirected, directed with and without in-edges; queues of all rows, rings that go round, and such that are full;
more pairs than blocks and more blocks than pairs; hubs, paths, components.
"""

import ctypes
import itertools
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbfs_workers.base.errors import DeadlineExceededError, RunAbortedError
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.features.paths import on_gpu, resident_part
from dbfs_workers.features.paths.kernels.sources import SHAPE
from dbfs_workers.features.paths.purpose import DISTANCES, PairSearch
from dbfs_workers.search.cuda import abort_flag, device_memory, layout
from dbfs_workers.search.cuda.run import KernelAbortedError
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import cuda_on_cpu, oracle, standin
from tests.support.cuda_on_cpu.compiler import compiled, for_cpu, needs_compiler
from tests.support.gang import PATIENCE
from tests.support.gpus import on_gpu as gpu_parameter
from tests.support.graphs import GRAPHS, Arrays, random
from tests.support.partitions import build
from tests.support.weights_on_gpu import Flag

_MEMORY = "search/cuda/kernels/common/memory.cuh"
_BLOCKS = 3
_KINDS = ("undirected", "directed", "forward")
_seeds = itertools.count()


@cache
def _kernel() -> Any:
    memory = (Path(cuda_on_cpu.__file__).parent / "memory_on_cpu.h").read_text()
    made = {layout.HEADER_NAME: for_cpu(layout.HEADER), _MEMORY: memory}
    options = (*SHAPE.defines[:2], "-DDBFS_THREADS=64", "-DDBFS_BLOCKS_PER_SM=1")
    run = ctypes.PyDLL(str(compiled("pairs.cpp", made=made, options=options))).run_pairs
    run.restype = ctypes.c_char_p
    return run


def _emulate(arguments: "np.ndarray[Any, Any]", blocks: int, flag: Any, deadline: float) -> None:
    """See ``on_gpu.run_kernel``."""
    answer = _kernel()(blocks, ctypes.c_ulonglong(next(_seeds)), ctypes.c_void_p(arguments.ctypes.data))
    assert not answer, answer.decode()


@pytest.fixture(
    params=[pytest.param(False, id="emulated", marks=needs_compiler), gpu_parameter(True, id="gpu")],
)
def device(request: pytest.FixtureRequest) -> Iterator[bool]:
    """CuPy and the kernel, or stand-ins for both."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.param:
            standin.install(patch, mapped=False)
            patch.setattr(device_memory, "address", lambda array: array.ctypes.data)
            patch.setattr(abort_flag, "AbortFlag", Flag)
            patch.setattr(resident_part, "AbortFlag", Flag)
            patch.setattr(on_gpu, "run_kernel", _emulate)
        patch.setattr(on_gpu, "most_blocks", lambda: _BLOCKS)
        yield request.param


def graph_of(arrays: Arrays, kind: str) -> Any:
    """Return what the searches read of a graph on a GPU."""
    import cupy

    n, src, dst = arrays
    (part,) = build(Stripe(n, 1), src, dst, directed=kind != "undirected", in_edges=kind == "directed")
    into = part.in_edges
    edges = [None if each is None else cupy.asarray(each) for each in (part.row_offsets, part.columns)]
    back = edges if kind == "undirected" else [None, None]
    if into is not None:
        back = [cupy.asarray(into.row_offsets), cupy.asarray(into.columns)]
    return SimpleNamespace(
        stripe=part.stripe, row_offsets=edges[0], columns=edges[1], in_offsets=back[0], in_columns=back[1]
    )


def searches_of(arrays: Arrays, kind: str, free: int = 2**30) -> on_gpu.GpuPairs:
    return on_gpu.GpuPairs(graph_of(arrays, kind), abort_flag.AbortFlag(), free, "a test")


def assert_right(arrays: Arrays, kind: str, pairs: Any, *, times: int = 2) -> None:
    """Compare searches, one after another in the same memory, with the oracle."""
    n, src, dst = arrays
    matrix, rows = oracle.adjacency(n, src, dst, directed=kind != "undirected"), np.array(pairs, np.uint32)
    of_source = {source: oracle.distances(matrix, [source]) for source in np.unique(rows[:, 0]).tolist()}
    want = [of_source[source][target] for source, target in rows.tolist()]
    searches = searches_of(arrays, kind)
    for _ in range(times):
        np.testing.assert_array_equal(searches.distances(rows, time.monotonic() + PATIENCE), want)
    assert not searches._bits.any()


def drawn(n: int, count: int) -> Any:
    return np.random.default_rng(n).integers(0, n, (count, 2))


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("name", GRAPHS)
def test_some_graphs(device: bool, name: str, kind: str) -> None:
    arrays = GRAPHS[name]()
    pairs = drawn(arrays[0], 12)
    assert_right(arrays, kind, np.concatenate([pairs, pairs[:3], [(0, 0), (0, arrays[0] - 1)]]))


edge_lists = st.integers(1, 60).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=150))
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=edge_lists, kind=st.sampled_from(_KINDS), room=st.sampled_from([1, 4, 16, 1 << 18]))
def test_any_graph_in_queues_of_any_size(
    device: bool, edges: tuple[int, list[tuple[int, int]]], kind: str, room: int
) -> None:
    n, ends = edges
    src, dst = np.array(ends, np.int64).reshape(-1, 2).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_gpu, "_ROOM", room)
        assert_right((n, src, dst), kind, drawn(n, 8))


@pytest.mark.parametrize("kind", _KINDS)
def test_hubs_whose_edges_all_threads_share(device: bool, kind: str) -> None:
    """Two stars of more leaves than a block has threads. The last edge of one hub, in another piece, joins them."""
    one, other = 5000, 6000
    n = one + other + 2
    src = np.concatenate([np.zeros(one, int), np.full(other, 1), [one + 1, 2]])
    dst = np.concatenate([np.arange(2, one + 2), np.arange(one + 2, n), [1, 2]])
    pairs = [(0, 1), (0, n - 1), (3, n - 1), (n - 1, 0), (1, 0), (5, 6), (4, 4), (one + 1, n - 1), (2, n - 1)]
    assert_right((n, src, dst), kind, pairs)


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("room", [2, 64, 1 << 18])
def test_a_ring_goes_round_along_a_path(device: bool, monkeypatch: pytest.MonkeyPatch, room: int, kind: str) -> None:
    n = 2000
    monkeypatch.setattr(on_gpu, "_ROOM", room)
    order = np.random.default_rng(3).permutation(n)
    ends = order[[0, 1, 700, n - 1]].tolist()
    pairs = [(ends[0], ends[3]), (ends[3], ends[0]), (ends[2], ends[0]), (ends[0], ends[1])]
    assert_right((n, order[:-1], order[1:]), kind, pairs, times=1)


def test_full_queues_are_searched_again(device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_gpu, "_ROOM", 8)
    rooms, search = [], on_gpu.GpuPairs._search

    def noted(self: Any, pairs: Any, room: int, deadline: float) -> Any:
        rooms.append((room, len(pairs)))
        return search(self, pairs, room, deadline)

    monkeypatch.setattr(on_gpu.GpuPairs, "_search", noted)
    arrays = random(1000, 6000, 4)
    assert_right(arrays, "undirected", drawn(1000, 20), times=1)
    (first, all_pairs), (second, some) = rooms
    assert (first, all_pairs, second) == (8, 20, 1024)
    assert 0 < some <= 20


def test_less_memory_is_fewer_blocks(device: bool) -> None:
    arrays = random(3000, 9000, 5)
    rows = 3008
    block = rows // 4 + 8 * rows
    assert [searches_of(arrays, "undirected", free).blocks for free in (0, block, 2 * block, 9 * block)] == [1, 1, 2, 3]


def test_a_kernel_ends_at_its_deadline_and_when_it_is_stopped(device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 60_000 if device else 300
    arrays = n, np.arange(n - 1), np.arange(1, n)
    ends = np.array([(0, n - 1)] * 5, np.uint32)
    with pytest.raises(DeadlineExceededError):
        searches_of(arrays, "undirected").distances(ends, time.monotonic() + (0.01 if device else -1))
    searches = searches_of(arrays, "undirected")
    stopper = threading.Timer(0.03 if device else 0, searches._flag.word.fill, [1])
    stopper.start()
    if not device:
        stopper.join()
    with pytest.raises(KernelAbortedError):
        searches.distances(ends, time.monotonic() + PATIENCE)
    stopper.join()
    if device:
        return

    def cut_short(arguments: Any, *others: Any) -> None:
        # Each look at the clock takes a nanosecond here: the search ends in the middle.
        arguments["pairs"]["limit_ns"] = 50
        _emulate(arguments, *others)

    monkeypatch.setattr(on_gpu, "run_kernel", cut_short)
    with pytest.raises(DeadlineExceededError):
        searches_of(arrays, "undirected").distances(ends, time.monotonic() + PATIENCE)


def test_runs_of_a_member(device: bool) -> None:
    """A run reports each of its specs, shows how far it is, and ends when it is aborted, by its own number alone."""
    arrays = random(200, 400, 6)
    graph, stops = graph_of(arrays, "undirected"), list[str]()

    def raise_if_stopped(number: int, where: str) -> None:
        if stops:
            raise RunAbortedError(f"{where}: {stops[0]}")

    runner: Any = SimpleNamespace(
        member=SimpleNamespace(require_room=lambda *_: None),
        lock=threading.Lock(),
        graph=lambda: graph,
        free_bytes=lambda: 2**30,
        raise_if_stopped=raise_if_stopped,
    )
    part, partition = resident_part.ResidentPaths(runner), SimpleNamespace(rank=0, stripe=graph.stripe, version=7)
    pairs = drawn(200, 20)
    spec = TraversalSpec("1", (), predecessors=False, backend="cuda", purpose=PairSearch(DISTANCES))
    specs = RunSpec(spec, (tuple(pairs[:9].ravel().tolist()), tuple(pairs[9:].ravel().tolist())))
    matrix = oracle.adjacency(*arrays, directed=False)
    want = [oracle.distances(matrix, [source])[target] for source, target in pairs.tolist()]
    made = part.traverse(partition, 1, specs, time.monotonic() + PATIENCE)
    answers = []
    for at, run in enumerate(made):
        progress = part.progress(1)
        assert progress is not None and progress.traversal == at
        assert part.progress(2) is None
        assert run.version == 7
        answers += run.labels.by_source.tolist()
    assert answers == want
    assert part.progress(1) is None
    part.abort(2, Cause.CANCELLED, "of another run")
    assert sum(1 for _ in part.traverse(partition, 3, specs, time.monotonic() + PATIENCE)) == 2
    made = part.traverse(partition, 4, specs, time.monotonic() + PATIENCE)
    next(made)
    stops.append("enough")
    with pytest.raises(RunAbortedError, match="rank 0, before its first level: enough"):
        next(made)
    part.free()

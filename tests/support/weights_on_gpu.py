"""Shortest paths by weight on a GPU, or by the same kernel on this CPU: see ``cuda_on_cpu``.

There ranks are threads of this process, whose grids run as one.
"""

import ctypes
import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.weights import on_gpu
from dbfs_workers.features.weights.purpose import Weighted
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.partition.partition import on_host
from dbfs_workers.search.reports import RankRun
from tests.support import standin
from tests.support.cuda_on_cpu.compiler import emulated
from tests.support.gang import PATIENCE, partitions
from tests.support.graphs import Arrays
from tests.support.weights import arcs, by_column

_BLOCKS = 3
_seeds = itertools.count()


class _Launches:
    """What the ranks of a gang have launched, until all have."""

    barrier = threading.Barrier(1)
    arguments: tuple["np.ndarray[Any, Any]", ...] = ()


@contextmanager
def ranks(count: int) -> Iterator[ThreadPoolExecutor]:
    """Yield threads of so many ranks, whose kernels run once all have launched theirs."""
    _Launches.barrier, _Launches.arguments = threading.Barrier(count), ()
    with ThreadPoolExecutor(count) as pool:
        yield pool


class Flag:
    """The flag in memory of this process."""

    def __init__(self) -> None:
        self.word = np.zeros(1, np.uint64)
        self.address = self.word.ctypes.data

    def free(self) -> None:
        """Nothing is to be freed."""


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace CuPy by NumPy, and run the kernels on this CPU."""
    standin.install(monkeypatch, mapped=True)
    monkeypatch.setattr(device_memory, "address", lambda array: array.ctypes.data)
    monkeypatch.setattr(on_gpu, "AbortFlag", Flag)
    monkeypatch.setattr(on_gpu, "run_kernel", run_kernel)


def run_kernel(
    name: str, arguments: "np.ndarray[Any, Any]", flag: Flag, deadline: float, *, gang: bool = False
) -> None:
    """See ``on_gpu.run_kernel``."""
    if not gang:
        return _emulate(name, arguments)
    _Launches.arguments += (arguments,)
    try:
        if _Launches.barrier.wait(PATIENCE) == 0:
            launched, _Launches.arguments = _Launches.arguments, ()
            _emulate(name, *launched, gang=True)
        _Launches.barrier.wait(PATIENCE)
    except BaseException:
        _Launches.barrier.abort()
        raise


def _emulate(name: str, *launched: "np.ndarray[Any, Any]", gang: bool = False) -> None:
    options = (f"-DDBFS_GANG={int(gang)}",)
    function = emulated("near_far", "search/cuda/kernels/common/memory.cuh", options=options).run_near_far
    function.restype = ctypes.c_char_p
    seed, given = ctypes.c_ulonglong(next(_seeds)), [arguments.ctypes.data for arguments in launched]
    answer = function(name.encode(), _BLOCKS, seed, len(given), (ctypes.c_void_p * len(given))(*given))
    assert not answer, answer.decode()


def on_gpus(arrays: Arrays, weights: NDArray[Any], p: int, *, directed: bool) -> list[tuple[Any, NDArray[Any]]]:
    """Return a graph by rank, and the weights of the rank's edges."""
    import cupy

    n, src, dst = arrays
    of, found = arcs(arrays, weights, directed=directed), []
    for part in partitions(n, src, dst, p, directed=directed):
        graph = SimpleNamespace(
            rank=part.rank,
            stripe=part.stripe,
            row_offsets=cupy.asarray(part.row_offsets),
            columns=cupy.asarray(part.columns),
            m_local=part.m_local,
            version=0,
        )
        found.append((graph, by_column(part, of, weights.dtype)))
    return found


def searches_of(arrays: Arrays, weights: NDArray[Any], p: int, *, directed: bool) -> list[on_gpu.GpuSearch]:
    """Return by rank what searches a graph by weights of its edges."""
    import cupy

    n, parts = arrays[0], on_gpus(arrays, weights, p, directed=directed)
    each = [on_gpu.Facts.of(values, graph.row_offsets) for graph, values in parts]
    facts = on_gpu.Facts(*map(max, zip(*each, strict=True)))
    zeros = None if p == 1 else cupy.zeros
    searches = [
        on_gpu.GpuSearch(graph, on_gpu.GpuWeights.of(values, facts, n, "a test"), "a test", zeros)
        for graph, values in parts
    ]
    windows = [search.window.address for search in searches if search.window is not None]
    for search in searches if p > 1 else ():
        search.connect(windows)
    return searches


def run_all(
    searches: list[on_gpu.GpuSearch], sources: list[int], purpose: Weighted | None = None, **options: Any
) -> list[RankRun]:
    """Make a traversal of all ranks; return it by rank."""
    with ranks(len(searches)) as pool:
        return list(pool.map(lambda search: run(search, sources, purpose, **options), searches))


def search_of(arrays: Arrays, weights: NDArray[Any], *, directed: bool) -> on_gpu.GpuSearch:
    """Return what searches a graph by weights of its edges."""
    return searches_of(arrays, weights, 1, directed=directed)[0]


def run(search: on_gpu.GpuSearch, sources: list[int], purpose: Weighted | None = None, **options: Any) -> RankRun:
    """Make a traversal, and copy its labels to the host."""
    seconds = options.pop("seconds", PATIENCE)
    given: dict[str, Any] = {"predecessors": True, "direction": "top-down"} | options
    spec = TraversalSpec("1", tuple(sources), backend="cuda", purpose=purpose or Weighted("w"), **given)
    made = search.run(spec, time.monotonic() + seconds)
    labels = made.labels
    labels.distances = on_host(labels.distances)
    labels.predecessors = None if labels.predecessors is None else on_host(labels.predecessors)
    return made

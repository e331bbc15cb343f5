"""Shortest paths by weight on a GPU, or by the same kernel on this CPU: see ``cuda_on_cpu``."""

import ctypes
import itertools
import time
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


class _Flag:
    """The flag in memory of this process."""

    def __init__(self) -> None:
        self.word = np.zeros(1, np.uint64)
        self.address = self.word.ctypes.data

    def free(self) -> None:
        """Nothing is to be freed."""


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace CuPy by NumPy, and run the kernels on this CPU."""
    standin.install(monkeypatch, mapped=False)
    monkeypatch.setattr(device_memory, "address", lambda array: array.ctypes.data)
    monkeypatch.setattr(on_gpu, "AbortFlag", _Flag)
    monkeypatch.setattr(on_gpu, "run_kernel", run_kernel)


def run_kernel(name: str, arguments: "np.ndarray[Any, Any]", flag: _Flag, deadline: float) -> None:
    """See ``on_gpu.run_kernel``."""
    function = emulated("near_far", "search/cuda/kernels/common/memory.cuh").run_near_far
    function.restype = ctypes.c_char_p
    seed, given = ctypes.c_ulonglong(next(_seeds)), ctypes.c_void_p(arguments.ctypes.data)
    answer = function(name.encode(), _BLOCKS, seed, given)
    assert not answer, answer.decode()


def search_of(arrays: Arrays, weights: NDArray[Any], *, directed: bool) -> on_gpu.GpuSearch:
    """Return what searches a graph by weights of its edges."""
    import cupy

    n, src, dst = arrays
    (part,) = partitions(n, src, dst, 1, directed=directed)
    of = by_column(part, arcs(arrays, weights, directed=directed), weights.dtype)
    graph: Any = SimpleNamespace(
        stripe=part.stripe,
        row_offsets=cupy.asarray(part.row_offsets),
        columns=cupy.asarray(part.columns),
        m_local=part.m_local,
    )
    return on_gpu.GpuSearch(graph, on_gpu.GpuWeights.of(of, n, "a test"), "a test")


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

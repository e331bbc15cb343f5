"""The resident kernel of one rank on this CPU behind the engine's own host code, and stand-ins for kernels of a gang.

CuPy is NumPy, addresses are those of this process, and ranks are threads. The kernel of several ranks is not emulated:
``GangKernel`` writes labels that SciPy has found.
"""

import contextlib
import ctypes
import itertools
import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

from dbfs_workers.search.cuda import device_graph, device_memory, layout, resident, summary
from dbfs_workers.search.cuda.device_memory import ExportedArray
from dbfs_workers.search.cuda.kernels.sources import Variant
from dbfs_workers.search.cuda.run import KernelOptions, KernelOutcome, Mode, Reason
from dbfs_workers.search.members import resident as runner
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.stripe import NO_VERTEX
from tests.support import cuda_on_cpu, oracle, standin
from tests.support.cuda_on_cpu.compiler import compiled, for_cpu

THREADS, BLOCKS = 128, 6
_MEMORY = "search/cuda/kernels/common/memory.cuh"
_LINE = 128
_NOT_READY = 600
_seeds = itertools.count()
_one_at_a_time = threading.Lock()
_MOST_SECONDS = 20


@cache
def kernel(predecessors: bool) -> Any:
    """Return the function that runs the kernel of one rank."""
    memory = (Path(cuda_on_cpu.__file__).parent / "memory_on_cpu.h").read_text()
    made = {layout.HEADER_NAME: for_cpu(layout.HEADER), _MEMORY: memory}
    defines = Variant(gang=False, predecessors=predecessors, threads=THREADS).defines
    # It may wait for a thread of this process, which needs the GIL.
    run = ctypes.CDLL(str(compiled("resident.cpp", made=made, options=defines))).run_resident
    run.restype = ctypes.c_char_p
    return run


class Array(standin.Array):
    """An array with CuPy's way to tell its address."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


class Event:
    """An event of a stream whose work is done as it is queued."""

    ptr = 0

    def __init__(self, **_: Any) -> None: ...

    def record(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...


class Stream(contextlib.nullcontext[None]):
    """A stream whose work is done as it is queued."""

    ptr = 0

    def synchronize(self) -> None: ...


class Runtime:
    """CUDA's runtime in this process. ``memory`` has what is allocated, by address."""

    CUDARuntimeError = standin.CudaRuntimeError
    memcpyDeviceToDevice = memcpyDefault = 4  # noqa: N815

    def __init__(self) -> None:
        self.memory: dict[int, NDArray[Any]] = {}
        # Headers of runs that stay under way until the host stops them; None if runs end by themselves.
        self.held: list[NDArray[Any]] | None = None
        # Whether nobody has asked for the end of a run since the last launch.
        self.busy = False

    def malloc(self, nbytes: int) -> int:
        array = aligned(nbytes, np.uint8)
        self.memory[array.ctypes.data] = array
        return array.ctypes.data

    def hostAlloc(self, nbytes: int, flags: int) -> int:  # noqa: N802
        return self.malloc(nbytes)

    def free(self, address: int) -> None:
        del self.memory[address]

    freeHost = free  # noqa: N815

    def memset(self, address: int, value: int, nbytes: int) -> None:
        ctypes.memset(address, value, nbytes)

    def memcpyAsync(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:  # noqa: N802
        ctypes.memmove(target, source, nbytes)

    def deviceSynchronize(self) -> None: ...  # noqa: N802

    def ipcGetMemHandle(self, address: int) -> bytes:  # noqa: N802
        return address.to_bytes(64, "little")

    def ipcOpenMemHandle(self, handle: bytes) -> int:  # noqa: N802
        return int.from_bytes(handle, "little")

    def ipcCloseMemHandle(self, address: int) -> None: ...  # noqa: N802

    def eventQuery(self, event: int) -> int:  # noqa: N802
        for header in self.held or ():
            if not header["abort"][0]:
                return _NOT_READY
            header["status"] = Reason.ABORTED
        self.busy = False
        return 0


def aligned(count: int, dtype: Any) -> Array:
    """Return an array that begins with a cache line, as all allocations of a GPU do."""
    nbytes = count * np.dtype(dtype).itemsize
    memory = np.zeros(nbytes + _LINE, np.uint8)
    first = -memory.ctypes.data % _LINE
    found: Array = memory[first : first + nbytes].view(dtype).view(Array)
    return found


class Cupy(standin.Cupy):
    """CuPy on NumPy, with what an engine takes of CUDA."""

    def __init__(self) -> None:
        super().__init__()
        self.runtime = Runtime()
        self._loaded: set[np.dtype[Any]] = set()
        attributes = {"MaxSharedMemoryPerMultiprocessor": 1 << 17, "MultiProcessorCount": BLOCKS}
        stream = Stream()
        vars(self.cuda).update(
            Device=lambda: SimpleNamespace(mem_info=(self.free, self.free), attributes=attributes, id=0),
            Event=Event,
            Stream=lambda **_: stream,
            alloc_pinned_memory=bytearray,
            get_current_stream=lambda: stream,
            get_elapsed_time=lambda began, ended: 1.0,
            runtime=self.runtime,
        )

    def empty(self, shape: Any, dtype: Any) -> Any:
        return aligned(int(np.prod(shape)), dtype).reshape(shape)

    zeros = empty

    def ElementwiseKernel(self, *_: str) -> Callable[[Any, Any], None]:  # noqa: N802
        """Return a kernel that copies. CUDA loads it at the first call with a type, and waits for the run under way."""

        def copy(source: Array, target: Array) -> None:
            assert source.dtype in self._loaded or not self.runtime.busy, "the run may wait for this thread"
            self._loaded.add(source.dtype)
            target[:] = source

        return copy

    def asarray(self, array: Any, dtype: Any = None) -> Any:
        return np.asarray(array, dtype).view(Array)


class Launch:
    """See ``module.Launch``: the emulated kernel, or the sums of labels by NumPy."""

    # How often the kernel of one rank has run.
    count = 0

    def __init__(self, function: Any, arguments: NDArray[Any], *, cooperative: bool = False) -> None:
        self._function, self._arguments, self._resident = function, arguments, cooperative

    def __call__(self, blocks: int, threads: int, shared_bytes: int, stream: int) -> None:
        if not self._resident:
            _add_up(self._arguments[0])
            return
        import cupy

        Launch.count += 1
        cupy.runtime.busy = True
        params = self._arguments["params"]
        header = _at(int(params["host"][0]), layout.HOST_HEADER.itemsize, np.uint8).view(layout.HOST_HEADER)
        if cupy.runtime.held is not None:
            cupy.runtime.held.append(header)
            return
        predecessors = bool(params["peers"]["parents"][0, 0])
        pointers = (ctypes.c_void_p * 1)(params.ctypes.data)
        run = kernel(predecessors)
        # Its clock counts looks at it: a deadline would never come.
        stop = threading.Timer(_MOST_SECONDS, header.__setitem__, ("abort", 1))
        with _one_at_a_time:
            stop.start()
            failed = run(BLOCKS, THREADS, ctypes.c_ulonglong(next(_seeds)), pointers)
            stop.cancel()
        assert not failed, failed.decode()


def _at(address: int, count: int, dtype: Any) -> Any:
    return standin._array_at(address, count, dtype, None).view(Array)


def _add_up(given: Any) -> None:
    """Do what ``summary.cu`` does."""
    rows, bins = int(given["rows"]), int(given["bins"])
    degrees = np.diff(_at(int(given["offsets"]), rows + 1, np.int64))
    distances = _at(int(given["distances"]), rows, np.int32)
    some = (distances >= 0) & (distances < bins)
    target = _at(int(given["on_host"] or given["sums"]), 2 * bins, np.uint64).reshape(2, bins)
    target[0] = np.bincount(distances[some], minlength=bins)
    target[1] = np.bincount(distances[some], degrees[some], minlength=bins)


def facts(blocks: Any, threads: Any, arguments: tuple[Any, ...]) -> None:
    """Do what ``dbfs_facts`` does."""
    offsets, columns, in_offsets, in_columns, hubs, closed, *_, sums = arguments
    degrees = np.diff(offsets)
    used = degrees > 0
    if isinstance(in_offsets, np.ndarray):
        has_in = np.diff(in_offsets) > 0
        hubs[:] = NO_VERTEX
        hubs[has_in] = in_columns[in_offsets[:-1][has_in]]
        closed[: has_in.size // 32] = np.packbits(~has_in, bitorder="little").view(np.uint32)
        used = used | has_in
    large = degrees[degrees > layout.LARGE_DEGREE]
    chunks = (-(-large // layout.CHUNK_EDGES)).sum()
    most = degrees.max(initial=0), others(offsets, columns)[0].max(initial=0)
    sums[:5] = np.flatnonzero(used).max(initial=-1) + 1, used.sum(), *most, chunks


def _uses(blocks: Any, threads: Any, arguments: tuple[Any, ...]) -> None:
    """Do what ``dbfs_uses`` does."""
    columns, edges, uses = arguments
    uses += np.bincount(columns[:edges], minlength=uses.size).astype(np.uint32)


def _hubs(blocks: Any, threads: Any, arguments: tuple[Any, ...]) -> None:
    """Do what ``dbfs_hubs`` does."""
    offsets, columns, uses, rows, hubs = arguments
    for row in np.flatnonzero(np.diff(offsets[: rows + 1])):
        ids = columns[offsets[row] : min(offsets[row + 1], offsets[row] + 64)]
        hubs[row] = ids[uses[ids].argmax()]


def _common_degrees(blocks: Any, threads: Any, arguments: tuple[Any, ...]) -> None:
    """Do what ``dbfs_common_degrees`` does, as if no group had a common degree."""
    *_, common, mixed = arguments
    common[:] = 2**32 - 1
    mixed[0] = common.size


def others(offsets: NDArray[np.int64], columns: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Return how many neighbours each row has besides itself, and all these neighbours."""
    rows = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    other = rows != columns
    return np.bincount(rows[other], minlength=offsets.size - 1), columns[other]


def fill_table(offsets: NDArray[np.int64], columns: NDArray[np.uint32], table: NDArray[np.uint32]) -> None:
    """Do what ``dbfs_table`` does."""
    degrees, neighbours = others(offsets, columns)
    table[:] = NO_VERTEX
    table[np.arange(table.shape[1]) < degrees[:, None]] = neighbours


class GangKernel(resident.ResidentKernel):
    """The engine of one of several ranks. SciPy traverses in the place of the kernels.

    Attributes:
        adjacency: the graph's edges, which the test sets.
        modes: the kinds of a traversal's levels, for a number of levels.
        waits: called in each wait, with the rank.
    """

    adjacency: scipy.sparse.csr_array
    modes: Callable[[int], NDArray[Any]] = staticmethod(lambda levels: np.full(levels, Mode.LEADER))
    waits: Callable[[int], None] = staticmethod(lambda rank: None)

    def prepare(self, options: KernelOptions) -> None:
        super().prepare(options)
        self._options = options

    def launch(self, then: Callable[[RankLabels], Any]) -> tuple[RankLabels, Any]:
        labels, options, stripe = self._empty_labels(), self._options, self.graph.stripe
        found = oracle.distances(GangKernel.adjacency, [*options.sources], min(options.max_depth, 2**31))
        if options.targets:
            found[found > found[[*options.targets]].max()] = -1
        vertices = stripe.vertex(self.graph.rank * stripe.n_local + np.arange(stripe.n_local))
        ours = vertices < stripe.n
        labels.distances[:] = -1
        labels.distances[ours] = found[vertices[ours]]
        if labels.predecessors is not None:
            labels.predecessors[:] = NO_VERTEX
            into = GangKernel.adjacency.T.tocsr()
            for row in np.flatnonzero(labels.distances >= 0):
                vertex = vertices[row]
                near = into.indices[slice(*into.indptr[vertex : vertex + 2])]
                above = [vertex, *near[found[near] == found[vertex] - 1]][-1] if found[vertex] else vertex
                labels.predecessors[row] = stripe.internal(int(above))
        self._depth = int(found.max())
        return labels, then(labels)

    def wait(self) -> KernelOutcome:
        GangKernel.waits(self.graph.rank)
        records = np.zeros(self._depth + 1, layout.RECORD)
        records["mode"] = GangKernel.modes(records.size)
        return KernelOutcome(records.size, records, 0, 0, 1.0, 1e-3, 0.0)

    def drop(self) -> None: ...


def install(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    """Replace CuPy, and the kernels of engines; return the stand-in."""
    standin.install(monkeypatch, mapped=True)
    cupy = Cupy()
    monkeypatch.setitem(__import__("sys").modules, "cupy", cupy)
    monkeypatch.setattr(device_memory, "array_at", lambda at, count, dtype, owner: _at(at, count, dtype))
    monkeypatch.setattr(
        device_memory, "export_array", lambda each: ExportedArray(each.ctypes.data.to_bytes(64, "little"), 0)
    )
    monkeypatch.setattr(resident, "export_array", device_memory.export_array)
    monkeypatch.setattr(resident, "array_at", device_memory.array_at)
    kernels: Mapping[str, Any] = {
        "dbfs_facts": facts,
        "dbfs_common_degrees": _common_degrees,
        "dbfs_uses": _uses,
        "dbfs_hubs": _hubs,
        "dbfs_table": lambda blocks, threads, arguments: fill_table(arguments[0], arguments[1], arguments[-1]),
    }
    monkeypatch.setattr(device_graph, "load", lambda source: SimpleNamespace(get_function=kernels.get))
    stub = SimpleNamespace(shared_size_bytes=1 << 15, preferred_shared_memory_carveout=0)
    for module in (resident, summary):
        monkeypatch.setattr(module, "load", lambda *_, **__: SimpleNamespace(get_function=lambda name: stub))
        monkeypatch.setattr(module, "Launch", Launch)
    monkeypatch.setattr(runner, "ResidentKernel", GangKernel)
    monkeypatch.setattr(Launch, "count", 0)
    return cupy

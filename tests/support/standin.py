"""Stand-ins on NumPy for the parts of CuPy and for the kernels that building on GPUs uses: no GPU is needed."""

import ctypes
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dbfs_workers.base.errors import ExchangeUnavailableError
from dbfs_workers.building import cuda as building
from dbfs_workers.search import backends
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.cuda.source import Source
from dbfs_workers.serving import plugin


class Array(np.ndarray):
    """CuPy's array, which becomes NumPy's by ``get`` only."""

    def get(self, out: np.ndarray | None = None) -> np.ndarray:
        if out is None:
            return np.array(self)
        out[...] = self
        return out

    def set(self, values: np.ndarray) -> None:
        self[...] = values


class OutOfMemoryError(MemoryError):
    pass


class CudaRuntimeError(RuntimeError):
    pass


class CudaDriverError(RuntimeError):
    pass


class Cupy(ModuleType):
    """CuPy on NumPy's arrays. ``free`` is the memory in bytes that the device reports."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.free = 2**40
        self.cuda = SimpleNamespace(
            Device=lambda: SimpleNamespace(mem_info=(self.free, self.free)),
            get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            runtime=SimpleNamespace(CUDARuntimeError=CudaRuntimeError),
            driver=SimpleNamespace(CUDADriverError=CudaDriverError),
        )

    def get_default_memory_pool(self) -> Any:
        return SimpleNamespace(
            free_bytes=lambda: 0, used_bytes=lambda: 0, get_limit=lambda: 0, free_all_blocks=lambda: None
        )

    def asnumpy(self, array: Any) -> Any:
        return np.array(array)

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        if not callable(function) or isinstance(function, type):
            return function

        def call(*arguments: Any, **keywords: Any) -> Any:
            made = function(*arguments, **keywords)
            return made.view(Array) if isinstance(made, np.ndarray) else made

        return call


def install(monkeypatch: pytest.MonkeyPatch, *, mapped: bool) -> Cupy:
    """Replace CuPy and the kernels. ``mapped`` says whether a rank can map the memory of another rank's GPU."""
    cupy = Cupy()
    monkeypatch.setitem(__import__("sys").modules, "cupy", cupy)
    monkeypatch.setattr(building, "launch", launch)
    monkeypatch.setattr(device_memory, "own_allocation", lambda count, dtype: np.empty(count, dtype).view(Array))
    monkeypatch.setattr(device_memory, "export_allocation", lambda array: array.ctypes.data.to_bytes(8, "little"))
    monkeypatch.setattr(device_memory, "open_handle", _open if mapped else _refuse)
    monkeypatch.setattr(device_memory, "close_handle", lambda address: None)
    monkeypatch.setattr(device_memory, "array_at", _array_at)
    monkeypatch.setattr(device_memory, "copy_from", _copy_from)
    return cupy


def pretend_to_have_a_gpu() -> None:
    """Give a worker a GPU on NumPy, the same one as all other workers. The CPU backend runs the phases."""
    patch, cpu = pytest.MonkeyPatch(), backends.get("cpu")
    install(patch, mapped=False)
    patch.setattr(backends, "get", lambda name: cpu)
    patch.setattr(plugin, "own_gpu", lambda: "0")


def _open(handle: bytes, what: str) -> int:
    return int.from_bytes(handle, "little")


def _refuse(handle: bytes, what: str) -> int:
    raise ExchangeUnavailableError(f"{what}: it is pretended")


def _array_at(at: int, count: int, dtype: Any, owner: object) -> np.ndarray:
    memory = (ctypes.c_char * max(1, count * np.dtype(dtype).itemsize)).from_address(at)
    return np.frombuffer(memory, dtype, count).view(Array)


def _copy_from(address: int, array: np.ndarray) -> None:
    ctypes.memmove(array.ctypes.data, address, array.nbytes)


def launch(source: Source, name: str, threads: int, arguments: tuple[Any, ...], *, whole: bool = False) -> None:
    """Run the stand-in of a kernel, which does what the kernel's header says."""
    if threads:
        KERNELS[name](*arguments)


def _count_degrees(src: Any, dst: Any, count: Any, n: Any, symmetrise: Any, degrees: Any, bad: Any) -> None:
    inside = _inside(src, dst, n, bad)
    np.add.at(degrees, src[inside], 1)
    np.add.at(degrees, dst[inside & ~((src == dst) & bool(symmetrise))], 1)


def _count_owners(src: Any, dst: Any, count: Any, n: Any, position: Any, p: Any, symmetrise: Any, *more: Any) -> None:
    first_row, end_row, counts, bad = more
    inside = _inside(src, dst, n, bad)
    sources, _, _ = _directed(src[inside], dst[inside], position, int(p), 1, symmetrise, first_row, end_row)
    np.add.at(counts, sources % int(p), 1)


def _bin_edges(
    src: Any, dst: Any, count: Any, position: Any, p: Any, n_local: Any, symmetrise: Any, *more: Any
) -> None:
    first_row, end_row, cursors, keys = more
    made = _directed(src, dst, position, int(p), int(n_local), symmetrise, first_row, end_row)
    for source, row, column in zip(*made, strict=True):
        owner = source % int(p)
        keys[cursors[owner]] = row << 32 | column
        cursors[owner] += 1


def _directed(
    src: Any, dst: Any, position: Any, p: int, n_local: int, symmetrise: Any, first_row: Any, end_row: Any
) -> tuple[Any, Any, Any]:
    """Return sources, rows and columns of the directed edges in a range of rows."""
    by_position = isinstance(position, np.ndarray)
    ends = [np.asarray(position)[side].astype(np.int64) if by_position else np.asarray(side) for side in (src, dst)]
    other = ends[0] != ends[1]
    sources, targets = ends
    if symmetrise:
        sources, targets = np.append(ends[0], ends[1][other]), np.append(ends[1], ends[0][other])
    rows = sources // p
    mine = (rows >= int(first_row)) & (rows < int(end_row))
    columns = targets if by_position else targets % p * n_local + targets // p
    return sources[mine], rows[mine], columns[mine]


def _inside(src: Any, dst: Any, n: Any, bad: Any) -> Any:
    inside = (src >= 0) & (src < int(n)) & (dst >= 0) & (dst < int(n))
    if not inside.all():
        bad[0] = min(int(bad[0]), int(np.argmin(inside)))
    return np.asarray(inside)


def _row_offsets(keys: Any, count: Any, first_row: Any, rows: Any, offsets: Any) -> None:
    wanted = np.arange(int(first_row), int(first_row + rows), dtype=np.uint64) << np.uint64(32)
    offsets[:-1] = np.searchsorted(keys, wanted)
    offsets[-1] = keys.size


def _columns(keys: Any, count: Any, rank: Any, p: Any, n_local: Any, by_position: Any, columns: Any, sums: Any) -> None:
    rank, p, n_local = int(rank), int(p), int(n_local)
    rows, targets = np.asarray(keys >> np.uint64(32), np.int64), np.asarray(keys & np.uint64(2**32 - 1), np.int64)
    sums[0] = (targets == (rows * p + rank if by_position else rank * n_local + rows)).sum()
    sums[1] = (keys[1:] == keys[:-1]).sum()
    columns[:] = targets % p * n_local + targets // p if by_position else targets


def _order_keys(degrees: Any, n: Any, keys: Any) -> None:
    capped = np.minimum(degrees, np.uint64(2**32 - 1))
    keys[:] = (np.uint64(2**32 - 1) - capped) << np.uint64(32) | np.arange(int(n), dtype=np.uint64)


def _order(keys: Any, n: Any, position: Any, vertex: Any) -> None:
    vertex[:] = keys & np.uint64(2**32 - 1)
    position[vertex] = np.arange(int(n))


KERNELS: dict[str, Callable[..., None]] = {
    "dbfs_count_degrees": _count_degrees,
    "dbfs_count_owners": _count_owners,
    "dbfs_bin_edges": _bin_edges,
    "dbfs_row_offsets": _row_offsets,
    "dbfs_columns": _columns,
    "dbfs_order_keys": _order_keys,
    "dbfs_order": _order,
}

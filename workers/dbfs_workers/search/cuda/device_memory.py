"""GPU memory: how much is free, the refusal of what won't fit, and memory that other processes can map.

Arrays come from CuPy's memory pool, with two exceptions: arrays that are exported, and arrays that would stay among the
pool's short-lived blocks. A CUDA IPC handle is of a whole allocation, and the pool hands out parts of large ones: an
export would pin the rest, and a long-lived array would keep the pool from returning its allocation.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbfs_workers.base.errors import ExchangeUnavailableError, GraphTooLargeError


@dataclass(frozen=True)
class ExportedArray:
    """The place of an array for another process: an allocation, and the array's offset in it.

    Attributes:
        handle: CUDA IPC handle of the allocation; empty for an empty array.
        offset: bytes from the start of the allocation to the array.
    """

    handle: bytes
    offset: int


def address(array: Any) -> int:
    """Return the address of a CuPy array's first element."""
    at: int = array.data.ptr
    return at


def free_bytes() -> int:
    """Return the bytes that this process can still allocate: the GPU's free memory plus free blocks of CuPy's pool.

    The result is at most what the pool's limit leaves.
    """
    return _free_and_total()[0]


def free_for_labels(share: float) -> int:
    """Return ``free_bytes`` without the part of the GPU's memory, 1 - ``share``, that labels leave to other uses."""
    free, total = _free_and_total()
    return free - int((1 - share) * total)


def pooled_bytes() -> int:
    """Return the bytes of free blocks of CuPy's pool."""
    import cupy

    return int(cupy.get_default_memory_pool().free_bytes())


def _free_and_total() -> tuple[int, int]:
    """Return ``free_bytes()`` and the bytes of the GPU's memory. CUDA takes 0.1 ms or more for them."""
    import cupy

    pool = cupy.get_default_memory_pool()
    free, total = map(int, cupy.cuda.Device().mem_info)
    free += pooled_bytes()
    limit = int(pool.get_limit())
    return min(free, limit - int(pool.used_bytes())) if limit else free, total


def require(nbytes: int, where: str) -> None:
    """Refuse an allocation of more bytes than are free.

    Args:
        nbytes: bytes about to be allocated.
        where: the rank and what it does, for the message.

    Raise ``GraphTooLargeError``, with the bytes needed and the bytes free.
    """
    free = free_bytes()
    if nbytes > free:
        raise GraphTooLargeError(f"{where}: it needs {nbytes} bytes on its GPU, {free} bytes are free")


def release_pool() -> None:
    """Return the free blocks of CuPy's pool to CUDA: allocations outside the pool, and other processes, need them."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()


def own_allocation(count: int, dtype: Any) -> Any:
    """Return an uninitialised array of ``count`` items in its own allocation, for ``export_allocation``.

    The allocation is freed with the array.
    """
    import cupy

    release_pool()
    dtype = np.dtype(dtype)
    memory = cupy.cuda.Memory(max(1, count * dtype.itemsize))
    return cupy.ndarray((count,), dtype, cupy.cuda.MemoryPointer(memory, 0))


def export_allocation(array: Any) -> bytes:
    """Return the IPC handle of an array from ``own_allocation``. Errors as for ``ipc_handle``."""
    return ipc_handle(int(array.data.ptr))


def export_array(array: Any) -> ExportedArray:
    """Export an array from any allocation, including CuPy's pool. Errors as for ``ipc_handle``."""
    if not array.size:
        return ExportedArray(b"", 0)
    address = int(array.data.ptr)
    base = _allocation(address)
    return ExportedArray(ipc_handle(base), address - base)


def ipc_handle(address: int) -> bytes:
    """Return the IPC handle of the allocation that starts at ``address``.

    Raise ``ExchangeUnavailableError`` if the system does not allow it.
    """
    import cupy

    try:
        return bytes(cupy.cuda.runtime.ipcGetMemHandle(address))
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise ExchangeUnavailableError(f"GPU memory can't be exported: {error}") from error


def _allocation(address: int) -> int:
    """Return the start of the allocation that holds ``address``."""
    # CuPy does not offer cuMemGetAddressRange. cuda.bindings does, but it also looks up functions that the driver
    # lacks, and compute-sanitizer counts each failed look-up as an error.
    base = ctypes.c_uint64()
    failed = ctypes.CDLL("libcuda.so.1").cuMemGetAddressRange_v2(ctypes.byref(base), None, ctypes.c_uint64(address))
    if failed:
        raise ExchangeUnavailableError(f"GPU memory can't be exported: cuMemGetAddressRange failed with code {failed}")
    return base.value


def open_handle(handle: bytes, what: str) -> int:
    """Map another process's allocation, and return its address on this GPU; ``what`` begins the message.

    CUDA counts how often an allocation is opened, so every opening is closed once.

    Raise ``ExchangeUnavailableError`` if its process is this one, or is on another host or in another container.
    """
    import cupy

    runtime = cupy.cuda.runtime
    try:
        return int(runtime.ipcOpenMemHandle(handle))
    except runtime.CUDARuntimeError as error:
        raise ExchangeUnavailableError(f"{what}: {error}") from error


def close_handle(address: int) -> None:
    """Unmap what ``open_handle`` has mapped."""
    import cupy

    cupy.cuda.runtime.ipcCloseMemHandle(address)


def array_at(at: int, count: int, dtype: Any, owner: object) -> Any:
    """Return the array at an address of this GPU, or of a peer's memory that is mapped. ``owner`` keeps that memory."""
    import cupy

    dtype = np.dtype(dtype)
    # The current device: CUDA names the peer's for mapped memory, and CuPy would refuse arrays of two devices.
    memory = cupy.cuda.UnownedMemory(at, max(1, count * dtype.itemsize), owner, cupy.cuda.Device().id)
    return cupy.ndarray((count,), dtype, cupy.cuda.MemoryPointer(memory, 0))


@contextmanager
def mapped(handle: bytes) -> Iterator[int]:
    """Map another process's array, and yield its address on this GPU. Copies begun inside end before it is unmapped.

    Errors as for ``open_handle``.
    """
    import cupy

    address = open_handle(handle, "a peer's GPU memory can't be mapped")
    try:
        yield address
    finally:
        cupy.cuda.get_current_stream().synchronize()
        close_handle(address)


def copy_from(address: int, array: Any) -> None:
    """Begin to fill an array from an address of this GPU, or of a peer's memory that is ``mapped``."""
    import cupy

    runtime = cupy.cuda.runtime
    stream = cupy.cuda.get_current_stream()
    if array.nbytes:
        runtime.memcpyAsync(array.data.ptr, address, array.nbytes, runtime.memcpyDefault, stream.ptr)

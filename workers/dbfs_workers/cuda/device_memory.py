"""GPU memory: what is free, the refusal of what will not fit, and memory that other processes can map.

Everything is allocated through CuPy's pool but what is exported, and what would stay for a while among blocks that come
and go: a CUDA IPC handle is of a whole allocation, and the pool hands out parts of larger ones, which it then has to
keep.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbfs_workers.errors import ExchangeUnavailableError, GraphTooLargeError


@dataclass(frozen=True)
class Part:
    """An array in some allocation, for other processes to map.

    Attributes:
        handle: CUDA IPC handle of the allocation; empty where the array is.
        offset: where the array starts in it, in bytes.
    """

    handle: bytes
    offset: int


def room() -> int:
    """Bytes that this process can still take of its GPU: free ones and those that its pool holds, up to its limit."""
    import cupy

    pool = cupy.get_default_memory_pool()
    free = int(cupy.cuda.Device().mem_info[0]) + int(pool.free_bytes())
    limit = int(pool.get_limit())
    return min(free, limit - int(pool.used_bytes())) if limit else free


def require(nbytes: int, where: str) -> None:
    """Refuse what needs more than is free.

    Args:
        nbytes: bytes about to be allocated.
        where: the rank and what it does, for the message.

    Raises:
        GraphTooLargeError: with the bytes needed and the bytes free.
    """
    free = room()
    if nbytes > free:
        raise GraphTooLargeError(f"{where}: it needs {nbytes} bytes on its GPU, {free} bytes are free")


def give_back() -> None:
    """Return what the pool holds and nobody uses: plain allocations, here and in other processes, can't use it."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()


def alone(count: int, dtype: Any) -> Any:
    """An uninitialised array in an allocation of its own, freed with the array. It can be exported."""
    import cupy

    give_back()
    dtype = np.dtype(dtype)
    memory = cupy.cuda.Memory(max(1, count * dtype.itemsize))
    return cupy.ndarray((count,), dtype, cupy.cuda.MemoryPointer(memory, 0))


def export(array: Any) -> bytes:
    """The IPC handle of an array that is ``alone``, for other processes.

    Raises:
        ExchangeUnavailableError: the system does not allow it.
    """
    return handle(int(array.data.ptr))


def part(array: Any) -> Part:
    """Export an array wherever it lies, also in the pool's memory.

    Raises:
        ExchangeUnavailableError: the system does not allow it.
    """
    if not array.size:
        return Part(b"", 0)
    address = int(array.data.ptr)
    base = _allocation(address)
    return Part(handle(base), address - base)


def handle(address: int) -> bytes:
    """The IPC handle of the allocation that starts at an address.

    Raises:
        ExchangeUnavailableError: the system does not allow it.
    """
    import cupy

    try:
        return bytes(cupy.cuda.runtime.ipcGetMemHandle(address))
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise ExchangeUnavailableError(f"GPU memory can't be exported: {error}") from error


def _allocation(address: int) -> int:
    """Where the allocation starts in which an address lies."""
    # CuPy has no function for it. cuda.bindings has, but asks the driver for others that it lacks: compute-sanitizer
    # counts each as an error.
    base = ctypes.c_uint64()
    failed = ctypes.CDLL("libcuda.so.1").cuMemGetAddressRange_v2(ctypes.byref(base), None, ctypes.c_uint64(address))
    if failed:
        raise ExchangeUnavailableError(f"GPU memory can't be exported: error {failed} of cuMemGetAddressRange")
    return base.value


@contextmanager
def mapped(handle: bytes) -> Iterator[int]:
    """Another process's array, as an address that this GPU can read; copies begun inside end before it is unmapped.

    Raises:
        ExchangeUnavailableError: it can't be mapped: its process is on another host, in another container, or this one.
    """
    import cupy

    runtime = cupy.cuda.runtime
    try:
        address = runtime.ipcOpenMemHandle(handle)
    except runtime.CUDARuntimeError as error:
        raise ExchangeUnavailableError(f"a peer's GPU memory can't be mapped: {error}") from error
    try:
        yield int(address)
    finally:
        cupy.cuda.get_current_stream().synchronize()
        runtime.ipcCloseMemHandle(address)


def copy_from(address: int, array: Any) -> None:
    """Begin to fill an array from an address of any GPU that is mapped here."""
    import cupy

    runtime = cupy.cuda.runtime
    stream = cupy.cuda.get_current_stream()
    if array.nbytes:
        runtime.memcpyAsync(array.data.ptr, address, array.nbytes, runtime.memcpyDefault, stream.ptr)

"""GPUs, driver, CuPy and NCCL of this machine, for ``dbfs doctor``.

``driver`` calls the driver's own library, so that it works without CuPy.
"""

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Values of cuda.h: CUdevice_attribute, then CUresult (CUDA's runtime has the same numbers).
_CAPABILITY_MAJOR: Final = 75
_CAPABILITY_MINOR: Final = 76
_NO_DEVICE: Final = 100
_ALREADY_ENABLED: Final = 704
_NAME_BYTES: Final = 256
RELEASE_FILE: Final = Path("/proc/driver/nvidia/version")

# Large enough for NVLink to reach its rate, small enough to fit beside other processes' memory.
_COPY_BYTES: Final = 64 << 20
_COPIES: Final = 8


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes:
        index: among the GPUs that CUDA shows to this process.
        name: such as ``NVIDIA H100``.
        arch: such as ``sm_90``.
        nbytes: memory.
    """

    index: int
    name: str
    arch: str
    nbytes: int


@dataclass(frozen=True)
class Driver:
    """The driver and the GPUs that it shows to this process.

    Attributes:
        release: such as ``580.159.04``; None if the kernel has no file of it (``RELEASE_FILE``).
        cuda: newest version of CUDA that the driver runs, such as (13, 0).
        gpus: the visible GPUs.
        peer_access: for each GPU (row), whether it can map each other one (column).
    """

    release: str | None
    cuda: tuple[int, int]
    gpus: tuple[Gpu, ...]
    peer_access: tuple[tuple[bool, ...], ...]


class DriverError(RuntimeError):
    """A function of the driver's library failed; the message has the function and its code."""


def driver(library: str = "libcuda.so.1") -> Driver | None:
    """Return the driver of this machine; None if its library is not installed.

    Raises:
        DriverError: the driver does not start, or a query fails.
    """
    try:
        cuda = ctypes.CDLL(library)
    except OSError:
        return None
    started = cuda.cuInit(0)
    if started not in (0, _NO_DEVICE):
        raise DriverError(f"cuInit failed with code {started}")
    version = _query(cuda.cuDriverGetVersion)
    count = _query(cuda.cuDeviceGetCount) if started == 0 else 0
    devices = [_query(cuda.cuDeviceGet, index) for index in range(count)]
    return Driver(
        release=_release(),
        cuda=(version // 1000, version % 1000 // 10),
        gpus=tuple(_gpu(cuda, index, device) for index, device in enumerate(devices)),
        peer_access=tuple(
            tuple(one != other and bool(_query(cuda.cuDeviceCanAccessPeer, one, other)) for other in devices)
            for one in devices
        ),
    )


def cupy_runtime() -> tuple[int, int]:
    """Return the version of CuPy's CUDA runtime, such as (13, 0). Raises whatever importing CuPy raises."""
    import cupy

    number: int = cupy.cuda.runtime.runtimeGetVersion()
    return number // 1000, number % 1000 // 10


def peer_bandwidth(peer_access: tuple[tuple[bool, ...], ...]) -> tuple[tuple[float | None, ...], ...]:
    """Measure the GB/s at which each GPU (row) copies from each other one (column), with CuPy.

    None stands for pairs without peer access, and for the diagonal.
    """
    import cupy

    buffers = []
    for device in range(len(peer_access)):
        with cupy.cuda.Device(device):
            buffers.append(cupy.zeros(_COPY_BYTES, cupy.uint8))
            cupy.cuda.get_current_stream().synchronize()
    return tuple(
        tuple(_copy_rate(cupy, buffers, to, of) if mapped else None for of, mapped in enumerate(row))
        for to, row in enumerate(peer_access)
    )


def _copy_rate(cupy: Any, buffers: list[Any], to: int, of: int) -> float:
    runtime = cupy.cuda.runtime
    with cupy.cuda.Device(to):
        # Without peer access the copy would go through the host.
        try:
            runtime.deviceEnablePeerAccess(of)
        except runtime.CUDARuntimeError as error:
            if error.status != _ALREADY_ENABLED:
                raise
        stream = cupy.cuda.Stream(non_blocking=True)
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        for repeat in range(_COPIES + 1):
            # The first copy is not timed: it sets the mapping up.
            if repeat == 1:
                begin.record(stream)
            runtime.memcpyPeerAsync(buffers[to].data.ptr, to, buffers[of].data.ptr, of, _COPY_BYTES, stream.ptr)
        end.record(stream)
        end.synchronize()
        milliseconds: float = cupy.cuda.get_elapsed_time(begin, end)
    return _COPIES * _COPY_BYTES / milliseconds * 1e-6


def _release() -> str | None:
    try:
        found = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", RELEASE_FILE.read_text())
    except OSError:
        return None
    return found[0] if found else None


def _gpu(cuda: Any, index: int, device: int) -> Gpu:
    name = ctypes.create_string_buffer(_NAME_BYTES)
    _check("cuDeviceGetName", cuda.cuDeviceGetName(name, _NAME_BYTES, device))
    nbytes = ctypes.c_size_t()
    _check("cuDeviceTotalMem", cuda.cuDeviceTotalMem_v2(ctypes.byref(nbytes), device))
    major, minor = (
        _query(cuda.cuDeviceGetAttribute, attribute, device) for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR)
    )
    return Gpu(index, name.value.decode(), f"sm_{major}{minor}", nbytes.value)


def _query(function: Any, *arguments: int) -> int:
    value = ctypes.c_int()
    _check(function.__name__, function(ctypes.byref(value), *arguments))
    return value.value


def _check(name: str, code: int) -> None:
    if code:
        raise DriverError(f"{name} failed with code {code}")

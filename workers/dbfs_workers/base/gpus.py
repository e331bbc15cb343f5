"""The GPUs that this process may use, found without importing CuPy, so that the search is cheap on any machine."""

import contextlib
import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _count() -> int:
    try:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]  # comes with dask-cuda
    except ImportError:
        return len(list(Path("/dev").glob("nvidia[0-9]*")))
    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0


def visible_gpus() -> list[str]:
    """Return this machine's GPUs as in ``CUDA_VISIBLE_DEVICES`` (indices or UUIDs); if that is unset, by index."""
    count = _count()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [str(index) for index in range(count)]
    visible = [entry.strip() for entry in chosen.split(",")]
    # CUDA ignores the first invalid entry and all after it.
    end = next((at for at, entry in enumerate(visible) if entry in ("", "-1")), len(visible))
    return visible[:end] if count else []


def memory_bytes() -> list[int]:
    """Return the bytes of each visible GPU's memory; an empty list if NVML, which reports them, is not installed."""
    try:
        import pynvml
    except ImportError:
        return []
    found = []
    for gpu in visible_gpus():
        try:
            found.append(int(pynvml.nvmlDeviceGetMemoryInfo(_handle(pynvml, gpu)).total))
        except pynvml.NVMLError:
            # An index or a UUID that this machine does not have: CUDA ignores it and all that follow.
            break
    return found


def archs() -> set[str]:
    """Return the architectures of the visible GPUs, such as ``sm_90``; an empty set without NVML. CUDA stays asleep."""
    found = set()
    with contextlib.suppress(ImportError):
        import pynvml

        with contextlib.suppress(pynvml.NVMLError):
            for gpu in visible_gpus():
                found.add("sm_{}{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(_handle(pynvml, gpu))))
    return found


def own_gpu_name() -> str | None:
    """Return the product name of ``own_gpu``, such as ``NVIDIA H200``; None without a GPU, or without NVML."""
    gpu = own_gpu()
    try:
        import pynvml
    except ImportError:
        return None
    return None if gpu is None else str(pynvml.nvmlDeviceGetName(_handle(pynvml, gpu)))


def _handle(nvml: Any, gpu: str) -> Any:
    if gpu.isdecimal():
        return nvml.nvmlDeviceGetHandleByIndex(int(gpu))
    return nvml.nvmlDeviceGetHandleByUUID(gpu)


def own_gpu() -> str | None:
    """Return the GPU of a worker in this process, the first visible one; None without a GPU, or without CuPy."""
    if importlib.util.find_spec("cupy") is None:
        return None
    return next(iter(visible_gpus()), None)

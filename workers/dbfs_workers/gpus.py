"""Which GPUs a process sees, found without importing CuPy: to ask costs little where there is none."""

import importlib.util
import os
from functools import cache
from pathlib import Path


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
    """The GPUs of this machine, as ``CUDA_VISIBLE_DEVICES`` (indices or UUIDs) has them where it is set."""
    count = _count()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [str(index) for index in range(count)]
    visible = [entry.strip() for entry in chosen.split(",")]
    # CUDA stops at the first entry that is no device.
    end = next((at for at, entry in enumerate(visible) if entry in ("", "-1")), len(visible))
    return visible[:end] if count else []


def own_gpu() -> str | None:
    """The GPU that a worker in this process computes on, the first it sees; None without one, or without CuPy."""
    if importlib.util.find_spec("cupy") is None:
        return None
    return next(iter(visible_gpus()), None)

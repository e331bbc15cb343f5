"""The kernels that merge a batch with a CSR, on this CPU: see ``cuda_on_cpu``."""

import ctypes
import itertools
from typing import Any

import distributed
import numpy as np
import pytest

import dbfs
from dbfs_workers.building import cuda as building
from dbfs_workers.features.living.kernels.sources import MERGING
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.cuda.source import Source
from tests.support import standin
from tests.support.cuda_on_cpu.compiler import emulated

# Few blocks, so that threads stride.
_MOST_BLOCKS = 2
_seeds = itertools.count()


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace CuPy by NumPy, and run the kernels on this CPU."""
    standin.install(monkeypatch, mapped=False)
    monkeypatch.setattr(building, "launch", launch)


def launch(source: Source, name: str, threads: int, arguments: tuple[Any, ...], *, whole: bool = False) -> None:
    """See ``building.launch``."""
    if not threads:
        return
    if source is not MERGING:
        standin.launch(source, name, threads, arguments, whole=whole)
        return
    blocks = -(-threads // building.THREADS)
    given: list[Any] = [
        ctypes.c_void_p(each.ctypes.data) if isinstance(each, np.ndarray) else ctypes.c_longlong(int(each))
        for each in arguments
    ]
    function = getattr(emulated("merging"), f"run_{name}")
    function.restype = ctypes.c_char_p
    answer = function(blocks if whole else min(_MOST_BLOCKS, blocks), ctypes.c_ulonglong(next(_seeds)), *given)
    assert not answer, f"{name}: {answer.decode()}"


def pretend_to_have_a_gpu() -> None:
    """Give a worker a GPU on NumPy: see ``standin.pretend_to_have_a_gpu``. Its batches are merged by the kernels."""
    standin.pretend_to_have_a_gpu()
    install(pytest.MonkeyPatch())


def limit_memory(nbytes: int | None) -> None:
    """Let a worker's GPU have so many bytes free; None for as many as it has."""
    if not hasattr(device_memory, "measured_bytes"):
        device_memory.measured_bytes = device_memory.free_bytes  # type: ignore[attr-defined]
    measured = device_memory.measured_bytes  # type: ignore[attr-defined]
    device_memory.free_bytes = measured if nbytes is None else lambda: nbytes


def two_on_numpy() -> distributed.Client:
    """Start a cluster of two workers that pretend to have GPUs, whose batches the emulated kernels merge."""
    client = dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None)
    dbfs.load("path:n=2", client=client).unload()
    client.run(pretend_to_have_a_gpu)
    return client

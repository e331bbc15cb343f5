"""The kernels that merge a batch with a CSR, on this CPU: see ``cuda_on_cpu``."""

import ctypes
import itertools
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dbfs_workers.building import cuda as building
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.cuda.module import KERNEL_FOLDER
from tests.support import cuda_on_cpu, standin
from tests.support.cuda_on_cpu.device import COMPILER, OPTIONS

# Few blocks, so that threads stride.
_MOST_BLOCKS = 2
_seeds = itertools.count()


@cache
def kernels() -> ctypes.PyDLL:
    """Compile the kernels and load them."""
    emulator = Path(cuda_on_cpu.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "merging.so"
        folders = [f"-I{KERNEL_FOLDER}", f"-I{emulator}"]
        subprocess.run([COMPILER, *OPTIONS, *folders, str(emulator / "merging.cpp"), "-o", str(built)], check=True)
        # With the interpreter locked: the emulator runs one grid at a time.
        return ctypes.PyDLL(str(built))


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace CuPy by NumPy, and run the kernels on this CPU."""
    standin.install(monkeypatch, mapped=False)
    monkeypatch.setattr(building, "launch", launch)


def launch(source: str, name: str, threads: int, arguments: tuple[Any, ...], *, whole: bool = False) -> None:
    """See ``building.launch``."""
    if not threads:
        return
    if source != "features/living/kernels/merging.cu":
        standin.launch(source, name, threads, arguments, whole=whole)
        return
    blocks = -(-threads // building.THREADS)
    given: list[Any] = [
        ctypes.c_void_p(each.ctypes.data) if isinstance(each, np.ndarray) else ctypes.c_longlong(int(each))
        for each in arguments
    ]
    function = getattr(kernels(), f"run_{name}")
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

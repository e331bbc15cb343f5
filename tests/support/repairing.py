"""The kernel that repairs labels, on this CPU: see ``cuda_on_cpu``."""

import ctypes
import itertools
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dbfs_workers.features.living import cuda_repair as repair
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.cuda.module import KERNEL_FOLDER
from tests.support import cuda_on_cpu, standin
from tests.support.cuda_on_cpu.device import COMPILER, OPTIONS

_BLOCKS = 3
_seeds = itertools.count()


@cache
def kernels() -> ctypes.PyDLL:
    """Compile the kernel and load it."""
    emulator = Path(cuda_on_cpu.__file__).parent
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "search/cuda/kernels/common").mkdir(parents=True)
        (folder / "search/cuda/kernels/common/memory.cuh").touch()
        built = folder / "repair.so"
        options = [*OPTIONS, f"-I{folder}", f"-I{KERNEL_FOLDER}", f"-I{emulator}"]
        subprocess.run([COMPILER, *options, str(emulator / "repair.cpp"), "-o", str(built)], check=True)
        # With the interpreter locked: the emulator runs one grid at a time.
        return ctypes.PyDLL(str(built))


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace CuPy by NumPy, and run the kernel on this CPU."""
    standin.install(monkeypatch, mapped=False)
    monkeypatch.setattr(device_memory, "address", lambda array: array.ctypes.data)
    monkeypatch.setattr(repair, "launch", launch)


def launch(arguments: "np.ndarray[Any, Any]") -> None:
    """See ``repair.launch``."""
    function = kernels().run_repair
    function.restype = ctypes.c_char_p
    answer = function(_BLOCKS, ctypes.c_ulonglong(next(_seeds)), 8, ctypes.c_void_p(arguments.ctypes.data))
    assert not answer, answer.decode()

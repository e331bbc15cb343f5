"""The kernel that repairs labels, on this CPU: see ``cuda_on_cpu``."""

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest

from dbfs_workers.features.living import cuda_repair as repair
from dbfs_workers.search.cuda import device_memory
from tests.support import standin
from tests.support.cuda_on_cpu.compiler import emulated

_BLOCKS = 3
_seeds = itertools.count()


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace CuPy by NumPy, and run the kernel on this CPU."""
    standin.install(monkeypatch, mapped=False)
    monkeypatch.setattr(device_memory, "address", lambda array: array.ctypes.data)
    monkeypatch.setattr(repair, "launch", launch)


def launch(arguments: "np.ndarray[Any, Any]") -> None:
    """See ``repair.launch``."""
    function = emulated("repair", "search/cuda/kernels/common/memory.cuh").run_repair
    function.restype = ctypes.c_char_p
    answer = function(_BLOCKS, ctypes.c_ulonglong(next(_seeds)), 8, ctypes.c_void_p(arguments.ctypes.data))
    assert not answer, answer.decode()

"""CUDA kernels of the phases compiled for this CPU, behind a stand-in for CuPy on NumPy: see ``cuda_on_cpu.h``."""

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from dbfs_workers.search.cuda.backend import CudaBackend
from tests.support import standin
from tests.support.cuda_on_cpu.compiler import emulated

# Headers that ``common.h`` stands in place of.
_REPLACED = ("search/cuda/kernels/common/memory.cuh", "search/cuda/kernels/phases/reserve.cuh")
_seeds = itertools.count()

Launch = Callable[..., None]


def launcher(library: ctypes.PyDLL, name: str, most_blocks: int = 2) -> Launch:
    """Return a kernel that is called as CuPy's are. Its grid is small: threads stride over the work."""
    function = getattr(library, f"run_{name}")
    function.restype = ctypes.c_char_p

    def launch(blocks: tuple[int], threads: tuple[int], arguments: tuple[Any, ...], shared_mem: int = 0) -> None:
        # Arrays by their addresses, numbers as they are. ``slots`` keeps them while the kernel runs.
        slots = [np.array(each.ctypes.data if getattr(each, "ndim", 0) else each) for each in arguments]
        places = (ctypes.c_void_p * len(slots))(*(slot.ctypes.data for slot in slots))
        answer = function(min(blocks[0], most_blocks), min(threads[0], 64), ctypes.c_ulonglong(next(_seeds)), places)
        assert not answer, f"{name}: {answer.decode()}"

    return launch


def compiled(program: str) -> ctypes.PyDLL:
    """Return the library of an emulator's program of the phases."""
    return emulated(program, *_REPLACED)


class EmulatedBackend(CudaBackend):
    """The CUDA backend without its kernels. The sums of a frontier's degrees are NumPy's.

    Args:
        library: the emulator's program with the kernels that a test adds.
    """

    def __init__(self, library: ctypes.PyDLL) -> None:
        self.xp, self.library = standin.Cupy(), library

    def frontier_edges(self, row_offsets: Any, frontier: Any) -> tuple[Any, Any]:
        starts = row_offsets[frontier]
        return starts, np.cumsum(row_offsets[frontier + np.uint32(1)] - starts)

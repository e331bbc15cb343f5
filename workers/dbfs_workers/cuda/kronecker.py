"""Graph500's Kronecker edges drawn on the GPU (``kronecker.cu``); ``dbfs.generate.kronecker`` has the parameters."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.cuda.module import load

THREADS: Final = 256
TILE: Final = THREADS * 32


def draw_edges(
    powers: NDArray[np.uint32],
    seed: NDArray[np.uint32],
    first: int,
    count: int,
    scale: int,
    value0: int,
    value1: int,
) -> tuple[Any, Any]:
    """The edges ``first`` to ``first + count - 1``: sources and targets, int64 on the GPU.

    Args:
        powers: (bits, 5, 5), row i the random generator's transition over 2^i edges, for every bit of an edge's number.
        seed: (5,), the state of edge 0.
        first: number of the first edge.
        count: how many.
        scale: bits of an id.
        value0, value1: the scramble's constants.
    """
    import cupy

    sources, targets = cupy.empty(count, np.int64), cupy.empty(count, np.int64)
    if count:
        kernel = load("building/kronecker.cu").get_function("dbfs_kronecker")
        # A struct of the kernel's: an array of one record goes by value.
        state = seed.view([("z", np.uint32, 5)])
        numbers = (np.uint64(first), np.int64(count), np.uint32(scale), np.uint64(value0), np.uint64(value1))
        kernel((-(-count // TILE),), (THREADS,), (cupy.asarray(powers), state, *numbers, sources, targets))
    return sources, targets

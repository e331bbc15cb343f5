"""Graph500's Kronecker edges drawn on the GPU: launch of ``building/kronecker.cu``.

``dbfs.edges.generate.kronecker`` computes the parameters and describes the generator.
"""

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
    """Draw the edges ``first`` to ``first + count - 1``.

    Args:
        powers: uint32[bits, 5, 5], item i the random generator's transition over 2^i edges, for every bit of an edge's
            number.
        seed: uint32[5], the generator's state of edge 0.
        first: number of the first edge.
        count: number of edges.
        scale: bits of an id.
        value0, value1: the constants that scramble ids.

    Returns:
        Sources and targets, int64[count] each, on the GPU.
    """
    import cupy

    sources, targets = cupy.empty(count, np.int64), cupy.empty(count, np.int64)
    if count:
        kernel = load("building/kronecker.cu").get_function("dbfs_kronecker")
        # The kernel takes the state as a struct by value, which CuPy passes from an array of one record.
        state = seed.view([("z", np.uint32, 5)])
        numbers = (np.uint64(first), np.int64(count), np.uint32(scale), np.uint64(value0), np.uint64(value1))
        kernel((-(-count // TILE),), (THREADS,), (cupy.asarray(powers), state, *numbers, sources, targets))
    return sources, targets

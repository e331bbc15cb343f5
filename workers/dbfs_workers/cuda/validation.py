"""The validator's pass over edges on the GPU (``validation.cu``)."""

from typing import Any, Final

import numpy as np

from dbfs_workers.cuda.module import load

THREADS: Final = 256
TILE: Final = THREADS * 4
# Enough to fill any GPU; blocks then stride.
MOST_BLOCKS: Final = 132 * 16


def check_edges(
    src: Any,
    dst: Any,
    table: Any,
    predecessors: bool,
    directed: bool,
    bound: int,
    unsupported: Any,
    found: Any,
) -> None:
    """See ``validation_kernels.check_edges``: the same arguments, of CuPy; of several edges any may be the first."""
    if src.size:
        kernel = load("checks/validation.cu").get_function("dbfs_check_edges")
        options = (np.int32(predecessors), np.int32(directed), np.int64(bound))
        blocks = min(MOST_BLOCKS, -(-src.size // TILE))
        kernel((blocks,), (THREADS,), (src, dst, np.int64(src.size), table, *options, unsupported, found))

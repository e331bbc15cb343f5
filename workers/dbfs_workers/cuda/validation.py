"""The validator's pass over edges on the GPU: launch of ``checks/validation.cu``."""

from typing import Any, Final

import numpy as np

from dbfs_workers.cuda.module import load

THREADS: Final = 256
TILE: Final = THREADS * 4
# 16 blocks on each of the 132 multiprocessors of an H100 fill the GPU; the blocks stride over the rest.
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
    """Check edges as ``checks.validation_kernels.check_edges`` does, with CuPy arrays for the same arguments.

    If several edges break a rule, ``found`` names any one of them, not the first.
    """
    if src.size:
        kernel = load("checks/validation.cu").get_function("dbfs_check_edges")
        options = (np.int32(predecessors), np.int32(directed), np.int64(bound))
        blocks = min(MOST_BLOCKS, -(-src.size // TILE))
        kernel((blocks,), (THREADS,), (src, dst, np.int64(src.size), table, *options, unsupported, found))

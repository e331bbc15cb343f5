"""What a finished run found on one rank, summed up on the GPU from its labels."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.cuda.device_graph import DeviceGraph
from dbfs_workers.cuda.module import PLAIN_DEFINES, load

THREADS: Final = 256
# Enough to fill any GPU; threads then stride.
MOST_BLOCKS: Final = 132 * 8
# 32 KiB: every GPU's blocks have 48 without asking.
SHARED_BINS: Final = 8192
_FIRST_BIN: Final = 3


@dataclass(frozen=True)
class Summary:
    """One rank's part of a run.

    Attributes:
        reached: rows labelled, the sources included.
        edges: the sum of their degrees.
        depth: the largest distance, 0 where nothing was reached.
        discovered: int64[levels], the rows that each level labelled.
    """

    reached: int
    edges: int
    depth: int
    discovered: NDArray[np.int64]


def summarise(graph: DeviceGraph, distances: Any, levels: int) -> Summary:
    """Sum up int32[n_local] distances; rows are counted for each of ``levels``."""
    import cupy

    kernel = load("summary.cu", PLAIN_DEFINES).get_function("dbfs_summary")
    bins = levels + 1
    shared_bins = min(bins, SHARED_BINS)
    sums = cupy.zeros(_FIRST_BIN + bins, np.uint64)
    rows = graph.stripe.n_local
    blocks = min(MOST_BLOCKS, -(-rows // THREADS))
    arguments = (graph.row_offsets, distances, np.int64(rows), np.uint32(bins), np.uint32(shared_bins), sums)
    kernel((blocks,), (THREADS,), arguments, shared_mem=4 * shared_bins)
    found: NDArray[np.int64] = cupy.asnumpy(sums).astype(np.int64)
    reached, edges, depth = found[:_FIRST_BIN].tolist()
    return Summary(reached, edges, depth, found[_FIRST_BIN + 1 :])

"""Counts by distance of one rank's result, added up on the GPU from its labels (``resident/summary.cu``)."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.cuda.device_graph import DeviceGraph
from dbfs_workers.cuda.module import PLAIN_DEFINES, load

THREADS: Final = 1024
# Two blocks on each of 132 multiprocessors fill the GPU; so few add few counters to global memory for their rows.
MOST_BLOCKS: Final = 132 * 2
# Counters of 8 bytes in the 48 KiB of shared memory that a block gets on every GPU without opting in to more.
SHARED_BINS: Final = 6144
# log2 of the copies of each counter in shared memory: at most one copy for each lane of a warp.
MOST_COPIES: Final = 5


@dataclass(frozen=True)
class LabelSummary:
    """Counts of one rank's labelled rows, by distance from 0 to the number of levels.

    Attributes:
        rows: int64[levels + 1], number of rows with that distance.
        degrees: int64[levels + 1], sum of those rows' out-degrees.
    """

    rows: NDArray[np.int64]
    degrees: NDArray[np.int64]

    @property
    def depth(self) -> int:
        """Largest distance on this rank; 0 if it has no labelled row."""
        return int(np.flatnonzero(self.rows).max(initial=0))


def summarise(graph: DeviceGraph, distances: Any, levels: int) -> LabelSummary:
    """Count rows and sum degrees by distance.

    Args:
        graph: the rank's slice of the graph.
        distances: int32[n_local] on the GPU, each from -1 to ``levels``.
        levels: number of levels of the run.
    """
    import cupy

    kernel = load("resident/summary.cu", PLAIN_DEFINES).get_function("dbfs_summary")
    bins = levels + 1
    shared_bins = min(bins, SHARED_BINS)
    copies = min(MOST_COPIES, (SHARED_BINS // shared_bins).bit_length() - 1)
    sums = cupy.zeros((2, bins), np.uint64)
    rows = graph.stripe.n_local
    blocks = min(MOST_BLOCKS, -(-rows // THREADS))
    arguments = (
        *(graph.row_offsets, distances, np.int64(rows)),
        *(np.uint32(bins), np.uint32(shared_bins), np.uint32(copies), sums),
    )
    kernel((blocks,), (THREADS,), arguments, shared_mem=8 * shared_bins << copies)
    return LabelSummary(*cupy.asnumpy(sums).astype(np.int64))

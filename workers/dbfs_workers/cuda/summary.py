"""What a finished run found on one rank, summed up on the GPU from its labels."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.cuda.device_graph import DeviceGraph
from dbfs_workers.cuda.module import PLAIN_DEFINES, load

THREADS: Final = 1024
# Enough to fill any GPU; threads then stride, and a block has few counters to hand in for each of its rows.
MOST_BLOCKS: Final = 132 * 2
# 8 bytes each, 48 KiB: what every GPU's blocks have without asking.
SHARED_BINS: Final = 6144
# log2: a counter for each lane.
MOST_COPIES: Final = 5


@dataclass(frozen=True)
class LabelSummary:
    """One rank's part of a run, by distance from 0 to the number of levels.

    Attributes:
        rows: int64[levels + 1], rows labelled.
        degrees: int64[levels + 1], the sum of their degrees.
    """

    rows: NDArray[np.int64]
    degrees: NDArray[np.int64]

    @property
    def depth(self) -> int:
        """The largest distance, 0 where nothing was reached."""
        return int(np.flatnonzero(self.rows).max(initial=0))


def summarise(graph: DeviceGraph, distances: Any, levels: int) -> LabelSummary:
    """Sum up int32[n_local] distances, none of which is above ``levels``."""
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

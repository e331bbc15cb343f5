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
# Bins of a run whose number of levels is not known yet: few enough for the most copies of each counter.
MOST_BINS: Final = 128
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


class Summary:
    """Adds up the labels of one run after another, behind the run's kernel on its stream.

    Runs of at least ``MOST_BINS`` levels are added up again, when their number of levels is known.

    Args:
        graph: the rank's slice of the graph.
    """

    def __init__(self, graph: DeviceGraph) -> None:
        import cupy

        self._graph = graph
        self._sums = cupy.zeros((2, MOST_BINS), np.uint64)
        size = self._sums.nbytes
        self._pinned = [cupy.cuda.alloc_pinned_memory(size) for _ in range(2)]
        # Sums on the host, of two runs that may be under way: the one to fill next comes first.
        self._counts: list[NDArray[np.uint64]] = [
            np.frombuffer(pinned, np.uint64, size // 8).reshape(2, MOST_BINS) for pinned in self._pinned
        ]

    def enqueue(self, distances: Any, stream: Any) -> NDArray[np.uint64]:
        """Add up distances on a stream, and copy the sums to the host. Returns at once.

        Args:
            distances: int32[n_local] on the GPU.
            stream: the stream of the run's kernel.

        Returns:
            uint64[2, MOST_BINS] for ``read``, filled once the stream has done this work; used again by the call after
            the next one.
        """
        counts = self._counts[0]
        self._counts.reverse()
        runtime = _cupy().cuda.runtime
        with stream:
            runtime.memsetAsync(self._sums.data.ptr, 0, self._sums.nbytes, stream.ptr)
            _launch(self._graph, distances, self._sums)
            to_host = runtime.memcpyDeviceToHost
            runtime.memcpyAsync(counts.ctypes.data, self._sums.data.ptr, self._sums.nbytes, to_host, stream.ptr)
        return counts

    def read(self, counts: NDArray[np.uint64], distances: Any, levels: int) -> LabelSummary:
        """Return the summary of distances whose sums are on the host.

        Args:
            counts: what ``enqueue`` returned for the distances.
            distances: int32[n_local] on the GPU: the same distances.
            levels: number of levels of the run.
        """
        if levels < MOST_BINS:
            rows, degrees = counts[:, : levels + 1].astype(np.int64)
            return LabelSummary(rows, degrees)
        sums = _cupy().zeros((2, levels + 1), np.uint64)
        _launch(self._graph, distances, sums)
        return LabelSummary(*_cupy().asnumpy(sums).astype(np.int64))


def _launch(graph: DeviceGraph, distances: Any, sums: Any) -> None:
    """Launch the kernel that adds distances, from -1 on, to ``sums``, zeros of uint64[2, bins]. Skips larger ones."""
    kernel = load("resident/summary.cu", PLAIN_DEFINES).get_function("dbfs_summary")
    bins = sums.shape[1]
    shared_bins = min(bins, SHARED_BINS)
    copies = min(MOST_COPIES, (SHARED_BINS // shared_bins).bit_length() - 1)
    rows = graph.stripe.n_local
    blocks = min(MOST_BLOCKS, -(-rows // THREADS))
    arguments = (
        *(graph.row_offsets, distances, np.int64(rows)),
        *(np.uint32(bins), np.uint32(shared_bins), np.uint32(copies), sums),
    )
    kernel((blocks,), (THREADS,), arguments, shared_mem=8 * shared_bins << copies)


def _cupy() -> Any:
    import cupy

    return cupy

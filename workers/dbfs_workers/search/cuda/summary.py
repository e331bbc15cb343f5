"""Counts by distance of one rank's result, added up on the GPU from its labels (``kernels/resident/summary.cu``)."""

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.cuda.device_graph import DeviceGraph
from dbfs_workers.search.cuda.kernels.sources import SUMMARY
from dbfs_workers.search.cuda.module import Launch, load
from dbfs_workers.search.cuda.run import AHEAD

THREADS: Final = 1024
# One block fits on each of 132 multiprocessors. A second wave of blocks would clear and add up counters again.
MOST_BLOCKS: Final = 132
# Shared memory that a block gets on every GPU without opting in to more.
SHARED_BYTES: Final = 48 << 10
# Counters of 8 bytes in shared memory. The kernel's own variables take the rest.
SHARED_BINS: Final = 6112
# Bins of a run whose number of levels is not known yet: few enough for the most copies of each counter.
MOST_BINS: Final = 128
# log2 of the copies of each counter in shared memory. More copies take longer to clear and to add up.
MOST_COPIES: Final = 3

# The kernel's arguments.
_ARGUMENTS: Final = np.dtype(
    [
        *((name, np.uint64) for name in ("offsets", "common", "distances")),
        ("rows", np.int64),
        *((name, np.uint64) for name in ("sums", "finished", "on_host")),
        *((name, np.uint32) for name in ("bins", "shared_bins", "copies")),
    ]
)


@dataclass(frozen=True)
class LabelSummary:
    """Counts of one rank's labelled rows, by distance from 0 to the number of levels.

    Attributes:
        sums: int64[2, levels + 1], number of rows with each distance, and sum of those rows' out-degrees.
    """

    sums: NDArray[np.int64]

    @property
    def rows(self) -> NDArray[np.int64]:
        """int64[levels + 1], number of rows with each distance."""
        rows: NDArray[np.int64] = self.sums[0]
        return rows

    @property
    def degrees(self) -> NDArray[np.int64]:
        """int64[levels + 1], sum of the out-degrees of the rows with each distance."""
        degrees: NDArray[np.int64] = self.sums[1]
        return degrees

    @property
    def depth(self) -> int:
        """Largest distance on this rank; 0 if it has no labelled row."""
        rows = self.rows
        return int(rows.size - 1 - (rows[::-1] > 0).argmax()) if rows.any() else 0


class Summary:
    """Adds up the labels of one run after another, behind the run's kernel on its stream.

    Runs whose kernel counts degrees need no summary; see ``ResidentKernel.counts_degrees``.

    Runs of at least ``MOST_BINS`` levels are added up again, when their number of levels is known.

    Args:
        graph: the rank's slice of the graph.
    """

    def __init__(self, graph: DeviceGraph) -> None:
        import cupy

        self._cupy = cupy
        self._rows = graph.rows_used
        # The kernel leaves the sums and the number of finished blocks at zero.
        self._sums = cupy.zeros((2, MOST_BINS), np.uint64)
        self._finished = cupy.zeros(1, np.uint32)
        # Sums on the host, of all runs that may be under way: the one to fill next comes first.
        self._counts: deque[NDArray[np.uint64]] = deque()
        for _ in range(1 + AHEAD):
            pinned = cupy.cuda.alloc_pinned_memory(self._sums.nbytes)
            self._counts.append(np.frombuffer(pinned, np.uint64, self._sums.size).reshape(2, MOST_BINS))
        self._arguments = np.zeros(1, _ARGUMENTS)
        self._arguments["offsets"], self._arguments["rows"] = graph.row_offsets.data.ptr, self._rows
        self._arguments["finished"] = self._finished.data.ptr
        module = load(SUMMARY)
        self._arguments["common"] = graph.common.data.ptr
        self._kernel = Launch(module.get_function("dbfs_summary"), self._arguments)
        cupy.cuda.get_current_stream().synchronize()

    def enqueue(self, distances: Any, stream: Any) -> NDArray[np.uint64]:
        """Add up distances on a stream. The sums go to the host. Returns at once.

        Args:
            distances: int32[n_local] on the GPU.
            stream: the stream of the run's kernel.

        Returns:
            uint64[2, MOST_BINS] for ``read``, filled once the stream has done this work; used again after
            ``AHEAD`` more calls.
        """
        counts = self._counts[0]
        self._counts.rotate(-1)
        self._launch(distances, self._sums, counts.ctypes.data, stream.ptr)
        return counts

    def read(self, counts: NDArray[np.uint64], distances: Any, levels: int, lone_sources: int) -> LabelSummary:
        """Return the summary of distances whose sums are on the host.

        Args:
            counts: what ``enqueue`` returned for the distances.
            distances: int32[n_local] on the GPU: the same distances.
            lone_sources: sources on this rank in rows past ``DeviceGraph.rows_used``, which have no edge.
        """
        if levels < MOST_BINS:
            sums = counts[:, : levels + 1].astype(np.int64)
        else:
            on_gpu = self._cupy.zeros((2, levels + 1), np.uint64)
            stream = self._cupy.cuda.get_current_stream()
            self._launch(distances, on_gpu, 0, stream.ptr)
            sums = self._cupy.asnumpy(on_gpu).astype(np.int64)
        sums[0, 0] += lone_sources
        return LabelSummary(sums)

    def _launch(self, distances: Any, sums: Any, on_host: int, stream: int) -> None:
        """Launch the kernel that adds distances, from -1 on, to ``sums``, zeros of uint64[2, bins]. Skips larger ones.

        Args:
            distances: int32[n_local] on the GPU.
            sums: on the GPU.
            on_host: address where the kernel puts the sums, which it then clears; 0 to leave them in ``sums``.
            stream: the stream's pointer.
        """
        bins = sums.shape[1]
        shared_bins = min(bins, SHARED_BINS)
        copies = min(MOST_COPIES, (SHARED_BINS // shared_bins).bit_length() - 1)
        arguments = self._arguments[0]
        arguments["distances"], arguments["sums"], arguments["on_host"] = distances.data.ptr, sums.data.ptr, on_host
        arguments["bins"], arguments["shared_bins"], arguments["copies"] = bins, shared_bins, copies
        blocks = max(1, min(MOST_BLOCKS, -(-self._rows // (4 * THREADS))))
        self._kernel(blocks, THREADS, 8 * shared_bins << copies, stream)

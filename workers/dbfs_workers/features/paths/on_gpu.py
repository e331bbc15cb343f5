"""Distances of many pairs on the only GPU of a graph, each searched from both ends (``kernels/pairs.cu``)."""

import time
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import DeadlineExceededError
from dbfs_workers.features.paths.kernels.sources import PAIRS, SHAPE
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.cuda.abort_flag import AbortFlag, wait
from dbfs_workers.search.cuda.device_graph import DeviceGraph
from dbfs_workers.search.cuda.module import Launch, load
from dbfs_workers.search.cuda.run import KernelAbortedError

# ``Pairs`` of pairs.cu.
_PAIRS: Final = np.dtype(
    [
        *((name, np.uint64, 2) for name in ("offsets", "columns")),
        *((name, np.uint64) for name in ("pairs", "found", "bits", "queues", "control", "abort", "limit_ns")),
        *((name, np.uint32) for name in ("rows", "count", "room", "mask")),
    ]
)
_ABORTED, _LATE = 1, 2
_NO_ROOM: Final = -2
# Rows of a queue, a power of two: the frontiers of two random vertices of a 3-D lattice of 300 a side fit.
_ROOM: Final = 1 << 18
# Rows that share a word of bits.
_WORD_ROWS: Final = 16
_ALL: Final = 2**32 - 1


class GpuPairs:
    """The working memory of some blocks, and the searches in it.

    Args:
        graph: the whole graph.
        flag: stops the search under way.
        free: bytes that the blocks may take. One block with queues of all rows may take more.
        where: the rank and what it does, for errors.

    Attributes:
        blocks: number of blocks, and of pairs that are searched at once.

    Raises:
        GraphTooLargeError: the GPU has too little free memory.
    """

    def __init__(self, graph: DeviceGraph, flag: AbortFlag, free: int, where: str) -> None:
        import cupy

        self._graph, self._flag, self._where = graph, flag, where
        rows = self._rows = graph.stripe.n_local
        self._room = min(_ROOM, rows)
        bits, queues = rows // _WORD_ROWS, 2 * self._room
        self.blocks = max(1, min(most_blocks(), free // (4 * (bits + queues))))
        words = self.blocks * bits, max(self.blocks * queues, 2 * rows)
        device_memory.require(4 * sum(words), where)
        self._bits, self._queues = cupy.zeros(words[0], np.uint32), cupy.empty(words[1], np.uint32)

    def distances(self, pairs: NDArray[np.uint32], deadline: float) -> NDArray[np.int32]:
        """Return int32[k], the distances of uint32[k, 2] rows, -1 without a path.

        Args:
            deadline: the end of the search, in seconds of ``time.monotonic()``.

        Raises:
            KernelAbortedError: the flag was set.
            KernelHungError: the kernel did not end.
            DeadlineExceededError: the deadline has passed.
        """
        found = self._search(pairs, self._room, deadline)
        left = np.flatnonzero(found == _NO_ROOM)
        if left.size:
            found[left] = self._search(pairs[left], self._rows, deadline)
        return found

    def _search(self, pairs: NDArray[np.uint32], room: int, deadline: float) -> NDArray[np.int32]:
        """Search in one launch, with so much room in each queue."""
        import cupy

        graph, place, seconds = self._graph, device_memory.address, deadline - time.monotonic()
        rows, found = cupy.asarray(pairs), cupy.empty(len(pairs), np.int32)
        control, arguments = cupy.zeros(2, np.uint64), np.zeros(1, [("pairs", _PAIRS)])
        given = arguments["pairs"][0]
        for side, (offsets, columns) in enumerate(
            ((graph.row_offsets, graph.columns), (graph.in_offsets, graph.in_columns))
        ):
            if offsets is not None:
                given["offsets"][side], given["columns"][side] = place(offsets), place(columns)
        given["pairs"], given["found"], given["control"] = place(rows), place(found), place(control)
        given["bits"], given["queues"] = place(self._bits), place(self._queues)
        given["abort"], given["limit_ns"] = self._flag.address, max(0, int(1e9 * seconds))
        given["rows"], given["count"], given["room"] = self._rows, len(pairs), room
        # A queue of all rows never goes round.
        given["mask"] = _ALL if room == self._rows else room - 1
        blocks = min(self.blocks, len(pairs), self._queues.size // (2 * room))
        run_kernel(arguments, blocks, self._flag, deadline)
        outcome = int(control.get()[1])
        # The host, whose clock may see the deadline first, stops the kernel then.
        if outcome == _ABORTED and time.monotonic() <= deadline:
            raise KernelAbortedError(f"the run was aborted: {self._where}")
        if outcome:
            raise DeadlineExceededError(f"the run took longer than {seconds:.3g} s: {self._where}")
        answer: NDArray[np.int32] = found.get()
        return answer


def run_kernel(arguments: "np.ndarray[Any, Any]", blocks: int, flag: AbortFlag, deadline: float) -> None:
    """Launch the kernel and wait for its end; stop it at the deadline. Errors as for ``wait``."""
    import cupy

    stream, done = cupy.cuda.get_current_stream(), cupy.cuda.Event(disable_timing=True)
    Launch(load(PAIRS).get_function("dbfs_pair_distances"), arguments)(blocks, SHAPE.threads, 0, stream.ptr)
    done.record(stream)
    wait(done, flag, deadline)


@cache
def most_blocks() -> int:
    """Return the number of blocks that the GPU runs at once."""
    import cupy

    return SHAPE.blocks_per_sm * int(cupy.cuda.Device().attributes["MultiProcessorCount"])

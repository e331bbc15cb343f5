"""Top-down levels on a GPU whose phases are queued one behind another, with the messages between ranks.

``exchange.nccl`` puts its transfers between ``expand`` and ``contract``, and waits once a level. The kernels are in
``cuda/kernels/phases/messages.cu``. All launches go to the current stream.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.backends.cuda import SEARCH_WORDS
from dbfs_workers.cuda import layout
from dbfs_workers.cuda.communicator import FIRST_END, HEADER, INLINE, MOST_AHEAD, Tag
from dbfs_workers.cuda.module import PLAIN_DEFINES, load
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.scratch import Scratch
from dbfs_workers.storage.stripe import Stripe

KERNELS: Final = {
    "phases/messages.cu": (
        *("pack", "pack_level", "small_level", "contract_messages"),
        *("absorb", "measure", "pack_found"),
    ),
    "phases/levels.cu": ("top_down", "bottom_up"),
    "phases/phases.cu": ("degrees", "degree_sums", "contract"),
}
_THREADS: Final = 256
_WARP: Final = 32
_MOST_THREADS: Final = 1024
# Edges of a frontier up to which one block expands the frontier and packs the messages, in one launch instead of three.
_SMALL_EDGES: Final = 16 * _MOST_THREADS
# As many as fill any GPU: see ``backends.cuda``.
_MOST_BLOCKS: Final = 132 * 16
# Edges that a block takes at a time: ``kWarpEdges`` of ``edges.cuh`` for each warp.
_BLOCK_EDGES: Final = _THREADS // 32 * 512
_LINE: Final = layout.LINE_BYTES // 8
_NULL: Final = np.uint64(0)


class CudaMessages:
    """See ``communicator.Messages``. On the current GPU.

    Args:
        stripe: the graph's stripe.
        rank: the rank.
        pinned: returns words of pinned memory: see ``communicator.Library``.
    """

    def __init__(self, stripe: Stripe, rank: int, pinned: Callable[[int], NDArray[np.int64]]) -> None:
        import cupy

        self.xp: Any = cupy
        self._rank = rank
        self._common = np.uint32(rank), np.uint32(stripe.p)
        self._n_local = np.uint32(stripe.n_local)
        self._blocks = (stripe.p,)
        self.outgoing = cupy.zeros((stripe.p, HEADER + INLINE), np.int64)
        self.incoming = pinned(stripe.p * (HEADER + INLINE)).reshape(stripe.p, HEADER + INLINE)
        words = FIRST_END + 3 * stripe.p
        self.results = pinned(MOST_AHEAD * words).reshape(MOST_AHEAD, words)
        self._results = [np.uint64(row.ctypes.data) for row in self.results]
        # See ``ProgressWord`` in ``messages.cu``.
        self._progress = cupy.zeros(2, np.uint64)
        # The ends of the bins, and those at the last crossing.
        self._sums = cupy.zeros((1 + stripe.p, _LINE), np.uint64)
        self._sent = cupy.zeros(stripe.p, np.uint64)
        self._own = self._sums[1 + rank, :1]
        # Of bottom-up levels; zeros between them.
        self._search_sums = cupy.zeros((3, _LINE), np.uint64)
        self._own_header = np.uint64(self.incoming[rank].ctypes.data)
        self._expanded = np.uint32(0)
        self._kernels = {
            name: load(source, PLAIN_DEFINES).get_function(f"dbfs_{name}")
            for source, names in KERNELS.items()
            for name in names
        }

    def most_ahead(self, max_degree: int) -> int:
        """See ``communicator.Messages``."""
        return min(_MOST_THREADS, _SMALL_EDGES // max(1, max_degree))

    def reset(self) -> None:
        """See ``communicator.Messages``."""
        self._sums.fill(0)
        self._search_sums.fill(0)
        self._sent.fill(0)

    def pack(self, headers: NDArray[np.int64], bin_rows: Any, bin_parents: Any | None) -> None:
        """See ``communicator.Messages``."""
        arguments = np.uint64(headers.ctypes.data), bin_rows, _pointer(bin_parents), np.uint32(INLINE), self.outgoing
        self._kernels["pack"](self._blocks, (_THREADS,), arguments)

    def expand(
        self,
        tag: Tag,
        scratch: Scratch,
        labels: RankLabels,
        distance: int,
        bin_rows: Any,
        bin_parents: Any | None,
        edges: int,
        ahead: int,
    ) -> None:
        """See ``communicator.Messages``. Reads and writes as ``CudaBackend.top_down``, and the messages."""
        partition = scratch.partition
        size, parents = scratch.frontier.size, _pointer(bin_parents)
        if ahead or (size <= _MOST_THREADS and edges <= _SMALL_EDGES):
            self._expanded = np.uint32(1)
            frontier, discovered = queues(scratch, ahead)
            arguments = (
                *(partition.row_offsets, frontier, np.uint32(size), partition.columns, self._n_local, *self._common),
                *(scratch.visited, bin_rows, parents, np.int32(distance), labels.distances),
                *(_pointer(labels.predecessors), discovered, self._sums, self._sent, *map(np.int64, tag)),
                *(np.uint32(INLINE), self.outgoing, self._progress, np.uint32(ahead)),
            )
            self._kernels["small_level"]((1,), (_MOST_THREADS,), arguments)
            return
        self._expanded = np.uint32(size > 0)
        if size:
            self._top_down(scratch, labels, distance, bin_rows, parents, edges)
        arguments = (
            *(self._sums, self._sent, bin_rows, parents, self._n_local, self._common[0], self._expanded),
            *(*map(np.int64, tag), np.uint32(INLINE), self.outgoing),
        )
        self._kernels["pack_level"](self._blocks, (_THREADS,), arguments)

    def contract(self, tag: Tag, scratch: Scratch, labels: RankLabels, distance: int, ahead: int, most: int) -> None:
        """See ``communicator.Messages``."""
        _, discovered = queues(scratch, ahead)
        arguments = (
            *(np.uint64(self.incoming.ctypes.data), self._sums, self._sent, *self._common, self._expanded),
            *(*map(np.int64, tag), np.uint32(INLINE), scratch.own_visited, np.int32(distance), labels.distances),
            *(_pointer(labels.predecessors), discovered, self._results[ahead], self._progress, np.uint32(ahead)),
            np.uint64(most),
        )
        self._kernels["contract_messages"]((1,), (_MOST_THREADS,), arguments)

    def contract_large(
        self, rows: Any, parents: Any | None, scratch: Scratch, labels: RankLabels, distance: int
    ) -> None:
        """See ``communicator.Messages``. Reads and writes as ``CudaBackend.contract``."""
        arguments = (
            *(rows, _pointer(parents), np.int64(rows.size), scratch.own_visited, np.int32(distance)),
            *(labels.distances, _pointer(labels.predecessors), scratch.next_queue, self._own),
        )
        self._kernels["contract"](_blocks(rows.size), (_THREADS,), arguments)

    def absorb(self, slices: Any, scratch: Scratch) -> None:
        """See ``communicator.Messages``."""
        arguments = slices, np.uint32(slices.size), scratch.frontier_bits, scratch.visited
        self._kernels["absorb"](_blocks(slices.size), (_THREADS,), arguments)

    def search(self, tag: Tag, found_bits: Any, scratch: Scratch, labels: RankLabels, distance: int) -> None:
        """See ``communicator.Messages``. Reads and writes as ``CudaBackend.bottom_up``."""
        parents, words = scratch.partition.parents, scratch.own_visited.size
        assert parents is not None
        self._kernels["bottom_up"](
            _blocks(-(-words // SEARCH_WORDS) * _WARP),
            (_THREADS,),
            (
                *(parents.row_offsets, parents.columns, scratch.partition.row_offsets, np.uint32(words)),
                *(scratch.frontier_bits, scratch.own_visited, found_bits, np.int32(distance), labels.distances),
                *(_pointer(labels.predecessors), scratch.next_queue, self._search_sums),
            ),
        )
        self._pack_found(tag)

    def measure(self, tag: Tag, bits: Any, scratch: Scratch) -> None:
        """See ``communicator.Messages``. Reads and writes as ``CudaBackend.mark`` and ``edge_count``."""
        frontier = scratch.frontier
        bits.fill(0)
        arguments = scratch.partition.row_offsets, frontier, np.uint32(frontier.size), bits, self._search_sums
        self._kernels["measure"](_blocks(max(1, frontier.size)), (_THREADS,), arguments)
        self._pack_found(tag)

    def queued(self) -> int:
        """See ``communicator.Messages``."""
        queued = int(self._own.item())
        self._own.fill(0)
        return queued

    def _pack_found(self, tag: Tag) -> None:
        arguments = (
            *(self._search_sums, self._common[1], *map(np.int64, tag), np.uint32(INLINE), self.outgoing),
            self._own_header,
        )
        self._kernels["pack_found"]((1,), (_WARP,), arguments)

    def _top_down(
        self, scratch: Scratch, labels: RankLabels, distance: int, bin_rows: Any, parents: Any, edges: int
    ) -> None:
        frontier, partition = scratch.frontier, scratch.partition
        size = frontier.size
        starts, degrees = self.xp.empty(size, np.int64), self.xp.empty(size, np.int64)
        arguments = partition.row_offsets, frontier, np.int64(size), starts, degrees
        if size <= _MOST_THREADS:
            self._kernels["degree_sums"]((1,), (_MOST_THREADS,), arguments)
            ends = degrees
        else:
            self._kernels["degrees"]((min(_MOST_BLOCKS, -(-size // _THREADS)),), (_THREADS,), arguments)
            ends = self.xp.cumsum(degrees)
        self._kernels["top_down"](
            (min(_MOST_BLOCKS, -(-max(1, edges) // _BLOCK_EDGES)),),
            (_THREADS,),
            (
                *(frontier, starts, ends, np.int64(size), partition.columns, np.uint32(scratch.first_id)),
                *(self._n_local, scratch.visited, bin_rows, parents, np.int32(distance)),
                *(labels.distances, _pointer(labels.predecessors), scratch.next_queue, self._sums),
            ),
        )


def _blocks(threads: int) -> tuple[int]:
    return (min(_MOST_BLOCKS, -(-threads // _THREADS)),)


def queues(scratch: Scratch, ahead: int) -> tuple[Any, Any]:
    """Return the queues that a level reads and writes."""
    current = scratch.current ^ ahead & 1
    return scratch.queues[current], scratch.queues[1 - current]


def _pointer(array: Any | None) -> Any:
    return _NULL if array is None else array

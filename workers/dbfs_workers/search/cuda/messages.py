"""Top-down levels on a GPU whose phases are queued one behind another, with the messages between ranks.

``exchange.nccl`` puts its transfers between ``expand`` and ``contract``, and waits once a level. The kernels are in
``search/cuda/kernels/phases/messages.cu``. All launches go to the current stream.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.cuda.communicator import FIRST_END, HEADER, INLINE, MOST_AHEAD, Tag
from dbfs_workers.search.cuda.kernels.sources import LEVELS, MESSAGES, PHASES
from dbfs_workers.search.cuda.launch_sizes import (
    LINE_WORDS,
    MOST_BLOCKS,
    MOST_THREADS,
    SEARCH_WORDS,
    THREADS,
    WARP,
    blocks_for,
)
from dbfs_workers.search.cuda.module import Launches, load
from dbfs_workers.search.cuda.words import Progress, SearchSum, TopDownSum
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import Stripe

KERNELS: Final = {
    MESSAGES: (
        *("pack", "pack_level", "small_level", "contract_messages"),
        *("absorb", "measure", "pack_found"),
    ),
    LEVELS: ("top_down", "bottom_up"),
    PHASES: ("degrees", "degree_sums", "contract"),
}
# Edges of a frontier up to which one block expands the frontier and packs the messages, in one launch instead of three.
_SMALL_EDGES: Final = 16 * MOST_THREADS
# Edges that a block takes at a time: ``kWarpEdges`` of ``edges.cuh`` for each warp.
_BLOCK_EDGES: Final = THREADS // 32 * 512


class CudaMessages:
    """See ``communicator.Messages``. On the current GPU.

    Args:
        pinned: returns words of pinned memory: see ``communicator.Library``.
    """

    def __init__(self, stripe: Stripe, rank: int, pinned: Callable[[int], NDArray[np.int64]]) -> None:
        import cupy

        self.xp: Any = cupy
        self._rank, self._p, self._n_local = rank, stripe.p, stripe.n_local
        self.outgoing = cupy.zeros((stripe.p, HEADER + INLINE), np.int64)
        self.incoming = pinned(stripe.p * (HEADER + INLINE)).reshape(stripe.p, HEADER + INLINE)
        words = FIRST_END + 3 * stripe.p
        self.results = pinned(MOST_AHEAD * words).reshape(MOST_AHEAD, words)
        self._progress_words = cupy.zeros(len(Progress), np.uint64)
        # The ends of the bins now (``_sums``), and at the last crossing (``_sent``).
        self._sums = cupy.zeros((TopDownSum.ENDS + stripe.p, LINE_WORDS), np.uint64)
        self._sent = cupy.zeros(stripe.p, np.uint64)
        self._own = self._sums[TopDownSum.ENDS + rank, :1]
        # Sums of a bottom-up level; zeros between two levels.
        self._search_sums = cupy.zeros((len(SearchSum), LINE_WORDS), np.uint64)
        self._expanded = 0
        # Looked up here, since a look-up at every launch costs time.
        self._messages_place, self._progress_place = _place(self.outgoing), _place(self._progress_words)
        self._sums_place, self._sent_place = _place(self._sums), _place(self._sent)
        self._search_place = _place(self._search_sums)
        self._incoming_place, self._own_header = self.incoming.ctypes.data, self.incoming[rank].ctypes.data
        self._result_places = [row.ctypes.data for row in self.results]
        self._level_places: tuple[int, ...] = ()
        self._launch = Launches(
            {name: load(source).get_function(f"dbfs_{name}") for source, names in KERNELS.items() for name in names}
        )

    def most_ahead(self, max_degree: int) -> int:
        return min(MOST_THREADS, _SMALL_EDGES // max(1, max_degree))

    def reset(self) -> None:
        self._sums.fill(0)
        self._search_sums.fill(0)
        self._sent.fill(0)

    def pack(self, headers: NDArray[np.int64], bin_rows: Any, bin_parents: Any | None) -> None:
        bins = _place(bin_rows), _place(bin_parents)
        self._launch("pack", self._p, THREADS, headers.ctypes.data, *bins, INLINE, self._messages_place)

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
        size = scratch.frontier.size
        if not ahead:
            # The same for all levels that are queued together.
            partition = scratch.partition
            self._level_places = (
                _place(partition.row_offsets),
                _place(partition.columns),
                _place(scratch.visited),
                _place(bin_rows),
                _place(bin_parents),
                _place(scratch.own_visited),
                _place(labels.distances),
                _place(labels.predecessors),
                *map(_place, scratch.queues),
            )
        offsets, columns, visited, rows, parents, _, distances, predecessors, *queue_places = self._level_places
        if ahead or (size <= MOST_THREADS and edges <= _SMALL_EDGES):
            self._expanded = 1
            frontier, discovered = queues(scratch, ahead)
            self._launch(
                "small_level",
                1,
                MOST_THREADS,
                offsets,
                queue_places[frontier],
                size,
                columns,
                self._n_local,
                self._rank,
                self._p,
                visited,
                rows,
                parents,
                distance,
                distances,
                predecessors,
                queue_places[discovered],
                self._sums_place,
                self._sent_place,
                *tag,
                INLINE,
                self._messages_place,
                self._progress_place,
                ahead,
            )
            return
        self._expanded = int(size > 0)
        if size:
            self._top_down(scratch, distance, edges)
        self._launch(
            "pack_level",
            self._p,
            THREADS,
            self._sums_place,
            self._sent_place,
            rows,
            parents,
            self._n_local,
            self._rank,
            self._expanded,
            *tag,
            INLINE,
            self._messages_place,
        )

    def contract(self, tag: Tag, scratch: Scratch, labels: RankLabels, distance: int, ahead: int, most: int) -> None:  # noqa: ARG002
        """See ``communicator.Messages``. The labels are those of ``expand``."""
        *_, own_visited, distances, predecessors, first, second = self._level_places
        _, discovered = queues(scratch, ahead)
        self._launch(
            "contract_messages",
            1,
            MOST_THREADS,
            self._incoming_place,
            self._sums_place,
            self._sent_place,
            self._rank,
            self._p,
            self._expanded,
            *tag,
            INLINE,
            own_visited,
            distance,
            distances,
            predecessors,
            (first, second)[discovered],
            self._result_places[ahead],
            self._progress_place,
            ahead,
            most,
        )

    def contract_large(
        self, rows: Any, parents: Any | None, scratch: Scratch, labels: RankLabels, distance: int
    ) -> None:
        """See ``communicator.Messages``. Reads and writes as ``CudaBackend.contract``."""
        self._launch(
            "contract",
            blocks_for(rows.size),
            THREADS,
            _place(rows),
            _place(parents),
            rows.size,
            _place(scratch.own_visited),
            False,
            distance,
            _place(labels.distances),
            _place(labels.predecessors),
            _place(scratch.next_queue),
            _place(self._own),
        )

    def absorb(self, slices: Any, scratch: Scratch) -> None:
        arguments = _place(slices), slices.size, _place(scratch.frontier_bits), _place(scratch.visited)
        self._launch("absorb", blocks_for(slices.size), THREADS, *arguments)

    def search(self, tag: Tag, found_bits: Any, scratch: Scratch, labels: RankLabels, distance: int) -> None:
        """See ``communicator.Messages``. Reads and writes as ``CudaBackend.bottom_up``."""
        parents, words = scratch.partition.parents, scratch.own_visited.size
        assert parents is not None
        self._launch(
            "bottom_up",
            blocks_for(-(-words // SEARCH_WORDS) * WARP),
            THREADS,
            _place(parents.row_offsets),
            _place(parents.columns),
            _place(scratch.partition.row_offsets),
            words,
            _place(scratch.frontier_bits),
            _place(scratch.own_visited),
            _place(found_bits),
            distance,
            _place(labels.distances),
            _place(labels.predecessors),
            _place(scratch.next_queue),
            self._search_place,
        )
        self._pack_found(tag)

    def measure(self, tag: Tag, bits: Any, scratch: Scratch) -> None:
        """See ``communicator.Messages``. Reads and writes as ``CudaBackend.mark`` and ``edge_count``."""
        frontier, stream = scratch.frontier, self.xp.cuda.get_current_stream()
        self.xp.cuda.runtime.memsetAsync(_place(bits), 0, bits.nbytes, stream.ptr)
        self._launch(
            "measure",
            blocks_for(max(1, frontier.size)),
            THREADS,
            _place(scratch.partition.row_offsets),
            _place(frontier),
            frontier.size,
            _place(bits),
            self._search_place,
        )
        self._pack_found(tag)

    def queued(self) -> int:
        queued = int(self._own.item())
        self._own.fill(0)
        return queued

    def _pack_found(self, tag: Tag) -> None:
        arguments = self._search_place, self._p, *tag, INLINE, self._messages_place, self._own_header
        self._launch("pack_found", 1, WARP, *arguments)

    def _top_down(self, scratch: Scratch, distance: int, edges: int) -> None:
        """Queue the phases of a frontier that may be large."""
        offsets, columns, visited, rows, parents, _, distances, predecessors, *queue_places = self._level_places
        size, frontier = scratch.frontier.size, queue_places[scratch.current]
        starts, degrees = self.xp.empty(size, np.int64), self.xp.empty(size, np.int64)
        arguments = offsets, frontier, size, _place(starts), _place(degrees)
        if size <= MOST_THREADS:
            self._launch("degree_sums", 1, MOST_THREADS, *arguments)
            ends = degrees
        else:
            self._launch("degrees", blocks_for(size), THREADS, *arguments)
            ends = self.xp.cumsum(degrees)
        self._launch(
            "top_down",
            min(MOST_BLOCKS, -(-max(1, edges) // _BLOCK_EDGES)),
            THREADS,
            frontier,
            _place(starts),
            _place(ends),
            size,
            columns,
            scratch.first_id,
            self._n_local,
            visited,
            rows,
            parents,
            distance,
            distances,
            predecessors,
            queue_places[1 - scratch.current],
            self._sums_place,
        )


def queues(scratch: Scratch, ahead: int) -> tuple[int, int]:
    """Return the numbers of the queues that a level reads and writes, ``ahead`` levels behind the current one."""
    current = scratch.current ^ ahead & 1
    return current, 1 - current


def _place(array: Any | None) -> int:
    """Return the address of an array on the GPU; 0 stands for none."""
    return 0 if array is None else int(array.data.ptr)

"""Sweeps over the shortest paths of a batch, whose distances are known (Brandes, "A faster algorithm for betweenness
centrality", 2001).

Forward, level by level, each row counts its shortest paths from each source: the sum of its predecessors' counts.
Backward, from the deepest level, each row gets the dependencies of the sources on it: see ``sweep_kernels``.

A sweep has a block of sources. Sources need nothing of each other, and a level of a sweep takes microseconds; so a rank
sweeps its share of the blocks over the rows of all ranks, which it copies, and the ranks cross after each block. The
sources of a block should lie near each other: a row then has few distances from them, and is looked at once for each.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.backends import sweep_kernels as kernels
from dbfs_workers.errors import NoRoomForLabelsError, TooManyPathsError
from dbfs_workers.exchange.protocol import Exchange
from dbfs_workers.levels.state import State
from dbfs_workers.storage.batch import SWEPT_SOURCES as LANES
from dbfs_workers.storage.batch import RankBatch, in_type
from dbfs_workers.storage.partition import Csr, Partition

_PHASE: Final = "sweeps over paths"


class PathSweeps:
    """The sweeps of one rank for one batch.

    Args:
        partition: the rank's edges, with the in-edges.
        exchange: this rank's end of the exchange.
        state: the batch's state.
        kept: what the rank keeps of the batch, with all distances.
        free_bytes: returns the bytes that the sweeps may take.

    Raises:
        NoRoomForLabelsError: the sweeps do not fit.
        Other errors as for ``Exchange.cross``.
    """

    def __init__(
        self, partition: Partition, exchange: Exchange, state: State, kept: RankBatch, free_bytes: Callable[[], int]
    ) -> None:
        self._exchange, self._state, self._kept = exchange, state, kept
        stripe, sources = partition.stripe, kept.distances.shape[1]
        self._n_local, self._ids = stripe.n_local, stripe.p * stripe.n_local
        self._ranks = range(stripe.p)
        self._of_edges = "edge_betweenness" in kept.keeps
        blocks = np.arange(0, sources, LANES)
        # By rank, the places of its sources.
        self._shares = [
            np.flatnonzero(np.isin(np.arange(sources) // LANES, blocks[rank :: stripe.p] // LANES))
            for rank in self._ranks
        ]
        self._rounds = len(blocks[:: stripe.p])
        # Sources that were traversed from one by one have had bins without parents.
        exchange.reset(True)
        # The client has seen to the in-edges.
        assert partition.parents is not None
        edges = self._cross(partition.m_local)
        needed = edges * ((4 + 4 * partition.directed) * (stripe.p > 1) + 16 * self._of_edges) + self._ids * (
            40 + LANES * 24 + kept.distances.itemsize * self._shares[exchange.rank].size
        )
        if needed > (free := free_bytes()):
            raise NoRoomForLabelsError(
                f"betweenness takes {needed:,} bytes on each rank, which sweeps over all {edges:,} edges; "
                f"{max(0, free):,} bytes are free"
            )
        self._out = self._whole(partition.out_edges)
        self._into = self._whole(partition.parents) if partition.directed else self._out
        self._live = np.zeros(stripe.words, np.uint32)
        self._front, self._values = np.zeros(self._ids * LANES), np.zeros(self._ids * LANES)
        self._total = np.zeros(LANES)
        self._sums = np.zeros(self._ids * 3)
        self._edge_sums = np.zeros(2 * edges * self._of_edges)

    def run(self) -> None:
        """Fill in the sums of the batch, and drop its distances.

        Raises:
            TooManyPathsError: a number of paths is beyond the largest float64.
            Other errors as for ``Exchange.cross``.
        """
        kept, rank = self._kept, self._exchange.rank
        own = [np.ascontiguousarray(kept.distances[:, share]) for share in self._shares]
        distances = np.concatenate(self._swap(own, [own[rank]] * len(own)))
        kept.distances = np.empty((0, kept.distances.shape[1]), np.uint8)
        for first in range(0, self._rounds * LANES, LANES):
            block = in_type(distances[:, first : first + LANES], np.dtype(np.int32))
            # A crossing after each block, where the run may end.
            if self._cross(int(block.size and self._sweep(block))):
                raise TooManyPathsError(
                    f"rank {rank}: a vertex has more shortest paths from a source than the largest float64, "
                    f"{np.finfo(np.float64).max:.1e}; the betweenness of this graph can't be computed"
                )
        kept.sums = self._summed(self._sums, [3 * self._n_local] * len(own))
        if self._of_edges:
            firsts = self._out.row_offsets[:: self._n_local]
            kept.edge_sums = self._summed(self._edge_sums, (2 * np.diff(firsts)).tolist())
        self._state.ended = time.perf_counter_ns()

    def _sweep(self, some: NDArray[np.int32]) -> bool:
        """Sweep over the paths from the sources of a block, given the distances; return whether a number overflows."""
        distances = np.full((self._ids, LANES), -1, np.int32)
        distances[:, : some.shape[1]] = some
        flat = distances.reshape(-1)
        levels = _lists(flat, int(distances.max()))
        self._values[flat == 0] = 1.0
        self._show(levels[0], 0, flat)
        for level, rows in enumerate(levels[1:], 1):
            around = rows, level, flat, self._live, self._front, self._values, self._total
            if kernels.count_paths(*self._into.rows, *around):
                return True
            self._show(rows, level, flat)
        self._live[:] = 0
        # The sources themselves lie on no path from them, but the first edge of each path begins there.
        for level in range(len(levels) - 1, -1, -1):
            around = levels[level], level, flat, self._live, self._front, self._values, self._total
            if self._of_edges:
                kernels.add_edge_dependencies(*self._out.rows, *around, self._edge_sums)
            if level:
                kernels.add_dependencies(*self._out.rows, *around, self._sums)
                self._show(levels[level], level, flat)
        return False

    def _show(self, rows: NDArray[np.uint32], level: int, distances: NDArray[np.int32]) -> None:
        """Make the rows of a level the front."""
        self._live[:] = 0
        kernels.show(rows, level, distances, self._values, self._live, self._front)

    def _whole(self, own: Csr) -> Csr:
        """Return the rows of all ranks in one adjacency list by internal id."""
        if len(self._ranks) == 1:
            return own
        degrees = np.diff(own.row_offsets)
        lists = self._swap([degrees] * len(self._ranks), [degrees] * len(self._ranks))
        row_offsets = np.concatenate([[0], *lists]).cumsum()
        like = [np.empty(int(each.sum()), np.uint32) for each in lists]
        return Csr(row_offsets, np.concatenate(self._swap([own.columns] * len(self._ranks), like)))

    def _summed(self, all_sums: NDArray[np.float64], sizes: Sequence[int]) -> NDArray[np.float64]:
        """Return what all ranks have summed up for this one.

        Args:
            all_sums: this rank's sums for all ranks.
            sizes: the numbers of each rank's sums.
        """
        parts = np.split(all_sums, np.cumsum(sizes)[:-1])
        total: NDArray[np.float64] = np.sum(self._swap(parts, [parts[self._exchange.rank]] * len(parts)), axis=0)
        return total

    def _swap(self, parts: Sequence[NDArray[Any]], like: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Send each rank an array, and return what all ranks have sent here, by rank.

        Args:
            parts: by rank, the array for it.
            like: by rank, an array of the shape and the type of the one from there.
        """
        exchange, rank = self._exchange, self._exchange.rank
        entries = exchange.bin_rows.size // len(parts)
        sent, received = [_words(part) for part in parts], [_words(np.empty_like(part)) for part in like]
        sent[rank] = received[rank] = sent[rank][:0]
        begin, unfinished = 0, len(parts) > 1
        while unfinished:
            end = begin + entries
            for peer, words in enumerate(sent):
                halves = words[begin:end].view(np.uint32)
                place = slice(peer * entries, peer * entries + halves.size // 2)
                exchange.bin_rows[place], exchange.bin_parents[place] = halves[::2], halves[1::2]
                exchange.bin_ends[peer] = halves.size // 2
            unfinished = self._cross(max(0, *(words.size - end for words in sent))) > 0
            senders = [words for words in received if words.size > begin]
            for words, (low, high) in zip(senders, exchange.incoming(), strict=True):
                assert high is not None
                halves = words[begin:end].view(np.uint32)
                halves[::2], halves[1::2] = low, high
            begin = end
        found = [
            words.view(np.uint8)[: part.nbytes].view(part.dtype).reshape(part.shape)
            for words, part in zip(received, like, strict=True)
            if words is not received[rank]
        ]
        return [*found[:rank], parts[rank], *found[rank:]]

    def _cross(self, number: int) -> int:
        """Return the sum of a number of each rank."""
        return self._exchange.cross(self._state.level, _PHASE, (number, 0, 0, 0, 0), sliced=False)[0]


def _words(array: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the bytes of an array as whole words."""
    return np.pad(np.ascontiguousarray(array).reshape(-1).view(np.uint8), (0, -array.nbytes % 8)).view(np.uint64)


def _lists(distances: NDArray[np.int32], depth: int) -> list[NDArray[np.uint32]]:
    """Return for each distance up to ``depth`` the rows that have it from some source."""
    ends = np.zeros(depth + 1, np.int64)
    kernels.list_rows(distances, np.full_like(ends, -1), ends, np.empty(0, np.uint32))
    bounds: Any = np.cumsum([0, *ends])
    rows = np.empty(bounds[-1], np.uint32)
    kernels.list_rows(distances, np.full_like(ends, -1), bounds[:-1].copy(), rows)
    return np.split(rows, bounds[1:-1])

"""Sweeps over the shortest paths of a batch, whose distances are known (Brandes, "A faster algorithm for betweenness
centrality", 2001).

Forward, level by level, each row counts its shortest paths from each source: the sum of its predecessors' counts.
Backward, from the deepest level, each row gets the dependencies of the sources on it: see ``kernels.path_sums``.

A sweep has a block of sources. Sources need nothing of each other, and a level of a sweep takes microseconds; so a rank
sweeps its share of the blocks over a copy of the rows of all ranks, and the ranks cross after each block. The sources
of a block should lie near each other: a row then has few distances from them, and is looked at once for each.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from dbfs_workers.base.errors import NoRoomForLabelsError, TooManyPathsError
from dbfs_workers.features.batches.operators import BatchOperators
from dbfs_workers.features.batches.purpose import OF_ROWS
from dbfs_workers.features.batches.storage import RankBatch
from dbfs_workers.features.batches.words import BatchWords
from dbfs_workers.search.exchange.protocol import Exchange
from dbfs_workers.search.levels.state import State
from dbfs_workers.search.partition.partition import Partition, array_module
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import Sum

_PHASE: Final = "sweeps over paths"


class PathSweeps:
    """The sweeps of one rank for one batch.

    Args:
        whole: the rows of all ranks, with the in-edges: see ``copied_rows``.
        operators: make the sweeps.
        words: moves arrays between ranks.
        state: the batch's state.
        kept: what the rank keeps of the batch, with all distances.
        free_bytes: returns the bytes that the sweeps may take.

    Raises:
        NoRoomForLabelsError: the sweeps do not fit.
        Other errors as for ``Exchange.cross``.
    """

    def __init__(
        self,
        stripe: Stripe,
        whole: Partition,
        operators: BatchOperators,
        exchange: Exchange,
        words: BatchWords,
        state: State,
        kept: RankBatch,
        free_bytes: Callable[[], int],
    ) -> None:
        self._exchange, self._words, self._state, self._kept = exchange, words, state, kept
        self._xp, self._lanes = array_module(whole.columns), operators.swept
        self._sources = sources = kept.distances.shape[1]
        self._n_local, self._ranks = stripe.n_local, range(stripe.p)
        self._of_edges = "edge_betweenness" in kept.keeps
        blocks = np.arange(sources) // self._lanes
        # By rank, the places of its sources.
        self._shares = [np.flatnonzero(blocks % stripe.p == rank) for rank in self._ranks]
        self._rounds = -(-(int(blocks[-1]) + 1) // stripe.p)
        # The client has seen to the in-edges.
        assert whole.parents is not None
        edges, share = whole.m_local, self._shares[exchange.rank].size
        each_row = 40 + self._lanes * 24 + kept.distances.itemsize * share
        needed = edges * 16 * self._of_edges + whole.stripe.n * each_row
        if needed > (free := free_bytes()):
            raise NoRoomForLabelsError(
                f"betweenness takes {needed:,} bytes on each rank, which sweeps over all {edges:,} edges; "
                f"{max(0, free):,} bytes are free"
            )
        self._firsts = np.array(whole.row_offsets[:: self._n_local].tolist())
        self._path_sums = operators.path_sums(whole.out_edges, whole.parents, of_edges=self._of_edges)

    def run(self) -> None:
        """Fill in the sums of the batch, and drop its distances.

        Raises:
            TooManyPathsError: a number of paths is beyond the largest float64.
            Other errors as for ``Exchange.cross``.
        """
        kept, rank, xp = self._kept, self._exchange.rank, self._xp
        own = [xp.ascontiguousarray(kept.distances[:, xp.asarray(share)]) for share in self._shares]
        distances = xp.concatenate(self._swap(own, [own[rank]] * len(own)))
        kept.distances = xp.empty((0, kept.distances.shape[1]), np.uint8)
        for first in range(0, self._rounds * self._lanes, self._lanes):
            block = distances[:, first : first + self._lanes]
            # A crossing after each block, where the run may end.
            if self._cross(int(bool(block.size) and self._path_sums.sweep(block))):
                raise TooManyPathsError(
                    f"rank {rank}: a vertex has more shortest paths from a source than the largest float64, "
                    f"{np.finfo(np.float64).max:.1e}; the betweenness of this graph can't be computed"
                )
            self._state.completed = min(self._sources, (first + self._lanes) * len(own))
        sums = self._summed(self._path_sums.sums, [3 * self._n_local] * len(own)).reshape(-1, 3)
        kept.sums = sums[:, [OF_ROWS.index(name) for name in kept.row_sums]]
        if self._of_edges:
            kept.edge_sums = self._summed(self._path_sums.edge_sums, (2 * np.diff(self._firsts)).tolist())
        self._state.ended = time.perf_counter_ns()

    def _summed(self, all_sums: Any, sizes: Sequence[int]) -> Any:
        """Return what all ranks have summed up for this one.

        Args:
            all_sums: this rank's sums for all ranks.
            sizes: the numbers of each rank's sums.
        """
        parts = self._xp.split(all_sums, np.cumsum(sizes)[:-1].tolist())
        return sum(self._swap(parts, [parts[self._exchange.rank]] * len(parts)))

    def _swap(self, parts: Sequence[Any], like: Sequence[Any]) -> list[Any]:
        """See ``BatchWords.swap``."""
        return self._words.swap(self._state.level, parts, like)

    def _cross(self, number: int) -> int:
        """Return the sum of a number of each rank."""
        return self._exchange.cross(self._state.level, _PHASE, Sum(number), sliced=False).total

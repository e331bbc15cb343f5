"""The working memory that a rank of a 2-D partition keeps from one traversal to the next: everything but the labels."""

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.grid import Grid, GridPartition
from dbfs_workers.storage.label_pool import LabelPool
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.stripe import WORD_BITS, Stripe, own_rows


def nbytes(stripe: Stripe, *, bottom_up: bool) -> int:
    """Return the most bytes of a rank's ``GridScratch``; ``bottom_up`` says whether there are bottom-up levels."""
    grid = Grid.of(stripe.p)
    bitmaps = grid.columns + (grid.rows + grid.columns if bottom_up else 0)
    # Parents and lists of found vertices over the grid's row, two queues, one list of rows, and the finders.
    return 4 * stripe.words_local * bitmaps + stripe.n_local * (2 * 4 * grid.columns + 2 * 4 + 4 + 2)


class GridScratch:
    """One rank's working memory, made once and used by one traversal after another.

    Args:
        partition: the rank's edges.
        pool: where the memory of labels comes from; None for new memory.

    Attributes:
        partition: the rank's edges.
        stripe, grid: how the vertices lie on the ranks, and the ranks' places.
        visited: uint32[columns * words_local], a bit for each vertex of the grid's row that this rank found visited.
        own_visited: uint32[words_local], the slice of ``visited`` with the rank's own rows.
        parents: uint32[columns * n_local], the parent of each vertex that this rank found: an internal id.
        found: uint32[columns * n_local], local ids found in a level, by owner: see ``backends.grid_kernels``.
        found_ends: int64[columns], the lengths of these lists.
        finders: uint16[n_local], the column of the rank that found each of the rank's own rows.
        frontier: uint32 local ids of the rank's vertices at the current distance.
        frontier_bits: uint32[rows * words_local], the frontier of the grid's column for a bottom-up level; None without
            bottom-up levels.
        empty: by rank of the grid's row, a bitmap of the rows that no edge of this rank ends in.
    """

    def __init__(self, partition: GridPartition, pool: LabelPool | None) -> None:
        self._pool = pool
        self.partition = partition
        self.stripe = stripe = partition.stripe
        self.grid = grid = partition.grid
        words, n_local = stripe.words_local, stripe.n_local
        self.visited = np.zeros(grid.columns * words, np.uint32)
        column = partition.rank % grid.columns
        self.own_visited = self.visited[column * words : (column + 1) * words]
        # Pages that are never written take no memory.
        self.parents = np.empty(grid.columns * n_local, np.uint32)
        self.found = np.empty(grid.columns * n_local, np.uint32)
        self.found_ends = np.zeros(grid.columns, np.int64)
        self.finders = np.zeros(n_local, np.uint16)
        self._queues = [np.empty(n_local, np.uint32) for _ in (0, 1)]
        self._current = 0
        self.frontier: NDArray[np.uint32] = self._queues[0][:0]
        self.frontier_bits: NDArray[np.uint32] | None = None
        self.empty: list[NDArray[np.uint32]] = []
        if partition.blocks.into is not None:
            self.frontier_bits = np.zeros(grid.rows * words, np.uint32)
            for csr in partition.blocks.into:
                offsets = csr.row_offsets
                self.empty.append(np.packbits(offsets[1:] == offsets[:-1], bitorder="little").view(np.uint32))

    @property
    def next_queue(self) -> NDArray[np.uint32]:
        """uint32[n_local] for a level's discoveries, the next frontier."""
        return self._queues[1 - self._current]

    def advance(self, discovered: int) -> None:
        """Make the first ``discovered`` entries of the next queue the frontier."""
        self._current = 1 - self._current
        self.frontier = self._queues[self._current][:discovered]

    def start(self, spec: TraversalSpec) -> RankLabels:
        """Clear the last traversal's state, and return new labels with the sources labelled and in the frontier."""
        self.visited[:] = 0
        stripe, rank = self.stripe, self.partition.rank
        labels = RankLabels.unreached(np, stripe, predecessors=spec.predecessors, pool=self._pool)
        rows = own_rows(stripe, rank, spec.sources)
        bits = np.uint32(1) << rows % np.uint32(WORD_BITS)
        np.bitwise_or.at(self.own_visited, rows // np.uint32(WORD_BITS), bits)
        labels.distances[rows] = 0
        if labels.predecessors is not None:
            labels.predecessors[rows] = rows + np.uint32(rank * stripe.n_local)
        self.next_queue[: rows.size] = rows
        self.advance(rows.size)
        return labels

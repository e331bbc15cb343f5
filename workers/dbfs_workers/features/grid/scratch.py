"""The working memory that a rank of a 2-D partition keeps from one traversal to the next: everything but the labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.base.team import Team
from dbfs_workers.features.grid.grid import Grid, GridPartition
from dbfs_workers.search.partition.labels import LabelPool, RankLabels, label_sources
from dbfs_workers.search.partition.partition import require_present
from dbfs_workers.search.partition.stripe import Stripe


def nbytes(stripe: Stripe, grid: Grid, *, bottom_up: bool) -> int:
    """Return the most bytes of a rank's ``GridScratch``; ``bottom_up`` says whether there are bottom-up levels."""
    bitmaps = grid.columns + (grid.rows + grid.columns if bottom_up else 0)
    # Parents and lists of found vertices over the grid's row, two queues, one list of rows, and the finders.
    return 4 * stripe.words_local * bitmaps + stripe.n_local * (2 * 4 * grid.columns + 2 * 4 + 4 + 2)


class GridScratch:
    """One rank's working memory, made once and used by one traversal after another.

    Args:
        partition: the rank's edges, in host memory.
        pool: where the memory of labels comes from, only with NumPy; None for new memory.
        xp: the module of all arrays: NumPy, or CuPy for a GPU's memory. The edges are copied there.

    Attributes:
        partition: the rank's edges, in host memory.
        xp: see above.
        team: threads that share the rank's work on the CPU; None for one thread. The member sets them.
        blocks: the rank's edges, as arrays of ``xp``: those of the partition, or ``Blocks.joined_on`` a GPU.
        stripe, grid: how the vertices lie on the ranks, and the ranks' places.
        column: the rank's column of the grid.
        max_degree: the largest degree of the rank's own rows.
        degrees: int64[n_local], the out-degrees of the rank's own rows.
        visited: uint32[columns * words_local], a bit for each vertex of the grid's row that this rank found visited.
        own_visited: uint32[words_local], the slice of ``visited`` with the rank's own rows.
        parents: uint32[columns * n_local], the parent of each vertex that this rank found: an internal id.
        found: uint32[columns * n_local], local ids found in a level, by owner: see ``kernels.grid``.
        found_ends: int64[columns], the lengths of these lists, on the host.
        finders: uint16[n_local], the column of the rank that found each of the rank's own rows.
        frontier: uint32 local ids of the rank's vertices at the current distance.
        frontier_bits: uint32[rows * words_local], the frontier of the grid's column for a bottom-up level; None without
            bottom-up levels.
        empty: uint32[columns * words_local], a bit for each vertex of the grid's row that no edge of this rank ends in;
            None without bottom-up levels.
    """

    team: Team | None = None

    def __init__(self, partition: GridPartition, pool: LabelPool | None, xp: Any = np) -> None:
        self._pool = pool
        self.xp = xp
        self.partition = partition
        self.blocks = partition.blocks if xp is np else partition.blocks.joined_on(xp)
        self.stripe = stripe = partition.stripe
        self.grid = grid = partition.grid
        words, n_local = stripe.words_local, stripe.n_local
        self.column = partition.rank % grid.columns
        self.max_degree = int(partition.degrees.max())
        self.degrees: NDArray[np.int64] = xp.asarray(partition.degrees)
        self.visited: NDArray[np.uint32] = xp.zeros(grid.columns * words, np.uint32)
        self.own_visited: NDArray[np.uint32] = self.visited[self.column * words : (self.column + 1) * words]
        # On the host, pages that are never written take no memory.
        self.parents: NDArray[np.uint32] = xp.empty(grid.columns * n_local, np.uint32)
        self.found: NDArray[np.uint32] = xp.empty(grid.columns * n_local, np.uint32)
        self.found_ends = np.zeros(grid.columns, np.int64)
        self.finders: NDArray[np.uint16] = xp.zeros(n_local, np.uint16)
        self._queues: list[NDArray[np.uint32]] = [xp.empty(n_local, np.uint32) for _ in (0, 1)]
        self._current = 0
        self.frontier = self._queues[0][:0]
        self.frontier_bits: NDArray[np.uint32] | None = None
        self.empty: NDArray[np.uint32] | None = None
        if partition.blocks.into is not None:
            self.frontier_bits = xp.zeros(grid.rows * words, np.uint32)
            empty = [
                np.packbits(csr.row_offsets[1:] == csr.row_offsets[:-1], bitorder="little").view(np.uint32)
                for csr in partition.blocks.into
            ]
            self.empty = xp.asarray(np.concatenate(empty))

    @property
    def next_queue(self) -> NDArray[np.uint32]:
        """uint32[n_local] for a level's discoveries, the next frontier."""
        return self._queues[1 - self._current]

    def advance(self, discovered: int) -> None:
        """Make the first ``discovered`` entries of the next queue the frontier."""
        self._current = 1 - self._current
        self.frontier = self._queues[self._current][:discovered]

    def labels_for(self, spec: TraversalSpec) -> RankLabels:
        """Return labels for a traversal that ``start`` begins."""
        return RankLabels.unreached(self.xp, self.stripe, predecessors=spec.predecessors, pool=self._pool)

    def start(self, spec: TraversalSpec, labels: RankLabels) -> None:
        """Clear the last traversal's state; label the sources, and make them the frontier."""
        require_present(self.partition, spec.sources)
        self.visited[:] = 0
        rows = label_sources(self.xp, self.stripe, self.partition.rank, spec.sources, self.own_visited, labels)
        self.next_queue[: rows.size] = rows
        self.advance(rows.size)

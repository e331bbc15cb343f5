"""The working memory that a rank keeps from one traversal to the next: everything except the labels.

New memory costs a page fault for every 4 KiB, so a later version of a living graph is traversed in the same memory.
"""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.base.team import Team
from dbfs_workers.base.tokens import Token
from dbfs_workers.search.partition.labels import LabelPool, RankLabels, label_sources
from dbfs_workers.search.partition.partition import Partition, require_present
from dbfs_workers.search.partition.shared_rows import token_of
from dbfs_workers.search.partition.stripe import WORD_BITS, Stripe


def nbytes(stripe: Stripe, *, bottom_up: bool) -> int:
    """Return the bytes of a rank's ``Scratch``; ``bottom_up`` says whether the graph allows bottom-up levels."""
    bitmaps = 4 * (2 * stripe.words + stripe.words_local) if bottom_up else 4 * stripe.words
    return bitmaps + 2 * 4 * stripe.n_local


class Scratch:
    """One rank's working memory, made once and used by one traversal after another.

    Args:
        partition: the rank's edges.
        xp: the module of all arrays: NumPy, or CuPy for a GPU's memory. The edges are copied there if needed.
        pool: where the memory of labels comes from, only with NumPy; None for new memory.

    Attributes:
        partition: the rank's edges, as arrays of ``xp``.
        rows, parent_rows: those of the partition, which makes them anew at each access.
        xp: see above.
        team: threads that share the rank's work on the CPU; None for one thread. The member sets them.
        first_id: internal id of the rank's row 0.
        max_degree: the largest degree of the rank's rows.
        visited: uint32[words], a bit for each internal id that this rank found visited, or that a slice of the frontier
            showed as visited.
        own_visited: uint32[words_local], the slice of ``visited`` with the rank's own rows. Rows without in-edges count
            as visited, so that no bottom-up level looks at them.
        queues: two uint32[n_local]. A level reads its frontier from one and writes its discoveries into the other.
        current: index of the queue with the frontier.
        frontier: uint32 local ids of the rank's vertices at the current distance.
        queued: vertices of the next frontier that are in ``next_queue`` already.
        resume: int64[2], on the host: where the pass of a top-down level over the frontier begins, if it stopped before
            a full bin: a place in the frontier, and an edge of that row. Zeros at a level's beginning.
        frontier_bits: uint32[words], the whole frontier for a bottom-up level; None without known parents.
    """

    team: Team | None = None

    def __init__(self, partition: Partition, xp: Any, pool: LabelPool | None = None) -> None:
        self.xp = xp
        self._pool = pool
        if pool is not None:
            # Imported here because the import compiles kernels.
            from dbfs_workers.search.partition.kernels import first_labels as label_kernels

            self._label_kernels = label_kernels
        # Whether the labels of the traversal under way lack those of unvisited rows.
        self._begun = False
        stripe = partition.stripe
        self.first_id = partition.rank * stripe.n_local
        self.visited: NDArray[np.uint32] = xp.zeros(stripe.words, np.uint32)
        own = slice(partition.rank * stripe.words_local, (partition.rank + 1) * stripe.words_local)
        self.own_visited = self.visited[own]
        self.queues: list[NDArray[np.uint32]] = [xp.empty(stripe.n_local, np.uint32) for _ in (0, 1)]
        self.current = 0
        self.frontier = self.queues[0][:0]
        self.queued = 0
        self.resume = np.zeros(2, np.int64)
        self.frontier_bits: NDArray[np.uint32] | None = None
        self._unreachable: NDArray[np.uint32] | None = None
        self.take(partition)

    def take(self, partition: Partition) -> None:
        """Take over the edges of a partition: the first one, or a later version of the graph, with as many rows."""
        self.partition = partition = partition.on(self.xp)
        self.rows, self.parent_rows = partition.rows, partition.parent_rows
        vars(self).pop("rows_token", None)
        self.max_degree = partition.max_degree
        parents, before = self.parent_rows, self._unreachable
        if parents is not None:
            if self.frontier_bits is None:
                self.frontier_bits = self.xp.zeros(partition.stripe.words, np.uint32)
            self._unreachable = self.xp.packbits(parents.ends == parents.starts, bitorder="little").view(np.uint32)
        if before is None or self._unreachable is None or (before != self._unreachable).any():
            # Stands for this partition's rows without in-edges, in the pool.
            self._owner = object()

    @property
    def nbytes(self) -> int:
        """Bytes kept between traversals, the edges not included."""
        kept = [self.visited, self.frontier_bits, self._unreachable, *self.queues]
        return sum(array.nbytes for array in kept if array is not None)

    @functools.cached_property
    def rows_token(self) -> Token | None:
        """The token of the file in which the rows lie, on the CPU; None if peers can't map them."""
        return token_of(self.rows)

    @property
    def next_queue(self) -> NDArray[np.uint32]:
        """uint32[n_local - queued] for a level's next discoveries."""
        return self.queues[1 - self.current][self.queued :]

    def advance(self, discovered: int) -> None:
        """Make the first ``discovered`` entries of the next queue the frontier."""
        self.adopt(1 - self.current, discovered)

    def adopt(self, queue: int, size: int) -> None:
        """Make the first ``size`` entries of a queue the frontier."""
        self.resume_level(queue, size, 0)
        self.resume[:] = 0

    def resume_level(self, queue: int, size: int, queued: int) -> None:
        """Make the first ``size`` entries of a queue the frontier, in a level that has queued vertices of the next."""
        self.current = queue
        self.frontier = self.queues[queue][:size]
        self.queued = queued

    def labels_for(self, spec: TraversalSpec) -> RankLabels:
        """Return labels for a traversal that ``start`` begins, and ``end`` ends before anything else reads them."""
        if self._left_to_end(spec):
            assert self._pool is not None
            return RankLabels.begun(self._pool, self._owner, predecessors=spec.predecessors)
        return self._unreached(spec)

    def start(self, spec: TraversalSpec, labels: RankLabels | None = None) -> RankLabels:
        """Clear the last traversal's state; label the sources, and make them the frontier.

        Args:
            labels: what ``labels_for`` returned; None for new labels, of a traversal without ``end``.

        Returns:
            The labels.

        Raises:
            InvalidVertexError: a source was deleted.
        """
        stripe = self.partition.stripe
        require_present(self.partition, spec.sources)
        # The last traversal may have ended in the middle of a level.
        self.queued = 0
        self._begun = labels is not None and self._left_to_end(spec)
        if labels is None:
            labels = self._unreached(spec)
        if self._begun and len(spec.sources) == 1:
            self._start_at(spec.sources[0], labels)
            return labels
        self.visited[:] = 0
        if self._unreachable is not None:
            self.own_visited[:] = self._unreachable
        rows = label_sources(self.xp, stripe, self.partition.rank, spec.sources, self.own_visited, labels)
        if self._begun:
            self._keep_unreached(rows, labels)
        self.next_queue[: rows.size] = rows
        self.advance(rows.size)
        return labels

    def end(self, labels: RankLabels) -> None:
        """Write the labels of the rows that the traversal has not visited, if ``start`` left that to the end."""
        if self._begun:
            self._label_kernels.label_unvisited(self.own_visited, *labels.arrays)

    def _left_to_end(self, spec: TraversalSpec) -> bool:
        """Return whether ``end`` labels the rows that a traversal has not visited."""
        # Labels of targets are read during the traversal.
        return self._unreachable is not None and self._pool is not None and not spec.targets

    def _unreached(self, spec: TraversalSpec) -> RankLabels:
        stripe = self.partition.stripe
        return RankLabels.unreached(self.xp, stripe, predecessors=spec.predecessors, pool=self._pool)

    def _start_at(self, source: int, labels: RankLabels) -> None:
        """Start from one source: what ``start`` does in a dozen calls of NumPy takes one kernel."""
        assert self._unreachable is not None
        stripe, rank = self.partition.stripe, self.partition.rank
        row = stripe.row(source) if stripe.owner(source) == rank else -1
        if self._label_kernels.begin(self.visited, self._unreachable, rank, row, *labels.arrays, self.next_queue):
            self._forget_owner(labels)
        self.advance(int(row >= 0))

    def _keep_unreached(self, sources: NDArray[np.uint32], labels: RankLabels) -> None:
        """Have the labels' memory written in full at its next use, if a source lies in a row without in-edges."""
        assert self._unreachable is not None
        if (self._unreachable[sources // WORD_BITS] >> (sources % WORD_BITS) & 1).any():
            self._forget_owner(labels)

    def _forget_owner(self, labels: RankLabels) -> None:
        assert self._pool is not None
        self._pool.forget_owner(labels.distances)
        if labels.predecessors is not None:
            self._pool.forget_owner(labels.predecessors)

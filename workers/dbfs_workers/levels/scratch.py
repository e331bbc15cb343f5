"""What a rank keeps from one traversal to the next: everything but the labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers import backends
from dbfs_workers.backends.protocol import Backend
from dbfs_workers.levels.state import seed
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.labels import UNREACHED, RankLabels
from dbfs_workers.storage.partition import Partition
from dbfs_workers.storage.stripe import NO_VERTEX, Stripe


def nbytes(stripe: Stripe, *, bottom_up: bool) -> int:
    """Bytes of a rank's ``Scratch``; ``bottom_up``: whether the graph can be traversed so."""
    bitmaps = 4 * (2 * stripe.words + stripe.words_local) if bottom_up else 4 * stripe.words
    return bitmaps + 2 * 4 * stripe.n_local


class Scratch:
    """One rank's working memory, on its backend's device; made once, used by one traversal after another.

    Attributes:
        partition: the rank's edges, on that device.
        frontier: uint32 local ids of the vertices at the current distance, a part of one of two queues.
        next_queue: uint32[n_local], where the level's discoveries go.
        visited: uint32[words], as in ``TraversalState``.
        frontier_bits: uint32[words], the whole frontier; None where the graph can't be traversed bottom-up.
    """

    def __init__(self, partition: Partition, backend: str = "cpu") -> None:
        self.backend: Backend = backends.get(backend)
        xp = self.backend.xp
        self.partition = partition = partition.on(xp)
        stripe = partition.stripe
        self.first_id = partition.rank * stripe.n_local
        self.visited = xp.zeros(stripe.words, np.uint32)
        own = slice(partition.rank * stripe.words_local, (partition.rank + 1) * stripe.words_local)
        self.own_visited: NDArray[np.uint32] = self.visited[own]
        self._queues = [xp.empty(stripe.n_local, np.uint32) for _ in (0, 1)]
        self._current = 0
        self.frontier: NDArray[np.uint32] = self._queues[0][:0]
        self.frontier_bits: NDArray[np.uint32] | None = None
        # Vertices that no edge leads to count as visited from the start: no bottom-up level looks at them again.
        self._unreachable: NDArray[np.uint32] | None = None
        if partition.parents is not None:
            self.frontier_bits = xp.zeros(stripe.words, np.uint32)
            self._unreachable = xp.zeros(stripe.words_local, np.uint32)
            self.backend.mark_unreachable(partition.parents, self._unreachable)
        self.max_degree = int(xp.diff(partition.row_offsets).max())

    @property
    def nbytes(self) -> int:
        """Bytes kept between traversals."""
        kept: list[Any] = [self.visited, self.frontier_bits, self._unreachable, *self._queues]
        return sum(array.nbytes for array in kept if array is not None)

    @property
    def next_queue(self) -> NDArray[np.uint32]:
        """Where a level's discoveries go."""
        queue: NDArray[np.uint32] = self._queues[1 - self._current]
        return queue

    def advance(self, discovered: int) -> None:
        """Make the first entries of the next queue the frontier."""
        self._current = 1 - self._current
        self.frontier = self._queues[self._current][:discovered]

    def start(self, spec: TraversalSpec) -> RankLabels:
        """Forget the last traversal and label the sources; they are the frontier."""
        stripe = self.partition.stripe
        xp = self.backend.xp
        self.visited[:] = 0
        if self._unreachable is not None:
            self.own_visited[:] = self._unreachable
        distances = xp.full(stripe.n_local, UNREACHED, np.int32)
        predecessors = xp.full(stripe.n_local, NO_VERTEX, np.uint32) if spec.predecessors else None
        rows = seed(xp, stripe, self.partition.rank, spec.sources, self.visited, distances, predecessors)
        self.next_queue[: rows.size] = rows
        self.advance(rows.size)
        return RankLabels(distances, predecessors)

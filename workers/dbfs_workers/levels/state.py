"""The state of one traversal of the taskgraph engine on one rank, changed in place phase by phase.

Dask may run a task twice, or run it after the state was built anew. So each phase names its run and level
(``TraversalState.entering``). A phase that is not the next one raises ``StaleRunError`` before anything is written.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers import backends
from dbfs_workers.backends.protocol import Backend
from dbfs_workers.errors import StaleRunError
from dbfs_workers.levels.bins import Bin
from dbfs_workers.levels.counts import PHASES, LevelCounts
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.labels import RankLabels, label_sources
from dbfs_workers.storage.partition import Partition
from dbfs_workers.storage.stripe import own_rows


@dataclass
class TraversalState:
    """One traversal on one rank. Arrays are the backend's.

    Attributes:
        spec: the traversal.
        partition: the rank's edges.
        backend: runs the phases.
        visited: uint32[stripe.words], a bit for each internal id that this rank has marked visited.
        labels: the rank's labels.
        frontier: uint32 local ids of the rank's vertices at the current level's distance.
        outbox: the bins of the last two levels, by level parity. A peer may fetch a bin while the next level's is made.
        levels: the counts of each level so far.
        started: when the state was ready, in seconds of this worker's ``time.perf_counter()``.
    """

    spec: TraversalSpec
    partition: Partition
    backend: Backend
    visited: NDArray[np.uint32]
    labels: RankLabels
    frontier: NDArray[np.uint32]
    outbox: list[tuple[Bin, ...]] = field(default_factory=lambda: [(), ()])
    levels: list[LevelCounts] = field(default_factory=list)
    started: float = 0.0
    # Level and phase that may come next; None during a phase, and after one that failed.
    _expected: tuple[int, str] | None = (0, PHASES[0])

    @property
    def rank(self) -> int:
        """The rank whose state this is."""
        return self.partition.rank

    @property
    def first_id(self) -> int:
        """Internal id of row 0."""
        return self.rank * self.partition.stripe.n_local

    @property
    def own_visited(self) -> NDArray[np.uint32]:
        """The slice of ``visited`` with the rank's own rows."""
        words = self.partition.stripe.words_local
        return self.visited[self.rank * words : (self.rank + 1) * words]

    def targets_missing(self) -> int:
        """Return the number of this rank's targets without a label."""
        rows = own_rows(self.partition.stripe, self.rank, self.spec.targets)
        return int((self.labels.distances[self.backend.xp.asarray(rows)] < 0).sum())

    @contextmanager
    def entering(self, phase: str, run_id: str, level: int) -> Iterator[LevelCounts]:
        """Guard one phase of one level, and time it.

        Raises:
            StaleRunError: the phase belongs to another run, has run already, or is not the next one. After a phase that
                failed, every phase raises it: the state is half changed.
            GraphTooLargeError, DeviceFailedError: the device is full, or failed.
        """
        if (run_id, level, phase) != (self.spec.run_id, *(self._expected or (-1, "none"))):
            expected = "no more" if self._expected is None else f"{self._expected[1]} of level {self._expected[0]}"
            raise StaleRunError(
                f"rank {self.rank}: {phase} of level {level} of run {run_id} came "
                f"where run {self.spec.run_id} expected {expected}"
            )
        self._expected = None
        if phase == PHASES[0]:
            self.levels.append(LevelCounts())
        counts = self.levels[level]
        start = time.perf_counter()
        with self.backend.typed_errors(f"rank {self.rank}, level {level}, {phase}"):
            yield counts
        counts.seconds[phase] = time.perf_counter() - start
        following = PHASES.index(phase) + 1
        self._expected = (level, PHASES[following]) if following < len(PHASES) else (level + 1, PHASES[0])

    def __reduce__(self) -> Any:
        raise StaleRunError(f"run {self.spec.run_id}: the state of rank {self.rank} can't move to another worker")


def start(partition: Partition, spec: TraversalSpec) -> TraversalState:
    """Return the state before level 0: the sources are labelled and are the frontier.

    Raises:
        GraphTooLargeError: the device has too little memory left.
        DeviceFailedError: the device failed.
    """
    backend, stripe, rank = backends.get(spec.backend), partition.stripe, partition.rank
    xp = backend.xp
    with backend.typed_errors(f"rank {rank}, before its first level"):
        visited = xp.zeros(stripe.words, np.uint32)
        labels = RankLabels.unreached(xp, stripe, predecessors=spec.predecessors)
        state = TraversalState(
            spec=spec,
            partition=partition.on(xp),
            backend=backend,
            visited=visited,
            labels=labels,
            frontier=label_sources(xp, stripe, rank, spec.sources, visited, labels),
        )
    state.started = time.perf_counter()
    return state

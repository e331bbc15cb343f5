"""The state of one traversal of the taskgraph engine on one rank, changed in place phase by phase.

Dask may run a task twice, or run it after the state was built anew. So each phase names its run and level
(``TraversalState.entering``). A phase that is not the next one raises ``StaleRunError`` before anything is written.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from dbfs_workers.base.errors import StaleRunError
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.taskgraph.bins import Bin
from dbfs_workers.features.taskgraph.counts import LevelCounts
from dbfs_workers.search import backends
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import own_rows

# The phases that begin a level, and the phase that follows another in the same level.
_FIRST: Final = ("expand", "bottom-up")
_FOLLOWING: Final = {"expand": "filter-partition", "filter-partition": "contract"}


@dataclass
class TraversalState:
    """One traversal on one rank. Arrays are the backend's.

    Attributes:
        backend: runs the phases.
        scratch: the rank's edges, bitmaps and frontier.
        bins: the bins that this rank made in the level, by owner; None for a bin that was taken.
        levels: the counts of each level so far.
        started: when the state was ready, in seconds of this worker's ``time.perf_counter()``.
    """

    spec: TraversalSpec
    backend: Backend
    scratch: Scratch
    labels: RankLabels
    bins: list[Bin | None] = field(default_factory=list)
    levels: list[LevelCounts] = field(default_factory=list)
    started: float = 0.0
    # Level and phases of which one may come next; None during a phase, and after one that failed.
    _expected: tuple[int, tuple[str, ...]] | None = (0, _FIRST)

    @property
    def partition(self) -> Partition:
        """The rank's edges."""
        return self.scratch.partition

    @property
    def rank(self) -> int:
        """The rank whose state this is."""
        return self.partition.rank

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
        due, phases = self._expected or (-1, ())
        if (run_id, level) != (self.spec.run_id, due) or phase not in phases:
            expected = f"{' or '.join(phases)} of level {due}" if phases else "no more"
            raise StaleRunError(
                f"rank {self.rank}: {phase} of level {level} of run {run_id} came "
                f"where run {self.spec.run_id} expected {expected}"
            )
        self._expected = None
        if phase in _FIRST:
            self.levels.append(LevelCounts(frontier=self.scratch.frontier.size))
        counts = self.levels[level]
        start = time.perf_counter()
        with self.backend.typed_errors(f"rank {self.rank}, level {level}, {phase}"):
            yield counts
        counts.seconds[phase] = time.perf_counter() - start
        following = _FOLLOWING.get(phase)
        self._expected = (level + 1, _FIRST) if following is None else (level, (following,))

    def __reduce__(self) -> Any:
        raise StaleRunError(f"run {self.spec.run_id}: the state of rank {self.rank} can't move to another worker")


def start(partition: Partition, spec: TraversalSpec) -> TraversalState:
    """Return the state before level 0: the sources are labelled and are the frontier.

    Raises:
        GraphTooLargeError: the device has too little memory left.
        DeviceFailedError: the device failed.
    """
    backend, rank = backends.get(spec.backend), partition.rank
    with backend.typed_errors(f"rank {rank}, before its first level"):
        scratch = Scratch(partition, backend.xp)
        state = TraversalState(spec=spec, backend=backend, scratch=scratch, labels=scratch.start(spec))
    state.started = time.perf_counter()
    return state

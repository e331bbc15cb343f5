"""The state of one traversal on one rank, and the messages its phases exchange.

The state is changed in place, level by level. Dask may run a task twice, or run it where the state was rebuilt from
nothing. So each phase states its run, level and phase (``TraversalState.entering``). A phase that is not the next one
ends the run with ``StaleRunError`` before anything is written.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers import backends
from dbfs_workers.backends.protocol import Backend
from dbfs_workers.errors import StaleRunError
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.labels import UNREACHED
from dbfs_workers.storage.partition import Partition, host_bytes
from dbfs_workers.storage.stripe import NO_VERTEX, WORD_BITS, Stripe, own_rows

PHASES: Final = ("expand", "filter-partition", "contract")


@dataclass(frozen=True)
class Bin:
    """The vertices that rank ``source`` discovered for rank ``target`` in one level of one run.

    Attributes:
        rows: uint32 local ids on the target.
        parents: uint32 internal ids of their parents, or None.
    """

    run_id: str
    level: int
    source: int
    target: int
    rows: NDArray[np.uint32]
    parents: NDArray[np.uint32] | None

    @property
    def nbytes(self) -> int:
        """Bytes that cross when the bin is sent."""
        return self.rows.nbytes + (0 if self.parents is None else self.parents.nbytes)

    def __sizeof__(self) -> int:
        return 64 + host_bytes(self.rows, self.parents)


@dataclass
class LevelCounts:
    """What one rank did in one level.

    ``edges == filtered + own + sent`` and the vertices discovered are those of the own and the received bins less
    ``culled``.

    Attributes:
        frontier: vertices expanded.
        edges: edges inspected.
        filtered: neighbours dropped by this rank's visited bitmap: visited before, or duplicates within the level.
        own: vertices kept for the rank itself.
        sent: vertices sent to other ranks.
        culled: received vertices that had been visited already, by this rank or by another's bin.
        discovered: vertices labelled.
        bytes_sent: bytes of the bins for other ranks.
        seconds: time by phase.
    """

    frontier: int = 0
    edges: int = 0
    filtered: int = 0
    own: int = 0
    sent: int = 0
    culled: int = 0
    discovered: int = 0
    bytes_sent: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))


@dataclass
class TraversalState:
    """One run on one rank. Arrays are the backend's.

    Attributes:
        visited: uint32[stripe.words], a bit for each internal id this rank knows to be visited.
        distances: int32[n_local], -1 unreached.
        predecessors: uint32[n_local] internal ids, ``NO_VERTEX`` unreached; None where not wanted.
        frontier: uint32 local ids of the vertices at distance ``level``.
        outbox: the bins of the last two levels, by level parity; a peer may still fetch one when the next is made.
        levels: the counts of each level so far.
        started: when the state was ready, in seconds on this worker's performance counter.
    """

    spec: TraversalSpec
    partition: Partition
    backend: Backend
    visited: NDArray[np.uint32]
    distances: NDArray[np.int32]
    predecessors: NDArray[np.uint32] | None
    frontier: NDArray[np.uint32]
    outbox: list[tuple[Bin, ...]] = field(default_factory=lambda: [(), ()])
    levels: list[LevelCounts] = field(default_factory=list)
    started: float = 0.0
    _expected: tuple[int, str] | None = (0, PHASES[0])

    @property
    def rank(self) -> int:
        """The rank whose rows these are."""
        return self.partition.rank

    @property
    def first_id(self) -> int:
        """Internal id of row 0."""
        return self.rank * self.partition.stripe.n_local

    @property
    def own_visited(self) -> NDArray[np.uint32]:
        """The rank's own slice of its bitmap."""
        words = self.partition.stripe.words_local
        return self.visited[self.rank * words : (self.rank + 1) * words]

    def targets_missing(self) -> int:
        """Targets of this rank without a label."""
        rows = own_rows(self.partition.stripe, self.rank, self.spec.targets)
        return int((self.distances[self.backend.xp.asarray(rows)] < 0).sum())

    @contextmanager
    def entering(self, phase: str, run_id: str, level: int) -> Iterator[LevelCounts]:
        """Guard one phase of one level, and time it.

        Raises:
            StaleRunError: the phase belongs to another run, was done already, or is not the next one. A phase that
                failed half-way leaves the run unusable: everything after it raises.
            GraphTooLargeError, RunAbortedError: its device failed.
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
    """The state of a run before its first level: the sources are labelled and are the frontier.

    Raises:
        GraphTooLargeError: the device has too little memory left.
    """
    backend, stripe, rank = backends.get(spec.backend), partition.stripe, partition.rank
    xp = backend.xp
    with backend.typed_errors(f"rank {rank}, before its first level"):
        state = TraversalState(
            spec=spec,
            partition=partition.on(xp),
            backend=backend,
            visited=xp.zeros(stripe.words, np.uint32),
            distances=xp.full(stripe.n_local, UNREACHED, np.int32),
            predecessors=xp.full(stripe.n_local, NO_VERTEX, np.uint32) if spec.predecessors else None,
            frontier=xp.empty(0, np.uint32),
        )
        state.frontier = seed(xp, stripe, rank, spec.sources, state.visited, state.distances, state.predecessors)
    state.started = time.perf_counter()
    return state


def seed(
    xp: Any,
    stripe: Stripe,
    rank: int,
    sources: Sequence[int],
    visited: NDArray[np.uint32],
    distances: NDArray[np.int32],
    predecessors: NDArray[np.uint32] | None,
) -> NDArray[np.uint32]:
    """Label the sources that this rank owns; returns their local ids, ascending and each once. Arrays are ``xp``'s."""
    own = own_rows(stripe, rank, sources)
    ids = own.astype(np.int64) + rank * stripe.n_local
    # Joined by word first: an array module need not take an index twice.
    words, which = np.unique(ids // WORD_BITS, return_inverse=True)
    bits = np.zeros(words.size, np.uint32)
    np.bitwise_or.at(bits, which, (1 << (ids % WORD_BITS)).astype(np.uint32))
    visited[xp.asarray(words)] |= xp.asarray(bits)
    rows: NDArray[np.uint32] = xp.asarray(own)
    distances[rows] = 0
    if predecessors is not None:
        predecessors[rows] = xp.asarray(ids.astype(np.uint32))
    return rows

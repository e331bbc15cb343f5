"""Consecutive top-down levels of a rank on the CPU, run by one kernel where the ranks share memory."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.backends import cpu_team
from dbfs_workers.backends.protocol import Backend
from dbfs_workers.exchange.protocol import Exchange
from dbfs_workers.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.levels import level_kernels as kernels
from dbfs_workers.levels.direction import ROWS_PER_EDGE
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.scratch import Scratch

_PHASE = "top-down"
_WITHOUT_END = 1 << 62
_NONE = np.empty(0, np.uint32)


class Stretch(NamedTuple):
    """Consecutive levels that one call of the kernel completed.

    Attributes:
        counts: int64[levels, len(COUNT_FIELDS)], valid until the next call.
        seconds: float64[levels, len(TIME_FIELDS)], valid until the next call.
        discovered: vertices of this rank that were discovered.
        edges: sum of the degrees of this rank's expanded vertices.
        frontier: over all ranks, vertices of the frontier; an upper bound.
        expanded_edges: over all ranks, edges that the last level expanded.
        unexplored_edges: over all ranks, the sum of the degrees of vertices that are not expanded.
        may_turn: whether a bottom-up level may pay now.
        led: whether the next level is to be led.
        ended: when the last level ended, in seconds of ``time.perf_counter()``.
    """

    counts: NDArray[np.int64]
    seconds: NDArray[np.float64]
    discovered: int
    edges: int
    frontier: int
    expanded_edges: int
    unexplored_edges: int
    may_turn: bool
    led: bool
    ended: float


class TopDownLevels:
    """The kernel's state in the traversals of a rank, one after another.

    Args:
        backend: expands the frontiers that several threads share.
        scratch: the rank's working memory.
        exchange: the rank's end of the exchange.
    """

    def __init__(self, backend: Backend, scratch: Scratch, exchange: SharedMemoryExchange) -> None:
        self._backend = backend
        self._scratch = scratch
        self._exchange = exchange
        self._labels: RankLabels
        self._label_arguments: tuple[NDArray[np.int32], NDArray[np.uint32]]
        self._state = np.zeros(kernels.STATE, np.int64)
        self._state[kernels.SHARED_EDGES] = cpu_team.least_edges(scratch)
        self._state[kernels.SHARED_ENTRIES] = cpu_team.least_entries(scratch)
        rows = scratch.rows
        self._rank_arguments = (
            *(rows.starts, rows.ends, rows.columns, *scratch.queues, scratch.resume, scratch.visited),
        )
        self._least_edges = scratch.partition.stripe.n / ROWS_PER_EDGE
        self._counts = np.zeros((kernels.LEVELS, kernels.COUNTED), np.int64)
        self._seconds = np.zeros((kernels.LEVELS, kernels.TIMED), np.float64)
        self._table_arguments = self._counts.ravel(), self._seconds.ravel()

    @classmethod
    def where_possible(cls, backend: Backend, scratch: Scratch, exchange: Exchange) -> "TopDownLevels | None":
        """Return the state for ranks that are on the CPU and cross in memory; None for other ranks."""
        if backend.xp is np and isinstance(exchange, SharedMemoryExchange):
            return cls(backend, scratch, exchange)
        return None

    def begin(self, spec: TraversalSpec, labels: RankLabels, *, adaptive: bool) -> None:
        """Begin a traversal, with this rank's labels.

        Args:
            spec: the traversal.
            labels: the rank's labels.
            adaptive: whether levels may be bottom-up.
        """
        self._labels, state = labels, self._state
        self._label_arguments = labels.distances, _NONE if labels.predecessors is None else labels.predecessors
        state[kernels.LAST_LEVEL] = _WITHOUT_END if spec.max_depth is None else min(spec.max_depth, _WITHOUT_END)
        state[kernels.MEASURED], state[kernels.ADAPTIVE] = bool(spec.targets), adaptive
        state[kernels.SMALL] = 0

    def run(
        self,
        level: int,
        max_degree: int,
        unexplored_edges: int,
        share: float,
        ended: float,
        led_vertices: int = 0,
        led_edges: int = 0,
    ) -> Stretch:
        """Run levels from ``level`` on, at least one, and leave the next frontier in the scratch.

        Args:
            level: the first level.
            max_degree: the graph's largest degree.
            unexplored_edges: over all ranks, the sum of the degrees of vertices that are not expanded.
            share: share of the unexplored edges that a bottom-up level is expected to look at.
            ended: when the last level ended, in seconds of ``time.perf_counter()``.
            led_vertices: most vertices of a frontier whose level is led; 0 if no level is.
            led_edges: most edges of such a frontier.

        Raises:
            DeadlineExceededError, RunCancelledError, RunAbortedError, WorkerLostError, StaleRunError: see
                ``Exchange.cross``.
        """
        scratch, exchange, state = self._scratch, self._exchange, self._state
        state[kernels.LEVEL] = level
        state[kernels.QUEUE], state[kernels.FRONTIER] = scratch.current, scratch.frontier.size
        state[kernels.CROSSING], state[kernels.NUMBER] = exchange.crossing, exchange.number
        state[kernels.ENDED] = int(ended * 1e9)
        state[kernels.UNEXPLORED], state[kernels.MAX_DEGREE] = unexplored_edges, max_degree
        state[kernels.LED_VERTICES], state[kernels.LED_EDGES] = led_vertices, led_edges
        state[kernels.DONE] = state[kernels.FOUND] = state[kernels.EXPANDED_EDGES] = 0
        state[kernels.ALL_EDGES] = state[kernels.ALL_DISCOVERED] = 0
        while True:
            with exchange.in_kernel():
                status, peer = kernels.top_down_levels(
                    *(*self._rank_arguments, *self._label_arguments),
                    *exchange.kernel_arguments,
                    *(share, self._least_edges, state, *self._table_arguments),
                )
                exchange.follow(int(state[kernels.CROSSING]), status, peer, int(state[kernels.LEVEL]), _PHASE)
            if state[kernels.SHARED] == kernels.TO_EXPAND:
                self._expand()
            elif state[kernels.SHARED] == kernels.TO_CONTRACT:
                self._contract()
            elif not state[kernels.AWAITED]:
                break
        after = state.tolist()
        scratch.adopt(after[kernels.QUEUE], after[kernels.FRONTIER])
        done = after[kernels.DONE]
        return Stretch(
            counts=self._counts[:done],
            seconds=self._seconds[:done],
            discovered=after[kernels.ALL_DISCOVERED],
            edges=after[kernels.ALL_EDGES],
            frontier=after[kernels.FOUND],
            expanded_edges=after[kernels.EXPANDED_EDGES],
            unexplored_edges=after[kernels.UNEXPLORED],
            may_turn=bool(after[kernels.MAY_TURN]),
            led=bool(after[kernels.LED]),
            ended=after[kernels.ENDED] * 1e-9,
        )

    def _expand(self) -> None:
        """Expand the kernel's frontier by several threads."""
        scratch, state = self._take_level(), self._state
        counts = self._backend.top_down(scratch, self._labels, int(state[kernels.LEVEL]) + 1, self._exchange)
        state[kernels.SHARED_INSPECTED], state[kernels.SHARED_OWN], state[kernels.SHARED_SENT], _ = counts
        state[kernels.SHARED] = kernels.EXPANDED

    def _contract(self) -> None:
        """Contract the bins of the kernel's last crossing, the large ones by several threads."""
        scratch, state, labels = self._take_level(), self._state, self._labels
        distance, team = int(state[kernels.LEVEL]) + 1, scratch.team
        for rows, parents in self._exchange.incoming():
            bin_arguments = (rows, parents, scratch.own_visited, distance, labels, scratch.next_queue)
            if team is not None and rows.size >= cpu_team.least_entries(scratch):
                scratch.queued += cpu_team.contract(team, *bin_arguments)
            else:
                scratch.queued += self._backend.contract(*bin_arguments)
            state[kernels.RECEIVED] += rows.size
        state[kernels.QUEUED] = scratch.queued
        state[kernels.SHARED] = kernels.CONTRACTED

    def _take_level(self) -> Scratch:
        """Return the scratch with the frontier and the next queue of the kernel's level."""
        scratch, state = self._scratch, self._state
        scratch.resume_level(int(state[kernels.QUEUE]), int(state[kernels.FRONTIER]), int(state[kernels.QUEUED]))
        return scratch

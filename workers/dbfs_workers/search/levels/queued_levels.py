"""The levels of a rank on a GPU that exchanges by NCCL: the host waits at most once a level.

A level's phases, its messages and the contraction of the received bins are queued on the GPU one behind another. Three
waits a level, as ``loop`` has with other exchanges on GPUs, would cost more than the level of a road network. Small
levels are queued several at a time: the GPU runs one while the host queues the next, and the host waits once for all.

Levels queued ahead run top-down, whatever they find. So the ranks queue ahead only while no possible frontier could
make a bottom-up level pay. A bottom-up level, and the measurement of a frontier, is queued with its crossing as well.
"""

import time
from dataclasses import dataclass

from dbfs_workers.search.cuda.communicator import MOST_AHEAD
from dbfs_workers.search.direction import ROWS_PER_EDGE
from dbfs_workers.search.exchange.nccl import NcclExchange
from dbfs_workers.search.levels.level_table import LevelTable
from dbfs_workers.search.levels.state import TOP_DOWN, State, choose, choose_direction, end_level, over
from dbfs_workers.search.levels.stepper import TOP_DOWN_PHASE, Absorb, BottomUp, Measure, StripeWork
from dbfs_workers.search.reports import Row
from dbfs_workers.search.reports.crossings import Measured

# Levels between two looks at the run by another thread.
_MOST_LEVELS = 64


class QueuedLevels:
    """A ``Stepper``: top-down levels that are queued on the GPU.

    The time of the phases on the GPU counts as exchange, since the host waits for both together. Levels queued together
    count as equally long.
    """

    def __init__(self, working: StripeWork, exchange: NcclExchange) -> None:
        self._working, self._exchange = working, exchange
        # Levels to queue together next, and the level for which this holds.
        self._ahead, self._ahead_at = 1, 0

    def run(self, state: State, table: LevelTable) -> None:
        """Run levels until the traversal ends, another stepper is due, or another thread is to look at the run."""
        scratch, exchange = self._working.scratch, self._exchange
        most, left = self._most_ahead(state), _MOST_LEVELS
        state.size = scratch.frontier.size
        if state.level != self._ahead_at:
            # Levels of another kind, or of another traversal, came between.
            self._ahead = 1
        while True:
            count = min(self._ahead, left, state.last_level - state.level)
            edges = state.size * state.max_degree
            done = exchange.cross_levels(
                state.level, TOP_DOWN_PHASE, scratch, self._working.labels, edges=edges, count=count, most=most
            )
            now, ran = time.perf_counter(), len(done.levels)
            for one in done.levels:
                row = table.row()
                row.search = (done.queued_at - state.ended * 1e-9) / ran
                row.exchange, row.contract = (done.crossed_at - done.queued_at) / ran, (now - done.crossed_at) / ran
                row.edges, row.own, row.sent, row.received = one.edges, one.own, one.sent, one.received
                state.found, state.inspected = one.found, one.expanded_edges
                end_level(state, row, one.discovered)
                table.add()
            state.ended = int(now * 1e9)
            left -= ran
            self._ahead, self._ahead_at = min(2 * self._ahead, MOST_AHEAD) if state.frontier <= most else 1, state.level
            choose_direction(state)
            if over(state) or choose(state) != TOP_DOWN or not left:
                return

    def _most_ahead(self, state: State) -> int:
        """Return the largest frontier, over all ranks, whose level is queued before the host has read its size."""
        if state.targets:
            return 0
        most = self._exchange.most_ahead(state.max_degree)
        if state.adaptive:
            # A frontier with fewer edges never goes bottom-up: see ``bottom_up_pays``.
            most = min(most, state.n // (ROWS_PER_EDGE * max(1, state.max_degree)))
        return most


@dataclass
class QueuedBottomUp(BottomUp):
    """A bottom-up level that is queued with its crossing."""

    exchange: NcclExchange

    def _search(self, state: State, row: Row) -> tuple[Measured, Measured]:
        if state.targets:
            return super()._search(state, row)
        work = self.working
        own, measured, queued_at = self.exchange.cross_search(state.level, "bottom-up", work.scratch, work.labels)
        before, state.ended = state.ended, int(queued_at * 1e9)
        row.search += (state.ended - before) * 1e-9
        return own, measured


@dataclass
class QueuedMeasure(Measure):
    """The measurement of a frontier that is queued with its crossing."""

    exchange: NcclExchange

    def _cross(self, state: State, *, sliced: bool) -> tuple[Measured, Measured]:
        if state.targets:
            return super()._cross(state, sliced=sliced)
        return self.exchange.cross_measured(state.level, "measure", self.working.scratch)[:2]


@dataclass
class QueuedAbsorb(Absorb):
    """The step from slices to a bitmap, by one kernel."""

    exchange: NcclExchange

    def run(self, state: State, table: LevelTable) -> None:  # noqa: ARG002
        """See ``Stepper``."""
        self.exchange.absorb(self.working.scratch)
        state.sliced = False

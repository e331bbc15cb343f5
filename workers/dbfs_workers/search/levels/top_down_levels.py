"""Consecutive top-down levels of a rank on the CPU, run by one kernel where the ranks share memory."""

from dbfs_workers.search.cpu import team as cpu_team
from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.search.levels.kernels import consecutive as kernels
from dbfs_workers.search.levels.level_table import LevelTable
from dbfs_workers.search.levels.state import CROSS, State
from dbfs_workers.search.levels.stepper import TOP_DOWN_PHASE, StripeWork
from dbfs_workers.search.partition.kernels.rows import kernel_rows
from dbfs_workers.search.reports.crossings import Found


class TopDownLevels:
    """A ``Stepper``: many top-down levels by one call of a kernel.

    Args:
        working: what the rank's levels work on.
        exchange: the rank's end of the exchange.
    """

    def __init__(self, working: StripeWork, exchange: SharedMemoryExchange) -> None:
        self._working, self._exchange = working, exchange
        scratch = working.scratch
        self._memory = kernels.Memory(
            kernel_rows(scratch.rows),
            scratch.queues[0],
            scratch.queues[1],
            scratch.resume,
            scratch.visited,
            scratch.own_visited,
        )

    def run(self, state: State, table: LevelTable) -> None:
        """Run levels, at least one or the part of one that several threads do not share."""
        scratch, exchange, labels = self._working.scratch, self._exchange, self._working.labels.arrays
        state.queue, state.size, state.queued = scratch.current, scratch.frontier.size, scratch.queued
        state.number, state.crossing = exchange.number, exchange.crossing
        state.shared_edges, state.shared_entries = cpu_team.least_edges(scratch), cpu_team.least_entries(scratch)
        record, rows, unfinished = state.record, table.room(kernels.LEVELS), True
        while unfinished:
            with exchange.in_kernel():
                status, peer = kernels.top_down_levels(self._memory, labels, exchange.kernel_arguments, record, rows)
                exchange.follow(state.crossing, status, peer, state.level, TOP_DOWN_PHASE, Found)
            table.add(state.done)
            rows = rows[state.done :]
            unfinished = state.phase == CROSS
        scratch.resume_level(state.queue, state.size, state.queued)

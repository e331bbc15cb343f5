"""Consecutive top-down levels of a rank on the CPU, run by one kernel where the ranks share memory."""

import numpy as np

from dbfs_workers.backends import cpu_team
from dbfs_workers.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.levels import level_kernels as kernels
from dbfs_workers.levels.level_table import LevelTable
from dbfs_workers.levels.state import CROSS, State
from dbfs_workers.levels.stepper import TOP_DOWN_PHASE, Working

_NONE = np.empty(0, np.uint32)


class TopDownLevels:
    """A ``Stepper``: many top-down levels by one call of a kernel.

    Args:
        working: what the rank's levels work on.
        exchange: the rank's end of the exchange.
    """

    def __init__(self, working: Working, exchange: SharedMemoryExchange) -> None:
        self._working, self._exchange = working, exchange
        scratch = working.scratch
        rows = scratch.rows
        self._rank_arguments = (
            *(rows.starts, rows.ends, rows.columns, *scratch.queues, scratch.resume, scratch.visited),
        )

    def run(self, state: State, table: LevelTable) -> None:
        """Run levels, at least one or the part of one that several threads do not share."""
        scratch, exchange, labels = self._working.scratch, self._exchange, self._working.labels
        parents = _NONE if labels.predecessors is None else labels.predecessors
        state.queue, state.size, state.queued = scratch.current, scratch.frontier.size, scratch.queued
        state.number, state.crossing = exchange.number, exchange.crossing
        state.shared_edges, state.shared_entries = cpu_team.least_edges(scratch), cpu_team.least_entries(scratch)
        record, rows, unfinished = state.record, table.room(kernels.LEVELS), True
        while unfinished:
            with exchange.in_kernel():
                status, peer = kernels.top_down_levels(
                    *(*self._rank_arguments, labels.distances, parents),
                    *(*exchange.kernel_arguments, record, rows),
                )
                exchange.follow(state.crossing, status, peer, state.level, TOP_DOWN_PHASE)
            table.add(state.done)
            rows = rows[state.done :]
            unfinished = state.phase == CROSS
        scratch.resume_level(state.queue, state.size, state.queued)

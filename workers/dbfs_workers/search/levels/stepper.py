"""The interface of a stepper, and the steppers by which the host directs each step, on any device and exchange.

A top-down level has these phases (Merrill 2012, section 6): *expand* the vertex frontier into the edge frontier,
*filter + partition* what is new into bins by owner, cross, and *contract* the bins of the peers. ``Backend.top_down``
runs the first two as one. If a rank's bins are too small, all ranks take the level in several rounds of these phases.
"""

import time
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.exchange.protocol import Exchange
from dbfs_workers.search.levels.level_table import LevelTable
from dbfs_workers.search.levels.state import CONTRACT, EXPAND, State, end_level, take_sums, watch_target
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.reports import Row
from dbfs_workers.search.reports.crossings import Found, Measured

TOP_DOWN_PHASE = "top-down"
"""The phase of top-down levels, for errors."""


class Stepper(Protocol):
    """What runs a stretch of levels for the loop, in one traversal after another."""

    def run(self, state: State, table: LevelTable) -> None:
        """Run levels, or a step between two levels, and leave the next frontier in the scratch.

        Top-down levels set ``state.measured`` on all ranks if one of them has visited the witness: ``knows_witness``.

        Args:
            state: the traversal; updated.
            table: takes the rows of the levels.

        Raises:
            DeadlineExceededError, RunCancelledError, RunAbortedError, WorkerLostError, StaleRunError: see
                ``Exchange.cross``.
        """
        ...


@dataclass
class RankWork:
    """This rank's labels in the traversal under way. Another traversal has others.

    Attributes:
        labels: the labels.
        target_rows: local ids of this rank's targets, on the device; None for a traversal without targets.
    """

    labels: RankLabels = field(init=False)
    target_rows: NDArray[np.uint32] | None = field(init=False, default=None)

    def count_missing_targets(self) -> int:
        """Return the number of this rank's targets without a label."""
        return 0 if self.target_rows is None else int((self.labels.distances[self.target_rows] < 0).sum())

    def first_witness(self, spec: TraversalSpec) -> int:  # noqa: ARG002
        """Return a target without a label as the traversal begins, the same on all ranks; -1 to measure each level."""
        return -1


@dataclass
class StripeWork(RankWork):
    """What the steppers of a rank of the layout 1d work on.

    Attributes:
        backend: runs the phases.
        scratch: this rank's working memory.
        exchange: this rank's end of the gang's exchange.
    """

    backend: Backend
    scratch: Scratch
    exchange: Exchange

    def first_witness(self, spec: TraversalSpec) -> int:
        """See ``RankWork``. A look at a GPU's bitmap would take as long as a crossing."""
        if self.backend.xp is not np:
            return -1
        sources = set(spec.sources)
        target = next(target for target in spec.targets if target not in sources)
        return int(self.scratch.partition.stripe.internal(target))

    def knows_witness(self, state: State) -> bool:
        """See ``kernels.top_down.knows_witness``."""
        at = state.witness
        return at >= 0 and bool(self.scratch.visited[at >> 5] >> (at & 31) & 1)

    def missing_targets(self, state: State) -> tuple[int, int]:
        """Return the number of this rank's targets without a label; the internal id of one of them plus 1, or 0."""
        if state.witness < 0 or self.target_rows is None:
            return self.count_missing_targets(), 0
        missing = self.target_rows[self.labels.distances[self.target_rows] < 0]
        first = self.exchange.rank * self.scratch.partition.stripe.n_local
        return missing.size, first + int(missing[0]) + 1 if missing.size else 0

    def take(self, state: State, measured: Measured) -> None:
        """Take the counts of a crossing with the exact size of the frontier, and choose a witness by them."""
        take_sums(state, measured.vertices, measured.edges, measured.missing)
        if measured.missing and state.witness >= 0:
            watch_target(state, measured.witness - 1)


@dataclass
class TopDown:
    """A top-down level, or what is left of one: see ``Stepper``."""

    working: StripeWork

    def run(self, state: State, table: LevelTable) -> None:
        """Run a level from its next phase on."""
        row, scratch = table.row(), self.working.scratch
        state.size = scratch.frontier.size
        if state.phase == EXPAND:
            self._expand(state, row)
        self._contract(state, row)
        while state.unfinished:
            self._expand(state, row)
            self._contract(state, row)
        state.by_threads = False
        queued = scratch.queued
        scratch.advance(queued)
        end_level(state, row, queued)
        table.add()

    def _expand(self, state: State, row: Row) -> None:
        """Expand the frontier as far as the bins hold its neighbours, and cross with them."""
        work, level = self.working, state.level
        edges, own, sent, unfinished = work.backend.top_down(work.scratch, work.labels, level + 1, work.exchange)
        work.scratch.queued += own
        row.edges += edges
        row.own += own
        row.sent += sent
        row.search += elapsed(state)
        # By place, since names take half a microsecond, a sixth of a crossing of one rank.
        counts = Found(own + sent, edges, work.knows_witness(state), unfinished)
        found = work.exchange.cross(level, TOP_DOWN_PHASE, counts, sliced=False)
        row.exchange += elapsed(state)
        state.found += found.vertices
        state.inspected += found.edges
        state.measured = state.measured or found.knowing > 0
        state.unfinished = found.unfinished > 0
        state.phase = CONTRACT

    def _contract(self, state: State, row: Row) -> None:
        """Contract the bins of the last crossing."""
        scratch, work = self.working.scratch, self.working
        for rows, parents in work.exchange.incoming():
            row.received += rows.size
            scratch.queued += work.backend.contract(
                rows,
                parents,
                scratch.own_visited,
                state.level + 1,
                work.labels,
                scratch.next_queue,
                team=scratch.team,
            )
        row.contract += elapsed(state)
        state.phase = EXPAND


@dataclass
class BottomUp:
    """A bottom-up level (Beamer 2012, section 3): see ``Stepper``."""

    working: StripeWork

    def run(self, state: State, table: LevelTable) -> None:
        """Search the unvisited rows for parents, and cross with the slices of the next frontier."""
        scratch, exchange = self.working.scratch, self.working.exchange
        row = table.row()
        row.bytes_sent += exchange.slice().nbytes * (exchange.p - 1)
        state.size = scratch.frontier.size
        own, measured = self._search(state, row)
        row.edges, state.inspected = own.searched, measured.searched
        row.own = own.vertices
        scratch.advance(own.vertices)
        end_level(state, row, own.vertices)
        state.degrees = own.edges
        state.sliced = True
        self.working.take(state, measured)
        row.exchange += elapsed(state)
        table.add()

    def _search(self, state: State, row: Row) -> tuple[Measured, Measured]:
        """Search, and cross; return the own counts of the crossing, and those of all ranks."""
        work, found_bits = self.working, self.working.exchange.slice()
        searched, discovered, degrees = work.backend.bottom_up(work.scratch, work.labels, state.level + 1, found_bits)
        row.search += elapsed(state)
        own = Measured(discovered, degrees, *work.missing_targets(state), searched=searched)
        return own, work.exchange.cross(state.level, "bottom-up", own, sliced=True)


@dataclass
class Measure:
    """A crossing between two levels, with the exact size and degrees of the frontier: see ``Stepper``.

    If the next level may be bottom-up, the crossing also carries slices of the frontier's bitmap, ready for that.
    """

    working: StripeWork

    def run(self, state: State, table: LevelTable) -> None:
        """Cross. The time and the bytes count for the level before; those before the first level count for it."""
        work, sliced = self.working, state.adaptive or state.bottom_up
        own, measured = self._cross(state, sliced=sliced)
        state.degrees, state.sliced = own.edges, sliced
        work.take(state, measured)
        row = table.last()
        if sliced:
            row.bytes_sent += work.exchange.slice().nbytes * (work.exchange.p - 1)
        row.exchange += elapsed(state)

    def _cross(self, state: State, *, sliced: bool) -> tuple[Measured, Measured]:
        """Cross; return the own counts of the crossing, and those of all ranks."""
        work, scratch = self.working, self.working.scratch
        degrees = work.backend.edge_count(scratch.partition, scratch.frontier)
        if sliced:
            work.backend.mark(scratch.frontier, work.exchange.slice())
        own = Measured(scratch.frontier.size, degrees, *work.missing_targets(state))
        return own, work.exchange.cross(state.level, "measure", own, sliced=sliced)


@dataclass
class Absorb:
    """The step from slices of the last crossing to the frontier's bitmap; it also marks the frontier visited."""

    working: StripeWork

    def run(self, state: State, table: LevelTable) -> None:  # noqa: ARG002
        """See ``Stepper``. The time counts for the level that follows."""
        scratch, work = self.working.scratch, self.working
        words = scratch.partition.stripe.words_local
        assert scratch.frontier_bits is not None
        for source in range(work.exchange.p):
            own = slice(source * words, (source + 1) * words)
            work.backend.absorb(work.exchange.slice_of(source), scratch.frontier_bits[own], scratch.visited[own])
        state.sliced = False


def elapsed(state: State) -> float:
    """Return the seconds since the last step ended; the next one begins now."""
    before, state.ended = state.ended, time.perf_counter_ns()
    return (state.ended - before) * 1e-9

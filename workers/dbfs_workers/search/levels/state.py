"""The state of a traversal on one rank: one record, whose fields Python and Numba's kernels read and write alike.

``State``, and ``Row`` of ``reports.counts``, show memory of the structured types ``STATE`` and ``ROW``: Python reads
``state.level`` there, and a kernel that was given ``state.record`` reads ``states[0].level``. So nothing is copied
between them. The functions here and in ``direction`` are plain Python; ``record_types`` has Numba compile them.

A traversal runs by *steppers* (``rank_levels``). ``choose`` says which one is next, and ``over`` whether any is.
"""

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import TraversalSpec, require_direction
from dbfs_workers.search.direction import bottom_up_pays, expected_search_share
from dbfs_workers.search.reports import Row
from dbfs_workers.search.reports.counts import structured

WITHOUT_END: Final = 1 << 62
"""The last level of a traversal whose depth has no bound."""

EXPAND: Final = 0
CROSS: Final = 1
CONTRACT: Final = 2
"""The phase of a top-down level that comes next: expand, filter + partition (``EXPAND``); the crossing with the bins is
under way (``CROSS``); the peers' bins are to be contracted (``CONTRACT``)."""

TOP_DOWN: Final = 0
BOTTOM_UP: Final = 1
LED: Final = 2
BY_THREADS: Final = 3
MEASURE: Final = 4
ABSORB: Final = 5
"""What ``choose`` chooses: top-down levels; a bottom-up level; top-down levels led by rank 0; a top-down level, or its
rest, that several threads of this rank share; the crossing with the exact size of the frontier; the assembly of the
frontier's bitmap from the slices of the last crossing."""

# Small levels after which the ranks change to led levels. In a graph of few levels the change costs more than it saves.
_SMALL_LEVELS: Final = 8


class State(ctypes.Structure):
    """One traversal on one rank, between two steps and within them. Make it by ``of``.

    Attributes:
        n: vertices of the graph.
        max_degree: the graph's largest degree.
        last_level: the level at which the traversal ends at the latest.
        entry_bytes: bytes that are sent for an entry of a bin; 0 if they are counted as messages are sent.
        targets: whether the traversal ends when all targets have labels.
        witness: internal id of a target that had no label when it was chosen; -1 for none.
        measured: whether the level in progress is followed by a crossing with the frontier's exact size: the witness
            may have a label, or there is no witness of the targets.
        adaptive: whether each level's direction is chosen.

        level: the level in progress, or the next one; it labels vertices with ``level + 1``.
        bottom_up: direction of the level in progress, or of the next one.
        measuring: whether a crossing with the frontier's exact size comes next.
        sliced: whether the last crossing carried slices of the frontier's bitmap, which are not absorbed yet.
        exact: whether ``frontier`` and ``frontier_edges`` are exact. Else they are upper bounds.
        frontier: over all ranks, vertices of the frontier.
        frontier_edges: over all ranks, the sum of the frontier's degrees; 0 before the first level.
        expanded_edges: over all ranks, the sum of the degrees of the frontier before.
        unexplored_edges: over all ranks, the sum of the degrees of vertices that are not expanded.
        missing_targets: over all ranks, targets without a label.
        search_share: share of the unexplored edges that a bottom-up level is expected to look at.
        led: whether the next level is to be led.
        small: consecutive levels after which the frontier was small enough to be led.
        led_vertices: most vertices of a frontier whose level is led; 0 if no level is.
        led_edges: most edges of such a frontier.
        led_levels: levels of the traversal that were led.

        phase: the phase of a top-down level that comes next.
        found: over all ranks, vertices that the level in progress has found. One that two ranks found counts twice, so
            the number is exact only if it is 0.
        inspected: over all ranks, edges that the level in progress has looked at.
        unfinished: whether a full bin ended the work of any rank early, so that the level takes another round.
        by_threads: whether several threads of this rank share the phase that comes next.
        shared_edges: fewest edges of a frontier that several threads expand; 0 for none.
        shared_entries: fewest entries of a bin that several threads contract; 0 for none.

        reached: vertices of this rank labelled so far.
        edges: sum of the degrees of this rank's expanded vertices.
        degrees: sum of the degrees of this rank's part of the frontier; exact before a bottom-up level only.
        queue, size, queued: the queue with this rank's frontier, the frontier's vertices, and those that the level in
            progress has queued for the next one; kept by kernels.
        done: levels that the last call of a kernel completed.
        number, crossing: the gang's serial number of the run, and the run's last crossing; kept by kernels.
        started, ended: when the first crossing ended, and when the last step did: nanoseconds of the monotonic clock.
        completed: of a batch, sources over all ranks that are swept over, or were traversed from one by one.
    """

    n: int
    max_degree: int
    last_level: int
    entry_bytes: int
    targets: bool
    witness: int
    measured: bool
    adaptive: bool
    level: int
    bottom_up: bool
    measuring: bool
    sliced: bool
    exact: bool
    frontier: int
    frontier_edges: int
    expanded_edges: int
    unexplored_edges: int
    missing_targets: int
    search_share: float
    led: bool
    small: int
    led_vertices: int
    led_edges: int
    led_levels: int
    phase: int
    found: int
    inspected: int
    unfinished: bool
    by_threads: bool
    shared_edges: int
    shared_entries: int
    reached: int
    edges: int
    degrees: int
    queue: int
    size: int
    queued: int
    done: int
    number: int
    crossing: int
    started: int
    ended: int
    completed: int

    @classmethod
    def of(cls, spec: TraversalSpec, n: int, *, in_edges: bool) -> "State":
        """Return the state of a traversal before its sources are known to all ranks.

        Args:
            spec: the traversal.
            n: vertices of the graph.
            in_edges: whether the partition has what bottom-up levels need.

        Raises:
            InvalidOptionError: the direction is unknown, or is bottom-up and ``in_edges`` is False.
        """
        require_direction(spec, in_edges=in_edges)
        state = cls()
        state.n = n
        state.last_level = WITHOUT_END if spec.max_depth is None else min(spec.max_depth, WITHOUT_END)
        state.entry_bytes = 8 if spec.predecessors else 4
        state.targets = bool(spec.targets)
        watch_target(state, -1)
        state.adaptive = spec.direction == "auto" and in_edges
        state.bottom_up = state.measuring = spec.direction == "bottom-up"
        state.exact = True
        state.search_share = expected_search_share()
        return state

    @property
    def record(self) -> NDArray[Any]:
        """STATE[1], the memory of the fields, which kernels take."""
        return np.frombuffer(memoryview(self), STATE)


STATE: Final = structured(State)


def over(state: State) -> bool:
    """Return whether the traversal is over."""
    return state.frontier == 0 or state.level == state.last_level or (state.targets and state.missing_targets == 0)


def choose(state: State) -> int:
    """Return which stepper comes next. Only ``BY_THREADS`` in place of ``TOP_DOWN`` differs between ranks."""
    if state.sliced:
        return ABSORB
    if state.measuring:
        return MEASURE
    if state.bottom_up:
        return BOTTOM_UP
    if state.led:
        return LED
    return BY_THREADS if state.by_threads else TOP_DOWN


def choose_direction(state: State) -> None:
    """Choose the direction of the next level, or have the frontier measured first, by the sums of the last crossing.

    The first level is top-down, since the edges of the sources are not known. A level that threads are to go on with
    may be half done.
    """
    if state.by_threads:
        return
    pays = may_pay(state)
    if state.adaptive:
        state.bottom_up = pays and state.exact
    state.measuring = not state.exact and (pays or state.measured)


def may_pay(state: State) -> bool:
    """Return whether the next level may go bottom-up."""
    return state.adaptive and state.level > 0 and bottom_up_pays(state)


def end_level(state: State, row: Row, queued: int) -> None:
    """End a level, whose row has edges and times, and whose crossings were added to the state.

    Args:
        state: the state.
        row: the level's row.
        queued: vertices of this rank's next frontier.
    """
    row.levels = 1
    row.bottom_up = state.bottom_up
    row.frontier = row.largest_frontier = state.size
    row.filtered = row.edges - row.own - row.sent
    row.culled = row.own + row.received - queued
    row.discovered = queued
    row.bytes_sent += row.sent * state.entry_bytes
    state.reached += queued
    state.size = queued
    state.queue = 1 - state.queue
    state.queued = 0
    state.phase = EXPAND
    state.level += 1
    if state.bottom_up:
        state.edges += state.degrees
        state.expanded_edges = state.frontier_edges
        state.unexplored_edges -= state.frontier_edges
        state.search_share = expected_search_share(state.inspected, state.unexplored_edges)
    else:
        state.edges += row.edges
        state.expanded_edges = state.inspected
        state.unexplored_edges -= state.inspected
    bound_frontier(state, state.found)
    state.small = state.small + 1 if is_small(state) else 0
    state.led = state.small >= _SMALL_LEVELS


def bound_frontier(state: State, found: int) -> None:
    """Take the number of vertices found as the frontier's upper bound, and bound its edges."""
    state.frontier = found
    state.found = state.inspected = 0
    state.exact = False
    state.frontier_edges = int(min(float(found) * state.max_degree, float(state.unexplored_edges)))


def take_sums(state: State, frontier: int, edges: int, missing: int) -> None:
    """Take the exact sums of a crossing over the frontier: its vertices, their degrees, targets without a label."""
    state.frontier, state.frontier_edges, state.missing_targets = frontier, edges, missing
    state.exact = True
    state.measuring = False


def watch_target(state: State, witness: int) -> None:
    """Take a target without a label as the witness. Until it has one, the targets need no count."""
    state.witness = witness
    state.measured = state.targets and witness < 0


def is_small(state: State) -> bool:
    """Return whether the frontier is small enough for a led level, and no bottom-up level may pay."""
    few = state.frontier <= state.led_vertices and state.frontier_edges <= state.led_edges
    return few and not may_pay(state)

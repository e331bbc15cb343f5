"""The kernel of consecutive top-down levels on a CPU: many levels without a return to Python.

A level of a road network has a few hundred vertices, which a rank expands in microseconds. A level that Python directs
takes several microseconds more on each rank, and ranks that share a core take them one after another. The phases come
from ``cpu.kernels.level`` and ``phases``, the crossings from ``kernels.barrier``. The caller makes an envoy's
crossings. Where the threads of a worker share a phase (``cpu_team``), the kernel leaves the level to ``by_host``.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dbfs_workers.base.intrinsics import monotonic_ns
from dbfs_workers.base.jit import INT64, UINT32, int64, kernel, named, void
from dbfs_workers.search.cpu.kernels.level import top_down
from dbfs_workers.search.cpu.kernels.phases import LABELS, contract
from dbfs_workers.search.cpu.kernels.team import is_large
from dbfs_workers.search.exchange.kernels.barrier import CLOCK, CROSSED, END, TO_CROSS, cross
from dbfs_workers.search.exchange.kernels.bins import bin_from, bins_for
from dbfs_workers.search.levels.record_types import ROW, ROWS, STATE, STATES
from dbfs_workers.search.levels.state import (
    CONTRACT,
    CROSS,
    EXPAND,
    TOP_DOWN,
    choose,
    choose_direction,
    end_level,
    over,
)
from dbfs_workers.search.partition.kernels import rows as row_kernels
from dbfs_workers.search.partition.partition import Rows
from dbfs_workers.search.reports.crossings import Found, largest_bits, place

LEVELS: Final = 64
"""Most levels of one call. Progress is shown between calls."""

# A call ends after the level in which this time has passed: nanoseconds.
_LONGEST = 2_000_000

# Places in a rank's record, behind the run's digest.
_FOUND, _INSPECTED, _WITNESS, _UNFINISHED = (
    1 + place(Found, name) for name in ("vertices", "edges", "knowing", "unfinished")
)
_LARGEST = largest_bits(Found)


class Memory(NamedTuple):
    """What a rank's levels work on, beside the labels: see ``Scratch``.

    Attributes:
        rows: the rank's edges.
        even_queue, odd_queue: uint32[n_local], the frontier and its successor, which swap with each level.
        resume: int64[2], see ``top_down``.
        visited: uint32[words], the rank's bitmap of visited vertices.
        own_visited: uint32[words_local], its slice with the rank's own rows.
    """

    rows: Rows
    even_queue: NDArray[np.uint32]
    odd_queue: NDArray[np.uint32]
    resume: NDArray[np.int64]
    visited: NDArray[np.uint32]
    own_visited: NDArray[np.uint32]


MEMORY: Final = named(Memory, row_kernels.ROWS, *(UINT32,) * 2, INT64, *(UINT32,) * 2)


@kernel(types.float64, END, STATE)
def elapsed(end, state):
    """Return the seconds since the last phase ended; the next one begins now."""
    now = monotonic_ns(end.backoff[CLOCK:])
    seconds = (now - state.ended) * 1e-9
    state.ended = now
    return seconds


@kernel(types.boolean, UINT32, STATE)
def knows_witness(visited, state):
    """Return whether the rank has visited the witness: its own row, or a peer's that it has sent."""
    witness = state.witness
    return witness >= 0 and (visited[witness >> 5] >> np.uint32(witness & 31)) & 1 == 1


@kernel(types.boolean, MEMORY, LABELS, END, STATE, ROW)
def expand(memory, labels, end, state, row):
    """Expand the frontier, filter + partition its neighbours, and contract the own bin.

    Returns False, and does nothing, if several threads are to share the phase.
    """
    rows, resume = memory.rows, memory.resume
    queue, next_queue = memory.even_queue, memory.odd_queue
    if state.queue:
        queue, next_queue = next_queue, queue
    frontier = queue[: state.size]
    if resume[1] == 0 and is_large(rows.starts, rows.ends, frontier, resume[0], state.max_degree, state.shared_edges):
        return False
    bins = bins_for(end, state.crossing + 1)
    first = end.rank * rows.starts.size
    edges, own, sent = top_down(
        rows, frontier, resume, first, memory.visited, bins, state.level + 1, labels, next_queue[state.queued :]
    )
    row.edges += edges
    row.own += own
    row.sent += sent
    state.queued += own
    record = end.record
    record[_FOUND], record[_INSPECTED] = own + sent, edges
    record[_UNFINISHED] = resume[0] < frontier.size
    record[_WITNESS] = knows_witness(memory.visited, state)
    row.search += elapsed(end, state)
    state.phase = CROSS
    return True


@kernel(types.UniTuple(int64, 2), END, STATE)
def exchange(end, state):
    """Cross with the bins, or have the caller do so; return as ``kernels.barrier.cross``."""
    state.crossing += 1
    if end.envoy:
        return TO_CROSS, end.rank
    tag = state.number << 32 | state.crossing
    return cross(
        end.words,
        end.stride,
        end.record,
        end.bin_ends,
        tag,
        end.rank,
        end.gathered,
        end.timeout,
        end.backoff,
        _LARGEST,
    )


@kernel(types.boolean, END, STATE, ROW)
def take_counts(end, state, row):
    """Take the counts of a crossing; return False if several threads are to share the contraction."""
    row.exchange += elapsed(end, state)
    p, width = end.bin_ends.size, end.record.size + 1
    state.found += end.gathered[p * width + _FOUND]
    state.inspected += end.gathered[p * width + _INSPECTED]
    state.unfinished = end.gathered[p * width + _UNFINISHED] > 0
    if end.gathered[p * width + _WITNESS]:
        state.measured = True
    state.phase = CONTRACT
    most = 0
    for source in range(p):
        most = max(most, end.gathered[source * width + width - 1])
    return state.shared_entries == 0 or most < state.shared_entries


@kernel(void, MEMORY, LABELS, END, STATE, ROW)
def contract_bins(memory, labels, end, state, row):
    """Contract the bins of the peers: label what is new in them, and queue it."""
    p, width = end.bin_ends.size, end.record.size + 1
    next_queue = memory.even_queue if state.queue else memory.odd_queue
    for source in range(p):
        received = end.gathered[source * width + width - 1]
        if received:
            row.received += received
            rows, parents = bin_from(end, source, state.crossing, received)
            queue, distance, visited = next_queue[state.queued :], state.level + 1, memory.own_visited
            state.queued += contract(rows, parents, visited, distance, labels.distances, labels.predecessors, queue)
    row.contract += elapsed(end, state)
    state.phase = EXPAND


@kernel(types.UniTuple(int64, 2), MEMORY, LABELS, END, STATES, ROWS)
def top_down_levels(memory, labels, end, states, rows):
    """Run top-down levels until the traversal ends, another stepper is due, or the call has lasted long enough.

    A level's phases are those of Merrill 2012, section 6. A call begins with the phase that the state names.

    Args:
        memory: what the levels work on; updated.
        labels: the rank's labels; updated.
        end: the rank's end of the exchange.
        states: ``State.record``, updated.
        rows: ROW[LEVELS], a row a level of this call; updated.

    Returns:
        (CROSSED, p): ``done`` levels are complete, and the traversal is over or another stepper may be due. Otherwise
        (TO_CROSS, rank), or what ``kernels.barrier.cross`` returned: the caller finishes the crossing and calls again.
    """
    state = states[0]
    crossed = CROSSED, end.bin_ends.size
    begun = monotonic_ns(end.backoff[CLOCK:])
    state.done = 0
    while True:
        row = rows[state.done]
        if state.phase == EXPAND:
            if not expand(memory, labels, end, state, row):
                state.by_threads = True
                return crossed
            status, peer = exchange(end, state)
            if status != CROSSED:
                return status, peer
        if state.phase == CROSS and not take_counts(end, state, row):
            state.by_threads = True
            return crossed
        contract_bins(memory, labels, end, state, row)
        if state.unfinished:
            continue
        memory.resume[0] = memory.resume[1] = 0
        end_level(state, row, state.queued)
        choose_direction(state)
        state.done += 1
        if over(state) or choose(state) != TOP_DOWN or state.done == rows.size or state.ended - begun > _LONGEST:
            return crossed

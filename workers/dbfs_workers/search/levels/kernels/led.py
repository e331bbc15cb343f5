"""The kernels of led levels: one rank expands the frontier of all ranks, and writes a log that each owner replays.

The log of a rank has the rows that the leader discovered there, in the order of levels, and beside each the internal id
of its parent. Before the first row of a level stands a mark: the highest bit, and the number of the level, counted from
the first led one. A row is below 2^31, since led levels need two ranks.

An edge costs 4 bytes of columns and one probed bit; only discoveries are written.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numba.extending import register_jitable
from numpy.typing import NDArray

from dbfs_workers.base.intrinsics import load_acquire
from dbfs_workers.base.jit import INT32, INT64, READ_UINT32, UINT32, int64, kernel, named, void
from dbfs_workers.search.cpu.kernels.phases import claim
from dbfs_workers.search.cpu.kernels.walk import walk
from dbfs_workers.search.exchange.kernels.barrier import END, RUN_SHIFT
from dbfs_workers.search.exchange.segment import ABORT
from dbfs_workers.search.levels.kernels.consecutive import elapsed, knows_witness
from dbfs_workers.search.levels.record_types import ROW, ROWS, STATE, STATES
from dbfs_workers.search.levels.state import choose_direction, end_level, over
from dbfs_workers.search.partition.kernels import rows as row_kernels
from dbfs_workers.search.partition.partition import Rows

LEVELS: Final = 256
"""Most levels of one call. Progress is shown between calls, and lost peers are looked for."""

# A call ends after the level in which this time has passed: nanoseconds.
_LONGEST = 2_000_000

HYSTERESIS: Final = 2
"""Led levels end before a level with so many times as many vertices or edges, so that ranks change seldom."""

_MARK = np.uint32(1 << 31)


class Memory(NamedTuple):
    """What the leader's levels work on, for all ranks, by internal id.

    Attributes:
        rows: the adjacency lists: see ``shared_rows.HostRows``.
        even_queue, odd_queue: uint32, the frontier and its successor, which swap; each has room for the
            most vertices and edges of a level.
        visited: uint32[words], a bit for each visited vertex.
    """

    rows: Rows
    even_queue: NDArray[np.uint32]
    odd_queue: NDArray[np.uint32]
    visited: NDArray[np.uint32]


class Logs(NamedTuple):
    """The logs of all ranks. They lie in place of the bins, and end where ``End.bin_ends`` says.

    Attributes:
        words: words of a log's rows; as many words of parents follow them.
        marked: int64[p], the last level with a mark in each rank's log, -1 at first.
        first_level: the first led level.
        predecessors: whether parents are written.
        n_local: rows of a rank.
        inverse: 1 / n_local. A product takes less time than a quotient.
    """

    words: int
    marked: NDArray[np.int64]
    first_level: int
    predecessors: bool
    n_local: int
    inverse: float


MEMORY: Final = named(Memory, row_kernels.ROWS, *(UINT32,) * 3)
LOGS: Final = named(Logs, int64, INT64, int64, types.boolean, int64, types.float64)


@kernel(types.boolean, LOGS, END, STATE)
def are_over(logs, end, state):
    """Return whether led levels are over: the traversal is, or the next level is too large to be led, or for a log."""
    fullest = 0
    for log_end in end.bin_ends:
        fullest = max(fullest, log_end)
    most = state.frontier_edges
    return (
        over(state)
        or state.measuring
        or state.size > HYSTERESIS * state.led_vertices
        or most > HYSTERESIS * state.led_edges
        # A log takes a mark and at most all rows of its owner.
        or 1 + min(most, logs.n_local) > logs.words - fullest
    )


@kernel(void, LOGS, END, int64, types.uint32, types.uint32)
def append(logs, end, level, u, parent):
    """Append a vertex to its owner's log, after a mark if it is the first one of the level there."""
    # The half keeps rounding away from whole numbers.
    owner = np.int64((u + 0.5) * logs.inverse)
    at = owner * end.body_words + end.bin_ends[owner]
    if logs.marked[owner] != level:
        logs.marked[owner] = level
        end.bodies[at] = _MARK | np.uint32(level - logs.first_level)
        end.bin_ends[owner] += 1
        at += 1
    end.bodies[at] = np.uint32(np.int64(u) - owner * logs.n_local)
    if logs.predecessors:
        end.bodies[at + logs.words] = parent
    end.bin_ends[owner] += 1


@register_jitable
def lead(to, found, vertex, u):
    """Queue a new vertex of any rank, and append it to its owner's log: a visit of ``walk``."""
    visited, logs, end, level, next_queue = to
    if claim(visited, u):
        append(logs, end, level, u, vertex)
        next_queue[found] = u
        found += 1
    return True, found


@kernel(void, MEMORY, LOGS, END, STATE, ROW)
def expand(memory, logs, end, state, row):
    """Expand the frontier of all ranks: queue each neighbour that is new, and append it to its owner's log."""
    queue, next_queue = memory.even_queue, memory.odd_queue
    if state.queue:
        queue, next_queue = next_queue, queue
    to = memory.visited, logs, end, state.level, next_queue
    _, _, edges, found = walk(memory.rows, queue[: state.size], 0, 0, lead, to, 0)
    row.edges, row.own, row.led = edges, found, 1
    row.search = elapsed(end, state)
    state.found, state.inspected = found, edges
    state.measured = knows_witness(memory.visited, state)


@kernel(types.boolean, MEMORY, LOGS, END, STATES, ROWS)
def led_levels(memory, logs, end, states, rows):
    """Run levels until they are over for the leader, the run is aborted, or the call has lasted long enough.

    Args:
        memory: what the levels work on; updated.
        logs: the logs of all ranks; updated.
        end: the leader's end of the exchange; ``bin_ends`` is updated.
        states: ``State.record``, updated. Its queue is of all ranks.
        rows: ROW[LEVELS], a row a level of this call, over all ranks; updated.

    Returns:
        Whether led levels are over. ``done`` levels of this call are complete.
    """
    state = states[0]
    state.done = 0
    begun = state.ended
    while not are_over(logs, end, state):
        if (
            state.done == rows.size
            or state.ended - begun > _LONGEST
            or load_acquire(end.words, ABORT) >> RUN_SHIFT == state.number
        ):
            return False
        row = rows[state.done]
        expand(memory, logs, end, state, row)
        end_level(state, row, row.own)
        choose_direction(state)
        state.done += 1
    return True


@kernel(types.UniTuple(int64, 2), READ_UINT32, READ_UINT32, int64, int64, UINT32, INT32, UINT32, UINT32)
def replay(rows, parents, first_level, last_level, own_visited, distances, predecessors, queue):
    """Label the rows of a rank's log, and mark them visited; write those of the last level into ``queue``.

    Args:
        rows, parents: the log, up to its end.
        first_level: the first led level.
        last_level: the last one.
        own_visited, distances, predecessors: see ``cpu.kernels.phases.contract``; updated.
        queue: uint32[n_local], the next frontier.

    Returns:
        Rows labelled, and rows in the queue.
    """
    level = first_level
    found = 0
    queued = 0
    for i in range(rows.size):
        row = rows[i]
        if row & _MARK:
            level = first_level + np.int64(row ^ _MARK)
            continue
        own_visited[row >> np.uint32(5)] |= np.uint32(1) << (row & np.uint32(31))
        distances[row] = level + 1
        if predecessors.size:
            predecessors[row] = parents[i]
        found += 1
        if level == last_level:
            queue[queued] = row
            queued += 1
    return found, queued


@kernel(void, READ_UINT32, UINT32)
def join(bits, visited):
    """Add the bits of a bitmap to another one of the same size."""
    for w in range(bits.size):
        visited[w] |= bits[w]

"""The kernels of led levels: one rank expands the frontier of all ranks, and writes a log that each owner replays.

The log of a rank has the rows that the leader discovered there, in the order of levels, and beside each the internal id
of its parent. Before the first row of a level stands a mark: the highest bit, and the number of the level, counted from
the first led one. A row is below 2^31, since led levels need two ranks.

An edge costs 4 bytes of columns and one probed bit; only discoveries are written.
"""

from typing import Final

import numpy as np
from numba import types

from dbfs_workers.backends.cpu_resident_kernels import COLUMNS_AHEAD, OFFSETS_AHEAD
from dbfs_workers.exchange.barrier_kernels import RUN_SHIFT
from dbfs_workers.exchange.segment import ABORT
from dbfs_workers.intrinsics import load_acquire, monotonic_ns, prefetch
from dbfs_workers.jit import INT32, INT64, READ_INT64, READ_UINT32, UINT32, int64, kernel, void
from dbfs_workers.levels.record_types import ROWS, STATES
from dbfs_workers.levels.state import end_level, over, turn

LEVELS: Final = 256
"""Most levels of one call. Progress is shown between calls, and lost peers are looked for."""

# A call ends after the level in which this time has passed: nanoseconds.
_LONGEST = 2_000_000

HYSTERESIS: Final = 2
"""Led levels end before a level with so many times as many vertices or edges, so that ranks change seldom."""

_MARK = np.uint32(1 << 31)


@kernel(
    types.boolean,
    READ_INT64,
    READ_UINT32,
    int64,
    UINT32,
    UINT32,
    UINT32,
    UINT32,
    int64,
    int64,
    types.boolean,
    INT64,
    INT64,
    INT64,
    int64,
    STATES,
    ROWS,
    INT64,
)
def led_levels(
    row_offsets,
    columns,
    n_local,
    visited,
    even_queue,
    odd_queue,
    bodies,
    body_words,
    log_words,
    predecessors,
    marked,
    log_ends,
    words,
    first_level,
    states,
    rows,
    clock,
):
    """Run levels until they are over for the leader, the run is aborted, or the call has lasted long enough.

    Args:
        row_offsets, columns: the adjacency lists of all ranks, by internal id: see ``shared_rows.HostRows``.
        n_local: rows of a rank.
        visited: uint32[words], a bit for each visited internal id; updated.
        even_queue, odd_queue: uint32, internal ids of the frontier and of its successor in turn; with room for the
            most vertices and edges of a level.
        bodies, body_words: the bodies of all ranks, and the words of each: see ``segment``.
        log_words: words of a log's rows; as many words of parents follow them.
        predecessors: whether parents are written.
        marked: int64[p], the last level with a mark in each rank's log, -1 at first; updated.
        log_ends: int64[p], the end of each rank's log; updated.
        words: the head of the segment.
        first_level: the first led level.
        states: ``State.record``, updated. Its queue is of all ranks.
        rows: ROW[LEVELS], a row a level of this call, over all ranks; updated.
        clock: int64[2], scratch space.

    Returns:
        Whether led levels are over. ``done`` levels of this call are complete.
    """
    state = states[0]
    # A product instead of a quotient, which takes longer. The half keeps rounding away from whole numbers.
    inverse = 1.0 / n_local
    state.done = 0
    begun = state.ended
    while True:
        level, frontier, most = state.level, state.size, state.frontier_edges
        room = log_words
        for owner in range(log_ends.size):
            room = min(room, log_words - log_ends[owner])
        if (
            over(state)
            or state.measuring
            or frontier > HYSTERESIS * state.led_vertices
            or most > HYSTERESIS * state.led_edges
            # A log takes a mark and at most all rows of its owner.
            or 1 + min(most, n_local) > room
        ):
            return True
        if (
            state.done == rows.size
            or state.ended - begun > _LONGEST
            or load_acquire(words, ABORT) >> RUN_SHIFT == state.number
        ):
            return False
        queue, found_queue = (odd_queue, even_queue) if state.queue else (even_queue, odd_queue)
        mark = _MARK | np.uint32(level - first_level)
        edges = 0
        found = 0
        for i in range(frontier):
            if i + OFFSETS_AHEAD < frontier:
                prefetch(row_offsets, np.int64(queue[i + OFFSETS_AHEAD]))
            if i + COLUMNS_AHEAD < frontier:
                prefetch(columns, row_offsets[queue[i + COLUMNS_AHEAD]])
            vertex = queue[i]
            start, stop = row_offsets[vertex], row_offsets[np.int64(vertex) + 1]
            edges += stop - start
            for k in range(start, stop):
                u = columns[k]
                word = visited[u >> np.uint32(5)]
                bit = np.uint32(1) << (u & np.uint32(31))
                if word & bit:
                    continue
                visited[u >> np.uint32(5)] = word | bit
                owner = np.int64((u + 0.5) * inverse)
                at = owner * body_words + log_ends[owner]
                if marked[owner] != level:
                    marked[owner] = level
                    bodies[at] = mark
                    log_ends[owner] += 1
                    at += 1
                bodies[at] = np.uint32(np.int64(u) - owner * n_local)
                if predecessors:
                    bodies[at + log_words] = vertex
                log_ends[owner] += 1
                found_queue[found] = u
                found += 1
        row = rows[state.done]
        row.edges = edges
        row.own = found
        row.led = 1
        now = monotonic_ns(clock)
        row.search = (now - state.ended) * 1e-9
        state.ended = now
        state.found, state.inspected = found, edges
        end_level(state, row, found)
        turn(state)
        state.done += 1


@kernel(types.UniTuple(int64, 2), READ_UINT32, READ_UINT32, int64, int64, UINT32, INT32, UINT32, UINT32)
def replay(rows, parents, first_level, last_level, own_visited, distances, predecessors, queue):
    """Label the rows of a rank's log, and mark them visited; write those of the last level into ``queue``.

    Args:
        rows, parents: the log, up to its end.
        first_level: the first led level.
        last_level: the last one.
        own_visited, distances, predecessors: see ``cpu_kernels.contract``; updated.
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

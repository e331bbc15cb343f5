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
from dbfs_workers.jit import FLOAT64, INT32, INT64, READ_INT64, READ_UINT32, UINT32, int64, kernel, void
from dbfs_workers.reports import COUNT_FIELDS, TIME_FIELDS

LEVELS: Final = 256
"""Most levels of one call. Progress is shown between calls, and lost peers are looked for."""

# A call ends after the level in which this time has passed: nanoseconds.
_LONGEST = 2_000_000

_MARK = np.uint32(1 << 31)

# Places in ``state``, int64[STATE]. The caller sets those up to NUMBER before the first call of consecutive led levels.
LEVEL = 0  # the level in progress, or the next one
QUEUE = 1  # the queue with the frontier, 0 or 1
FRONTIER = 2  # vertices of the frontier, of all ranks
UNEXPLORED = 3  # over all ranks, the sum of the degrees of vertices that are not expanded
LAST_LEVEL = 4  # the level at which the traversal ends at the latest
ADAPTIVE = 5  # 1 if levels may be bottom-up
MAX_DEGREE = 6  # the graph's largest degree
MOST_VERTICES = 7  # led levels end before a level of more vertices
MOST_EDGES = 8  # led levels end before a level that may have more edges
FIRST = 9  # the first led level
NUMBER = 10  # the gang's serial number of the run
ENDED = 11  # when the last level ended, in nanoseconds of the monotonic clock
DONE = 12  # levels of this call
EXPANDED_EDGES = 13  # edges of the last level
MAY_TURN = 14  # 1 if a bottom-up level may pay now
OVER = 15  # 1 if the led levels are over
STATE: Final = 16

COUNTED: Final = len(COUNT_FIELDS)
TIMED: Final = len(TIME_FIELDS)


@kernel(
    void,
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
    types.float64,
    types.float64,
    INT64,
    INT64,
    FLOAT64,
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
    share,
    least_edges,
    state,
    counts,
    seconds,
    clock,
):
    """Run levels until they are over for the leader, the run is aborted, or the call has lasted long enough.

    Args:
        row_offsets, columns: the adjacency lists of all ranks, by internal id: see ``shared_rows.HostRows``.
        n_local: rows of a rank.
        visited: uint32[words], a bit for each visited internal id; updated.
        even_queue, odd_queue: uint32[MOST_EDGES] or longer, internal ids of the frontier and of its successor in turn.
        bodies, body_words: the bodies of all ranks, and the words of each: see ``segment``.
        log_words: words of a log's rows; as many words of parents follow them.
        predecessors: whether parents are written.
        marked: int64[p], the last level with a mark in each rank's log, -1 at first; updated.
        log_ends: int64[p], the end of each rank's log; updated.
        words: the head of the segment.
        share, least_edges: see ``level_kernels.top_down_levels``.
        state: int64[STATE], updated.
        counts: int64[LEVELS * COUNTED], a row a level of this call, over all ranks.
        seconds: float64[LEVELS * TIMED], a row a level of this call.
        clock: int64[2], scratch space.
    """
    # A product instead of a quotient, which takes longer. The half keeps rounding away from whole numbers.
    inverse = 1.0 / n_local
    state[DONE] = 0
    begun = state[ENDED]
    while True:
        level, frontier = state[LEVEL], state[FRONTIER]
        most = min(frontier * state[MAX_DEGREE], state[UNEXPLORED])
        room = log_words
        for owner in range(log_ends.size):
            room = min(room, log_words - log_ends[owner])
        if (
            frontier == 0
            or level == state[LAST_LEVEL]
            or state[MAY_TURN] == 1
            or frontier > state[MOST_VERTICES]
            or most > state[MOST_EDGES]
            # A log takes a mark and at most all rows of its owner.
            or 1 + min(most, n_local) > room
        ):
            state[OVER] = 1
            return
        if (
            state[DONE] == LEVELS
            or state[ENDED] - begun > _LONGEST
            or load_acquire(words, ABORT) >> RUN_SHIFT == state[NUMBER]
        ):
            return
        queue, found_queue = (odd_queue, even_queue) if state[QUEUE] else (even_queue, odd_queue)
        mark = _MARK | np.uint32(level - state[FIRST])
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
        row = state[DONE] * COUNTED
        # In the order of COUNT_FIELDS.
        counts[row] = 0
        counts[row + 1] = frontier
        counts[row + 2] = edges
        counts[row + 3] = edges - found
        counts[row + 4] = found
        counts[row + 5] = counts[row + 6] = 0
        counts[row + 7] = found
        counts[row + 8] = 0
        now = monotonic_ns(clock)
        row = state[DONE] * TIMED
        seconds[row], seconds[row + 1], seconds[row + 2] = (now - state[ENDED]) * 1e-9, 0, 0
        state[ENDED] = now
        remaining = state[UNEXPLORED] - edges
        state[UNEXPLORED], state[EXPANDED_EDGES] = remaining, edges
        bound = min(types.float64(found) * state[MAX_DEGREE], types.float64(remaining))
        state[MAY_TURN] = state[ADAPTIVE] and bound > (remaining - bound) * share + least_edges
        state[FRONTIER] = found
        state[QUEUE] = 1 - state[QUEUE]
        state[LEVEL] = level + 1
        state[DONE] += 1


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

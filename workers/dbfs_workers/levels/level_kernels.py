"""The kernel of consecutive top-down levels on a CPU: many levels without a return to Python.

A level of a road network has a few hundred vertices, which a rank expands in microseconds. A level that Python directs
takes several microseconds more on each rank, and ranks that share a core take them one after another. The phases come
from ``cpu_resident_kernels`` and ``cpu_kernels``, the crossings from ``barrier_kernels``. The caller makes an envoy's
crossings. The caller expands a level, or contracts its bins, where the threads of a worker share that work
(``cpu_team``).
"""

from typing import Final

from numba import types

from dbfs_workers.backends.cpu_kernels import contract
from dbfs_workers.backends.cpu_resident_kernels import top_down
from dbfs_workers.backends.cpu_team_kernels import is_large
from dbfs_workers.exchange.barrier_kernels import CROSSED, TO_CROSS, cross
from dbfs_workers.intrinsics import monotonic_ns
from dbfs_workers.jit import FLOAT64, INT32, INT64, READ_INT64, READ_UINT32, UINT32, int64, kernel
from dbfs_workers.reports import COUNT_FIELDS, TIME_FIELDS

LEVELS: Final = 64
"""Most levels of one call. Progress is shown between calls."""

# A call ends after the level in which this time has passed: nanoseconds.
_LONGEST = 2_000_000

# Places in ``state``, int64[STATE]. The caller sets those up to DONE before the first call of a traversal's consecutive
# levels. The kernel keeps the others.
LEVEL = 0  # the level in progress, or the next one
QUEUE = 1  # the queue with the frontier, 0 or 1
FRONTIER = 2  # vertices of this rank's frontier
CROSSING = 3  # the last crossing of the run
NUMBER = 4  # the gang's serial number of the run
ENDED = 5  # when the last step ended, in nanoseconds of the monotonic clock
UNEXPLORED = 6  # over all ranks, the sum of the degrees of vertices that are not expanded
LAST_LEVEL = 7  # the level at which the traversal ends at the latest
MEASURED = 8  # 1 if every level is followed by a crossing with the frontier's exact size
ADAPTIVE = 9  # 1 if levels may be bottom-up
MAX_DEGREE = 10  # the graph's largest degree
LED_VERTICES = 11  # most vertices of a frontier whose level is led: see ``led_levels``; 0 if no level is
LED_EDGES = 12  # most edges of such a frontier
SHARED_EDGES = 13  # fewest edges of a frontier that the caller expands, by several threads; 0 for none
SHARED_ENTRIES = 14  # fewest entries of a bin with which the caller contracts the bins, by several threads; 0 for none
DONE = 15  # levels of these calls
FOUND = 16  # over all ranks, vertices of the next frontier, or more
EXPANDED_EDGES = 17  # over all ranks, edges of the last level
MAY_TURN = 18  # 1 if a bottom-up level may pay now
LED = 19  # 1 if the next level is to be led
# Counts and times of the level in progress, on this rank:
EDGES, OWN, SENT, RECEIVED, QUEUED, SEARCHING, WAITING, CONTRACTING = 20, 21, 22, 23, 24, 25, 26, 27
SMALL = 28  # consecutive levels after which the frontier was small enough to be led
AWAITED = 29  # 1 while a crossing is unfinished
# NOT_SHARED; or TO_EXPAND: the caller is to expand the frontier, and to set the next three places and EXPANDED; or
# TO_CONTRACT: the caller is to contract the bins of the last crossing, and to update RECEIVED, QUEUED and CONTRACTED.
SHARED = 30
SHARED_INSPECTED, SHARED_OWN, SHARED_SENT = 31, 32, 33  # what ``Backend.top_down`` returned
# Of this rank, in all levels of these calls: edges expanded and vertices discovered. Zero before the first call.
ALL_EDGES, ALL_DISCOVERED = 34, 35
STATE: Final = 36

NOT_SHARED, TO_EXPAND, EXPANDED, TO_CONTRACT, CONTRACTED = 0, 1, 2, 3, 4

# Small levels after which the ranks change to led levels. In a graph of few levels the change costs more than it saves.
_SMALL_LEVELS = 8

COUNTED: Final = len(COUNT_FIELDS)
TIMED: Final = len(TIME_FIELDS)
# Place of a rank's unfinished work among its counts of a crossing, after the run's digest.
_UNFINISHED = 4


@kernel(
    types.UniTuple(int64, 2),
    READ_INT64,
    READ_INT64,
    READ_UINT32,
    UINT32,
    UINT32,
    INT64,
    UINT32,
    INT32,
    UINT32,
    UINT32,
    int64,
    int64,
    INT64,
    int64,
    INT64,
    INT64,
    int64,
    INT64,
    READ_INT64,
    INT64,
    int64,
    types.float64,
    types.float64,
    INT64,
    INT64,
    FLOAT64,
)
def top_down_levels(
    starts,
    ends,
    columns,
    even_queue,
    odd_queue,
    resume,
    visited,
    distances,
    predecessors,
    bodies,
    body_words,
    entries,
    words,
    stride,
    record,
    bin_ends,
    rank,
    gathered,
    timeout,
    backoff,
    envoy,
    share,
    least_edges,
    state,
    counts,
    seconds,
):
    """Run top-down levels until the traversal ends, another kind of level may pay, or the call has lasted long enough.

    Args:
        starts, ends, columns: the rank's edges: see ``partition.Rows``.
        even_queue, odd_queue: uint32[n_local], the frontier and its successor in turn.
        resume: int64[2], see ``top_down``.
        visited: uint32[words], the rank's bitmap of visited vertices.
        distances, predecessors: the rank's labels; empty predecessors mean none.
        bodies, body_words, entries: the bodies of all ranks, the words of each, and the entries of a bin: see
            ``segment``.
        words, stride, record, rank, gathered, timeout, backoff: see ``barrier_kernels.wait``.
        bin_ends: see ``barrier_kernels.cross``.
        envoy: 1 if the rank exchanges frames with other hosts, else 0.
        share, least_edges: a bottom-up level may pay if the frontier's edges are more than that share of the other
            unexplored edges, and ``least_edges`` on top: see ``direction``.
        state: int64[STATE], updated.
        counts: int64[LEVELS * COUNTED], a row a level of this call.
        seconds: float64[LEVELS * TIMED], a row a level of this call.

    Returns:
        (CROSSED, p): ``state[DONE]`` levels are complete. If ``state[SHARED]`` is TO_EXPAND or TO_CONTRACT, the
        caller does that for the next level, and calls again.
        Otherwise (TO_CROSS, rank), or what ``barrier_kernels.cross`` returned: the caller finishes the crossing and
        calls again.
    """
    n_local = starts.size
    own_words = visited.size // bin_ends.size
    own_visited = visited[rank * own_words : (rank + 1) * own_words]
    p = bin_ends.size
    size = record.size
    bins = p * entries
    sums = p * (size + 1)
    begun = monotonic_ns(backoff[1:])
    while True:
        level = state[LEVEL]
        frontier_queue, next_queue = (odd_queue, even_queue) if state[QUEUE] else (even_queue, odd_queue)
        if state[AWAITED] == 0 and state[SHARED] != CONTRACTED:
            frontier = frontier_queue[: state[FRONTIER]]
            body = rank * body_words + ((state[CROSSING] + 1) & 1) * bins
            if state[SHARED] == EXPANDED:
                edges, own, sent = state[SHARED_INSPECTED], state[SHARED_OWN], state[SHARED_SENT]
                state[SHARED] = NOT_SHARED
            elif resume[1] == 0 and is_large(starts, ends, frontier, resume[0], state[MAX_DEGREE], state[SHARED_EDGES]):
                state[SHARED] = TO_EXPAND
                return CROSSED, p
            else:
                edges, own, sent = top_down(
                    starts,
                    ends,
                    columns,
                    frontier,
                    resume,
                    rank * n_local,
                    visited,
                    bodies[body : body + bins],
                    bodies[body + 2 * bins : body + 3 * bins],
                    bin_ends,
                    level + 1,
                    distances,
                    predecessors,
                    next_queue[state[QUEUED] :],
                )
            state[EDGES] += edges
            state[OWN] += own
            state[SENT] += sent
            state[QUEUED] += own
            record[1] = own + sent
            record[2] = edges
            record[3] = 0
            record[_UNFINISHED] = resume[0] < frontier.size
            record[5] = 0
            now = monotonic_ns(backoff[1:])
            state[SEARCHING] += now - state[ENDED]
            state[ENDED] = now
            state[CROSSING] += 1
            state[AWAITED] = 1
            tag = state[NUMBER] << 32 | state[CROSSING]
            if envoy:
                return TO_CROSS, rank
            status, peer = cross(
                words,
                stride,
                record,
                bin_ends,
                tag,
                rank,
                gathered,
                timeout,
                backoff,
            )
            if status != CROSSED:
                return status, peer
        if state[SHARED] == CONTRACTED:
            state[SHARED] = NOT_SHARED
        else:
            state[AWAITED] = 0
            now = monotonic_ns(backoff[1:])
            state[WAITING] += now - state[ENDED]
            state[ENDED] = now
            # A vertex that two ranks found counts twice in the first sum. A sum of 0 is exact, and ends the traversal.
            state[FOUND] += gathered[sums + 1]
            state[EXPANDED_EDGES] += gathered[sums + 2]
            most = 0
            for source in range(p):
                most = max(most, gathered[source * (size + 1) + size])
            if state[SHARED_ENTRIES] and most >= state[SHARED_ENTRIES]:
                state[SHARED] = TO_CONTRACT
                return CROSSED, p
            for source in range(p):
                received = gathered[source * (size + 1) + size]
                if received:
                    state[RECEIVED] += received
                    body = source * body_words + (state[CROSSING] & 1) * bins + rank * entries
                    state[QUEUED] += contract(
                        bodies[body : body + received],
                        bodies[body + 2 * bins : body + 2 * bins + received],
                        own_visited,
                        level + 1,
                        distances,
                        predecessors,
                        next_queue[state[QUEUED] :],
                    )
        now = monotonic_ns(backoff[1:])
        state[CONTRACTING] += now - state[ENDED]
        state[ENDED] = now
        if gathered[sums + _UNFINISHED]:
            continue

        row = state[DONE] * COUNTED
        # In the order of COUNT_FIELDS.
        counts[row] = 0
        counts[row + 1] = state[FRONTIER]
        counts[row + 2] = state[EDGES]
        counts[row + 3] = state[EDGES] - state[OWN] - state[SENT]
        counts[row + 4] = state[OWN]
        counts[row + 5] = state[SENT]
        counts[row + 6] = state[OWN] + state[RECEIVED] - state[QUEUED]
        counts[row + 7] = state[QUEUED]
        counts[row + 8] = state[SENT] * (8 if predecessors.size else 4)
        row = state[DONE] * TIMED
        seconds[row], seconds[row + 1] = state[SEARCHING] * 1e-9, state[WAITING] * 1e-9
        seconds[row + 2] = state[CONTRACTING] * 1e-9

        remaining = state[UNEXPLORED] - state[EXPANDED_EDGES]
        state[UNEXPLORED] = remaining
        edges = min(types.float64(state[FOUND]) * state[MAX_DEGREE], types.float64(remaining))
        state[MAY_TURN] = state[ADAPTIVE] and edges > (remaining - edges) * share + least_edges
        if state[MAY_TURN] == 0 and state[FOUND] <= state[LED_VERTICES] and edges <= types.float64(state[LED_EDGES]):
            state[SMALL] += 1
        else:
            state[SMALL] = 0
        state[LED] = state[SMALL] >= _SMALL_LEVELS
        over = state[FOUND] == 0 or state[MEASURED] == 1 or state[MAY_TURN] == 1 or state[LED] == 1
        state[LEVEL] = level + 1
        state[DONE] += 1
        state[ALL_EDGES] += state[EDGES]
        state[ALL_DISCOVERED] += state[QUEUED]
        state[FRONTIER] = state[QUEUED]
        state[QUEUE] = 1 - state[QUEUE]
        resume[0] = resume[1] = 0
        state[EDGES] = state[OWN] = state[SENT] = state[RECEIVED] = state[QUEUED] = 0
        state[SEARCHING] = state[WAITING] = state[CONTRACTING] = 0
        if over or state[LEVEL] == state[LAST_LEVEL] or state[DONE] == LEVELS or now - begun > _LONGEST:
            return CROSSED, p
        state[FOUND] = state[EXPANDED_EDGES] = 0

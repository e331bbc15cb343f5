"""The kernel of consecutive top-down levels on a CPU: many levels without a return to Python.

A level of a road network has a few hundred vertices, which a rank expands in microseconds. A level that Python directs
takes several microseconds more on each rank, and ranks that share a core take them one after another. The phases come
from ``cpu_resident_kernels`` and ``cpu_kernels``, the crossings from ``barrier_kernels``. The caller makes an envoy's
crossings. Where the threads of a worker share a phase (``cpu_team``), the kernel leaves the level to ``by_host``.
"""

from typing import Final

from numba import types

from dbfs_workers.backends.cpu_kernels import contract
from dbfs_workers.backends.cpu_resident_kernels import top_down
from dbfs_workers.backends.cpu_team_kernels import is_large
from dbfs_workers.exchange.barrier_kernels import CROSSED, TO_CROSS, cross
from dbfs_workers.intrinsics import monotonic_ns
from dbfs_workers.jit import INT32, INT64, READ_INT64, READ_UINT32, UINT32, int64, kernel
from dbfs_workers.levels.record_types import ROWS, STATES
from dbfs_workers.levels.state import CONTRACT, CROSS, EXPAND, TOP_DOWN, choose, end_level, over, turn

LEVELS: Final = 64
"""Most levels of one call. Progress is shown between calls."""

# A call ends after the level in which this time has passed: nanoseconds.
_LONGEST = 2_000_000

# Places among a rank's counts of a crossing, after the run's digest.
_FOUND, _INSPECTED, _UNUSED, _UNFINISHED, _UNUSED_TOO = 1, 2, 3, 4, 5


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
    STATES,
    ROWS,
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
    states,
    rows,
):
    """Run top-down levels until the traversal ends, another stepper is due, or the call has lasted long enough.

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
        states: ``State.record``, updated.
        rows: ROW[LEVELS], a row a level of this call; updated.

    Returns:
        (CROSSED, p): ``done`` levels are complete, and the traversal is over or another stepper may be due. Otherwise
        (TO_CROSS, rank), or what ``barrier_kernels.cross`` returned: the caller finishes the crossing and calls again.
    """
    state = states[0]
    n_local = starts.size
    own_words = visited.size // bin_ends.size
    own_visited = visited[rank * own_words : (rank + 1) * own_words]
    p = bin_ends.size
    size = record.size
    bins = p * entries
    sums = p * (size + 1)
    begun = monotonic_ns(backoff[1:])
    state.done = 0
    while True:
        row = rows[state.done]
        distance = state.level + 1
        frontier_queue, next_queue = (odd_queue, even_queue) if state.queue else (even_queue, odd_queue)
        if state.phase == EXPAND:
            frontier = frontier_queue[: state.size]
            if resume[1] == 0 and is_large(starts, ends, frontier, resume[0], state.max_degree, state.shared_edges):
                state.by_threads = True
                return CROSSED, p
            body = rank * body_words + ((state.crossing + 1) & 1) * bins
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
                distance,
                distances,
                predecessors,
                next_queue[state.queued :],
            )
            row.edges += edges
            row.own += own
            row.sent += sent
            state.queued += own
            record[_FOUND], record[_INSPECTED] = own + sent, edges
            record[_UNFINISHED] = resume[0] < frontier.size
            record[_UNUSED], record[_UNUSED_TOO] = 0, 0
            now = monotonic_ns(backoff[1:])
            row.search += (now - state.ended) * 1e-9
            state.ended = now
            state.phase = CROSS
            state.crossing += 1
            if envoy:
                return TO_CROSS, rank
            tag = state.number << 32 | state.crossing
            status, peer = cross(words, stride, record, bin_ends, tag, rank, gathered, timeout, backoff)
            if status != CROSSED:
                return status, peer
        if state.phase == CROSS:
            now = monotonic_ns(backoff[1:])
            row.exchange += (now - state.ended) * 1e-9
            state.ended = now
            state.found += gathered[sums + _FOUND]
            state.inspected += gathered[sums + _INSPECTED]
            state.unfinished = gathered[sums + _UNFINISHED] > 0
            state.phase = CONTRACT
            most = 0
            for source in range(p):
                most = max(most, gathered[source * (size + 1) + size])
            if state.shared_entries and most >= state.shared_entries:
                state.by_threads = True
                return CROSSED, p
        for source in range(p):
            received = gathered[source * (size + 1) + size]
            if received:
                row.received += received
                body = source * body_words + (state.crossing & 1) * bins + rank * entries
                state.queued += contract(
                    bodies[body : body + received],
                    bodies[body + 2 * bins : body + 2 * bins + received],
                    own_visited,
                    distance,
                    distances,
                    predecessors,
                    next_queue[state.queued :],
                )
        now = monotonic_ns(backoff[1:])
        row.contract += (now - state.ended) * 1e-9
        state.ended = now
        if state.unfinished:
            state.phase = EXPAND
            continue
        resume[0] = resume[1] = 0
        end_level(state, row, state.queued)
        turn(state)
        state.done += 1
        if over(state) or choose(state) != TOP_DOWN or state.done == rows.size or now - begun > _LONGEST:
            return CROSSED, p

"""Kernels of a search between two vertices, from both ends (Pohl, "Bi-directional search", 1971).

Each side is complete to its depth, and no vertex belongs to both. So the first vertex of the other side that a level
finds proves the distance: the sum of both depths, plus one. A search for the distance ends there, in the middle of the
level. A search for paths completes the level. The vertices of both sides then are all those at that depth on shortest
paths.

The side with fewer edges to look at goes on. That depends on the graph alone, and on no rank.
"""

from typing import Any, Final, NamedTuple

import numba
import numpy as np
from numba import types
from numba.extending import register_jitable
from numpy.typing import NDArray

from dbfs_workers.base.intrinsics import monotonic_ns
from dbfs_workers.base.jit import INT32, INT64, READ_INT64, UINT32, int64, kernel, named, void
from dbfs_workers.search.cpu.kernels.phases import BINS
from dbfs_workers.search.cpu.kernels.places import SEEN, Ends, seen, take
from dbfs_workers.search.cpu.kernels.walk import walk
from dbfs_workers.search.partition.kernels.rows import ROWS


class Side(NamedTuple):
    """One side of a search, on one rank.

    Attributes:
        seen: uint32[words], a bit for each of the rank's vertices that the side has, and for each that it has sent.
        queue: uint32[n_local], the rank's rows that the side has, by distance.
        distances: int32[n_local], -1 for rows that the side does not have; empty if nothing reads them.
    """

    seen: NDArray[np.uint32]
    queue: NDArray[np.uint32]
    distances: NDArray[np.int32]


SIDE: Final = named(Side, UINT32, UINT32, INT32)

FRONTS: Final = np.dtype(
    [
        ("begin", np.int64),  # where the frontier begins in the queue, and where it ends
        ("end", np.int64),
        ("edges", np.int64),  # the sum of its degrees
        ("depth", np.int64),  # its distance from the side's own end
        ("queued", np.int64),  # end of the queue, with what the level under way has queued
    ]
)
"""The frontier of a side; there are two."""

STATE: Final = np.dtype(
    [
        ("first", np.int64),  # where the walk over the frontier goes on: a place in it, and an edge of that row
        ("skipped", np.int64),
        ("met", np.int64),  # 1 once a vertex of both sides is known
        ("unfinished", np.int64),  # 1 if a full bin ended the walk early
        ("under_way", np.int64),  # 1 while the search of a pair is to go on
        ("both", np.int64),  # 1 if both sides may go on; 0 without edges to walk backwards
    ]
)

_FRONTS: Final = types.Array(numba.from_dtype(FRONTS), 1, "C")
_STATES: Final = types.Array(numba.from_dtype(STATE), 1, "C")


class Pair(NamedTuple):
    """A search between two vertices, on one rank.

    Attributes:
        near, far: the side of the source, and the side of the target.
        fronts: FRONTS[2], their frontiers.
        states: STATE[1].
        clock: int64[2], scratch space.
    """

    near: Side
    far: Side
    fronts: NDArray[Any]
    states: NDArray[Any]
    clock: NDArray[np.int64]


PAIR: Final = named(Pair, SIDE, SIDE, _FRONTS, _STATES, INT64)


@register_jitable
def reach(to, counts, row, u):  # noqa: ARG001
    """Queue a new vertex of this rank, or bin one of another rank: a visit of ``walk``.

    A vertex of the other side ends the walk, or else only such vertices count from then on. The counts are the end of
    the queue, and whether there was one.
    """
    lists, first, width, side, other, bins, distance, ends = to
    if seen(side.seen, u):
        return True, counts
    queued, met = counts
    local = u - first
    own = local < width
    if seen(other, u):
        met = 1
        if ends:
            return False, (queued, met)
    elif met and own:
        return True, counts
    owner = np.int64(lists.own) if own else np.int64(u // width)
    at = take(lists, side.seen, u, owner, queued)
    if at < 0:
        return at == SEEN, counts
    if own:
        side.queue[at] = local
        if side.distances.size:
            side.distances[local] = distance
        return True, (queued + 1, met)
    bins.rows[owner * lists.room + at] = u - np.uint32(owner) * width
    return True, (queued, met)


@kernel(void, ROWS, SIDE, UINT32, BINS, int64, _FRONTS, int64, _STATES, types.boolean)
def expand(rows, side, other, bins, first_id, fronts, which, states, ends):
    """Walk over the frontier of a side, from where the last call stopped.

    Args:
        rows: the edges that the side follows.
        side: the side; updated.
        other: the bitmap of the other one.
        bins: the bins of the next crossing.
        first_id: internal id of the rank's row 0.
        fronts: both frontiers.
        which: the side's place among them.
        states: STATE[1], updated.
        ends: whether a vertex of the other side ends the walk.
    """
    state, front, width = states[0], fronts[which], rows.starts.size
    lists = Ends(bins.ends, first_id // width, bins.rows.size // bins.ends.size)
    to = lists, np.uint32(first_id), np.uint32(width), side, other, bins, front.depth + 1, ends
    frontier = side.queue[front.begin : front.end]
    first, skipped, _, (queued, met) = walk(rows, frontier, state.first, state.skipped, reach, to, (front.queued, 0))
    state.first, state.skipped, front.queued = first, skipped, queued
    state.met = max(state.met, met)
    state.unfinished = first < frontier.size and not (met and ends)


@kernel(void, ROWS, SIDE, UINT32, int64, _FRONTS, int64, _STATES)
def settle(rows, side, other, first_id, fronts, which, states):
    """Make what a level has queued the frontier of its side, and look for vertices of the other side in it.

    A rank alone has found these before, and gives an empty bitmap.
    """
    state, front = states[0], fronts[which]
    edges = 0
    if state.met == 0:
        for row in side.queue[front.end : front.queued]:
            edges += rows.ends[row] - rows.starts[row]
            if other.size and seen(other, np.uint32(first_id + row)):
                state.met = 1
    front.begin, front.end, front.edges = front.end, front.queued, edges
    front.depth += 1
    state.first = state.skipped = 0


@kernel(void, ROWS, SIDE, int64, int64, _FRONTS, int64)
def begin(rows, side, row, first_id, fronts, which):
    """Begin a side at a row; -1 for a vertex of another rank."""
    front = fronts[which]
    front.begin = front.end = front.queued = front.edges = front.depth = 0
    if row >= 0:
        side.queue[0], front.edges = row, rows.ends[row] - rows.starts[row]
        front.end = front.queued = 1
        i = np.uint32(first_id + row)
        side.seen[i >> np.uint32(5)] |= np.uint32(1) << (i & np.uint32(31))
        if side.distances.size:
            side.distances[row] = 0


@kernel(void, SIDE, int64, _FRONTS, int64)
def forget(side, first_id, fronts, which):
    """Clear a side; bits of vertices that it has sent stay."""
    for row in side.queue[: fronts[which].queued]:
        side.seen[np.uint32(first_id + row) >> np.uint32(5)] = 0
        if side.distances.size:
            side.distances[row] = -1


@kernel(int64, int64, int64, int64, int64, int64)
def next_side(both, near_size, near_edges, far_size, far_edges):
    """Return the side that goes on, 0 or 1; -1 if one of them has come to an end, so that they never meet."""
    if near_size == 0 or (both and far_size == 0):
        return -1
    return 1 if both and far_edges < near_edges else 0


@kernel(types.boolean, ROWS, ROWS, PAIR, BINS, types.boolean, int64)
def search(forward, backward, pair, bins, ends, until):
    """Run levels of a rank alone until the sides have met, or can't, or until a time; return whether they are over."""
    near, far, fronts, states, clock = pair
    state = states[0]
    while state.met == 0:
        sizes = fronts[0].end - fronts[0].begin, fronts[1].end - fronts[1].begin
        which = next_side(state.both, sizes[0], fronts[0].edges, sizes[1], fronts[1].edges)
        if which < 0:
            return True
        if monotonic_ns(clock) > until:
            return False
        if which == 0:
            expand(forward, near, far.seen, bins, 0, fronts, 0, states, ends)
            if state.met == 0 or not ends:
                settle(forward, near, far.seen[:0], 0, fronts, 0, states)
        else:
            expand(backward, far, near.seen, bins, 0, fronts, 1, states, ends)
            if state.met == 0 or not ends:
                settle(backward, far, near.seen[:0], 0, fronts, 1, states)
    return True


@kernel(int64, ROWS, ROWS, PAIR, BINS, READ_INT64, INT32, int64, int64, int64)
def search_pairs(forward, backward, pair, bins, pairs, found, at, stop, until):
    """Find the distances of pairs on a rank alone, until a time.

    Args:
        pairs: int64[2 k], rows, the two of a pair beside each other.
        found: int32[k], gets the distances, -1 for a pair without a path.
        at, stop: the first pair, and the one behind the last. The search of a first pair that is under way goes on.

    Returns:
        The first pair that is not done.
    """
    near, far, fronts, states, clock = pair
    state = states[0]
    while at < stop:
        if pairs[2 * at] == pairs[2 * at + 1]:
            found[at] = 0
            at += 1
            continue
        if state.under_way == 0:
            begin(forward, near, pairs[2 * at], 0, fronts, 0)
            begin(backward, far, pairs[2 * at + 1], 0, fronts, 1)
            state.met = state.first = state.skipped = 0
            state.under_way = 1
        if not search(forward, backward, pair, bins, True, until):
            return at
        found[at] = fronts[0].depth + fronts[1].depth + 1 if state.met else -1
        forget(near, 0, fronts, 0)
        forget(far, 0, fronts, 1)
        state.under_way = 0
        at += 1
        if monotonic_ns(clock) > until:
            break
    return at

"""CPU kernels of the rounds: relax the edges of the near pile; and make a new one of the far pile.

Delta-stepping (Meyer and Sanders, "Delta-stepping: a parallelizable shortest path algorithm", 2003) with a near and a
far pile in the place of buckets (Davidson, Baxter, Garland and Owens, "Work-efficient parallel GPU methods for
single-source shortest paths", 2014). A vertex is once in a pile at most, so that a pile has room for all rows.

A parent changes only with a distance that falls. So the parents form a tree at any time, whatever weights are 0 or
vanish in a sum: each distance is at least the sum over its parent, sums never fall with a longer path, and the last
edge of a cycle would have to lower a distance below itself.
"""

from typing import Any, Final

import numpy as np
from numba import types
from numba.extending import register_jitable

from dbfs_workers.base.intrinsics import monotonic_ns, prefetch
from dbfs_workers.base.jit import int64, kernel, void
from dbfs_workers.features.weights.kernels.piles import CHANGED, FAR, NEAR, PILE_RECORDS, SEARCH
from dbfs_workers.features.weights.keys import NONE, PAST
from dbfs_workers.search.levels.record_types import ROWS

LEVELS: Final = 64
"""Most rounds of one call. Progress is shown between calls."""

# A call ends after the round in which this time has passed: nanoseconds.
_LONGEST = 2_000_000
# As in ``search.cpu.kernels.walk``.
_OFFSETS_AHEAD: Final = 16
_COLUMNS_AHEAD: Final = 8

READ_WEIGHTS: Final = {
    name: types.Array(getattr(types, name), 1, "C", readonly=True) for name in ("int64", "float64", "float32")
}
"""Types of the arrays of weights."""


@register_jitable
def add_int64(key, weight):
    """Return the key of a distance and a weight together, at most ``PAST``."""
    return np.int64(min(np.uint64(key) + np.uint64(weight), np.uint64(PAST)))


@register_jitable
def add_float64(key, weight):
    """Return the key of the rounded sum."""
    return np.float64(np.int64(key).view(np.float64) + weight).view(np.int64)


@register_jitable
def add_float32(key, weight):
    """Return the key of the sum, rounded to the weights' type."""
    return np.int64(np.float32(np.int32(key).view(np.float32) + weight).view(np.int32))


@register_jitable
def pile_up(search, piles, row, key, queue):
    """Put a row whose distance has fallen into its pile, unless it is there, or beyond its limit."""
    if search.limits.size and key > search.limits[row]:
        return
    at = search.first + row
    flags = search.flags[at]
    if key <= piles.bound:
        if not flags & NEAR:
            search.flags[at] = flags | NEAR
            queue[piles.queued] = row
            piles.queued += 1
        return
    piles.nearest = min(piles.nearest, key)
    if not flags & FAR:
        search.flags[at] = flags | FAR
        search.far[piles.far] = row
        piles.far += 1


@register_jitable
def relax(search, weights, piles, add, row_of_counts):
    """Relax the edges of the near pile: a round. Vertices of the own rank go to its piles, others to the lists."""
    starts, ends, columns = search.rows
    width, first = np.uint32(starts.size), np.uint32(search.first)
    distances, parents = search.distances, search.parents
    queue, successor = search.even_queue, search.odd_queue
    if piles.queue:
        queue, successor = successor, queue
    near, unreached, reached = piles.near, piles.unreached, piles.reached
    edges = own = sent = 0
    for i in range(near):
        if i + _OFFSETS_AHEAD < near:
            prefetch(starts, np.int64(queue[i + _OFFSETS_AHEAD]))
        if i + _COLUMNS_AHEAD < near:
            ahead = starts[queue[i + _COLUMNS_AHEAD]]
            prefetch(columns, ahead)
            prefetch(weights, ahead)
        row = queue[i]
        at = first + row
        search.flags[at] &= FAR
        distance = distances[at]
        for k in range(starts[row], ends[row]):
            v = columns[k]
            key = add(distance, weights[k])
            before = distances[v]
            if key < before:
                distances[v] = key
                parents[v] = at
                place = v - first
                if place < width:
                    piles.reached += before == unreached
                    pile_up(search, piles, place, key, successor)
                    own += 1
                elif not search.flags[v]:
                    search.flags[v] = CHANGED
                    owner = v // width
                    search.changed[np.int64(owner) * width + search.ends[owner]] = v - owner * width
                    search.ends[owner] += 1
                    sent += 1
        edges += ends[row] - starts[row]
    row_of_counts.frontier += near
    row_of_counts.edges += edges
    row_of_counts.own += own
    row_of_counts.sent += sent
    row_of_counts.filtered += edges - own - sent
    row_of_counts.discovered += piles.reached - reached
    piles.near = 0


@kernel(void, PILE_RECORDS)
def swap(records):
    """Make the successor the near pile."""
    piles = records[0]
    piles.queue = 1 - piles.queue
    piles.near, piles.queued = piles.queued, 0


@register_jitable
def next_bucket(search, piles, bound):
    """Make the vertices of the far pile up to a bound the near pile, which is empty."""
    final, first, far = piles.bound, search.first, search.far
    queue = search.odd_queue if piles.queue else search.even_queue
    near = kept = 0
    nearest = NONE
    for i in range(piles.far):
        row = far[i]
        key = search.distances[first + row]
        if key <= final:
            search.flags[first + row] = 0
        elif key <= bound:
            search.flags[first + row] = NEAR
            queue[near] = row
            near += 1
        else:
            nearest = min(nearest, key)
            far[kept] = row
            kept += 1
    piles.bound, piles.near, piles.far, piles.nearest = bound, near, kept, nearest


@kernel(int64, SEARCH, int64)
def missing_targets(search, bound):
    """Return the number of the rank's targets whose distance is not final."""
    missing = 0
    for row in search.targets:
        missing += search.distances[search.first + row] > bound
    return missing


@register_jitable
def rounds(search, weights, records, rows, begins, delta, alone, most, least, add):
    """Run rounds: one, or as many as there are for a rank that waits for no other.

    Args:
        search: the rank's arrays.
        weights: by edge.
        records: the record of the counts, updated.
        rows: rows of the table of levels, a round each; updated.
        begins: the key where the next bucket begins, which comes first; ``NONE`` to go on with the last one.
        delta: the width of a bucket, of the type of weights.
        alone: whether the rank has the whole graph.
        most: most vertices of a near pile whose edges one thread relaxes; a larger one is left to a team.
        least: edges relaxed after which the call ends with a bucket.
        add: adds a weight to a key.
    """
    piles = records[0]
    begun = monotonic_ns(search.clock)
    piles.done = edges = 0
    if begins != NONE:
        next_bucket(search, piles, add(begins, delta))
    while piles.done < rows.size:
        if piles.near == 0:
            targets = search.targets.size
            if not alone or piles.nearest == NONE or (targets and missing_targets(search, piles.bound) == 0):
                return
            if edges >= least:
                return
            next_bucket(search, piles, add(piles.nearest, delta))
            continue
        if piles.near > most:
            return
        row = rows[piles.done]
        relax(search, weights, piles, add, row)
        edges += row.edges
        now = monotonic_ns(search.clock)
        row.levels = 1
        row.largest_frontier = row.frontier
        row.culled = row.own - row.discovered
        row.search += (now - piles.ended) * 1e-9
        piles.ended = now
        piles.done += 1
        if not alone:
            return
        swap(records)
        if now - begun > _LONGEST:
            return


def _signature(name: str) -> tuple[Any, ...]:
    counts = types.boolean, int64, int64
    return void, SEARCH, READ_WEIGHTS[name], PILE_RECORDS, ROWS, int64, getattr(types, name), *counts


@kernel(*_signature("int64"))
def rounds_int64(search, weights, records, rows, begins, delta, alone, most, least):
    """See ``rounds``."""
    rounds(search, weights, records, rows, begins, delta, alone, most, least, add_int64)


@kernel(*_signature("float64"))
def rounds_float64(search, weights, records, rows, begins, delta, alone, most, least):
    """See ``rounds``."""
    rounds(search, weights, records, rows, begins, delta, alone, most, least, add_float64)


@kernel(*_signature("float32"))
def rounds_float32(search, weights, records, rows, begins, delta, alone, most, least):
    """See ``rounds``."""
    rounds(search, weights, records, rows, begins, delta, alone, most, least, add_float32)

"""Kernels of the path that a search from both ends leaves: the vertices on shortest paths, and the first path of all.

From the vertices in which the sides have met, *marks* go from level to level towards an end. A vertex with a mark is on
a shortest path. On the near side a mark also keeps the best vertex after it, the one with the smallest id. So the path
with the smallest ids, compared from the source on, is read off without a search, and no rank decides which one it is.
"""

from typing import Final, NamedTuple

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from dbfs_workers.base.jit import INT64, READ_INT32, READ_UINT32, UINT32, int64, kernel, named, void
from dbfs_workers.features.paths.kernels.search import SIDE
from dbfs_workers.search.cpu.kernels.phases import BINS
from dbfs_workers.search.cpu.kernels.walk import walk
from dbfs_workers.search.partition.kernels.rows import ROWS
from dbfs_workers.search.partition.stripe import NO_VERTEX


class Trail(NamedTuple):
    """The marks on one side, on one rank.

    Attributes:
        after: uint32[n_local], the internal id of the best vertex after a row with a mark; ``NO_VERTEX`` for no mark.
        marked: uint32[n_local], the rows with marks, in the order in which they got them.
        order: uint32[n], the id at each position of a graph that is ordered by degree; else empty.
        ends: int64[1], the number of rows with marks.
    """

    after: NDArray[np.uint32]
    marked: NDArray[np.uint32]
    order: NDArray[np.uint32]
    ends: NDArray[np.int64]


TRAIL: Final = named(Trail, UINT32, UINT32, READ_UINT32, INT64)


@register_jitable
def vertex_of(u, p, width, order):
    """Return the vertex of an internal id."""
    owner = np.int64(u) // width
    position = (np.int64(u) - owner * width) * p + owner
    return np.int64(order[position]) if order.size else position


@register_jitable
def mark(trail, p, row, u):
    """Give a row a mark, with the better of its own vertex after it and another one."""
    before = trail.after[row]
    if before == NO_VERTEX:
        trail.marked[trail.ends[0]] = row
        trail.ends[0] += 1
    width = trail.after.size
    if before == NO_VERTEX or vertex_of(u, p, width, trail.order) < vertex_of(before, p, width, trail.order):
        trail.after[row] = u


@register_jitable
def bin_up(bins, owner, row, parent):
    """Append a row and an internal id to the bin of an owner; return whether there was room."""
    room = bins.rows.size // bins.ends.size
    at = bins.ends[owner]
    if at == room:
        return False
    bins.rows[owner * room + at], bins.parents[owner * room + at] = row, parent
    bins.ends[owner] = at + 1
    return True


@register_jitable
def go_back(to, counts, row, u):
    """Mark a neighbour of this rank at a distance, and bin one of another rank: a visit of ``walk``."""
    trail, distances, wanted, bins, first, width = to
    v = first + row
    local = u - first
    if local < width:
        if distances[local] == wanted:
            mark(trail, bins.ends.size, local, v)
        return True, counts
    owner = np.int64(u // width)
    return bin_up(bins, owner, u - np.uint32(owner) * width, v), counts


@kernel(void, SIDE, SIDE, int64, int64, TRAIL, int64)
def mark_meetings(side, other, begin, end, trail, first_id):
    """Mark the rows of a frontier that the other side has as well, each as the one after itself."""
    for row in side.queue[begin:end]:
        if other.distances[row] >= 0:
            mark(trail, 1, row, np.uint32(first_id + row))


@kernel(void, ROWS, READ_INT32, TRAIL, int64, int64, INT64, int64, BINS, int64)
def mark_level(rows, distances, trail, begin, end, resume, wanted, bins, first_id):
    """Mark the neighbours at a distance of some rows with marks.

    Args:
        rows: the edges to follow.
        distances: of the side.
        trail: the marks; updated.
        begin, end: the rows' places in ``marked``.
        resume: int64[2], where the walk goes on; updated, as by ``top_down``.
        wanted: the distance.
        bins, first_id: as of ``expand``.
    """
    frontier, width = trail.marked[begin:end], rows.starts.size
    to = trail, distances, wanted, bins, np.uint32(first_id), np.uint32(width)
    resume[0], resume[1], _, _ = walk(rows, frontier, resume[0], resume[1], go_back, to, 0)


@kernel(void, READ_UINT32, READ_UINT32, READ_INT32, TRAIL, int64, int64)
def take_marks(rows, parents, distances, trail, wanted, p):
    """Mark the rows of a bin at a distance."""
    for i in range(rows.size):
        if distances[rows[i]] == wanted:
            mark(trail, p, rows[i], parents[i])


@kernel(int64, ROWS, READ_INT32, TRAIL, int64, BINS)
def mark_all(rows, distances, trail, depth, bins):
    """Mark all levels from below a depth down to 1 on a rank alone; return where the marks of level 1 begin."""
    begin, end = 0, trail.ends[0]
    while depth > 1:
        depth -= 1
        to = trail, distances, depth, bins, np.uint32(0), np.uint32(rows.starts.size)
        walk(rows, trail.marked[begin:end], 0, 0, go_back, to, 0)
        begin, end = end, trail.ends[0]
    return begin


@kernel(void, TRAIL, int64, int64, int64, INT64)
def best_marked(trail, begin, p, first_id, best):
    """Find the row with the smallest id among those marked from a place on: see ``best_neighbour``."""
    for row in trail.marked[begin : trail.ends[0]]:
        u = np.int64(first_id) + row
        vertex = vertex_of(u, p, trail.after.size, trail.order)
        if best[0] < 0 or vertex < best[0]:
            best[0], best[1] = vertex, u


@kernel(void, TRAIL, int64, int64)
def mark_end(trail, row, u):
    """Mark the end of a side, given the best vertex after it."""
    mark(trail, 1, row, np.uint32(u))


@kernel(void, TRAIL)
def forget_marks(trail):
    """Take all marks away."""
    for row in trail.marked[: trail.ends[0]]:
        trail.after[row] = NO_VERTEX
    trail.ends[0] = 0


@register_jitable
def compare(to, best, row, u):  # noqa: ARG001
    """Keep the best neighbour of this rank at a distance, and bin one of another rank: a visit of ``walk``.

    ``best`` is its vertex and its internal id; -1 for none.
    """
    order, distances, wanted, bins, first, width = to
    local = u - first
    if local >= width:
        owner = np.int64(u // width)
        return bin_up(bins, owner, u - np.uint32(owner) * width, u), best
    if distances[local] == wanted:
        vertex = vertex_of(u, bins.ends.size, width, order)
        if best[0] < 0 or vertex < best[0]:
            best = vertex, np.int64(u)
    return True, best


@kernel(void, ROWS, READ_UINT32, READ_INT32, READ_UINT32, INT64, int64, BINS, int64, INT64)
def best_neighbour(rows, row, distances, order, resume, wanted, bins, first_id, best):
    """Find the neighbour of a row (uint32[1]) with the smallest id among those at a distance.

    ``best``, int64[2], has the vertex and the internal id of the best one so far, -1 for none; updated. Other arguments
    as of ``mark_level``.
    """
    width = rows.starts.size
    to = order, distances, wanted, bins, np.uint32(first_id), np.uint32(width)
    resume[0], resume[1], _, (best[0], best[1]) = walk(rows, row, resume[0], resume[1], compare, to, (best[0], best[1]))


@kernel(void, READ_UINT32, READ_INT32, READ_UINT32, int64, int64, int64, INT64)
def take_best(rows, distances, order, wanted, p, first_id, best):
    """Compare the rows of a bin as well: see ``best_neighbour``."""
    for row in rows:
        if distances[row] == wanted:
            u = np.int64(first_id) + row
            vertex = vertex_of(u, p, distances.size, order)
            if best[0] < 0 or vertex < best[0]:
                best[0], best[1] = vertex, u


@kernel(void, ROWS, READ_INT32, READ_UINT32, INT64, int64, int64)
def descend(rows, distances, order, path, at, stop):
    """Complete a path on a rank alone, from the place ``at`` on, over vertices ever nearer to the far end."""
    while at < stop:
        row, best = path[at], np.int64(-1)
        for k in range(rows.starts[row], rows.ends[row]):
            u = rows.columns[k]
            if distances[u] == stop - at - 1:
                vertex = vertex_of(u, 1, distances.size, order)
                if best < 0 or vertex < best:
                    best, path[at + 1] = vertex, np.int64(u)
        at += 1

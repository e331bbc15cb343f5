"""Kernels of what a search from both ends leaves: the vertices and edges of all shortest paths.

From the vertices in which the sides have met, *marks* go from level to level towards an end. A vertex with a mark is on
a shortest path, and so is each edge over which a mark has come. Level 1 is the last one: all of its marks lead to the
end, whose list may be long.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numba.extending import register_jitable
from numpy.typing import NDArray

from dbfs_workers.base.jit import INT64, READ_INT32, READ_UINT32, UINT8, UINT32, int64, kernel, named, void
from dbfs_workers.features.paths.kernels.search import SIDE
from dbfs_workers.search.cpu.kernels.phases import BINS
from dbfs_workers.search.cpu.kernels.walk import walk
from dbfs_workers.search.partition.kernels.rows import ROWS

MARKED, EDGES, BEGIN, END, FIRST, SKIPPED, WANTED = range(7)
PLACES: Final = 7
"""Places of a trail: rows with marks and edges so far; the rows of the last level; where the walk over them goes on;
and the distance of the next level."""


class Trail(NamedTuple):
    """The marks on one side, on one rank.

    Attributes:
        marks: uint8[n_local], 1 for each row with a mark.
        marked: uint32[n_local], the rows with marks, in the order in which they got them.
        rows, others: uint32, the edges: a row, and the internal id of the vertex from which its mark came.
        places: int64[PLACES].
    """

    marks: NDArray[np.uint8]
    marked: NDArray[np.uint32]
    rows: NDArray[np.uint32]
    others: NDArray[np.uint32]
    places: NDArray[np.int64]


TRAIL: Final = named(Trail, UINT8, UINT32, UINT32, UINT32, INT64)


@register_jitable
def mark(trail, row):
    """Give a row a mark."""
    if trail.marks[row] == 0:
        trail.marks[row] = 1
        trail.marked[trail.places[MARKED]] = row
        trail.places[MARKED] += 1


@register_jitable
def mark_from(trail, row, u):
    """Give a row a mark that comes from a vertex; return whether there was room for the edge."""
    at = trail.places[EDGES]
    if at == trail.rows.size:
        return False
    trail.rows[at], trail.others[at] = row, u
    trail.places[EDGES] = at + 1
    mark(trail, row)
    return True


@register_jitable
def go_back(to, counts, row, u):
    """Mark a neighbour of this rank at a distance, and bin one of another rank: a visit of ``walk``."""
    trail, distances, wanted, bins, first, width = to
    local = u - first
    if local < width:
        return distances[local] != wanted or mark_from(trail, local, first + row), counts
    owner = np.int64(u // width)
    room = bins.rows.size // bins.ends.size
    at = bins.ends[owner]
    if at == room:
        return False, counts
    bins.rows[owner * room + at], bins.parents[owner * room + at] = u - np.uint32(owner) * width, first + row
    bins.ends[owner] = at + 1
    return True, counts


@kernel(void, SIDE, SIDE, int64, int64, TRAIL)
def mark_meetings(side, other, begin, end, trail):
    """Mark the rows of a frontier that the other side has as well."""
    for row in side.queue[begin:end]:
        if other.distances[row] >= 0:
            mark(trail, row)
    trail.places[END] = trail.places[MARKED]


@kernel(void, ROWS, READ_INT32, TRAIL, BINS, int64, types.boolean)
def mark_levels(rows, distances, trail, bins, first_id, alone):
    """Mark the neighbours of the last level at the next distance, from where the walk stopped.

    A rank alone goes on down to level 1. The walk stops where a bin is full, or the room for edges.
    """
    places, width = trail.places, rows.starts.size
    while places[WANTED] > 0:
        frontier = trail.marked[places[BEGIN] : places[END]]
        to = trail, distances, places[WANTED], bins, np.uint32(first_id), np.uint32(width)
        places[FIRST], places[SKIPPED], _, _ = walk(rows, frontier, places[FIRST], places[SKIPPED], go_back, to, 0)
        if not alone or places[FIRST] < frontier.size:
            return
        next_level(trail)


@kernel(void, TRAIL)
def next_level(trail):
    """Go on with the rows that the last level has marked."""
    places = trail.places
    places[BEGIN], places[END] = places[END], places[MARKED]
    places[FIRST] = places[SKIPPED] = 0
    places[WANTED] -= 1


@kernel(void, READ_UINT32, READ_UINT32, READ_INT32, TRAIL)
def take_marks(rows, others, distances, trail):
    """Mark the rows of a bin at the next distance. There is room for the edges."""
    for i in range(rows.size):
        if distances[rows[i]] == trail.places[WANTED]:
            mark_from(trail, rows[i], others[i])


@kernel(void, TRAIL)
def forget_marks(trail):
    """Take all marks away."""
    for row in trail.marked[: trail.places[MARKED]]:
        trail.marks[row] = 0
    trail.places[:] = 0

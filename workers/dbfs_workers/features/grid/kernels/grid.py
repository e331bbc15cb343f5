"""CPU kernels of the resident loop on a 2-D partition: see ``dbfs_workers.features.grid.levels``.

A rank searches edges into the vertices of its row of the grid. ``visited`` and ``parents`` are over these vertices:
vertex ``k`` of the rank in column ``c`` of the row is ``c * n_local + k``. What the rank finds goes into lists, one for
each rank of the row: list ``c`` starts at ``c * n_local`` of ``found`` and has ``ends[c]`` entries, local ids there.
"""

import numpy as np
from numba import types
from numba.extending import register_jitable

from dbfs_workers.base.intrinsics import trailing_zeros
from dbfs_workers.base.jit import (
    INT32,
    INT64,
    READ_INT32,
    READ_INT64,
    READ_UINT16,
    READ_UINT32,
    UINT16,
    UINT32,
    allocating_kernel,
    int64,
    kernel,
)
from dbfs_workers.search.cpu.kernels.phases import claim
from dbfs_workers.search.cpu.kernels.places import take_next
from dbfs_workers.search.cpu.kernels.walk import contraction, search, walk
from dbfs_workers.search.partition.partition import Rows


@register_jitable
def find(to, counts, row, u):
    """List a new vertex for its owner: a visit of ``walk``, whose lists have room for all vertices."""
    ends, source, first, width, visited, parents, found = to
    place = u - first
    if not claim(visited, place):
        return True, counts
    if parents.size:
        parents[place] = source + row
    owner = place // width
    end = ends[owner]
    found[np.int64(owner) * np.int64(width) + end] = place - owner * width
    ends[owner] = end + 1
    return True, counts


@kernel(int64, READ_INT64, READ_UINT32, READ_UINT32, int64, int64, UINT32, UINT32, UINT32, INT64)
def top_down(row_offsets, columns, frontier, source_first, row_first, visited, parents, found, ends):
    """Visit the neighbours of one rank's part of the frontier; return the edges inspected.

    ``source_first`` is the internal id of that rank's row 0, ``row_first`` that of the first vertex of the grid's row.
    An empty ``parents`` means that the run records no predecessors.
    """
    width = row_offsets.size - 1
    source, first = np.uint32(source_first), np.uint32(row_first)
    to = ends, source, first, np.uint32(width), visited, parents, found
    rows = Rows(row_offsets[:-1], row_offsets[1:], columns)
    _, _, edges, _ = walk(rows, frontier, 0, 0, find, to, 0)
    return edges


@register_jitable
def adopt(to, row, u):
    """Note the parent of a row, an internal id, if there are parents: a hit of ``search``."""
    parents, n_local, column, columns = to
    if parents.size:
        width = np.uint32(n_local)
        grid_row = u // width
        source = grid_row * np.uint32(columns) + np.uint32(column)
        parents[row] = (source - grid_row) * width + u
    return 0


@kernel(
    types.UniTuple(int64, 2),
    READ_INT64,
    READ_UINT32,
    READ_UINT32,
    READ_UINT32,
    UINT32,
    int64,
    int64,
    UINT32,
    UINT32,
)
def bottom_up(row_offsets, columns, frontier_bits, empty, visited, grid_column, grid_columns, parents, found):
    """Search unvisited rows of one rank of the row for parents in the frontier; return (edges inspected, rows found).

    ``columns`` and ``frontier_bits`` are over the vertices of this rank's column of the grid: see ``grid.Blocks``.
    ``empty`` has the bits of the rows without edges, and ``found`` is that rank's list.
    """
    to, none, words = (parents, row_offsets.size - 1, grid_column, grid_columns), visited[:0], visited.size
    rows = Rows(row_offsets[:-1], row_offsets[1:], columns)
    edges, count, _ = search(rows, empty, frontier_bits, visited, none, 0, words, adopt, to, found, 0)
    return edges, count


@register_jitable
def label(to, entry, row):  # noqa: ARG001
    """Label a row, and return its degree: for ``contraction``."""
    finder, distance, distances, finders, degrees = to
    distances[row] = distance
    finders[row] = finder
    return degrees[row]


@kernel(
    types.UniTuple(int64, 2),
    READ_UINT32,
    UINT32,
    int64,
    int64,
    INT32,
    UINT16,
    READ_INT64,
    UINT32,
)
def contract(rows, visited, finder, distance, distances, finders, degrees, frontier):
    """Label and queue the new vertices among those that the rank in column ``finder`` found.

    ``visited`` is this rank's bitmap; empty if this rank found them itself, so that all are new. Returns (new vertices,
    sum of their ``degrees``).
    """
    to = finder, distance, distances, finders, degrees
    _, size, total = contraction(rows, 0, rows.size, take_next, (), visited, label, to, frontier, 0)
    return size, total


@kernel(int64, READ_UINT32, UINT32)
def unpack(bits, rows):
    """Write the numbers of the bits that are set, ascending; return how many there are."""
    at = 0
    for w in range(bits.size):
        todo = bits[w]
        while todo:
            rows[at] = np.uint32(w * 32) + trailing_zeros(todo)
            todo &= todo - np.uint32(1)
            at += 1
    return at


@allocating_kernel(types.void, READ_INT32, READ_UINT16, UINT32, INT64)
def sort_by_finder(distances, finders, rows, starts):
    """List the rows with a distance above 0 by the columns of their finders; list ``c`` starts at ``starts[c]``.

    ``starts`` is int64[columns + 1], all 0.
    """
    for row in range(distances.size):
        if distances[row] > 0:
            starts[finders[row] + 1] += 1
    for c in range(starts.size - 1):
        starts[c + 1] += starts[c]
    cursor = starts.copy()
    for row in range(distances.size):
        if distances[row] > 0:
            c = finders[row]
            rows[cursor[c]] = row
            cursor[c] += 1

"""CPU kernels of the resident loop on a 2-D partition: see ``dbfs_workers.features.grid.levels``.

A rank searches edges into the vertices of its row of the grid. ``visited`` and ``parents`` are over these vertices:
vertex ``k`` of the rank in column ``c`` of the row is ``c * n_local + k``. What the rank finds goes into lists, one for
each rank of the row: list ``c`` starts at ``c * n_local`` of ``found`` and has ``ends[c]`` entries, local ids there.
"""

import numpy as np
from numba import types

from dbfs_workers.base.intrinsics import prefetch, trailing_zeros
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
from dbfs_workers.search.cpu.kernels.resident import COLUMNS_AHEAD, OFFSETS_AHEAD, fetch_lists


@kernel(int64, READ_INT64, READ_UINT32, READ_UINT32, int64, int64, UINT32, UINT32, UINT32, INT64)
def top_down(row_offsets, columns, frontier, source_first, row_first, visited, parents, found, ends):
    """Visit the neighbours of one rank's part of the frontier; return the edges inspected.

    ``source_first`` is the internal id of that rank's row 0, ``row_first`` that of the first vertex of the grid's row.
    An empty ``parents`` means that the run records no predecessors.
    """
    width = np.uint32(row_offsets.size - 1)
    source, first = np.uint32(source_first), np.uint32(row_first)
    edges = 0
    for i in range(frontier.size):
        if i + OFFSETS_AHEAD < frontier.size:
            prefetch(row_offsets, np.int64(frontier[i + OFFSETS_AHEAD]))
        if i + COLUMNS_AHEAD < frontier.size:
            prefetch(columns, row_offsets[frontier[i + COLUMNS_AHEAD]])
        row = frontier[i]
        start, stop = row_offsets[row], row_offsets[row + 1]
        edges += stop - start
        for k in range(start, stop):
            place = columns[k] - first
            if not claim(visited, place):
                continue
            if parents.size:
                parents[place] = source + row
            owner = place // width
            end = ends[owner]
            found[np.int64(owner) * np.int64(width) + end] = place - owner * width
            ends[owner] = end + 1
    return edges


@kernel(
    types.UniTuple(int64, 2),
    READ_INT64,
    READ_UINT32,
    READ_UINT32,
    READ_UINT32,
    UINT32,
    int64,
    int64,
    int64,
    UINT32,
    UINT32,
)
def bottom_up(row_offsets, columns, frontier_bits, empty, visited, n_local, grid_column, grid_columns, parents, found):
    """Search unvisited rows of one rank of the row for parents in the frontier; return (edges inspected, rows found).

    ``columns`` and ``frontier_bits`` are over the vertices of this rank's column of the grid: see ``grid.Blocks``. All
    other arrays begin with the first of the rows: ``empty`` has the bits of the rows without edges, and ``found`` is
    that rank's list, or a part of it.
    """
    width = np.uint32(n_local)
    edges = 0
    count = 0
    for w in range(visited.size):
        if w + 1 < visited.size:
            fetch_lists(np.uint32(~(visited[w + 1] | empty[w + 1])), np.int64(w + 1) * 32, row_offsets, columns)
        todo = np.uint32(~(visited[w] | empty[w]))
        bits = np.uint32(0)
        while todo:
            b = trailing_zeros(todo)
            todo &= todo - np.uint32(1)
            row = np.int64(w) * 32 + b
            start, stop = row_offsets[row], row_offsets[row + 1]
            k = start
            while k < stop:
                u = columns[k]
                k += 1
                if frontier_bits[u >> np.uint32(5)] >> (u & np.uint32(31)) & np.uint32(1):
                    bits |= np.uint32(1) << b
                    if parents.size:
                        grid_row = u // width
                        source = grid_row * np.uint32(grid_columns) + np.uint32(grid_column)
                        parents[row] = (source - grid_row) * width + u
                    found[count] = row
                    count += 1
                    break
            edges += k - start
        visited[w] |= bits
    return edges, count


@kernel(
    types.UniTuple(int64, 2),
    READ_UINT32,
    types.boolean,
    UINT32,
    int64,
    int64,
    INT32,
    UINT16,
    READ_INT64,
    UINT32,
)
def contract(rows, claimed, own_visited, finder, distance, distances, finders, degrees, frontier):
    """Label and queue the new vertices among those that the rank in column ``finder`` found.

    If ``claimed``, this rank found them itself, and all are new. Returns (new vertices, sum of their ``degrees``).
    """
    at = 0
    total = 0
    for row in rows:
        if not claimed and not claim(own_visited, row):
            continue
        distances[row] = distance
        finders[row] = finder
        frontier[at] = row
        at += 1
        total += degrees[row]
    return at, total


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

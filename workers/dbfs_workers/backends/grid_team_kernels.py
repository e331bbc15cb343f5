"""CPU kernels of large levels of a 2-D partition: the threads of a team call a kernel at once, with the same arrays.

The lists are those of ``grid_kernels``; the threads take work and reserve places as in ``cpu_team_kernels``.
"""

import numpy as np
from numba import types

from dbfs_workers.backends.cpu_resident_kernels import COLUMNS_AHEAD, OFFSETS_AHEAD
from dbfs_workers.backends.cpu_team_kernels import STEP, reserve
from dbfs_workers.backends.grid_kernels import bottom_up
from dbfs_workers.intrinsics import fetch_add, fetch_or, prefetch
from dbfs_workers.jit import INT32, INT64, READ_INT64, READ_UINT32, UINT16, UINT32, int64, kernel

_WORD_BITS = 32


@kernel(
    int64,
    READ_INT64,
    READ_UINT32,
    READ_UINT32,
    int64,
    int64,
    int64,
    UINT32,
    UINT32,
    UINT32,
    INT64,
    INT64,
    int64,
)
def expand(row_offsets, columns, frontier, step, source_first, row_first, visited, parents, found, shared, own, chunk):
    """Do a thread's part of ``grid_kernels.top_down``; return the edges that it inspected.

    A thread that finds a list full stops, and leaves over the rows that it has taken and not finished. A row that was
    begun counts no edges then: the call that finishes the row inspects all of its edges.

    Args:
        row_offsets, columns, frontier, source_first, row_first, visited, parents, found: see ``top_down``.
        step: rows that a thread takes at a time.
        shared, own: see ``cpu_team_kernels``, with the ranks of the grid's row as owners.
        chunk: places of a list that a thread reserves at a time.
    """
    width = np.uint32(row_offsets.size - 1)
    room = np.int64(width)
    source, first = np.uint32(source_first), np.uint32(row_first)
    owners = (own.size - 2) // 2
    edges = 0
    while True:
        i = fetch_add(shared, owners * STEP, step)
        stop = min(i + step, frontier.size)
        if i >= stop:
            return edges
        while i < stop:
            if i + OFFSETS_AHEAD < stop:
                prefetch(row_offsets, np.int64(frontier[i + OFFSETS_AHEAD]))
            if i + COLUMNS_AHEAD < stop:
                prefetch(columns, row_offsets[frontier[i + COLUMNS_AHEAD]])
            row = frontier[i]
            for k in range(row_offsets[row], row_offsets[row + 1]):
                place = columns[k] - first
                word = np.int64(place >> np.uint32(5))
                bit = np.uint32(1) << (place & np.uint32(31))
                if visited[word] & bit:
                    continue
                owner = np.int64(place // width)
                if own[owner] == own[owners + owner] and not reserve(shared, own, owner, chunk, room):
                    own[2 * owners], own[2 * owners + 1] = i, stop
                    return edges
                if fetch_or(visited, word, bit) & bit:
                    continue
                if parents.size:
                    parents[place] = source + row
                found[owner * room + own[owner]] = place - np.uint32(owner) * width
                own[owner] += 1
            edges += row_offsets[row + 1] - row_offsets[row]
            i += 1


@kernel(
    types.UniTuple(int64, 2),
    READ_INT64,
    READ_UINT32,
    READ_UINT32,
    READ_UINT32,
    int64,
    UINT32,
    int64,
    int64,
    UINT32,
    UINT32,
    INT64,
    UINT32,
)
def search(
    row_offsets,
    columns,
    frontier_bits,
    empty,
    step,
    visited,
    grid_column,
    grid_columns,
    parents,
    found,
    shared,
    room,
):
    """Do a thread's part of ``grid_kernels.bottom_up`` on all rows of a rank; return the same counts, of this thread.

    Args:
        row_offsets, columns, frontier_bits, empty, visited, grid_column, grid_columns, parents, found: see
            ``bottom_up``.
        step: words of the bitmaps that a thread takes at a time.
        shared: see ``cpu_team_kernels``, with one owner.
        room: uint32[n_local], scratch space.
    """
    n_local = row_offsets.size - 1
    edges = 0
    total = 0
    while True:
        word = fetch_add(shared, STEP, step)
        end = min(word + step, visited.size)
        if word >= end:
            return edges, total
        first, stop = word * _WORD_BITS, end * _WORD_BITS
        inspected, count = bottom_up(
            row_offsets[first : stop + 1],
            columns,
            frontier_bits,
            empty[word:end],
            visited[word:end],
            n_local,
            grid_column,
            grid_columns,
            parents[first:stop],
            room[first:stop],
        )
        at = fetch_add(shared, 0, count)
        for i in range(count):
            found[at + i] = room[first + i] + np.uint32(first)
        edges += inspected
        total += count


@kernel(
    types.UniTuple(int64, 2),
    READ_UINT32,
    types.boolean,
    int64,
    UINT32,
    INT64,
    INT64,
    int64,
    int64,
    int64,
    INT32,
    UINT16,
    READ_INT64,
    UINT32,
)
def contract(
    rows, claimed, step, own_visited, shared, own, chunk, finder, distance, distances, finders, degrees, frontier
):
    """Do a thread's part of ``grid_kernels.contract``; return the same counts, of this thread.

    A thread that finds ``frontier`` full stops, and leaves over the entries that it has taken and not looked at. If all
    rows are new, each has the same place in ``frontier`` as in ``rows``.

    Args:
        rows, claimed, own_visited, finder, distance, distances, finders, degrees, frontier: see ``contract`` there.
        step: entries that a thread takes at a time.
        shared, own: see ``cpu_team_kernels``, with one owner.
        chunk: places of ``frontier`` that a thread reserves at a time.
    """
    count = 0
    total = 0
    while True:
        first = fetch_add(shared, STEP, step)
        stop = min(first + step, rows.size)
        if first >= stop:
            return count, total
        for i in range(first, stop):
            row = rows[i]
            at = i
            if not claimed:
                word = np.int64(row >> np.uint32(5))
                bit = np.uint32(1) << (row & np.uint32(31))
                if own_visited[word] & bit:
                    continue
                if own[0] == own[1] and not reserve(shared, own, 0, chunk, frontier.size):
                    own[2], own[3] = i, stop
                    return count, total
                if fetch_or(own_visited, word, bit) & bit:
                    continue
                at = own[0]
                own[0] = at + 1
            distances[row] = distance
            finders[row] = finder
            frontier[at] = row
            count += 1
            total += degrees[row]

"""CPU kernels of large levels of a 2-D partition: the threads of a team call a kernel at once, with the same arrays.

The lists are those of ``grid`` beside this; the threads take work and reserve places as in ``cpu.kernels.team``.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dbfs_workers.base.intrinsics import fetch_add, fetch_or, prefetch
from dbfs_workers.base.jit import INT32, READ_INT64, READ_UINT32, UINT16, UINT32, int64, kernel, named
from dbfs_workers.features.grid.kernels.grid import bottom_up
from dbfs_workers.search.cpu.kernels.resident import COLUMNS_AHEAD, OFFSETS_AHEAD
from dbfs_workers.search.cpu.kernels.team import SHARING, STEP, Sharing, own_part, reserve
from dbfs_workers.search.partition.stripe import WORD_BITS


class GridExpansion(NamedTuple):
    """The task of a large part of a frontier.

    Attributes:
        row_offsets, columns, frontier, source_first, row_first, visited, parents, found: see ``grid_kernels.top_down``.
        chunk: places of a list that a thread reserves at a time.
        sharing: with the ranks of the grid's row as owners.
    """

    row_offsets: NDArray[np.int64]
    columns: NDArray[np.uint32]
    frontier: NDArray[np.uint32]
    source_first: int
    row_first: int
    visited: NDArray[np.uint32]
    parents: NDArray[np.uint32]
    found: NDArray[np.uint32]
    chunk: int
    sharing: Sharing


class GridSearch(NamedTuple):
    """The task of a large bottom-up level, on all rows of a rank.

    Attributes:
        row_offsets, columns, frontier_bits, empty, visited, grid_column, grid_columns, parents, found: see
            ``grid_kernels.bottom_up``.
        room: uint32[n_local], scratch space.
        sharing: with one owner.
    """

    row_offsets: NDArray[np.int64]
    columns: NDArray[np.uint32]
    frontier_bits: NDArray[np.uint32]
    empty: NDArray[np.uint32]
    visited: NDArray[np.uint32]
    grid_column: int
    grid_columns: int
    parents: NDArray[np.uint32]
    found: NDArray[np.uint32]
    room: NDArray[np.uint32]
    sharing: Sharing


class GridContraction(NamedTuple):
    """The task of a large list.

    Attributes:
        rows, claimed, own_visited, finder, distance, distances, finders, degrees, frontier: see
            ``grid_kernels.contract``.
        chunk: places of ``frontier`` that a thread reserves at a time.
        sharing: with one owner.
    """

    rows: NDArray[np.uint32]
    claimed: int
    own_visited: NDArray[np.uint32]
    finder: int
    distance: int
    distances: NDArray[np.int32]
    finders: NDArray[np.uint16]
    degrees: NDArray[np.int64]
    frontier: NDArray[np.uint32]
    chunk: int
    sharing: Sharing


GRID_EXPANSION: Final = named(
    GridExpansion, READ_INT64, *(READ_UINT32,) * 2, int64, int64, *(UINT32,) * 3, int64, SHARING
)
GRID_SEARCHING: Final = named(
    GridSearch, READ_INT64, *(READ_UINT32,) * 3, UINT32, int64, int64, *(UINT32,) * 3, SHARING
)
GRID_CONTRACTION: Final = named(
    GridContraction, READ_UINT32, int64, UINT32, int64, int64, INT32, UINT16, READ_INT64, UINT32, int64, SHARING
)


@kernel(int64, GRID_EXPANSION, int64)
def expand(task, thread):
    """Do a thread's part of ``grid_kernels.top_down``; return the edges that it inspected.

    A thread that finds a list full stops, and leaves over the rows that it has taken and not finished. A row that was
    begun counts no edges then: the call that finishes the row inspects all of its edges.
    """
    row_offsets, columns, frontier = task.row_offsets, task.columns, task.frontier
    visited, parents, found = task.visited, task.parents, task.found
    shared, own, step = task.sharing.shared, own_part(task.sharing, thread), task.sharing.step
    width = np.uint32(row_offsets.size - 1)
    room = np.int64(width)
    source, first = np.uint32(task.source_first), np.uint32(task.row_first)
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
                if own[owner] == own[owners + owner] and not reserve(shared, own, owner, task.chunk, room):
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


@kernel(types.UniTuple(int64, 2), GRID_SEARCHING)
def search(task):
    """Do a thread's part of ``grid_kernels.bottom_up``; return the same counts, of this thread."""
    row_offsets, visited, room = task.row_offsets, task.visited, task.room
    shared, step = task.sharing.shared, task.sharing.step
    n_local = row_offsets.size - 1
    edges = 0
    total = 0
    while True:
        word = fetch_add(shared, STEP, step)
        end = min(word + step, visited.size)
        if word >= end:
            return edges, total
        first, stop = word * WORD_BITS, end * WORD_BITS
        inspected, count = bottom_up(
            row_offsets[first : stop + 1],
            task.columns,
            task.frontier_bits,
            task.empty[word:end],
            visited[word:end],
            n_local,
            task.grid_column,
            task.grid_columns,
            task.parents[first:stop],
            room[first:stop],
        )
        at = fetch_add(shared, 0, count)
        for i in range(count):
            task.found[at + i] = room[first + i] + np.uint32(first)
        edges += inspected
        total += count


@kernel(types.UniTuple(int64, 2), GRID_CONTRACTION, int64)
def contract(task, thread):
    """Do a thread's part of ``grid_kernels.contract``; return the same counts, of this thread.

    A thread that finds ``frontier`` full stops, and leaves over the entries that it has taken and not looked at. If all
    rows are new, each has the same place in ``frontier`` as in ``rows``.
    """
    rows, own_visited, frontier = task.rows, task.own_visited, task.frontier
    shared, own, step = task.sharing.shared, own_part(task.sharing, thread), task.sharing.step
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
            if not task.claimed:
                word = np.int64(row >> np.uint32(5))
                bit = np.uint32(1) << (row & np.uint32(31))
                if own_visited[word] & bit:
                    continue
                if own[0] == own[1] and not reserve(shared, own, 0, task.chunk, frontier.size):
                    own[2], own[3] = i, stop
                    return count, total
                if fetch_or(own_visited, word, bit) & bit:
                    continue
                at = own[0]
                own[0] = at + 1
            task.distances[row] = task.distance
            task.finders[row] = task.finder
            frontier[at] = row
            count += 1
            total += task.degrees[row]

"""CPU kernels of large levels of a 2-D partition: the threads of a team call a kernel at once, with the same arrays.

The lists are those of ``grid`` beside this; the threads share the work by the templates of ``walk``.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numba.extending import register_jitable
from numpy.typing import NDArray

from dbfs_workers.base.jit import INT32, READ_INT64, READ_UINT32, UINT16, UINT32, int64, kernel, named
from dbfs_workers.features.grid.kernels.grid import adopt, label
from dbfs_workers.search.cpu.kernels.places import SEEN, SHARING, Shares, Sharing, own_part, seen, take_shared
from dbfs_workers.search.cpu.kernels.walk import contraction_shared, search_shared, walk_shared
from dbfs_workers.search.partition.kernels.rows import ROWS
from dbfs_workers.search.partition.partition import Rows


class GridExpansion(NamedTuple):
    """The task of a large part of a frontier.

    Attributes:
        rows, frontier, source_first, row_first, visited, parents, found: see ``grid.top_down``.
        chunk: places of a list that a thread reserves at a time.
        sharing: with the ranks of the grid's row as owners.
    """

    rows: Rows
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
        rows, frontier_bits, empty, visited, grid_column, grid_columns, parents, found: see ``grid.bottom_up``.
        room: uint32[n_local], scratch space.
        sharing: with one owner.
    """

    rows: Rows
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
        rows, visited, finder, distance, distances, finders, degrees, frontier: see ``grid.contract``.
        chunk: places of ``frontier`` that a thread reserves at a time.
        sharing: with one owner.
    """

    rows: NDArray[np.uint32]
    visited: NDArray[np.uint32]
    finder: int
    distance: int
    distances: NDArray[np.int32]
    finders: NDArray[np.uint16]
    degrees: NDArray[np.int64]
    frontier: NDArray[np.uint32]
    chunk: int
    sharing: Sharing


GRID_EXPANSION: Final = named(GridExpansion, ROWS, READ_UINT32, int64, int64, *(UINT32,) * 3, int64, SHARING)
GRID_SEARCHING: Final = named(GridSearch, ROWS, *(READ_UINT32,) * 2, UINT32, int64, int64, *(UINT32,) * 3, SHARING)
GRID_CONTRACTION: Final = named(
    GridContraction, READ_UINT32, UINT32, int64, int64, INT32, UINT16, READ_INT64, UINT32, int64, SHARING
)


@register_jitable
def find(to, counts, row, u):
    """List a new vertex for its owner while other threads do: a visit of ``walk``, refused if there is no place.

    A twin of ``grid.find``: with the lists of one thread, this one took 5 to 9 % longer.
    """
    lists, source, first, width, visited, parents, found = to
    place = np.uint32(u - first)
    if seen(visited, place):
        return True, counts
    owner = place // width
    at = take_shared(lists, visited, place, np.int64(owner), 0)
    if at < 0:
        return at == SEEN, counts
    if parents.size:
        parents[place] = source + row
    found[np.int64(owner) * lists.room + at] = place - owner * width
    return True, counts


@kernel(int64, GRID_EXPANSION, int64)
def expand(task, thread):
    """Do a thread's part of ``grid.top_down``; return the edges that it inspected: see ``walk_shared``."""
    sharing, width = task.sharing, task.rows.starts.size
    lists = Shares(sharing.shared, own_part(sharing, thread), -1, 0, 0, task.chunk, width)
    source, first = np.uint32(task.source_first), np.uint32(task.row_first)
    to = lists, source, first, np.uint32(width), task.visited, task.parents, task.found
    edges, _ = walk_shared(task.rows, task.frontier, sharing, thread, find, to, 0)
    return edges


@kernel(types.UniTuple(int64, 2), GRID_SEARCHING)
def search(task):
    """Do a thread's part of ``grid.bottom_up``; return the same counts, of this thread."""
    to = task.parents, task.rows.starts.size, task.grid_column, task.grid_columns
    bits = task.empty, task.frontier_bits, task.visited, task.visited[:0]
    edges, count, _ = search_shared(task.rows, *bits, task.sharing, adopt, to, task.room, task.found)
    return edges, count


@kernel(types.UniTuple(int64, 2), GRID_CONTRACTION, int64)
def contract(task, thread):
    """Do a thread's part of ``grid.contract``; return the same counts, of this thread: see ``contraction_shared``."""
    to = task.finder, task.distance, task.distances, task.finders, task.degrees
    sharing, chunk = task.sharing, task.chunk
    return contraction_shared(task.rows, sharing, thread, chunk, task.visited, label, to, task.frontier)

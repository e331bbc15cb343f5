"""CPU kernels of large levels: the threads of a team call a kernel at once, with the same task.

The threads share the work by the templates of ``walk``, and claim vertices as in ``places``.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dbfs_workers.base.jit import READ_INT64, READ_UINT32, UINT32, int64, kernel, named
from dbfs_workers.search.cpu.kernels.level import adopt, find
from dbfs_workers.search.cpu.kernels.phases import BINS, LABELS, Bins, label
from dbfs_workers.search.cpu.kernels.places import SHARING, Shares, Sharing, own_part, take_shared
from dbfs_workers.search.cpu.kernels.walk import contraction_shared, search_shared, walk_shared
from dbfs_workers.search.partition.kernels.rows import ROWS
from dbfs_workers.search.partition.labels import LabelArrays
from dbfs_workers.search.partition.partition import Rows


class Expansion(NamedTuple):
    """The task of a large top-down level.

    Attributes:
        rows, frontier, first_id, visited, bins, distance, labels, discovered: see ``resident.top_down``.
        chunk, bin_chunk: places that a thread reserves at a time, in ``discovered`` and in a bin.
        sharing: with the ranks as owners.
    """

    rows: Rows
    frontier: NDArray[np.uint32]
    first_id: int
    visited: NDArray[np.uint32]
    bins: Bins
    distance: int
    labels: LabelArrays
    discovered: NDArray[np.uint32]
    chunk: int
    bin_chunk: int
    sharing: Sharing


class Search(NamedTuple):
    """The task of a large bottom-up level.

    Attributes:
        into: the lists of possible parents.
        rows, frontier_bits, own_visited, found_bits, distance, labels, discovered: see
            ``resident.bottom_up``.
        found: uint32[n_local], scratch space.
        sharing: with one owner.
    """

    into: Rows
    rows: Rows
    frontier_bits: NDArray[np.uint32]
    own_visited: NDArray[np.uint32]
    found_bits: NDArray[np.uint32]
    distance: int
    labels: LabelArrays
    found: NDArray[np.uint32]
    discovered: NDArray[np.uint32]
    sharing: Sharing


class Contraction(NamedTuple):
    """The task of a large bin.

    Attributes:
        rows, parents, own_visited, distance, labels, discovered: see ``phases.contract``.
        chunk: places of ``discovered`` that a thread reserves at a time.
        sharing: with one owner.
    """

    rows: NDArray[np.uint32]
    parents: NDArray[np.uint32]
    own_visited: NDArray[np.uint32]
    distance: int
    labels: LabelArrays
    discovered: NDArray[np.uint32]
    chunk: int
    sharing: Sharing


EXPANSION: Final = named(
    Expansion, ROWS, READ_UINT32, int64, UINT32, BINS, int64, LABELS, UINT32, int64, int64, SHARING
)
SEARCHING: Final = named(Search, ROWS, ROWS, READ_UINT32, UINT32, UINT32, int64, LABELS, UINT32, UINT32, SHARING)
CONTRACTION: Final = named(Contraction, READ_UINT32, READ_UINT32, UINT32, int64, LABELS, UINT32, int64, SHARING)


@kernel(types.boolean, READ_INT64, READ_INT64, READ_UINT32, int64, int64, int64)
def is_large(starts, ends, frontier, first, max_degree, least_edges):
    """Return whether the frontier's rows from place ``first`` on have ``least_edges`` or more; 0 means never.

    The rows are looked at only if their number allows it, and only until they have as many.
    """
    if least_edges == 0 or (frontier.size - first) * max_degree < least_edges:
        return False
    edges = 0
    for i in range(first, frontier.size):
        edges += ends[frontier[i]] - starts[frontier[i]]
        if edges >= least_edges:
            return True
    return False


@kernel(types.UniTuple(int64, 3), EXPANSION, int64)
def expand(task, thread):
    """Do a thread's part of ``resident.top_down``; return the same counts, of this thread: see ``walk_shared``."""
    bins, sharing, discovered = task.bins, task.sharing, task.discovered
    width, entries = task.rows.starts.size, bins.rows.size // bins.ends.size
    part, own = own_part(sharing, thread), task.first_id // width
    lists = Shares(sharing.shared, part, own, task.chunk, discovered.size, task.bin_chunk, entries)
    first, visited = np.uint32(task.first_id), task.visited
    to = take_shared, lists, first, np.uint32(width), visited, bins, task.distance, task.labels, discovered
    edges, (found, sent) = walk_shared(task.rows, task.frontier, sharing, thread, find, to, (0, 0))
    return edges, found, sent


@kernel(types.UniTuple(int64, 3), SEARCHING)
def search(task):
    """Do a thread's part of ``resident.bottom_up``; return the same counts, of this thread."""
    to, none = (task.rows.starts, task.rows.ends, task.distance, task.labels), task.found_bits[:0]
    bits = none, task.frontier_bits, task.own_visited, task.found_bits
    return search_shared(task.into, *bits, task.sharing, adopt, to, task.found, task.discovered)


@kernel(int64, CONTRACTION, int64)
def contract(task, thread):
    """Do a thread's part of ``phases.contract``; return the vertices that it found: see ``contraction_shared``."""
    to = task.parents, task.distance, task.labels
    found, _ = contraction_shared(
        task.rows, task.sharing, thread, task.chunk, task.own_visited, label, to, task.discovered
    )
    return found


@kernel(int64, UINT32, UINT32, int64, READ_INT64, READ_INT64)
def close_gaps(rows, parents, end, starts, stops):
    """Move the last entries of a list into its gaps; return the number of entries.

    Args:
        rows, parents: the list; empty parents mean none.
        end: its end, with the gaps.
        starts, stops: int64, where the gaps begin and end, the last gap first.
    """
    for gap in range(starts.size):
        start, stop = starts[gap], stops[gap]
        count = min(stop - start, end - stop)
        for i in range(count):
            rows[start + i] = rows[end - count + i]
            if parents.size:
                parents[start + i] = parents[end - count + i]
        end -= stop - start
    return end

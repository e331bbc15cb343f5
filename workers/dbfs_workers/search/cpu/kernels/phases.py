"""CPU kernels of the phases (Merrill 2012, sections 4 to 6): one thread a rank, plain arrays in and out.

Bitmaps are uint32 words: id ``i`` is bit ``i % 32`` of word ``i // 32``. An empty ``parents`` or ``predecessors`` array
means that the run records no predecessors.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numba.extending import register_jitable
from numpy.typing import NDArray

from dbfs_workers.base.jit import (
    INT32,
    INT64,
    READ_INT64,
    READ_UINT32,
    UINT32,
    allocating_kernel,
    int64,
    kernel,
    named,
    void,
)
from dbfs_workers.search.cpu.kernels.places import take_next
from dbfs_workers.search.cpu.kernels.walk import contraction, walk
from dbfs_workers.search.partition.labels import LabelArrays
from dbfs_workers.search.partition.partition import Rows


class Bins(NamedTuple):
    """The bins of one crossing, as of ``Exchange``: local ids, internal ids, and the number of entries by owner."""

    rows: NDArray[np.uint32]
    parents: NDArray[np.uint32]
    ends: NDArray[np.int64]


BINS: Final = named(Bins, UINT32, UINT32, INT64)
LABELS: Final = named(LabelArrays, INT32, UINT32)


@kernel(types.boolean, UINT32, types.uint32)
def claim(visited, i):
    """Set bit ``i``; return whether it was clear. Every phase drops visited vertices and duplicates by it."""
    word = visited[i >> np.uint32(5)]
    bit = np.uint32(1) << (i & np.uint32(31))
    if word & bit:
        return False
    visited[i >> np.uint32(5)] = word | bit
    return True


@kernel(int64, READ_INT64, READ_INT64, READ_UINT32, plain=True)
def edge_count(starts, ends, frontier):
    """Return the sum of the frontier's degrees."""
    total = 0
    for row in frontier:
        total += ends[row] - starts[row]
    return total


@register_jitable
def gather(to, at, row, u):
    """Copy a neighbour to place ``at``: a visit of ``walk``."""
    first_id, neighbours, parents = to
    neighbours[at] = u
    if parents.size:
        parents[at] = first_id + row
    return True, at + 1


@kernel(void, READ_INT64, READ_UINT32, READ_UINT32, int64, UINT32, UINT32)
def expand(row_offsets, columns, frontier, first_id, neighbours, parents):
    """Copy the adjacency lists of the frontier's rows one after another."""
    rows = Rows(row_offsets[:-1], row_offsets[1:], columns)
    walk(rows, frontier, 0, 0, gather, (first_id, neighbours, parents), 0)


@allocating_kernel(INT64, READ_UINT32, READ_UINT32, UINT32, int64, int64, UINT32, UINT32)
def filter_visited(neighbours, parents, visited, p, n_local, kept, kept_parents):
    """Keep each neighbour whose bit was clear, and set the bit; return int64[p + 1], the offsets of the owners' bins.

    Testing and setting in one pass removes duplicates exactly: the second copy finds the bit set.
    """
    offsets = np.zeros(p + 1, np.int64)
    width = np.uint32(n_local)
    at = 0
    for i in range(neighbours.size):
        u = neighbours[i]
        if claim(visited, u):
            kept[at] = u
            if parents.size:
                kept_parents[at] = parents[i]
            at += 1
            offsets[u // width + np.uint32(1)] += 1
    for owner in range(p):
        offsets[owner + 1] += offsets[owner]
    return offsets


@kernel(void, READ_UINT32, READ_UINT32, int64, INT64, UINT32, UINT32)
def scatter_to_owners(ids, parents, n_local, cursor, rows, row_parents):
    """Write each internal id as a local id at its owner's cursor (int64[p])."""
    width = np.uint32(n_local)
    for i in range(ids.size):
        owner = ids[i] // width
        at = cursor[owner]
        rows[at] = ids[i] - owner * width
        if parents.size:
            row_parents[at] = parents[i]
        cursor[owner] = at + 1


@register_jitable
def label(to, entry, row):
    """Label the row of an entry of a bin: for ``contraction``."""
    parents, distance, labels = to
    labels.distances[row] = distance
    if labels.predecessors.size:
        labels.predecessors[row] = parents[entry]
    return 0


@kernel(int64, READ_UINT32, READ_UINT32, UINT32, int64, INT32, UINT32, UINT32, plain=True)
def contract(rows, parents, own_visited, distance, distances, predecessors, discovered):
    """Label a bin's new vertices and queue them; return their number. With an empty ``own_visited`` all are new."""
    to = parents, distance, LabelArrays(distances, predecessors)
    _, found, _ = contraction(rows, 0, rows.size, take_next, (), own_visited, label, to, discovered, 0)
    return found

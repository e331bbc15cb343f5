"""CPU kernels that send distances to the owners of vertices, take those of peers, and make labels at the end.

An entry takes two places of a bin: a row and the parent's id, then the halves of the distance's key.
"""

from typing import Final

import numpy as np
from numba import types

from dbfs_workers.base.jit import INT64, READ_UINT32, UINT32, int64, kernel, void
from dbfs_workers.features.weights.kernels.piles import PILE_RECORDS, SEARCH
from dbfs_workers.features.weights.kernels.rounds import pile_up
from dbfs_workers.features.weights.keys import PAST
from dbfs_workers.search.partition.stripe import NO_VERTEX

PLACES: Final = 2
"""Places of an entry."""

BYTES: Final = 8 * PLACES
"""Bytes of an entry."""

_HALF = np.int64(32)
_LOW = np.int64(0xFFFFFFFF)


@kernel(types.UniTuple(int64, 2), SEARCH, UINT32, UINT32, INT64)
def pack(search, bin_rows, bin_parents, bin_ends):
    """Fill the bins with changes, from the ends of the lists; return the entries made, and those left over."""
    p, width = search.ends.size, search.rows.starts.size
    room = bin_rows.size // p
    made = left = 0
    for owner in range(p):
        at, count = owner * room, search.ends[owner]
        packed = min(count, room // PLACES)
        for i in range(count - packed, count):
            row = search.changed[owner * width + i]
            v = owner * width + row
            key = search.distances[v]
            search.flags[v] = 0
            bin_rows[at], bin_parents[at] = row, search.parents[v]
            bin_rows[at + 1], bin_parents[at + 1] = np.uint32(key & _LOW), np.uint32(key >> _HALF)
            at += PLACES
        search.ends[owner] = count - packed
        bin_ends[owner] = PLACES * packed
        made += packed
        left += count - packed
    return made, left


@kernel(void, SEARCH, PILE_RECORDS, READ_UINT32, READ_UINT32)
def take(search, records, rows, parents):
    """Take the entries of a peer's bin."""
    piles = records[0]
    successor = search.even_queue if piles.queue else search.odd_queue
    for i in range(0, rows.size, PLACES):
        row, key = rows[i], np.int64(parents[i + 1]) << _HALF | np.int64(rows[i + 1])
        at = search.first + row
        before = search.distances[at]
        if key < before:
            search.distances[at] = key
            search.parents[at] = parents[i]
            piles.reached += before == piles.unreached
            pile_up(search, piles, row, key, successor)


@kernel(types.UniTuple(int64, 3), SEARCH, int64, UINT32)
def finish(search, final, parents):
    """Make the labels of the rank's rows, in place: those beyond the last bucket become unreached.

    Args:
        search: the arrays. Distances of unreached rows become -1.
        final: the largest key that is final.
        parents: uint32[n_local], overwritten with the predecessors; empty for none.

    Returns:
        The rows reached, the sum of their degrees, and the number of those whose distance int64 does not hold.
    """
    starts, ends, _ = search.rows
    reached = degrees = past = 0
    for row in range(starts.size):
        at = search.first + row
        key = search.distances[at]
        if key > final:
            search.distances[at] = -1
        else:
            reached += 1
            degrees += ends[row] - starts[row]
            past += key == PAST
        if parents.size:
            parents[row] = NO_VERTEX if key > final else search.parents[at]
    return reached, degrees, past

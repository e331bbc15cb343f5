"""CPU kernels of a repair's search: the rows that an offer brought nearer are expanded level by level.

The search starts from rows whose distances may be thousands of levels apart: its candidates. A level is the rows at one
distance. The ranks expand the nearest level that any of them has, then the nearest one that is left, and so on. So a
row is expanded once, at its final distance: every later offer comes from a row that is as far away or farther.

All rows in the queue behind the level in progress are one farther away. A rank whose bins are full leaves its level
unfinished, and all ranks stay at that level for another round.
"""

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from dbfs_workers.base.jit import INT64, int64, kernel, void
from dbfs_workers.features.living.kernels.repair import (
    LABELS,
    QUEUED,
    STATE_RECORD,
    Labels,
    enqueue,
    offer,
    relax,
)
from dbfs_workers.search.cpu.kernels.phases import BINS
from dbfs_workers.search.cpu.kernels.walk import walk
from dbfs_workers.search.partition.kernels.rows import ROWS

FAR = np.int64(1) << 40
"""The distance of the nearest level of a rank that has none left."""

# A candidate is its distance and its row, in the upper and the lower half: sorted candidates are in order of distance.
_ROW = (np.int64(1) << 32) - 1


def take_candidates(labels: Labels, state: np.void) -> NDArray[np.int64]:
    """Take all rows from the queue, before the first level; return them as candidates, in order of distance."""
    rows = labels.queue.take(np.arange(state["head"], state["tail"]), mode="wrap")
    labels.marks[rows] &= ~QUEUED
    state["head"] = state["level_end"] = state["tail"]
    state["level"] = state["next_level"] = state["first_level"] = -1
    candidates: NDArray[np.int64] = labels.distances[rows].astype(np.int64) << 32 | rows
    candidates.sort()
    return candidates


@kernel(void, INT64, LABELS, STATE_RECORD)
def begin_level(candidates, labels, state):
    """Queue the candidates of the next level, if the ranks have finished the last one."""
    if state.next_level <= state.level:
        return
    state.level = state.next_level
    while state.candidate < candidates.size and candidates[state.candidate] >> 32 <= state.level:
        row = candidates[state.candidate] & _ROW
        # The other candidates came nearer in the meantime, and have been expanded.
        if labels.distances[row] == state.level:
            enqueue(row, labels, state)
        state.candidate += 1
    state.level_end = state.tail


@register_jitable
def approach(to, counts, row, u):
    """Label a neighbour, or send an offer to its owner: a visit of ``walk``."""
    labels, bins, state, last = to
    if state.looked > last:
        return False, counts
    own, width, sender = u - state.first, np.uint32(labels.distances.size), state.first + row
    if own < width:
        relax(own, sender, labels.distances[row], labels, state)
    elif not offer(u, width, sender, labels.distances[row], bins):
        return False, counts
    state.looked += 1
    return True, counts


@kernel(int64, ROWS, LABELS, BINS, STATE_RECORD)
def expand(rows, labels, bins, state):
    """Label the neighbours of the level's rows, or send offers to other ranks; return how many rows are left.

    Rows are left if a bin is full, or after ``state.most`` edges.
    """
    last, ring = state.looked + state.most, labels.queue
    while state.head < state.level_end:
        # The rows up to the end of the ring, or of the level.
        begin = state.head % ring.size
        stop = min(begin + state.level_end - state.head, ring.size)
        at, state.resume, _, _ = walk(rows, ring[:stop], begin, state.resume, approach, (labels, bins, state, last), 0)
        state.head += at - begin
        if at < stop:
            break
    return state.level_end - state.head


@kernel(int64, INT64, LABELS, BINS, STATE_RECORD)
def nearest(candidates, labels, bins, state):
    """Return the nearest level that follows on this rank, or on those that this rank sends offers to; else FAR."""
    if state.tail > state.level_end or bins.ends.sum() > 0:
        return state.level + 1
    while state.candidate < candidates.size:
        distance = candidates[state.candidate] >> 32
        if labels.distances[candidates[state.candidate] & _ROW] == distance:
            return distance
        state.candidate += 1
    return FAR


@kernel(int64, INT64, BINS, STATE_RECORD)
def count_left(candidates, bins, state):
    """Return the number of rows that are not expanded yet, candidates included, and of entries in this rank's bins."""
    return state.tail - state.head + candidates.size - state.candidate + bins.ends.sum()

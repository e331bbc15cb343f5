"""CPU kernels of a repair's search: the rows that an offer brought nearer are expanded level by level.

The search starts from rows whose distances may be thousands of levels apart: its candidates. A level is the rows at one
distance. The ranks expand the nearest level that any of them has, then the nearest one that is left, and so on. So a
row is expanded once, at its final distance: every later offer comes from a row that is as far away or farther.

All rows in the queue behind the level in progress are one farther away. A rank whose bins are full leaves its level
unfinished, and all ranks stay at that level for another round.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from dbfs_workers.jit import INT32, INT64, UINT32, int64, kernel, void
from dbfs_workers.levels.repair_kernels import (
    BINS,
    CANDIDATE,
    HEAD,
    LABELS,
    LEVEL,
    LEVEL_END,
    LOOKED,
    MOST,
    NEXT_LEVEL,
    QUEUED,
    RESUME,
    ROWS,
    TAIL,
    fetch_edges,
    offer,
    relax,
)

FAR = np.int64(1) << 40
"""The distance of the nearest level of a rank that has none left."""

# A candidate is its distance and its row, in the upper and the lower half: sorted candidates are in order of distance.
_ROW = (np.int64(1) << 32) - 1


def take_candidates(
    distances: NDArray[np.int32], marks: NDArray[np.uint8], queue: NDArray[np.uint32], state: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Take all rows from the queue, before the first level; return them as candidates, in order of distance."""
    rows = queue.take(np.arange(state[HEAD], state[TAIL]), mode="wrap")
    marks[rows] &= ~QUEUED
    state[HEAD] = state[LEVEL_END] = state[TAIL]
    state[LEVEL] = -1
    candidates: NDArray[np.int64] = distances[rows].astype(np.int64) << 32 | rows
    candidates.sort()
    return candidates


@kernel(void, INT64, INT32, UINT32, INT64)
def begin_level(candidates, distances, queue, state):
    """Queue the candidates of the next level, if the ranks have finished the last one."""
    if state[NEXT_LEVEL] <= state[LEVEL]:
        return
    state[LEVEL] = state[NEXT_LEVEL]
    while state[CANDIDATE] < candidates.size and candidates[state[CANDIDATE]] >> 32 <= state[LEVEL]:
        row = candidates[state[CANDIDATE]] & _ROW
        # The other candidates came nearer in the meantime, and have been expanded.
        if distances[row] == state[LEVEL]:
            queue[state[TAIL] % queue.size] = row
            state[TAIL] += 1
        state[CANDIDATE] += 1
    state[LEVEL_END] = state[TAIL]


@kernel(int64, *ROWS, types.uint32, *LABELS, *BINS)
def expand(
    starts,
    ends,
    columns,
    first,
    distances,
    predecessors,
    marks,
    queue,
    touched,
    before,
    state,
    bin_rows,
    bin_parents,
    bin_ends,
):
    """Label the neighbours of the level's rows, or send offers to other ranks; return how many rows are left.

    Rows are left if a bin is full, or after ``state[MOST]`` edges.
    """
    labels = (distances, predecessors, marks, queue, touched, before, state)
    width = np.uint32(distances.size)
    last = state[LOOKED] + state[MOST]
    while state[HEAD] < state[LEVEL_END] and state[LOOKED] <= last:
        row = np.int64(queue[state[HEAD] % queue.size])
        fetch_edges(queue, state[HEAD], state[LEVEL_END], starts, ends, columns)
        start, sender = starts[row], first + np.uint32(row)
        for k in range(start + state[RESUME], ends[row]):
            own = columns[k] - first
            if own < width:
                relax(own, sender, distances[row], *labels)
            elif not offer(columns[k], width, sender, distances[row], bin_rows, bin_parents, bin_ends):
                state[RESUME] = k - start
                return state[LEVEL_END] - state[HEAD]
            state[LOOKED] += 1
        state[RESUME] = 0
        state[HEAD] += 1
    return state[LEVEL_END] - state[HEAD]


@kernel(int64, INT64, INT32, INT64, INT64)
def nearest(candidates, distances, state, bin_ends):
    """Return the nearest level that follows on this rank, or on those that this rank sends offers to; else FAR."""
    if state[TAIL] > state[LEVEL_END] or bin_ends.sum() > 0:
        return state[LEVEL] + 1
    while state[CANDIDATE] < candidates.size:
        distance = candidates[state[CANDIDATE]] >> 32
        if distances[candidates[state[CANDIDATE]] & _ROW] == distance:
            return distance
        state[CANDIDATE] += 1
    return FAR


@kernel(int64, INT64, INT64, INT64)
def count_left(candidates, state, bin_ends):
    """Return the number of rows that are not expanded yet, candidates included, and of entries in this rank's bins."""
    return state[TAIL] - state[HEAD] + candidates.size - state[CANDIDATE] + bin_ends.sum()

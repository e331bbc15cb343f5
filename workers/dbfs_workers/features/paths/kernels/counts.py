"""Kernels that count the shortest paths from a vertex to all others, level by level.

A row adds its number to each neighbour at the next distance. A number for another rank's row takes two entries of a
bin, since an entry has room for 32 bits of it: the lower ones, and then the upper ones.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numba.extending import register_jitable
from numpy.typing import NDArray

from dbfs_workers.base.jit import INT64, READ_INT32, READ_UINT32, int64, kernel, named
from dbfs_workers.search.cpu.kernels.phases import BINS
from dbfs_workers.search.cpu.kernels.walk import walk
from dbfs_workers.search.partition.kernels.rows import ROWS

_FLOAT64: Final = types.Array(types.float64, 1, "C")
_MOST = np.int64(2**63 - 1)
_LOW, _HALF = np.int64(0xFFFFFFFF), np.int64(32)


class Numbers(NamedTuple):
    """Numbers of paths on one rank, and a word of scratch space: each as integers and as floats in the same memory.

    Attributes:
        exact, floats: int64[n_local] and float64[n_local].
        word, as_float: int64[1] and float64[1].
        in_floats: whether the numbers are floats.
    """

    exact: NDArray[np.int64]
    floats: NDArray[np.float64]
    word: NDArray[np.int64]
    as_float: NDArray[np.float64]
    in_floats: bool


NUMBERS: Final = named(Numbers, INT64, _FLOAT64, INT64, _FLOAT64, types.boolean)


@register_jitable
def add(numbers, row, number):
    """Add the bits of a number to a row's; return 1 if the sum is too large."""
    if numbers.in_floats:
        numbers.word[0] = number
        numbers.floats[row] += numbers.as_float[0]
        return 0 if np.isfinite(numbers.floats[row]) else 1
    if numbers.exact[row] > _MOST - number:
        return 1
    numbers.exact[row] += number
    return 0


@register_jitable
def pass_on(to, counts, row, u):
    """Add a row's number to a neighbour of this rank at a distance, and bin it for one of another rank: a visit.

    The counts are the row and the neighbour of the last visit, and whether a sum is too large.
    """
    numbers, distances, wanted, bins, first, width = to
    before, last, over = counts
    if np.int64(row) == before and np.int64(u) == last:
        # Parallel edges lie beside each other.
        return True, counts
    counts = np.int64(row), np.int64(u), over
    number = numbers.exact[row]
    local = u - first
    if local < width:
        if distances[local] == wanted:
            counts = np.int64(row), np.int64(u), max(over, add(numbers, local, number))
        return True, counts
    owner = np.int64(u // width)
    room = bins.rows.size // bins.ends.size
    at = bins.ends[owner]
    if at + 2 > room:
        return False, counts
    place = owner * room + at
    bins.rows[place] = bins.rows[place + 1] = u - np.uint32(owner) * width
    bins.parents[place], bins.parents[place + 1] = np.uint32(number & _LOW), np.uint32(number >> _HALF & _LOW)
    bins.ends[owner] = at + 2
    return True, counts


@kernel(int64, ROWS, READ_UINT32, INT64, READ_INT32, int64, BINS, int64, NUMBERS)
def count_level(rows, frontier, resume, distances, wanted, bins, first_id, numbers):
    """Pass the numbers of a frontier on to the next distance; return 1 if a sum is too large.

    Args:
        rows: the edges.
        frontier: the rows at a distance.
        resume: int64[2], where the walk goes on; updated.
        distances: of the rank's rows.
        wanted: the next distance.
        bins, first_id: as of ``expand``.
        numbers: updated.
    """
    width = rows.starts.size
    to = numbers, distances, wanted, bins, np.uint32(first_id), np.uint32(width)
    counts = np.int64(-1), np.int64(-1), 0
    resume[0], resume[1], _, (_, _, over) = walk(rows, frontier, resume[0], resume[1], pass_on, to, counts)
    return over


@kernel(int64, READ_UINT32, READ_UINT32, READ_INT32, int64, NUMBERS)
def take_counts(rows, halves, distances, wanted, numbers):
    """Add the numbers of a bin; return 1 if a sum is too large."""
    over = 0
    for i in range(0, rows.size, 2):
        number = np.int64(halves[i]) | np.int64(halves[i + 1]) << _HALF
        if distances[rows[i]] == wanted:
            over = max(over, add(numbers, rows[i], number))
    return over

"""CPU kernels that check rows of a CSR in one pass: ``symmetry``, and the rows of a saved partition. Rows as a type.

One pass over a saved partition takes a fifth of the time of NumPy's seven.
"""

from typing import Final

import numpy as np
from numba import types

from dbfs_workers.base.jit import READ_INT64, READ_UINT32, int64, kernel, named, read_only
from dbfs_workers.search.partition.partition import Rows

ROWS: Final = named(Rows, READ_INT64, READ_INT64, READ_UINT32)
"""The type of what ``kernel_rows`` returns."""


def kernel_rows(rows: Rows) -> Rows:
    """Return rows as kernels take them: read-only views."""
    return Rows(read_only(rows.starts), read_only(rows.ends), read_only(rows.columns))


_FACTOR, _HALF, _ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(32), np.uint64(1)


@kernel(types.UniTuple(types.uint64, 2), READ_INT64, READ_UINT32, int64, int64, int64)
def imbalance_of_rows(offsets, columns, first_id, first, end):
    """Return the imbalance of the edges of the rows ``first`` to ``end - 1``, and their largest column (0 for none).

    Row i has the id ``first_id + i``. All edges of a row u together add q(u) times the sum of g(v), less g(u) times the
    sum of q(v).
    """
    total, largest = np.uint64(0), np.uint32(0)
    # Unsigned: an index that may be negative keeps LLVM from vectorising the loop, which halves its speed.
    at = np.uint64(offsets[first])
    for row in range(first, end):
        of_q, of_g, stop = np.uint64(0), np.uint64(0), np.uint64(offsets[row + 1])
        while at < stop:
            column = columns[at]
            x = np.uint64(column) * _FACTOR + _FACTOR
            q = x >> _HALF
            of_q += q
            of_g += x + q * q
            largest = max(largest, column)
            at += _ONE
        x = np.uint64(first_id + row) * _FACTOR + _FACTOR
        q = x >> _HALF
        total += q * of_g - (x + q * q) * of_q
    return total, np.uint64(largest)


boolean = types.boolean


@kernel(boolean, READ_INT64)
def ascend(offsets):
    """Return whether no row offset is below the one before."""
    right = True
    for i in range(1, offsets.size):
        right &= offsets[i] >= offsets[i - 1]
    return right


@kernel(boolean, READ_UINT32, int64, int64, int64)
def are_vertices(columns, n, p, n_local):
    """Return whether all columns are internal ids of the ``n`` vertices on ``p`` ranks with ``n_local`` rows each.

    A processor divides integers slowly. The product with the inverse of ``n_local`` is off by less than one.
    """
    inverse = 1 / np.float64(n_local)
    # A row below n // p is a vertex's on every rank.
    full = n // p
    for column in columns:
        one = int64(column)
        owner = int64(np.float64(one) * inverse)
        row = one - owner * n_local
        if row < 0:
            owner, row = owner - 1, row + n_local
        elif row >= n_local:
            owner, row = owner + 1, row - n_local
        if owner >= p or (row >= full and row * p + owner >= n):
            return False
    return True

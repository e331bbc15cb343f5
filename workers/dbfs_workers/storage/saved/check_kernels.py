"""CPU kernels that check the rows of a saved partition. One pass takes a fifth of the time of NumPy's seven."""

import numpy as np
from numba import types

from dbfs_workers.jit import READ_INT64, READ_UINT32, int64, kernel

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

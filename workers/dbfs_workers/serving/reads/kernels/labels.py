"""CPU kernels that put a rank's labels into the order of a client's array.

Quotients are products with a reciprocal, which are faster than divisions. The half keeps them exact: the sum is at
least 0.5 / divisor away from a whole multiple, and the rounding of numbers below 2^32 is far smaller.
"""

import numpy as np

from dbfs_workers.base.jit import READ_UINT32, UINT32, allocating_kernel, int64, kernel, void

_NONE = np.uint32(0xFFFFFFFF)
_BLOCK = 1024


@kernel(void, READ_UINT32, int64, int64, UINT32, plain=True)
def positions_of(ids, n_local, p, out):
    """Write the position of each internal id; ``NO_VERTEX`` stays."""
    per_rank = 1.0 / n_local
    for i in range(ids.size):
        owner = int64((ids[i] + 0.5) * per_rank)
        position = (int64(ids[i]) - owner * n_local) * p + owner
        out[i] = _NONE if ids[i] == _NONE else np.uint32(position)


@allocating_kernel(void, READ_UINT32, int64, int64, int64, READ_UINT32, UINT32)
def place(values, n_local, rank, p, positions, out):
    """Write the labels of a rank's rows to those places of ``out`` whose position the rank owns.

    If the labels are internal ids, ``n_local`` is the rows of a rank, and positions are written instead; else 0.

    The owners of neighbours are random. So the own places of a block are listed first without a branch, which would be
    mispredicted every other time, and the loads of the labels do not wait for each other.
    """
    per_position = 1.0 / p
    per_rank = 1.0 / n_local if n_local else 0.0
    places = np.empty(_BLOCK, np.int64)
    rows = np.empty(_BLOCK, np.int64)
    for first in range(0, positions.size, _BLOCK):
        found = 0
        for i in range(first, min(first + _BLOCK, positions.size)):
            row = int64((positions[i] + 0.5) * per_position)
            places[found] = i
            rows[found] = row
            found += int64(int64(positions[i]) - row * p == rank)
        for k in range(found):
            value = values[rows[k]]
            if n_local and value != _NONE:
                owner = int64((value + 0.5) * per_rank)
                value = np.uint32((int64(value) - owner * n_local) * p + owner)
            out[places[k]] = value

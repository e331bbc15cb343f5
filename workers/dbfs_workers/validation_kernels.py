"""CPU kernels of the validator: one pass over a rank's edges against everybody's labels."""

import numpy as np
from numba import types

from dbfs_workers.jit import READ_INT32, READ_INT64, READ_UINT32, UINT32, int64, kernel


@kernel(
    types.UniTuple(int64, 3),
    READ_INT64,
    READ_UINT32,
    int64,
    READ_INT32,
    READ_INT64,
    types.boolean,
    int64,
    UINT32,
)
def check_edges(row_offsets, columns, first_id, distances, predecessors, directed, bound, supported):
    """Check each edge (u, v); returns (rule, u, v) of the first that breaks one, or (0, 0, 0).

    ``distances`` and ``predecessors`` are over all internal ids, predecessors as internal ids (empty: none). A vertex
    at distance ``bound`` was not expanded. The bit of v in ``supported`` is set where v may have been reached over
    (u, v).

    Rules: 1, u is reached and v is not; 2, v is more than one level below u.
    """
    for row in range(row_offsets.size - 1):
        u = first_id + row
        du = distances[u]
        for k in range(row_offsets[row], row_offsets[row + 1]):
            v = np.int64(columns[k])
            dv = distances[v]
            if du < 0:
                # In an undirected graph the reverse edge shows this too, but it may be the one that is missing.
                if not directed and 0 <= dv < bound:
                    return 1, v, u
                continue
            if dv < 0:
                if du < bound:
                    return 1, u, v
                continue
            if dv > du + 1:
                return 2, u, v
            if dv == du + 1 and (predecessors.size == 0 or predecessors[v] == u):
                supported[v >> 5] |= np.uint32(1) << np.uint32(v & 31)
    return 0, 0, 0

"""CPU kernels of labels."""

import numpy as np

from dbfs_workers.intrinsics import trailing_zeros
from dbfs_workers.jit import INT32, READ_UINT32, UINT32, kernel, void


@kernel(void, READ_UINT32, INT32, UINT32)
def label_unvisited(own_visited, distances, predecessors):
    """Write "unreached" to the labels of the rows whose bit is clear. Empty predecessors mean none."""
    for w in range(own_visited.size):
        todo = ~own_visited[w]
        while todo:
            row = np.int64(w) * 32 + trailing_zeros(todo)
            todo &= todo - np.uint32(1)
            distances[row] = -1
            if predecessors.size:
                predecessors[row] = np.uint32(0xFFFFFFFF)

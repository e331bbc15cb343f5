"""CPU kernels of the labels that are written at once: of the sources, and of unreached vertices."""

import numpy as np

from dbfs_workers.base.intrinsics import trailing_zeros
from dbfs_workers.base.jit import INT32, READ_UINT32, UINT32, int64, kernel, void

# Words that ``label_unvisited`` looks at together.
_BLOCK = 16
_ALL_BITS = np.uint32(0xFFFFFFFF)


@kernel(int64, UINT32, READ_UINT32, int64, int64, INT32, UINT32, UINT32, plain=True)
def begin(visited, unreachable, rank, source, distances, predecessors, queue):
    """Clear a rank's bitmap of visited vertices; label a traversal's one source, if it is a row of the rank.

    Args:
        visited: uint32[words], a bit for each internal id; written. Rows without in-edges count as visited.
        unreachable: uint32[words_local], the rank's rows without in-edges.
        source: local id of the source; -1 if another rank owns it.
        distances, predecessors: the rank's labels; empty predecessors mean none.
        queue: the frontier; the source is written into its first place.

    Returns:
        1 if the source is a row without in-edges, else 0.
    """
    first = rank * unreachable.size
    visited[:first] = 0
    for word in range(unreachable.size):
        visited[first + word] = unreachable[word]
    visited[first + unreachable.size :] = 0
    if source < 0:
        return 0
    bit = np.uint32(1) << np.uint32(source & 31)
    visited[first + (source >> 5)] |= bit
    distances[source] = 0
    if predecessors.size:
        predecessors[source] = first * 32 + source
    queue[0] = source
    return 1 if unreachable[source >> 5] & bit else 0


@kernel(void, READ_UINT32, int64, INT32, UINT32, plain=True)
def _label_unvisited_in(own_visited, word, distances, predecessors):
    """Do what ``label_unvisited`` does, for the rows of one word."""
    todo = ~own_visited[word]
    while todo:
        row = word * 32 + trailing_zeros(todo)
        todo &= todo - np.uint32(1)
        distances[row] = -1
        if predecessors.size:
            predecessors[row] = np.uint32(0xFFFFFFFF)


@kernel(void, READ_UINT32, INT32, UINT32, plain=True)
def label_unvisited(own_visited, distances, predecessors):
    """Write "unreached" to the labels of the rows whose bit is clear. Empty predecessors mean none."""
    blocks = own_visited.size // _BLOCK * _BLOCK
    for first in range(0, blocks, _BLOCK):
        # Most blocks have no such row, and the compiler makes a few wide instructions of this loop.
        every = _ALL_BITS
        for w in range(_BLOCK):
            every &= own_visited[first + w]
        if every != _ALL_BITS:
            for w in range(_BLOCK):
                _label_unvisited_in(own_visited, first + w, distances, predecessors)
    for w in range(blocks, own_visited.size):
        _label_unvisited_in(own_visited, w, distances, predecessors)

"""CPU kernels of connected components: union-find over internal ids, where the smaller of two roots stays a root.

``parents`` is uint32 over all internal ids; a root is its own parent, and no parent is larger than its child.
"""

import numpy as np

from dbfs_workers.base.jit import READ_INT64, READ_UINT32, UINT32, int64, kernel, void


@kernel(int64, UINT32, int64)
def _root(parents, vertex):
    """Return the root of a vertex's tree. Halves the path to it, so that later searches are short."""
    while parents[vertex] != vertex:
        parents[vertex] = parents[parents[vertex]]
        vertex = np.int64(parents[vertex])
    return vertex


@kernel(void, UINT32, int64, int64)
def _unite(parents, u, v):
    """Join the trees of two vertices."""
    a, b = _root(parents, u), _root(parents, v)
    if a < b:
        parents[b] = a
    elif b < a:
        parents[a] = b


@kernel(void, READ_UINT32, UINT32)
def plant(reached, parents):
    """Make the vertices of a bitmap one tree, and every other vertex a root."""
    root = -1
    for vertex in range(parents.size):
        parents[vertex] = vertex
        if reached[vertex >> 5] >> np.uint32(vertex & 31) & np.uint32(1):
            if root < 0:
                root = vertex
            parents[vertex] = root


@kernel(void, READ_INT64, READ_UINT32, int64, READ_UINT32, UINT32)
def unite_rows(row_offsets, columns, first_id, reached, parents):
    """Unite each row that is not in the bitmap (over all internal ids) with its neighbours."""
    for row in range(row_offsets.size - 1):
        u = first_id + row
        if reached[u >> 5] >> np.uint32(u & 31) & np.uint32(1):
            continue
        for k in range(row_offsets[row], row_offsets[row + 1]):
            _unite(parents, u, np.int64(columns[k]))


@kernel(void, READ_UINT32, UINT32)
def unite_forests(other, parents):
    """Unite the vertices that another forest connects."""
    for vertex in range(parents.size):
        if other[vertex] != vertex:
            _unite(parents, vertex, np.int64(other[vertex]))


@kernel(void, UINT32)
def flatten(parents):
    """Make every vertex the child of its root."""
    for vertex in range(parents.size):
        parents[vertex] = parents[parents[vertex]]

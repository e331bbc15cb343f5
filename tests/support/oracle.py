"""Independent answers: shortest paths by SciPy, and a check of every predecessor against the edges."""

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
from numpy.typing import NDArray


def adjacency(n: int, src: NDArray[np.int64], dst: NDArray[np.int64], *, directed: bool) -> scipy.sparse.csr_array:
    """Return the adjacency matrix: an entry of 1 for each edge."""
    if not directed:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    matrix = scipy.sparse.coo_array((np.ones(src.size, np.int64), (src, dst)), shape=(n, n)).tocsr()
    matrix.data[:] = 1
    return matrix


def distances(matrix: scipy.sparse.csr_array, sources: list[int], max_depth: int | None = None) -> NDArray[np.int32]:
    """Return the distances in edges from the nearest source, int32, -1 for unreached vertices."""
    nearest = scipy.sparse.csgraph.dijkstra(matrix, unweighted=True, indices=sources, min_only=True)
    if max_depth is not None:
        nearest[nearest > max_depth] = np.inf
    return np.where(np.isinf(nearest), -1, nearest).astype(np.int32)


def assert_valid_parents(
    matrix: scipy.sparse.csr_array, distances: NDArray[np.int32], parents: NDArray[np.int64], sources: list[int]
) -> None:
    """Check that each predecessor is one level up, and joined by an edge. Any such predecessor is valid."""
    edges = set(zip(*(ids.tolist() for ids in matrix.nonzero()), strict=True))
    for vertex, (distance, parent) in enumerate(zip(distances.tolist(), parents.tolist(), strict=True)):
        if distance < 0:
            assert parent == -1, f"{vertex} is unreached, but has the parent {parent}"
        elif vertex in sources:
            assert (distance, parent) == (0, vertex)
        else:
            assert (parent, vertex) in edges, f"{parent} -> {vertex} is no edge"
            assert distances[parent] == distance - 1

"""CPU kernels of the baselines: Merrill's algorithm 1, and distances along an order of visits."""

from typing import Any

from numba import types

from dbfs_workers.base.jit import INT32, READ_INT32, READ_INT64, READ_UINT32, UINT32, int64, kernel, void


@kernel(
    types.UniTuple(int64, 2),
    READ_INT64,
    READ_INT64,
    READ_UINT32,
    UINT32,
    int64,
    int64,
    types.int32,
    INT32,
    UINT32,
)
def sequential_level(
    starts: Any, ends: Any, columns: Any, queue: Any, first: int, last: int, distance: int, labels: Any, parents: Any
) -> tuple[int, int]:
    """Dequeue one level's vertices and enqueue their unvisited neighbours (Merrill 2012, algorithm 1).

    Args:
        starts, ends: int64[rows], each row's part of ``columns``.
        columns: uint32, rows of the neighbours.
        queue: uint32[rows]; the level lies in ``queue[first:last]``, and discoveries go behind ``last``.
        first, last: the level's place in the queue.
        distance: the label of discoveries.
        labels: int32[rows], -1 unreached; updated.
        parents: uint32[rows], or of length 0 to record none; updated.

    Returns:
        The queue's new end, and the edges looked at.
    """
    tail = last
    edges = 0
    for at in range(first, last):
        row = queue[at]
        edges += ends[row] - starts[row]
        for place in range(starts[row], ends[row]):
            neighbour = columns[place]
            if labels[neighbour] < 0:
                labels[neighbour] = distance
                if parents.size:
                    parents[neighbour] = row
                queue[tail] = neighbour
                tail += 1
    return tail, edges


@kernel(void, READ_INT32, READ_INT32, INT32)
def distances_along(order: Any, parents: Any, labels: Any) -> None:
    """Label the vertices of an order in which each vertex stands behind its parent.

    Args:
        order: int32, the visited rows; the first is the source.
        parents: int32[rows].
        labels: int32[rows]; updated.
    """
    labels[order[0]] = 0
    for at in range(1, order.size):
        row = order[at]
        labels[row] = labels[parents[row]] + 1

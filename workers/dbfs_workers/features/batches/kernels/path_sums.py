"""CPU kernels of the sweeps over the shortest paths from ``LANES`` sources (Brandes 2001).

A row has a number for each of the sources, one lane each, side by side: row ``i`` has the elements ``i * LANES`` to
``(i + 1) * LANES - 1`` of an array. Rows are those of all ranks, by internal id.
"""

import numpy as np
from numba import types

from dbfs_workers.base.jit import FLOAT64, INT64, READ_INT32, READ_INT64, READ_UINT32, UINT32, int64, kernel, void
from dbfs_workers.features.batches.storage import SWEPT_SOURCES as LANES

_ROWS = (READ_INT64, READ_INT64, READ_UINT32)
_LEVEL = (READ_UINT32, int64, READ_INT32)
_FRONT = (READ_UINT32, FLOAT64)


@kernel(void, READ_INT32, INT64, INT64, UINT32)
def list_rows(distances, last, ends, rows):
    """Append each row to the list of each distance that it has from some source.

    Args:
        distances: int32, by row and lane the distance from the lane's source, -1 unreached.
        last: int64 by distance, -1; working memory.
        ends: int64 by distance, the end of each list in ``rows``; updated.
        rows: uint32, the lists; empty if the rows shall only be counted.
    """
    for row in range(distances.size // LANES):
        for place in range(row * LANES, (row + 1) * LANES):
            distance = distances[place]
            if distance >= 0 and last[distance] != row:
                last[distance] = row
                if rows.size:
                    rows[ends[distance]] = row
                ends[distance] += 1


@kernel(types.boolean, READ_UINT32, READ_UINT32, int64, int64)
def adds(columns, live, start, k):
    """Return whether a column of the row from ``start`` on is live, and no parallel edge of the column before."""
    u = columns[k]
    if not live[u >> np.uint32(5)] >> (u & np.uint32(31)) & np.uint32(1):
        return False
    # Columns that repeat another follow it in their row.
    return k == start or columns[k - 1] != u


@kernel(void, READ_INT64, READ_INT64, READ_UINT32, READ_UINT32, FLOAT64, int64, FLOAT64)
def add_up(starts, ends, columns, live, front, row, total):
    """Set ``total`` to the sum of the numbers of a row's live neighbours; parallel edges count once."""
    for lane in range(LANES):
        total[lane] = 0.0
    for k in range(starts[row], ends[row]):
        if adds(columns, live, starts[row], k):
            base = np.int64(columns[k]) * LANES
            for lane in range(LANES):
                total[lane] += front[base + lane]


@kernel(types.boolean, *_ROWS, *_LEVEL, *_FRONT, FLOAT64, FLOAT64)
def count_paths(starts, ends, columns, rows, level, distances, live, front, values, total):
    """Set the numbers of shortest paths to the rows of a level: each is the sum over the row's predecessors.

    Args:
        starts, ends, columns: the in-edges of the rows.
        rows: uint32, the rows that have this distance from some source.
        level: the distance.
        distances: see ``list_rows``.
        live, front: bitmap of the vertices of the level before, and their numbers of paths; 0 for other sources.
        values: float64, by row and lane; set for the sources that are at this distance.
        total: float64[LANES], working memory.

    Returns:
        Whether a number is beyond the largest float64.
    """
    overflow = False
    for row in rows:
        add_up(starts, ends, columns, live, front, np.int64(row), total)
        base = np.int64(row) * LANES
        for lane in range(LANES):
            if distances[base + lane] == level:
                values[base + lane] = total[lane]
                overflow |= not total[lane] < np.inf
    return overflow


@kernel(void, *_ROWS, *_LEVEL, *_FRONT, FLOAT64, FLOAT64, FLOAT64)
def add_dependencies(starts, ends, columns, rows, level, distances, live, front, values, total, sums):
    """Add the dependencies of the sources on the rows of a level to the rows' sums.

    With p paths to a row, the dependency is p times the sum of (1 + dependency) / paths over the row's successors.

    Args:
        starts, ends, columns: the out-edges of the rows.
        rows, level, distances, total: see ``count_paths``.
        live, front: bitmap of the vertices of the level after, and their (1 + dependency) / paths.
        values: float64, by row and lane: the number of paths, replaced by (1 + dependency) / paths.
        sums: float64, by row the sums of the dependencies and of their squares, and the number of sources.
    """
    for row in rows:
        add_up(starts, ends, columns, live, front, np.int64(row), total)
        base, place = np.int64(row) * LANES, np.int64(row) * 3
        for lane in range(LANES):
            if distances[base + lane] == level:
                paths = values[base + lane]
                dependency = paths * total[lane]
                values[base + lane] = total[lane] + 1 / paths
                sums[place] += dependency
                sums[place + 1] += dependency * dependency
                sums[place + 2] += 1.0


@kernel(void, *_ROWS, *_LEVEL, *_FRONT, FLOAT64, FLOAT64, FLOAT64)
def add_edge_dependencies(starts, ends, columns, rows, level, distances, live, front, values, paths, sums):
    """Add the dependencies of the sources on the out-edges of the rows of a level to the edges' sums.

    Call this before ``add_dependencies``, whose arguments these are, but for:

    Args:
        paths: float64[LANES], working memory.
        sums: float64, by column the sums of the dependencies and of their squares. Parallel edges count once, as the
            first of them.
    """
    for row in rows:
        base = np.int64(row) * LANES
        for lane in range(LANES):
            paths[lane] = values[base + lane] if distances[base + lane] == level else 0.0
        for k in range(starts[row], ends[row]):
            if not adds(columns, live, starts[row], k):
                continue
            other, place = np.int64(columns[k]) * LANES, 2 * k
            # Two chains of additions, each half as long.
            one = two = one_square = two_square = 0.0
            for lane in range(0, LANES, 2):
                first, second = paths[lane] * front[other + lane], paths[lane + 1] * front[other + lane + 1]
                one += first
                two += second
                one_square += first * first
                two_square += second * second
            sums[place] += one + two
            sums[place + 1] += one_square + two_square


@kernel(void, *_LEVEL, FLOAT64, UINT32, FLOAT64)
def show(rows, level, distances, values, live, front):
    """Put the numbers of the rows of a level into ``front``, 0 for the sources that are not at this distance."""
    for row in rows:
        live[row >> np.uint32(5)] |= np.uint32(1) << (row & np.uint32(31))
        base = np.int64(row) * LANES
        for lane in range(LANES):
            front[base + lane] = values[base + lane] if distances[base + lane] == level else 0.0

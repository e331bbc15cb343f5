"""CPU kernels of the resident loop: one pass a level, over state that stays from level to level.

``top_down`` runs expand, filter + partition, and the contraction of the own bin (Merrill 2012, section 5). An edge
costs 4 bytes of columns and one probed bit; only discoveries are written. Row ``r`` has
the columns ``starts[r]`` to ``ends[r] - 1``, in a CSR as on pages. ``bottom_up`` is the level of Beamer 2012,
section 3. Bitmaps and empty arrays are as in ``cpu_kernels``.
"""

from typing import Final

import numpy as np
from numba import types

from dbfs_workers.base.intrinsics import prefetch, trailing_zeros
from dbfs_workers.base.jit import INT32, INT64, READ_INT64, READ_UINT32, UINT32, int64, kernel, void
from dbfs_workers.search.cpu.kernels.phases import BINS, LABELS
from dbfs_workers.search.partition.kernels.rows import ROWS

# Number of vertices of the frontier by which prefetches are ahead. A vertex of a road network has few neighbours, so
# reading its offsets and then its columns takes most of its time. Florida's roads took 30 ms instead of 55.
OFFSETS_AHEAD: Final = 16
COLUMNS_AHEAD: Final = 8


@kernel(types.UniTuple(int64, 3), ROWS, READ_UINT32, INT64, int64, UINT32, BINS, int64, LABELS, UINT32, plain=True)
def top_down(rows, frontier, resume, first_id, visited, bins, distance, labels, discovered):
    """Visit the frontier's neighbours; return (edges inspected, own vertices discovered, vertices binned).

    A new vertex of this rank is labelled and queued in ``discovered``. A new vertex of another rank is appended to its
    owner's bin, which has ``bins.ends[owner]`` of ``bins.rows.size / p`` entries.

    ``resume``, int64[2], is where the pass begins: a place in the frontier, and an edge of that row. Afterwards it is
    where the pass stopped: at an edge whose bin is full, or at the frontier's end.
    """
    starts, ends, columns = rows
    distances, predecessors = labels
    bin_rows, bin_parents, bin_ends = bins
    entries = bin_rows.size // bin_ends.size
    width = np.uint32(starts.size)
    first = np.uint32(first_id)
    edges = 0
    found = 0
    sent = 0
    skipped = resume[1]
    for i in range(resume[0], frontier.size):
        if i + OFFSETS_AHEAD < frontier.size:
            prefetch(starts, np.int64(frontier[i + OFFSETS_AHEAD]))
        if i + COLUMNS_AHEAD < frontier.size:
            prefetch(columns, starts[frontier[i + COLUMNS_AHEAD]])
        row = frontier[i]
        start, stop = starts[row] + skipped, ends[row]
        skipped = 0
        edges += stop - start
        for k in range(start, stop):
            u = columns[k]
            word = visited[u >> np.uint32(5)]
            bit = np.uint32(1) << (u & np.uint32(31))
            if word & bit:
                continue
            # Unsigned, so that an id below first becomes a large number: one comparison tests both ends.
            own = u - first
            if own < width:
                visited[u >> np.uint32(5)] = word | bit
                distances[own] = distance
                if predecessors.size:
                    predecessors[own] = first + row
                discovered[found] = own
                found += 1
            else:
                owner = u // width
                end = bin_ends[owner]
                if end == entries:
                    resume[0], resume[1] = i, k - starts[row]
                    return edges - (stop - k), found, sent
                visited[u >> np.uint32(5)] = word | bit
                at = np.int64(owner) * entries + end
                bin_rows[at] = u - owner * width
                if predecessors.size:
                    bin_parents[at] = first + row
                bin_ends[owner] = end + 1
                sent += 1
    resume[0], resume[1] = frontier.size, 0
    return edges, found, sent


@kernel(void, types.uint32, int64, READ_INT64, READ_UINT32, plain=True)
def fetch_lists(bits, first, starts, columns):
    """Have the beginnings of some rows' lists fetched: of the rows from ``first`` on whose bits are set in a word.

    A search skips rows, so the processor does not foresee where the next lists begin.
    """
    while bits:
        b = trailing_zeros(bits)
        bits &= bits - np.uint32(1)
        prefetch(columns, starts[first + b])


@kernel(
    types.UniTuple(int64, 3),
    READ_INT64,
    READ_INT64,
    READ_UINT32,
    READ_INT64,
    READ_INT64,
    READ_UINT32,
    UINT32,
    UINT32,
    int64,
    INT32,
    UINT32,
    UINT32,
    plain=True,
)
def bottom_up(
    in_starts,
    in_ends,
    in_columns,
    out_starts,
    out_ends,
    frontier_bits,
    own_visited,
    found_bits,
    distance,
    distances,
    predecessors,
    discovered,
):
    """Search every unvisited row's list for a parent in the frontier, up to the first; label and queue the rows found.

    Writes every word of ``found_bits``, the rank's slice of the next frontier. Reads 16 bytes of offsets an unvisited
    row, and 4 bytes and one bit an edge. Returns (edges inspected, vertices discovered, sum of their out-degrees).
    """
    edges = 0
    found = 0
    degrees = 0
    for w in range(own_visited.size):
        if w + 1 < own_visited.size:
            fetch_lists(~own_visited[w + 1], np.int64(w + 1) * 32, in_starts, in_columns)
        todo = ~own_visited[w]
        bits = np.uint32(0)
        while todo:
            b = trailing_zeros(todo)
            todo &= todo - np.uint32(1)
            row = np.int64(w) * 32 + b
            start, stop = in_starts[row], in_ends[row]
            k = start
            while k < stop:
                u = in_columns[k]
                k += 1
                if frontier_bits[u >> np.uint32(5)] >> (u & np.uint32(31)) & np.uint32(1):
                    bits |= np.uint32(1) << b
                    distances[row] = distance
                    if predecessors.size:
                        predecessors[row] = u
                    discovered[found] = row
                    found += 1
                    degrees += out_ends[row] - out_starts[row]
                    break
            edges += k - start
        found_bits[w] = bits
        own_visited[w] |= bits
    return edges, found, degrees


@kernel(void, READ_UINT32, UINT32, plain=True)
def mark(rows, bits):
    """Write the bitmap of a queue of rows, every word of it."""
    bits[:] = 0
    for row in rows:
        bits[row >> np.uint32(5)] |= np.uint32(1) << (row & np.uint32(31))


@kernel(void, READ_UINT32, UINT32, UINT32, plain=True)
def absorb(slice_bits, frontier_bits, visited):
    """Copy a rank's slice of the frontier, and add it to the same slice of the visited bitmap."""
    for w in range(slice_bits.size):
        frontier_bits[w] = slice_bits[w]
        visited[w] |= slice_bits[w]

"""CPU kernels of the resident loop: one pass a level, over state that stays from level to level.

``top_down`` runs expand, filter + partition, and the contraction of the own bin (Merrill 2012, section 5). An edge
costs 4 bytes of columns and one probed bit; only discoveries are written. ``bottom_up`` is the level of Beamer 2012,
section 3. Bitmaps and empty arrays are as in ``phases``.
"""

import numpy as np
from numba import types
from numba.extending import register_jitable

from dbfs_workers.base.jit import INT32, INT64, READ_INT64, READ_UINT32, UINT32, int64, kernel, void
from dbfs_workers.search.cpu.kernels.phases import BINS, LABELS
from dbfs_workers.search.cpu.kernels.places import SEEN, Ends, seen, take
from dbfs_workers.search.cpu.kernels.walk import search, walk
from dbfs_workers.search.partition.kernels.rows import ROWS
from dbfs_workers.search.partition.labels import LabelArrays
from dbfs_workers.search.partition.partition import Rows


@register_jitable
def find(to, counts, row, u):
    """Label and queue a new vertex of this rank, or bin one of another rank: a visit of ``walk``.

    ``to`` has what claims a vertex and gives it a place (see ``places``), with this rank's queue as the own list, and
    then what ``top_down`` is given. The counts are the vertices queued and binned.
    """
    take, lists, first, width, visited, bins, distance, labels, discovered = to
    if seen(visited, u):
        return True, counts
    found, sent = counts
    # Unsigned, so that an id below first becomes a large number: one comparison tests both ends.
    local = u - first
    own = local < width
    owner = np.int64(lists.own) if own else np.int64(u // width)
    at = take(lists, visited, u, owner, found)
    if at < 0:
        return at == SEEN, counts
    if own:
        labels.distances[local] = distance
        if labels.predecessors.size:
            labels.predecessors[local] = first + row
        discovered[at] = local
        return True, (found + 1, sent)
    at += owner * lists.room
    bins.rows[at] = u - np.uint32(owner) * width
    if labels.predecessors.size:
        bins.parents[at] = first + row
    return True, (found, sent + 1)


@kernel(types.UniTuple(int64, 3), ROWS, READ_UINT32, INT64, int64, UINT32, BINS, int64, LABELS, UINT32, plain=True)
def top_down(rows, frontier, resume, first_id, visited, bins, distance, labels, discovered):
    """Visit the frontier's neighbours; return (edges inspected, own vertices discovered, vertices binned).

    A new vertex of this rank is labelled and queued in ``discovered``. A new vertex of another rank is appended to its
    owner's bin, which has ``bins.ends[owner]`` of ``bins.rows.size / p`` entries.

    ``resume``, int64[2], is where the pass begins: a place in the frontier, and an edge of that row. Afterwards it is
    where the pass stopped: at an edge whose bin is full, or at the frontier's end.
    """
    width = rows.starts.size
    lists = Ends(bins.ends, first_id // width, bins.rows.size // bins.ends.size)
    to = take, lists, np.uint32(first_id), np.uint32(width), visited, bins, distance, labels, discovered
    resume[0], resume[1], edges, (found, sent) = walk(rows, frontier, resume[0], resume[1], find, to, (0, 0))
    return edges, found, sent


@register_jitable
def adopt(to, row, u):
    """Label a row with its parent; return the row's out-degree: a hit of ``search``."""
    starts, ends, distance, labels = to
    labels.distances[row] = distance
    if labels.predecessors.size:
        labels.predecessors[row] = u
    return ends[row] - starts[row]


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
    to = out_starts, out_ends, distance, LabelArrays(distances, predecessors)
    into, none, words = Rows(in_starts, in_ends, in_columns), found_bits[:0], own_visited.size
    return search(into, none, frontier_bits, own_visited, found_bits, 0, words, adopt, to, discovered, 0)


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

"""CPU kernels of the build: count and bin edges by owner, and make a CSR of an owner's bins.

A bin is sorted by bucket of ``2**BUCKET_BITS`` rows, so that a row within its bucket fits uint16.
"""

import numpy as np
from numba import types

from dbfs_workers.jit import INT64, READ_INT64, READ_UINT16, READ_UINT32, UINT16, UINT32, int64, kernel, void
from dbfs_workers.storage.partition import BUCKET_BITS


@kernel(INT64, READ_INT64, READ_INT64, int64, int64, types.boolean)
def count_bins(src, dst, p, buckets, symmetrise):
    """Return int64[p * buckets + 1], where each owner's and bucket's edges start: the prefix sum of their counts."""
    offsets = np.zeros(p * buckets + 1, np.int64)
    for i in range(src.size):
        row = src[i] // p
        offsets[(src[i] - row * p) * buckets + (row >> BUCKET_BITS) + 1] += 1
        if symmetrise and src[i] != dst[i]:
            row = dst[i] // p
            offsets[(dst[i] - row * p) * buckets + (row >> BUCKET_BITS) + 1] += 1
    for at in range(p * buckets):
        offsets[at + 1] += offsets[at]
    return offsets


@kernel(void, READ_INT64, READ_INT64, int64, int64, int64, types.boolean, INT64, UINT16, UINT32)
def bin_by_owner(src, dst, p, n_local, buckets, symmetrise, cursor, rows, columns):
    """Write each edge's row in its bucket and its target's internal id at the cursor of its owner and bucket.

    ``cursor`` (int64[p * buckets]) starts at the offsets of ``count_bins`` and ends at those of the next bucket.
    """
    for i in range(src.size):
        u, v = src[i], dst[i]
        u_row, v_row = u // p, v // p
        u_owner, v_owner = u - u_row * p, v - v_row * p
        place = u_owner * buckets + (u_row >> BUCKET_BITS)
        at = cursor[place]
        rows[at] = u_row
        columns[at] = v_owner * n_local + v_row
        cursor[place] = at + 1
        if symmetrise and u != v:
            place = v_owner * buckets + (v_row >> BUCKET_BITS)
            at = cursor[place]
            rows[at] = v_row
            columns[at] = u_owner * n_local + u_row
            cursor[place] = at + 1


@kernel(void, READ_INT64, READ_INT64, types.boolean, INT64)
def count_both_ends(src, dst, symmetrise, degrees):
    """Add each edge to the degrees (int64[n]) of both its ends; if ``symmetrise``, a self-loop counts once."""
    for i in range(src.size):
        degrees[src[i]] += 1
        if not (symmetrise and src[i] == dst[i]):
            degrees[dst[i]] += 1


@kernel(void, READ_UINT16, READ_INT64, INT64)
def count_degrees(rows, starts, degrees):
    """Add each row's number of edges in a bin to ``degrees`` (int64[n_local])."""
    for bucket in range(starts.size - 1):
        first = bucket << BUCKET_BITS
        for i in range(starts[bucket], starts[bucket + 1]):
            degrees[first + rows[i]] += 1


@kernel(void, READ_UINT16, READ_INT64, READ_UINT32, INT64, UINT32)
def place_columns(rows, starts, columns, cursor, placed):
    """Write each column of a bin at its row's cursor (int64[n_local]) in ``placed``, and advance the cursor."""
    for bucket in range(starts.size - 1):
        first = bucket << BUCKET_BITS
        for i in range(starts[bucket], starts[bucket + 1]):
            row = first + rows[i]
            placed[cursor[row]] = columns[i]
            cursor[row] += 1


@kernel(void, UINT32, int64, int64)
def to_positions(columns, p, n_local):
    """Turn internal ids into vertex ids, in place."""
    width = np.uint32(n_local)
    for k in range(columns.size):
        owner = columns[k] // width
        columns[k] = (columns[k] - owner * width) * np.uint32(p) + owner


@kernel(void, UINT32, int64, int64)
def to_internal(columns, p, n_local):
    """Turn vertex ids into internal ids, in place."""
    ranks = np.uint32(p)
    for k in range(columns.size):
        row = columns[k] // ranks
        columns[k] = (columns[k] - row * ranks) * np.uint32(n_local) + row


@kernel(types.UniTuple(int64, 2), READ_INT64, UINT32, int64, int64)
def sort_rows(row_offsets, columns, first_id, step):
    """Sort each row's columns in place; return (self-loops, duplicates). Row i has the id ``first_id + i * step``."""
    self_loops = 0
    duplicates = 0
    for row in range(row_offsets.size - 1):
        neighbours = columns[row_offsets[row] : row_offsets[row + 1]]
        if neighbours.size > 1:
            neighbours.sort()
        for k in range(neighbours.size):
            if neighbours[k] == first_id + row * step:
                self_loops += 1
            if k > 0 and neighbours[k] == neighbours[k - 1]:
                duplicates += 1
    return self_loops, duplicates

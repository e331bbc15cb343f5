"""CPU kernels of the build: bin edges by owner and bucket, and place an owner's bins into rows."""

import numpy as np
from numba import types

from dbfs_workers.base.jit import INT64, READ_INT64, READ_UINT16, READ_UINT32, UINT16, UINT32, int64, kernel, void

_uint64 = types.uint64
_READ_STARTS = types.Array(types.int64, 2, "C", readonly=True)


@kernel(int64, READ_INT64, READ_INT64, int64, int64, int64, int64, types.boolean, INT64, plain=True)
def count_bins(src, dst, n, p, bits, buckets, symmetrise, offsets):
    """Set ``offsets`` to where each owner's and bucket's edges start: the prefix sums of their counts.

    ``offsets`` is int64[p * buckets + 1], all 0. Returns the index of the first edge with an id outside 0..n-1, or -1.
    """
    ranks, end, low = np.uint64(p), np.uint64(n), np.uint64(bits)
    width = np.uint64(buckets)
    for i in range(src.size):
        # A negative id becomes a large one.
        u, v = np.uint64(src[i]), np.uint64(dst[i])
        if u >= end or v >= end:
            return i
        row = np.uint64(np.uint32(u) // ranks)
        offsets[np.int64((u - row * ranks) * width + (row >> low)) + 1] += 1
        if symmetrise and u != v:
            row = np.uint64(np.uint32(v) // ranks)
            offsets[np.int64((v - row * ranks) * width + (row >> low)) + 1] += 1
    for at in range(p * buckets):
        offsets[at + 1] += offsets[at]
    return -1


@kernel(void, READ_INT64, READ_INT64, int64, int64, int64, int64, types.boolean, INT64, UINT16, UINT32, plain=True)
def bin_by_owner(src, dst, p, n_local, bits, buckets, symmetrise, cursor, rows, columns):
    """Write each edge's row in its bucket and its target's internal id at the cursor of its owner and bucket.

    ``cursor`` (int64[p * buckets]) starts at the offsets of ``count_bins`` and ends at those of the next bucket.
    """
    ranks, low, width, height = np.uint64(p), np.uint64(bits), np.uint64(buckets), np.uint64(n_local)
    mask = (np.uint64(1) << low) - np.uint64(1)
    for i in range(src.size):
        u, v = np.uint64(src[i]), np.uint64(dst[i])
        u_row, v_row = np.uint64(np.uint32(u) // ranks), np.uint64(np.uint32(v) // ranks)
        u_owner, v_owner = u - u_row * ranks, v - v_row * ranks
        place = np.int64(u_owner * width + (u_row >> low))
        at = cursor[place]
        rows[at] = u_row & mask
        columns[at] = v_owner * height + v_row
        cursor[place] = at + 1
        if symmetrise and u != v:
            place = np.int64(v_owner * width + (v_row >> low))
            at = cursor[place]
            rows[at] = v_row & mask
            columns[at] = u_owner * height + u_row
            cursor[place] = at + 1


@kernel(void, READ_INT64, READ_INT64, int64, int64, types.boolean, INT64)
def count_groups(src, dst, ranks, width, symmetrise, offsets):
    """Set ``offsets`` (int64, all 0) to where each group's edges start; the group is ``target % ranks // width``.

    If ``symmetrise``, each edge but a self-loop counts in both directions.
    """
    p, w = np.uint64(ranks), np.uint64(width)
    for i in range(src.size):
        u, v = np.uint64(src[i]), np.uint64(dst[i])
        offsets[np.int64(v % p // w) + 1] += 1
        if symmetrise and u != v:
            offsets[np.int64(u % p // w) + 1] += 1
    for at in range(offsets.size - 1):
        offsets[at + 1] += offsets[at]


@kernel(void, READ_INT64, READ_INT64, int64, int64, types.boolean, INT64, INT64, INT64)
def place_in_groups(src, dst, ranks, width, symmetrise, cursor, sources, targets):
    """Write each edge at the cursor of its group; ``cursor`` starts at the offsets of ``count_groups``."""
    p, w = np.uint64(ranks), np.uint64(width)
    for i in range(src.size):
        u, v = np.uint64(src[i]), np.uint64(dst[i])
        group = np.int64(v % p // w)
        at = cursor[group]
        sources[at], targets[at] = src[i], dst[i]
        cursor[group] = at + 1
        if symmetrise and u != v:
            group = np.int64(u % p // w)
            at = cursor[group]
            sources[at], targets[at] = dst[i], src[i]
            cursor[group] = at + 1


@kernel(void, READ_INT64, READ_INT64, types.boolean, INT64)
def count_both_ends(src, dst, symmetrise, degrees):
    """Add each edge to the degrees (int64[n]) of both its ends; if ``symmetrise``, a self-loop counts once."""
    for i in range(src.size):
        degrees[src[i]] += 1
        if not (symmetrise and src[i] == dst[i]):
            degrees[dst[i]] += 1


@kernel(void, READ_UINT16, _READ_STARTS, int64, INT64, plain=True)
def count_rows(rows, starts, bucket, degrees):
    """Add each row's edges in a bucket of a chunk of bins to ``degrees`` (int64, by row of the bucket)."""
    for k in range(starts.shape[0]):
        for i in range(starts[k, bucket], starts[k, bucket + 1]):
            degrees[rows[i]] += 1


@kernel(void, READ_UINT16, READ_UINT32, _READ_STARTS, int64, INT64, UINT32, plain=True)
def place_columns(rows, columns, starts, bucket, cursor, placed):
    """Write each column of a bucket of a chunk of bins at its row's cursor in ``placed``, and advance the cursor."""
    for k in range(starts.shape[0]):
        for i in range(starts[k, bucket], starts[k, bucket + 1]):
            at = cursor[rows[i]]
            placed[at] = columns[i]
            cursor[rows[i]] = at + 1


@kernel(void, READ_INT64, READ_UINT32, INT64, UINT32)
def append_rows(row_offsets, columns, cursor, placed):
    """Write the columns of each row of a CSR at the row's cursor in ``placed``, and advance the cursor."""
    for row in range(cursor.size):
        for k in range(row_offsets[row], row_offsets[row + 1]):
            placed[cursor[row]] = columns[k]
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

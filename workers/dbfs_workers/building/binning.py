"""Binning: a piece of the edge list is cut into one bin per owner of the edges' sources, by the worker that read it."""

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import outside
from dbfs_workers.building.bin_store import EdgeBin, bucket_bits, bucket_count
from dbfs_workers.building.kernels import building as kernels
from dbfs_workers.search.partition.stripe import Stripe


def bin_edges(
    src: NDArray[np.int64], dst: NDArray[np.int64], stripe: Stripe, *, symmetrise: bool, name: str
) -> tuple[EdgeBin, ...]:
    """Cut edges into one bin per owner of their source. The bins share memory.

    Args:
        src: sources, int64 vertex ids.
        dst: targets, of the same length.
        symmetrise: add each edge's reverse; a self-loop is its own reverse and is stored once.
        name: the edges' name, for errors.

    Raises:
        InvalidVertexError: an id is outside 0..n-1; nothing is binned.
    """
    src, dst = np.ascontiguousarray(src, dtype=np.int64), np.ascontiguousarray(dst, dtype=np.int64)
    bits, buckets = bucket_bits(stripe), bucket_count(stripe)
    offsets = np.zeros(stripe.p * buckets + 1, np.int64)
    bad = kernels.count_bins(src, dst, stripe.n, stripe.p, bits, buckets, symmetrise, offsets)
    if bad >= 0:
        raise outside(name, int(src[bad]), int(dst[bad]), stripe.n)
    rows, columns = np.empty(offsets[-1], np.uint16), np.empty(offsets[-1], np.uint32)
    cursor = offsets[:-1].copy()
    kernels.bin_by_owner(src, dst, stripe.p, stripe.n_local, bits, buckets, symmetrise, cursor, rows, columns)
    bins = []
    for owner in range(stripe.p):
        starts = offsets[owner * buckets : (owner + 1) * buckets + 1]
        cut = slice(starts[0], starts[-1])
        bins.append(EdgeBin(rows[cut], columns[cut], starts - starts[0]))
    return tuple(bins)

"""Building a rank's partition from edges, in two steps that are each a Dask task.

``bin_edges`` cuts a piece of the edge list into one bin per owner of the edges' sources, on the worker that read the
piece. ``build_partition`` makes a CSR of the bins that an owner collected.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.errors import outside
from dbfs_workers.storage import building_kernels as kernels
from dbfs_workers.storage.partition import BUCKET_BITS, Csr, EdgeBin, Partition
from dbfs_workers.storage.stripe import Stripe


def check_ids(
    src: NDArray[np.int64], dst: NDArray[np.int64], n: int, name: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the edges as the kernels take them: contiguous int64 arrays.

    Raises:
        InvalidVertexError: an id is outside 0..n-1.
    """
    src = np.ascontiguousarray(src, dtype=np.int64)
    dst = np.ascontiguousarray(dst, dtype=np.int64)
    for ids in (src, dst):
        if ids.size and (ids.min() < 0 or ids.max() >= n):
            at = int(np.flatnonzero((ids < 0) | (ids >= n))[0])
            raise outside(name, src[at], dst[at], n)
    return src, dst


def bin_edges(
    src: NDArray[np.int64], dst: NDArray[np.int64], stripe: Stripe, *, symmetrise: bool, name: str
) -> tuple[EdgeBin, ...]:
    """Cut edges into one bin per owner of their source.

    Args:
        src: sources, int64 vertex ids.
        dst: targets, of the same length.
        stripe: how the graph lies on the ranks.
        symmetrise: add each edge's reverse; a self-loop is its own reverse and is stored once.
        name: the edges' name, for errors.

    Raises:
        InvalidVertexError: an id is outside 0..n-1; nothing is binned.
    """
    src, dst = check_ids(src, dst, stripe.n, name)
    buckets = ((stripe.n_local - 1) >> BUCKET_BITS) + 1
    offsets = kernels.count_bins(src, dst, stripe.p, buckets, symmetrise)
    rows = np.empty(offsets[-1], np.uint16)
    columns = np.empty(offsets[-1], np.uint32)
    kernels.bin_by_owner(src, dst, stripe.p, stripe.n_local, buckets, symmetrise, offsets[:-1].copy(), rows, columns)
    bins = []
    for owner in range(stripe.p):
        starts = offsets[owner * buckets : (owner + 1) * buckets + 1]
        cut = slice(starts[0], starts[-1])
        # Copied: a view would keep the memory of all bins alive until the last owner has collected its bin.
        bins.append(EdgeBin(rows[cut].copy(), columns[cut].copy(), starts - starts[0], src.size))
    return tuple(bins)


def build_partition(
    stripe: Stripe,
    rank: int,
    rounds: Iterable[Sequence[EdgeBin]],
    *,
    directed: bool = True,
    in_rounds: Iterable[Sequence[EdgeBin]] | None = None,
    hub_first: bool = False,
) -> Partition:
    """Make a rank's partition of the bins that the rank collected.

    Peak memory is the bins (6 bytes an edge) plus the partition (4 bytes an edge, 8 a row) and 8 bytes a row; as much
    again for in-edges.

    Args:
        stripe: how the graph lies on the ranks.
        rank: the rank that owns the rows.
        rounds: bins of the edges that start in the rank's rows.
        directed: False if the bins hold every edge in both directions.
        in_rounds: bins of a directed graph's reversed edges (``bin_edges(dst, src, ...)``), for bottom-up levels; None
            leaves only top-down levels.
        hub_first: vertex ids are positions of ``ordering.degree_order``; each row's hubs are sorted to its front.
    """
    bins = [edge_bin for received in rounds for edge_bin in received]
    out_edges, self_loops, duplicates = _csr(stripe, rank, bins, hub_first)
    input_edges = sum(edge_bin.read for edge_bin in bins)
    in_edges = None
    if in_rounds is not None:
        in_edges = _csr(stripe, rank, [edge_bin for received in in_rounds for edge_bin in received], hub_first)[0]
    return Partition(
        stripe, rank, out_edges.row_offsets, out_edges.columns, self_loops, duplicates, input_edges, directed, in_edges
    )


def _csr(stripe: Stripe, rank: int, bins: Sequence[EdgeBin], hub_first: bool) -> tuple[Csr, int, int]:
    """Make a CSR of bins; return it with its numbers of self-loops and duplicates."""
    row_offsets = np.zeros(stripe.n_local + 1, np.int64)
    for edge_bin in bins:
        kernels.count_degrees(edge_bin.rows, edge_bin.starts, row_offsets[1:])
    np.cumsum(row_offsets, out=row_offsets)
    columns = np.empty(row_offsets[-1], np.uint32)
    cursor = row_offsets[:-1].copy()
    for edge_bin in bins:
        kernels.place_columns(edge_bin.rows, edge_bin.starts, edge_bin.columns, cursor, columns)
    if hub_first:
        kernels.to_positions(columns, stripe.p, stripe.n_local)
        self_loops, duplicates = kernels.sort_rows(row_offsets, columns, rank, stripe.p)
        kernels.to_internal(columns, stripe.p, stripe.n_local)
    else:
        self_loops, duplicates = kernels.sort_rows(row_offsets, columns, rank * stripe.n_local, 1)
    return Csr(row_offsets, columns), self_loops, duplicates

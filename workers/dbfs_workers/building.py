"""Building a rank's partition from edges, in two steps that are each a Dask task.

``bin_edges`` cuts a piece of the edge list into one bin per owner of the edges' sources, on whichever worker read the
piece; ``build_partition`` makes a CSR from the bins that a rank was sent.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dbfs_workers import building_kernels as kernels
from dbfs_workers.errors import InvalidVertexError
from dbfs_workers.partition import EdgeBin, Partition, PartitionInfo
from dbfs_workers.stripe import Stripe


def bin_edges(
    src: NDArray[np.int64], dst: NDArray[np.int64], stripe: Stripe, *, symmetrise: bool, name: str
) -> tuple[EdgeBin, ...]:
    """Cut edges into one bin per owner of their source.

    Args:
        src: int64 vertex ids.
        dst: int64 vertex ids, as many.
        stripe: how the graph lies on the ranks.
        symmetrise: add each edge's reverse; a self-loop is its own reverse and is stored once.
        name: what to call these edges in an error.

    Raises:
        InvalidVertexError: an id is outside 0..n-1; nothing is binned.
    """
    src = np.ascontiguousarray(src, dtype=np.int64)
    dst = np.ascontiguousarray(dst, dtype=np.int64)
    for ids in (src, dst):
        if ids.size and (ids.min() < 0 or ids.max() >= stripe.n):
            at = int(np.flatnonzero((ids < 0) | (ids >= stripe.n))[0])
            raise InvalidVertexError(
                f"{name}: edge ({src[at]}, {dst[at]}) has an id outside 0..{stripe.n - 1} (n = {stripe.n})"
            )
    offsets = kernels.count_owners(src, dst, stripe.p, symmetrise)
    rows = np.empty(offsets[-1], np.uint32)
    columns = np.empty(offsets[-1], np.uint32)
    kernels.bin_by_owner(src, dst, stripe.p, stripe.n_local, symmetrise, offsets[:-1].copy(), rows, columns)
    # Each bin gets memory of its own: a view would keep the whole piece alive until the last owner has its part.
    cuts = [slice(offsets[owner], offsets[owner + 1]) for owner in range(stripe.p)]
    return tuple(EdgeBin(rows[cut].copy(), columns[cut].copy(), src.size) for cut in cuts)


def build_partition(stripe: Stripe, rank: int, rounds: Iterable[Sequence[EdgeBin]]) -> Partition:
    """Make a rank's CSR from the bins it was sent.

    Peak memory is the bins (8 bytes an edge) plus the partition (4 bytes an edge, 8 a row) and 8 bytes a row.
    """
    bins = [edge_bin for received in rounds for edge_bin in received]
    row_offsets = np.zeros(stripe.n_local + 1, np.int64)
    for edge_bin in bins:
        kernels.count_degrees(edge_bin.rows, row_offsets[1:])
    np.cumsum(row_offsets, out=row_offsets)
    columns = np.empty(row_offsets[-1], np.uint32)
    cursor = row_offsets[:-1].copy()
    for edge_bin in bins:
        kernels.place_columns(edge_bin.rows, edge_bin.columns, cursor, columns)
    self_loops, duplicates = kernels.sort_rows(row_offsets, columns, rank * stripe.n_local)
    input_edges = sum(edge_bin.read for edge_bin in bins)
    return Partition(stripe, rank, row_offsets, columns, self_loops, duplicates, input_edges)


def describe(partition: Partition) -> PartitionInfo:
    """The partition's counts."""
    return PartitionInfo(
        rank=partition.rank,
        m_local=partition.m_local,
        nbytes=partition.nbytes,
        self_loops=partition.self_loops,
        duplicates=partition.duplicates,
        input_edges=partition.input_edges,
        max_degree=int(np.diff(partition.row_offsets).max()),
    )

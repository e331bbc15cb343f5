"""Building a rank's partition: a CSR of the bins that an owner collected in a ``BinStore``; ``binning`` makes these."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building.bin_store import BinStore, bucket_bits
from dbfs_workers.building.kernels import building as kernels
from dbfs_workers.building.kernels.sorting import sort_rows
from dbfs_workers.search.partition.partition import Csr, Partition
from dbfs_workers.search.partition.stripe import Stripe

# At most one part in so many of the edges is held twice, in bins and in columns.
_STEPS = 16


def build_partition(
    stripe: Stripe,
    rank: int,
    edges: BinStore,
    *,
    input_edges: int,
    directed: bool = True,
    in_edges: BinStore | None = None,
    hub_first: bool = False,
    threads: int = 1,
) -> Partition:
    """Make a rank's partition from the bins that the rank collected. The bins are used up.

    The bins give way to the columns bucket by bucket. So the peak is about the size of the bins: 6 bytes an edge (12
    with in-edges), and 8 bytes a row.

    Args:
        stripe, rank: as of ``Partition``.
        edges: bins of the edges that start in the rank's rows.
        input_edges: edges read for the whole graph.
        directed: False if the bins hold every edge in both directions.
        in_edges: bins of a directed graph's reversed edges (``bin_edges(dst, src, ...)``), for bottom-up levels; None
            leaves only top-down levels.
        hub_first: vertex ids are positions of ``degree_order``; each row's hubs are sorted to its front.
        threads: buckets to build at once.
    """
    rows, self_loops, duplicates = build_csr(stripe, rank, edges, hub_first, threads)
    parents = None if in_edges is None else build_csr(stripe, rank, in_edges, hub_first, threads)[0]
    return Partition(
        stripe, rank, rows.row_offsets, rows.columns, self_loops, duplicates, input_edges, directed, parents
    )


def build_csr(stripe: Stripe, rank: int, bins: BinStore, hub_first: bool, threads: int) -> tuple[Csr, int, int]:
    """Make a CSR of bins, and close them; return the CSR with its numbers of self-loops and duplicates."""
    bits, chunks, offsets = bucket_bits(stripe), bins.chunks(), bins.bucket_offsets()
    row_offsets = np.empty(stripe.n_local + 1, np.int64)
    # Pages of columns take memory only when they are written, while the pages of bins are returned.
    columns = np.empty(offsets[-1], np.uint32)
    row_offsets[-1] = columns.size

    def build(bucket: int) -> tuple[int, int]:
        first, end = bucket << bits, min((bucket + 1) << bits, stripe.n_local)
        degrees = np.zeros(end - first, np.int64)
        for rows, _, starts in chunks:
            kernels.count_rows(rows, starts, bucket, degrees)
        cursor = np.cumsum(degrees) - degrees + offsets[bucket]
        row_offsets[first:end] = cursor
        for rows, targets, starts in chunks:
            kernels.place_columns(rows, targets, starts, bucket, cursor, columns)
        # Ends where the next bucket begins, which another thread may write at this moment.
        own_offsets = np.append(row_offsets[first:end], offsets[bucket + 1])
        return sort_columns(stripe, rank, first, own_offsets, columns, hub_first)

    self_loops = duplicates = 0
    # A step is a run of buckets with at least a share of all edges; the bins of a step are returned after it.
    with ThreadPoolExecutor(threads) as pool:
        for first, end in _steps(offsets):
            # A small graph is built before a thread has started.
            run = pool.map if threads > 1 and end - first > 1 else map
            for loops, repeats in run(build, range(first, end)):
                self_loops, duplicates = self_loops + loops, duplicates + repeats
            bins.release_before(end)
    bins.close()
    return Csr(row_offsets, columns), self_loops, duplicates


def sort_columns(
    stripe: Stripe,
    rank: int,
    first: int,
    row_offsets: NDArray[np.int64],
    columns: NDArray[np.uint32],
    hub_first: bool,
) -> tuple[int, int]:
    """Sort the columns of each of a rank's rows from row ``first`` on; return the self-loops and the duplicates."""
    largest = stripe.p * stripe.n_local - 1
    if not hub_first:
        return sort_rows(row_offsets, columns, rank * stripe.n_local + first, 1, largest)
    placed = columns[row_offsets[0] : row_offsets[-1]]
    kernels.to_positions(placed, stripe.p, stripe.n_local)
    counts = sort_rows(row_offsets, columns, first * stripe.p + rank, stripe.p, largest)
    kernels.to_internal(placed, stripe.p, stripe.n_local)
    return counts


def _steps(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Cut buckets into runs [first, end) of at least ``1 / _STEPS`` of all edges each, but the last."""
    first = 0
    for end in range(1, offsets.size):
        if end == offsets.size - 1 or _STEPS * (offsets[end] - offsets[first]) >= offsets[-1]:
            yield first, end
            first = end

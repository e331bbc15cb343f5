"""The 1-D partition of a rank, joined from the blocks of a 2-D partition, in which its edges lie on many ranks.

The edges that start in an owner's rows are on the ranks of its column, and those that end there on the ranks of its
row (``grid.Blocks``). Each of these ranks gives its part, and the owner joins the parts.
"""

from collections.abc import Sequence

import numpy as np

from dbfs_workers.storage import building_kernels as kernels
from dbfs_workers.storage.grid import GridPartition
from dbfs_workers.storage.partition import Csr, Partition
from dbfs_workers.storage.sorting_kernels import sort_rows
from dbfs_workers.storage.stripe import Stripe


def out_part(partition: GridPartition, owner: int) -> Csr:
    """Return the edges on this rank that start in the rows of ``owner``, a rank of its column, without a copy."""
    return partition.blocks.out[partition.grid.column_of(partition.rank).index(owner)]


def in_part(partition: GridPartition, owner: int) -> Csr:
    """Return the edges on this rank that end in the rows of ``owner``, a rank of its row, by these rows.

    The columns are internal ids, not places as in ``Blocks``. The partition has to have in-edges.
    """
    grid, n_local = partition.grid, np.uint32(partition.stripe.n_local)
    assert partition.blocks.into is not None
    csr = partition.blocks.into[partition.grid.row_of(partition.rank).index(owner)]
    rows = csr.columns // n_local
    # The owner of place ``row * n_local + local id`` is ``row * columns + column``.
    owners = rows * np.uint32(grid.columns) + np.uint32(partition.rank % grid.columns)
    columns = csr.columns.copy()
    columns += n_local * (owners - rows)
    return Csr(csr.row_offsets, columns)


def join(
    stripe: Stripe,
    rank: int,
    out: Sequence[Csr],
    into: Sequence[Csr] | None,
    *,
    input_edges: int,
    directed: bool,
    hub_first: bool,
) -> Partition:
    """Return a rank's 1-D partition.

    Args:
        stripe, rank, input_edges, directed, hub_first: as of ``building.build_partition``.
        out: the ``out_part`` of each rank of the rank's column.
        into: the ``in_part`` of each rank of the rank's row; None for a graph without in-edges.
    """
    rows, self_loops, duplicates = _joined(stripe, rank, out, hub_first)
    parents = None if into is None else _joined(stripe, rank, into, hub_first)[0]
    return Partition(
        stripe, rank, rows.row_offsets, rows.columns, self_loops, duplicates, input_edges, directed, parents
    )


def nbytes(out: Sequence[Csr], into: Sequence[Csr] | None) -> int:
    """Return the bytes of the partition that ``join`` makes of the parts, at most."""
    return sum(csr.nbytes for csr in (*out, *(into or ())))


def _joined(stripe: Stripe, rank: int, parts: Sequence[Csr], hub_first: bool) -> tuple[Csr, int, int]:
    """Return the parts in one CSR, its rows sorted as ``building.build_csr`` sorts them; self-loops; duplicates."""
    row_offsets = np.sum([part.row_offsets for part in parts], axis=0)
    columns = np.empty(row_offsets[-1], np.uint32)
    cursor = row_offsets[:-1].copy()
    for part in parts:
        kernels.append_rows(part.row_offsets, part.columns, cursor, columns)
    largest = stripe.p * stripe.n_local - 1
    if not hub_first:
        loops, repeats = sort_rows(row_offsets, columns, rank * stripe.n_local, 1, largest)
    else:
        kernels.to_positions(columns, stripe.p, stripe.n_local)
        loops, repeats = sort_rows(row_offsets, columns, rank, stripe.p, largest)
        kernels.to_internal(columns, stripe.p, stripe.n_local)
    return Csr(row_offsets, columns), loops, repeats

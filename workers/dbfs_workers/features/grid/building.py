"""Building the blocks of a 2-D partition from bins, and joining them to the 1-D partition of a rank, which is saved.

A rank (i, j) of the grid collects R + C stores: one for each rank of its column j, with that rank's edges into row i;
and one for each rank of its row i, with the reversed edges out of column j. Each store makes one CSR, as the one store
of a 1-D partition does.

The edges that start in an owner's rows are on the ranks of its column, and those that end there on the ranks of its
row (``grid.Blocks``). To join them, each of these ranks gives its part to the owner.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building.edge_bins import BinStore, EdgeBin
from dbfs_workers.building.kernels import building as kernels
from dbfs_workers.building.partitions import bin_edges, build_csr, sort_columns
from dbfs_workers.building.pieces import check_ids
from dbfs_workers.features.grid.grid import Blocks, Grid, GridPartition
from dbfs_workers.search.partition.partition import Csr, Partition
from dbfs_workers.search.partition.stripe import Stripe

_Groups = Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]


def bin_blocks(
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    stripe: Stripe,
    grid: Grid,
    *,
    symmetrise: bool,
    bottom_up: bool,
    name: str,
) -> list[list[EdgeBin]]:
    """Cut edges into the bins of each rank's stores; return them by rank.

    Args:
        src, dst, stripe, symmetrise, name: as of ``building.bin_edges``.
        grid: the grid of the ranks.
        bottom_up: whether the reversed edges are binned as well.

    Errors as for ``building.bin_edges``.
    """
    src, dst = check_ids(src, dst, stripe.n, name)
    bins: list[list[EdgeBin]] = [[] for _ in range(stripe.p)]

    def add(groups: _Groups, rank_of: Callable[[int, int], int]) -> None:
        for group, edges in enumerate(groups):
            # Owners ascend, so that the bins of a rank come by the owners' places in its column, or its row.
            for owner, edge_bin in enumerate(bin_edges(*edges, stripe, symmetrise=False, name=name)):
                bins[rank_of(group, owner)].append(edge_bin)

    by_row = _grouped(src, dst, stripe.p, grid.columns, symmetrise)
    add(by_row, lambda row, owner: row * grid.columns + owner % grid.columns)
    if bottom_up:
        # The column of a vertex is its id modulo the columns, which divide p.
        by_column = _grouped(dst, src, grid.columns, 1, symmetrise)
        add(by_column, lambda column, owner: owner - owner % grid.columns + column)
    return bins


def _grouped(src: NDArray[np.int64], dst: NDArray[np.int64], ranks: int, width: int, symmetrise: bool) -> _Groups:
    """Yield the edges of each group, those with equal ``target % ranks // width``: sources and targets."""
    offsets = np.zeros(ranks // width + 1, np.int64)
    kernels.count_groups(src, dst, ranks, width, symmetrise, offsets)
    sources, targets = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int64)
    kernels.place_in_groups(src, dst, ranks, width, symmetrise, offsets[:-1].copy(), sources, targets)
    for start, stop in pairwise(offsets.tolist()):
        yield sources[start:stop], targets[start:stop]


def build_blocks(
    stripe: Stripe,
    grid: Grid,
    rank: int,
    stores: Sequence[BinStore],
    *,
    input_edges: int,
    hub_first: bool = False,
    threads: int = 1,
) -> Blocks:
    """Make a rank's blocks of the bins that the rank collected, which are gone afterwards.

    Args:
        stripe, rank, input_edges, hub_first, threads: as of ``building.build_partition``.
        grid: the grid of the ranks.
        stores: the rank's stores, in the order of ``bin_blocks``.
    """
    out, into = [], []
    self_loops = duplicates = 0
    for owner, store in zip(grid.column_of(rank), stores[: grid.rows], strict=True):
        csr, loops, repeats = build_csr(stripe, owner, store, hub_first, threads)
        out.append(csr)
        self_loops, duplicates = self_loops + loops, duplicates + repeats
    for owner, store in zip(grid.row_of(rank), stores[grid.rows :], strict=False):
        into.append(build_csr(stripe, owner, store, hub_first, threads)[0])
        _to_places(into[-1].columns, stripe, grid)
    return Blocks(tuple(out), tuple(into) or None, self_loops, duplicates, input_edges)


def _to_places(columns: NDArray[np.uint32], stripe: Stripe, grid: Grid) -> None:
    """Turn internal ids of a grid's column into places among the column's vertices: see ``Blocks``. In place."""
    owners = columns // np.uint32(stripe.n_local)
    # The place is n_local * (owner // columns) + the local id, and the internal id n_local * owner + the local id.
    columns -= np.uint32(stripe.n_local) * (owners - owners // np.uint32(grid.columns))


def row_degrees(blocks: Blocks, row: int) -> NDArray[np.int64]:
    """Return int64[n_local], this rank's edges from each row of the rank of its column in a row of the grid."""
    return np.diff(blocks.out[row].row_offsets)


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
    return Csr(row_offsets, columns), *sort_columns(stripe, rank, 0, row_offsets, columns, hub_first)

"""Building the blocks of a 2-D partition from bins.

A rank (i, j) of the grid collects R + C stores: one for each rank of its column j, with that rank's edges into row i;
and one for each rank of its row i, with the reversed edges out of column j. Each store makes one CSR, as the one store
of a 1-D partition does.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building.bin_store import BinStore, EdgeBin
from dbfs_workers.building.binning import bin_edges
from dbfs_workers.building.kernels import building as kernels
from dbfs_workers.building.partitions import build_csr
from dbfs_workers.building.pieces import check_ids
from dbfs_workers.features.grid.grid import Blocks, Grid
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
        src, dst, stripe, symmetrise, name: as of ``binning.bin_edges``.
        bottom_up: whether the reversed edges are binned as well.

    Errors as for ``binning.bin_edges``.
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

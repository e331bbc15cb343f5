"""Tasks of a build of a 2-D partition on CPUs, as those of ``building.on_cpu``."""

from __future__ import annotations

from dataclasses import replace

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building.delivering import Collection
from dbfs_workers.building.on_cpu import require_promised
from dbfs_workers.building.symmetry import MODULUS, imbalance
from dbfs_workers.features.grid.grid import Blocks, Grid, GridPartition
from dbfs_workers.search.partition.stripe import Stripe


def make_blocks(
    stripe: Stripe,
    grid: Grid,
    rank: int,
    collection: Collection,
    read: list[int],
    hub_first: bool,
    name: str,
    m: int,
    paired: bool,
) -> Blocks:
    """Return the rank's blocks, made of the bins that the rank collected; see ``make_partition``."""
    from dbfs_workers.features.grid.building import build_blocks

    try:
        require_promised(read, m, name)
        threads = distributed.get_worker().state.nthreads
        blocks = build_blocks(
            stripe, grid, rank, collection.stores, input_edges=sum(read), hub_first=hub_first, threads=threads
        )
        owners = enumerate(grid.column_of(rank)) if paired else ()
        parts = [imbalance(blocks.out[at], owner * stripe.n_local, threads) for at, owner in owners]
        return replace(blocks, imbalance=sum(parts) % MODULUS)
    finally:
        collection.close()


def row_degrees(blocks: Blocks, row: int) -> NDArray[np.int64]:
    """Return int64[n_local], this rank's edges from each row of the rank of its column in a row of the grid."""
    return np.diff(blocks.out[row].row_offsets)


def make_partition(
    stripe: Stripe, grid: Grid, rank: int, blocks: Blocks, degrees: list[NDArray[np.int64]], directed: bool
) -> GridPartition:
    """Return the rank's partition. ``degrees`` are the counts of all ranks of its column."""
    return GridPartition(stripe, grid, rank, blocks, np.sum(degrees, axis=0), directed)

"""Tasks of a build of a 2-D partition: blocks of the bins that a rank collected, and the degrees of its own rows.

A rank's own edges lie on all ranks of its column, so that each of these counts them for its degrees.
"""

from __future__ import annotations

from dataclasses import replace

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs_workers.storage.grid import Blocks, Grid, GridPartition
from dbfs_workers.storage.grid import describe as describe
from dbfs_workers.storage.stripe import Stripe
from dbfs_workers.storage.symmetry import MODULUS, imbalance
from dbfs_workers.tasks.build_on_cpu import require_promised
from dbfs_workers.tasks.delivering import Collection


def make_blocks(
    stripe: Stripe, rank: int, collection: Collection, read: list[int], hub_first: bool, name: str, m: int, paired: bool
) -> Blocks:
    """Return the rank's blocks, made of the bins that the rank collected; see ``build_on_cpu.make_partition``."""
    from dbfs_workers.storage.grid_building import build_blocks

    try:
        require_promised(read, m, name)
        threads = distributed.get_worker().state.nthreads
        blocks = build_blocks(
            stripe, rank, collection.stores, input_edges=sum(read), hub_first=hub_first, threads=threads
        )
        owners = enumerate(Grid.of(stripe.p).column_of(rank)) if paired else ()
        parts = [imbalance(blocks.out[at], owner * stripe.n_local, threads) for at, owner in owners]
        return replace(blocks, imbalance=sum(parts) % MODULUS)
    finally:
        collection.close()


def row_degrees(blocks: Blocks, row: int) -> NDArray[np.int64]:
    """Return this rank's edges from each row of a rank of its column; see ``grid_building.row_degrees``."""
    from dbfs_workers.storage.grid_building import row_degrees

    return row_degrees(blocks, row)


def make_partition(
    stripe: Stripe, rank: int, blocks: Blocks, degrees: list[NDArray[np.int64]], directed: bool
) -> GridPartition:
    """Return the rank's partition. ``degrees`` are the counts of all ranks of its column."""
    return GridPartition(stripe, rank, blocks, np.sum(degrees, axis=0), directed)

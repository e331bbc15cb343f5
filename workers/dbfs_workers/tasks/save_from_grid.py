"""Tasks that join the 1-D partitions of a 2-D graph, since files of a saved graph are of 1-D partitions.

A rank's partition lies on the ranks of its column of the grid, and its in-edges on those of its row. Each of these
ranks gives its part in a task of its own, and Dask moves the parts to the rank.
"""

from __future__ import annotations

from dbfs_workers.storage import grid_joining
from dbfs_workers.storage.grid import GridPartition
from dbfs_workers.storage.partition import Csr, Partition
from dbfs_workers.storage.reading import require_room
from dbfs_workers.storage.stripe import Stripe


def out_part(partition: GridPartition, owner: int) -> Csr:
    """See ``grid_joining.out_part``."""
    return grid_joining.out_part(partition, owner)


def in_part(partition: GridPartition, owner: int) -> Csr:
    """See ``grid_joining.in_part``."""
    return grid_joining.in_part(partition, owner)


def join(
    stripe: Stripe,
    rank: int,
    out: list[Csr],
    into: list[Csr] | None,
    input_edges: int,
    directed: bool,
    hub_first: bool,
    memory_share: float,
    name: str,
) -> Partition:
    """Return a rank's 1-D partition; see ``grid_joining.join``.

    Args:
        stripe, rank, out, into, input_edges, directed, hub_first: as of ``grid_joining.join``.
        memory_share: share of the worker's memory limit that the worker's process may reach.
        name: the graph's name, for errors.

    Raises:
        GraphTooLargeError: the worker has no memory for the partition.
    """
    require_room(grid_joining.nbytes(out, into), memory_share, f"saving {name}: the 1-D partition of rank {rank}")
    return grid_joining.join(stripe, rank, out, into, input_edges=input_edges, directed=directed, hub_first=hub_first)

"""Joining what several ranks have of a rank's edges to the rank's 1-D partition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dbfs_workers.building.reading import require_room
from dbfs_workers.search.partition.partition import Csr, Partition
from dbfs_workers.search.partition.stripe import Stripe


def join_parts(
    stripe: Stripe,
    rank: int,
    out: list[Csr],
    into: list[Csr] | None,
    input_edges: int,
    directed: bool,
    hub_first: bool,
    memory_share: float,
    doing: str,
) -> Partition:
    """Return a rank's 1-D partition; see ``join``.

    Args:
        stripe, rank, out, into, input_edges, directed, hub_first: as of ``join``.
        memory_share: share of the worker's memory limit that the worker's process may reach.
        doing: what the partition is for, for errors.

    Errors as for ``require_room``.
    """
    require_room(nbytes(out, into), memory_share, f"{doing}: the 1-D partition of rank {rank}")
    return join(stripe, rank, out, into, input_edges=input_edges, directed=directed, hub_first=hub_first)


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
        out: the ``Layout.out_part`` of each rank that holds edges of the rank.
        into: the ``Layout.in_part`` likewise; None for a graph without in-edges.
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
    # Imported here, because a client that submits tasks does not import Numba.
    from dbfs_workers.building.kernels import building as kernels
    from dbfs_workers.building.partitions import sort_columns

    row_offsets = np.sum([part.row_offsets for part in parts], axis=0)
    columns = np.empty(row_offsets[-1], np.uint32)
    cursor = row_offsets[:-1].copy()
    for part in parts:
        kernels.append_rows(part.row_offsets, part.columns, cursor, columns)
    return Csr(row_offsets, columns), *sort_columns(stripe, rank, 0, row_offsets, columns, hub_first)

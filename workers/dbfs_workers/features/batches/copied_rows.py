"""The rows of all ranks on one rank, for what needs no stripes: a share of the sources goes over all rows."""

from collections.abc import Callable
from typing import Any, Final

from dbfs_workers.base.errors import NoRoomForLabelsError
from dbfs_workers.features.batches.words import BatchWords
from dbfs_workers.search.exchange.protocol import Exchange
from dbfs_workers.search.partition.partition import Csr, Partition
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import Sum

_PHASE: Final = "copies of all rows"


def copied_rows(
    partition: Partition, xp: Any, exchange: Exchange, words: BatchWords, free_bytes: Callable[[], int], beside: int
) -> Partition:
    """Return the rows of all ranks as the partition of a single rank, whose vertices are the internal ids.

    All ranks call together, and the exchange has bins with parents. A single rank gets its own arrays.

    Args:
        partition: the rank's rows.
        xp: the module of the arrays, NumPy or CuPy.
        words: moves arrays between ranks.
        free_bytes: returns the bytes that the copy may take.
        beside: bytes that the rank will take beside the copy.

    Raises:
        NoRoomForLabelsError: the copy does not fit.
        Other errors as for ``Exchange.cross``.
    """
    stripe, p = partition.stripe, exchange.p
    edges = exchange.cross(0, _PHASE, Sum(partition.m_local), sliced=False).total
    ids, lists = stripe.p * stripe.n_local, 2 if partition.in_edges else 1
    needed = lists * (4 * edges + 8 * ids) * (p > 1) + beside
    if needed > (free := free_bytes()):
        raise NoRoomForLabelsError(
            f"a copy of all {edges:,} edges on each rank, and what goes over the copy, takes {needed:,} bytes; "
            f"{max(0, free):,} bytes are free"
        )

    def whole(own: Csr) -> Csr:
        if p == 1:
            return own
        degrees = xp.diff(own.row_offsets)
        by_rank = words.swap(0, [degrees] * p, [degrees] * p)
        row_offsets = xp.concatenate([xp.zeros(1, xp.int64), *by_rank]).cumsum()
        like = [xp.empty(int(each.sum()), xp.uint32) for each in by_rank]
        return Csr(row_offsets, xp.concatenate(words.swap(0, [own.columns] * p, like)))

    out, into = whole(partition.out_edges), partition.in_edges
    return Partition(
        stripe=Stripe(ids, 1),
        rank=0,
        row_offsets=out.row_offsets,
        columns=out.columns,
        self_loops=partition.self_loops,
        duplicates=partition.duplicates,
        input_edges=partition.input_edges,
        directed=partition.directed,
        in_edges=whole(into) if into else None,
        version=partition.version,
    )

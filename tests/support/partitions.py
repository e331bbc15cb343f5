"""Partitions of all ranks, built in this process."""

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building.bin_store import BinStore, EdgeBin
from dbfs_workers.building.binning import bin_edges
from dbfs_workers.building.partitions import build_partition
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import Stripe


def build(
    stripe: Stripe,
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    *,
    directed: bool,
    in_edges: bool = False,
    hub_first: bool = False,
    cuts: int = 1,
    threads: int = 1,
) -> list[Partition]:
    """Cut edges into ``cuts`` pieces, bin the pieces, and build the partitions; an undirected edge is stored twice."""
    pieces = list(zip(np.array_split(src, cuts), np.array_split(dst, cuts), strict=True))

    def collected(pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> list[BinStore]:
        bins: list[tuple[EdgeBin, ...]] = [
            bin_edges(*pair, stripe, symmetrise=not directed, name="test") for pair in pairs
        ]
        return [BinStore.of(stripe, (piece[rank] for piece in bins)) for rank in range(stripe.p)]

    out = collected(pieces)
    into = collected([(v, u) for u, v in pieces]) if in_edges else [None] * stripe.p
    return [
        build_partition(
            stripe,
            rank,
            out[rank],
            input_edges=src.size,
            directed=directed,
            in_edges=into[rank],
            hub_first=hub_first,
            threads=threads,
        )
        for rank in range(stripe.p)
    ]

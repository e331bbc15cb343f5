"""The tasks of a build. They run on workers, which import the kernels: a client needs none."""

import numpy as np
from numpy.typing import NDArray

from dbfs.edges import Edges, Piece
from dbfs_workers.partition import EdgeBin, Partition, PartitionInfo
from dbfs_workers.stripe import Stripe


def read(piece: Piece, _before: object = None) -> Edges:
    """A piece's edges. ``_before`` only orders tasks."""
    return piece.read()


def distinct(read: Edges, wanted: bool) -> tuple[NDArray[np.int64], int]:
    """The distinct ids of a piece (none where not ``wanted``), and how many edges it has."""
    src, dst = read
    return np.unique(np.concatenate([src, dst])) if wanted else np.empty(0, np.int64), src.size


def unite(parts: list[tuple[NDArray[np.int64], int]]) -> tuple[NDArray[np.int64], int]:
    """The distinct ids of all pieces in ascending order, and the number of edges."""
    return np.unique(np.concatenate([ids for ids, _ in parts])), sum(count for _, count in parts)


def summarise_ids(united: tuple[NDArray[np.int64], int]) -> tuple[int, int, bool]:
    """Number of distinct ids, number of edges, and whether the ids are 0..n-1 already."""
    ids, m = united
    return ids.size, m, bool(ids.size == 0 or ids[-1] == ids.size - 1)


def bin_piece(
    read: Edges, stripe: Stripe, symmetrise: bool, name: str, united: tuple[NDArray[np.int64], int] | None
) -> tuple[EdgeBin, ...]:
    """A piece's edges by owner, after the ids of ``united`` (where given) became their ranks."""
    from dbfs_workers.building import bin_edges

    src, dst = read
    if united is not None:
        src, dst = np.searchsorted(united[0], src), np.searchsorted(united[0], dst)
    return bin_edges(src, dst, stripe, symmetrise=symmetrise, name=name)


def edge_bin(bins: tuple[EdgeBin, ...], owner: int) -> EdgeBin:
    """One owner's bin."""
    return bins[owner]


def make_partition(stripe: Stripe, rank: int, rounds: list[list[EdgeBin]]) -> Partition:
    """The partition of a rank from the rounds of bins that it collected."""
    from dbfs_workers.building import build_partition

    return build_partition(stripe, rank, rounds)


def describe(partition: Partition) -> PartitionInfo:
    """The partition's counts."""
    from dbfs_workers.building import describe

    return describe(partition)

"""A rank's slice of the graph: a CSR of its rows with internal ids as columns, and how it is made from edges.

Building takes two steps, each a Dask task: ``bin_edges`` cuts a piece of the edge list into one bin per owner of the
edges' sources (on whichever worker read the piece), and ``build_partition`` makes a CSR from the bins a rank was sent.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dbfs_workers import build_kernels as kernels
from dbfs_workers.errors import InvalidVertexError
from dbfs_workers.stripe import Stripe


@dataclass(frozen=True)
class EdgeBin:
    """Directed edges bound for one owner.

    Attributes:
        rows: uint32, the sources' local ids on the owner.
        columns: uint32, the targets' internal ids; as long as ``rows``.
    """

    rows: NDArray[np.uint32]
    columns: NDArray[np.uint32]

    def __dask_sizeof__(self) -> int:
        return self.rows.nbytes + self.columns.nbytes


@dataclass(frozen=True)
class Binned:
    """A piece of the edge list, cut by owner.

    Attributes:
        edges: input edges read, before symmetrising.
        bins: one per owner.
    """

    edges: int
    bins: tuple[EdgeBin, ...]


@dataclass(frozen=True)
class Partition:
    """The rows of one rank.

    Attributes:
        stripe: how the graph lies on the ranks.
        rank: whose rows these are.
        row_offsets: int64[n_local + 1], where each row's columns start.
        columns: uint32[m_local], internal ids of the neighbours, ascending within a row; duplicates are kept.
        self_loops: edges from a vertex to itself.
        duplicates: edges that repeat the one before them in their row.
    """

    stripe: Stripe
    rank: int
    row_offsets: NDArray[np.int64]
    columns: NDArray[np.uint32]
    self_loops: int
    duplicates: int

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.row_offsets.nbytes + self.columns.nbytes

    @property
    def m_local(self) -> int:
        """Directed edges stored on this rank."""
        return self.columns.size

    def __dask_sizeof__(self) -> int:
        return self.nbytes


@dataclass(frozen=True)
class PartitionInfo:
    """What a client knows of a partition without fetching it. Counts as in ``Partition``."""

    rank: int
    m_local: int
    nbytes: int
    self_loops: int
    duplicates: int
    max_degree: int


def bin_edges(src: NDArray[np.int64], dst: NDArray[np.int64], stripe: Stripe, *, symmetrise: bool, name: str) -> Binned:
    """Cut edges into one bin per owner of their source.

    Args:
        src: int64 vertex ids.
        dst: int64 vertex ids, as many.
        stripe: how the graph lies on the ranks.
        symmetrise: add each edge's reverse; a self-loop is its own reverse and is stored once.
        name: what to call these edges in an error.

    Raises:
        InvalidVertexError: an id is outside 0..n-1; nothing is binned.
    """
    src = np.ascontiguousarray(src, dtype=np.int64)
    dst = np.ascontiguousarray(dst, dtype=np.int64)
    for ids in (src, dst):
        if ids.size and (ids.min() < 0 or ids.max() >= stripe.n):
            at = int(np.flatnonzero((ids < 0) | (ids >= stripe.n))[0])
            raise InvalidVertexError(
                f"{name}: edge ({src[at]}, {dst[at]}) has an id outside 0..{stripe.n - 1} (n = {stripe.n})"
            )
    offsets = kernels.count_owners(src, dst, stripe.p, symmetrise)
    rows = np.empty(offsets[-1], np.uint32)
    columns = np.empty(offsets[-1], np.uint32)
    kernels.bin_by_owner(src, dst, stripe.p, stripe.n_local, symmetrise, offsets[:-1].copy(), rows, columns)
    # Each bin gets memory of its own: a view would keep the whole piece alive until the last owner has its part.
    cuts = [slice(offsets[owner], offsets[owner + 1]) for owner in range(stripe.p)]
    return Binned(src.size, tuple(EdgeBin(rows[cut].copy(), columns[cut].copy()) for cut in cuts))


def build_partition(stripe: Stripe, rank: int, rounds: Iterable[Sequence[EdgeBin]]) -> Partition:
    """Make a rank's CSR from the bins it was sent.

    Peak memory is the bins (8 bytes an edge) plus the partition (4 bytes an edge, 8 a row) and 8 bytes a row.
    """
    bins = [edge_bin for received in rounds for edge_bin in received]
    row_offsets = np.zeros(stripe.n_local + 1, np.int64)
    for edge_bin in bins:
        kernels.count_degrees(edge_bin.rows, row_offsets[1:])
    np.cumsum(row_offsets, out=row_offsets)
    columns = np.empty(row_offsets[-1], np.uint32)
    cursor = row_offsets[:-1].copy()
    for edge_bin in bins:
        kernels.place_columns(edge_bin.rows, edge_bin.columns, cursor, columns)
    self_loops, duplicates = kernels.sort_rows(row_offsets, columns, rank * stripe.n_local)
    return Partition(stripe, rank, row_offsets, columns, self_loops, duplicates)


def describe(partition: Partition) -> PartitionInfo:
    """The partition's counts."""
    return PartitionInfo(
        rank=partition.rank,
        m_local=partition.m_local,
        nbytes=partition.nbytes,
        self_loops=partition.self_loops,
        duplicates=partition.duplicates,
        max_degree=int(np.diff(partition.row_offsets).max()),
    )

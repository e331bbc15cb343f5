"""The 2-D partition: ranks in rows and columns of a grid; each has the edges from its column's to its row's vertices.

The stripe stays: a vertex's owner keeps its labels, as in the 1-D partition. An edge (u, v) lies on the rank in the
column of u's owner and the row of v's owner. So a level needs two exchanges among about √p ranks each: owners send the
frontier to their columns, and finders send what they found along their rows (Krajecki 2016, algorithm 2; Buluç,
Madduri, "Parallel Breadth-First Search on Distributed Memory Systems", SC 2011).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt
from types import ModuleType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.partition.partition import (
    Csr,
    OwnedRows,
    Partition,
    PartitionInfo,
    RankEdges,
    no_vertices,
)
from dbfs_workers.search.partition.stripe import Stripe

# A distance by weight takes two places of a bin with parents, and four of one without.
_LEAST_ENTRIES: Final = 4


@dataclass(frozen=True)
class Grid:
    """The places of ranks in a grid: rank ``r`` is in row ``r // columns`` and column ``r % columns``."""

    rows: int
    columns: int

    @classmethod
    def of(cls, p: int) -> Self:
        """Return the grid of ``p`` ranks that is nearest to a square, with at most as many rows as columns."""
        rows = next(rows for rows in range(isqrt(p), 0, -1) if p % rows == 0)
        return cls(rows, p // rows)

    @classmethod
    def shapes(cls, p: int) -> list[Self]:
        """Return all grids of ``p`` ranks, from one row to one column."""
        return [cls(rows, p // rows) for rows in range(1, p + 1) if p % rows == 0]

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"

    def row_of(self, rank: int) -> range:
        """Return the ranks in the row of a rank, by column."""
        first = rank - rank % self.columns
        return range(first, first + self.columns)

    def column_of(self, rank: int) -> range:
        """Return the ranks in the column of a rank, by row."""
        return range(rank % self.columns, self.rows * self.columns, self.columns)

    def count_stores(self, *, bottom_up: bool) -> int:
        """Return the number of adjacency lists of each rank; ``bottom_up`` includes those by the edges' ends."""
        return self.rows + (self.columns if bottom_up else 0)

    def bin_entries(self, stripe: Stripe) -> int:
        """Return the entries of a bin of the ranks' exchange. Only parents travel in several messages.

        The bins of one parity for all ranks of a row hold half of the parents that a rank has for these ranks.
        """
        return max(stripe.words_local, -(-stripe.n_local // (2 * self.columns)), _LEAST_ENTRIES)

    def partition_bytes(self, stripe: Stripe, m_local: int, *, bottom_up: bool) -> dict[str, int]:
        """Return the bytes of a rank's part by name: see ``Layout.partition_bytes``."""
        copies, lists = 2 if bottom_up else 1, self.count_stores(bottom_up=bottom_up)
        return {
            "row offsets": 8 * lists * (stripe.n_local + 1),
            "columns": copies * 4 * m_local,
            "degrees": 8 * stripe.n_local,
        }


@dataclass(frozen=True)
class Blocks:
    """The edges from the vertices of a rank's column to those of its row.

    Attributes:
        out: by rank of the column, the edges that start in that rank's rows. Columns are internal ids.
        into: by rank of the row, the same edges by the rows where they end; None if there are no bottom-up levels. A
            column is the source's place among the vertices of the grid's column: the row of the source's owner in the
            grid, times ``n_local``, plus the source's local id.
        self_loops, duplicates, input_edges, imbalance: as in ``Partition``.
    """

    out: tuple[Csr, ...]
    into: tuple[Csr, ...] | None
    self_loops: int
    duplicates: int
    input_edges: int
    imbalance: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(csr.nbytes for csr in (*self.out, *(self.into or ())))

    def joined_on(self, xp: ModuleType) -> Blocks:
        """Return the blocks as arrays of a module, with one adjacency list in ``out`` and at most one in ``into``.

        The rows of all ranks lie one behind another, so that one launch takes them all.
        """
        into = None if self.into is None else (_joined_on(xp, self.into),)
        return replace(self, out=(_joined_on(xp, self.out),), into=into)

    def __sizeof__(self) -> int:
        return self.nbytes


@dataclass(frozen=True)
class GridPartition(RankEdges):
    """One rank's edges in a 2-D partition.

    Attributes:
        blocks: the rank's edges.
        degrees: int64[n_local], the out-degrees of the rank's own rows, over all ranks of its column.
        directed: whether an edge may lack its reverse.
        deleted: the vertices that a filter left out: see ``Partition``.
    """

    stripe: Stripe
    grid: Grid
    rank: int
    blocks: Blocks
    degrees: NDArray[np.int64]
    directed: bool
    deleted: NDArray[np.int64] = field(default_factory=no_vertices)

    @property
    def version(self) -> int:
        """Number of the graph's version: such a graph takes no changes."""
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.blocks.nbytes + self.degrees.nbytes

    @property
    def m_local(self) -> int:
        """Directed edges stored on this rank."""
        return sum(csr.columns.size for csr in self.blocks.out)

    def parts(self) -> Iterator[Partition]:
        """Yield the edges as parts of the partitions of the column's ranks: see ``RankEdges``."""
        for owner, csr in zip(self.grid.column_of(self.rank), self.blocks.out, strict=True):
            lists = (csr.row_offsets, csr.columns)
            yield Partition(self.stripe, owner, *lists, 0, 0, 0, self.directed, deleted=self.deleted)

    def out_lists(self) -> list[OwnedRows]:
        owners = self.grid.column_of(self.rank)
        return [OwnedRows(owner, csr, csr.columns) for owner, csr in zip(owners, self.blocks.out, strict=True)]

    def in_lists(self) -> list[OwnedRows] | None:
        if self.blocks.into is None:
            return None
        owners = self.grid.row_of(self.rank)
        return [OwnedRows(owner, csr, self.sources(csr)) for owner, csr in zip(owners, self.blocks.into, strict=True)]

    def sources(self, csr: Csr) -> NDArray[np.uint32]:
        """Return the internal ids of an adjacency list of ``Blocks.into``, whose columns are places; a copy."""
        n_local = np.uint32(self.stripe.n_local)
        rows = csr.columns // n_local
        # The owner of place ``row * n_local + local id`` is ``row * columns + column``.
        owners = rows * np.uint32(self.grid.columns) + np.uint32(self.rank % self.grid.columns)
        columns = csr.columns.copy()
        columns += n_local * (owners - rows)
        return columns

    def with_lists(
        self,
        out: Sequence[Csr],
        into: Sequence[Csr] | None,
        *,
        self_loops: int,
        duplicates: int,
        deleted: NDArray[np.int64],
        version: int,  # noqa: ARG002 - such a graph takes no changes
    ) -> GridPartition:
        """See ``RankEdges``. The degrees, which other ranks' edges add to, are those of before."""
        blocks = Blocks(
            tuple(out), None if into is None else tuple(into), self_loops, duplicates, self.blocks.input_edges
        )
        return replace(self, blocks=blocks, deleted=deleted)

    def with_input_edges(self, input_edges: int) -> GridPartition:
        return replace(self, blocks=replace(self.blocks, input_edges=input_edges))

    @property
    def info(self) -> PartitionInfo:
        """The counts."""
        blocks = self.blocks
        return PartitionInfo(
            rank=self.rank,
            m_local=self.m_local,
            nbytes=self.nbytes,
            self_loops=blocks.self_loops,
            duplicates=blocks.duplicates,
            input_edges=blocks.input_edges,
            max_degree=int(self.degrees.max()),
            has_parents=blocks.into is not None,
            imbalance=blocks.imbalance,
            deleted=self.deleted.size,
        )

    def degrees_of(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        return self.degrees[rows]

    def __sizeof__(self) -> int:
        return self.nbytes


def _joined_on(xp: ModuleType, lists: Sequence[Csr]) -> Csr:
    """Return adjacency lists as one, in arrays of a module. Only the part that is copied exists twice."""
    rows = sum(csr.row_offsets.size - 1 for csr in lists)
    offsets = xp.zeros(rows + 1, np.int64)
    columns = xp.empty(sum(csr.columns.size for csr in lists), np.uint32)
    row = edge = 0
    for csr in lists:
        end, edge_end = row + csr.row_offsets.size - 1, edge + csr.columns.size
        offsets[row + 1 : end + 1] = xp.asarray(csr.row_offsets[1:])
        offsets[row + 1 : end + 1] += edge
        columns[edge:edge_end] = xp.asarray(csr.columns)
        row, edge = end, edge_end
    return Csr(offsets, columns)

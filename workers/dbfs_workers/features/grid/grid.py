"""The 2-D partition: ranks in rows and columns of a grid; each has the edges from its column's to its row's vertices.

The stripe stays: a vertex's owner keeps its labels, as in the 1-D partition. An edge (u, v) lies on the rank in the
column of u's owner and the row of v's owner. So a level needs two exchanges among about √p ranks each: owners send the
frontier to their columns, and finders send what they found along their rows (Krajecki 2016, algorithm 2; Buluç,
Madduri, "Parallel Breadth-First Search on Distributed Memory Systems", SC 2011).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building.layout import Layout
from dbfs_workers.features.grid.kernels import NEEDED, TEAM
from dbfs_workers.search.partition.partition import Csr, Partition, PartitionInfo, RankEdges
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    from dbfs_workers.building.delivering import Bins
    from dbfs_workers.features.grid.runner import GridRunner
    from dbfs_workers.search.exchange.nccl import NcclExchange
    from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange


@dataclass(frozen=True)
class Grid(Layout):
    """The places of ranks in a grid: rank ``r`` is in row ``r // columns`` and column ``r % columns``.

    Attributes:
        rows: number of rows.
        columns: number of columns.
    """

    name: ClassVar[str] = "2d"
    # An edge takes 16 bytes of ids, and as many in each direction, sorted by block.
    binned_bytes: ClassVar[int] = 48

    rows: int
    columns: int

    @classmethod
    def of(cls, p: int) -> Grid:
        """Return the grid of ``p`` ranks that is nearest to a square, with at most as many rows as columns."""
        rows = next(rows for rows in range(isqrt(p), 0, -1) if p % rows == 0)
        return cls(rows, p // rows)

    @classmethod
    def shapes(cls, p: int) -> list[Grid]:
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

    @property
    def in_words(self) -> str:
        """See ``Layout``."""
        return f"a {self} grid"

    def between_gpus(self) -> tuple[str, ...]:
        """See ``Layout``. One rank has nothing to map."""
        return ("cuda_ipc", "nccl") if self.rows * self.columns > 1 else ()

    def bin_entries(self, stripe: Stripe) -> int:
        """See ``Layout``. There is room for every message except parents, which travel in several messages.

        The bins of one parity for all ranks of a row hold half of the parents that a rank has for these ranks.
        """
        return max(stripe.words_local, -(-stripe.n_local // (2 * self.columns)))

    def kernels(self, threads: int) -> tuple[str, ...]:
        """See ``Layout``."""
        return (*NEEDED, *(TEAM if threads > 1 else ()))

    def runner(
        self,
        exchange: SharedMemoryExchange | NcclExchange,
        backend: str,
        threads: int,
        between: str,
        graph_id: str,
    ) -> GridRunner:
        """See ``Layout``."""
        from dbfs_workers.features.grid.runner import GridRunner

        return GridRunner(exchange, backend, threads, between, graph_id)

    def count_stores(self, *, bottom_up: bool) -> int:
        """Return the number of adjacency lists of each rank; ``bottom_up`` includes those by the edges' ends."""
        return self.rows + (self.columns if bottom_up else 0)

    def bins(
        self,
        src: NDArray[np.int64],
        dst: NDArray[np.int64],
        stripe: Stripe,
        stores: int,
        *,
        symmetrise: bool,
        name: str,
    ) -> Sequence[Bins]:
        """See ``Layout``."""
        from dbfs_workers.features.grid.building import bin_blocks

        bottom_up = stores > self.count_stores(bottom_up=False)
        return bin_blocks(src, dst, stripe, self, symmetrise=symmetrise, bottom_up=bottom_up, name=name)

    def out_holders(self, owner: int) -> range:
        """See ``Layout``."""
        return self.column_of(owner)

    def in_holders(self, owner: int) -> range:
        """See ``Layout``."""
        return self.row_of(owner)

    def out_part(self, edges: RankEdges, owner: int) -> Csr:
        """See ``Layout``. There is no copy."""
        assert isinstance(edges, GridPartition)
        return edges.blocks.out[self.column_of(edges.rank).index(owner)]

    def in_part(self, edges: RankEdges, owner: int) -> Csr:
        """See ``Layout``. Columns are places in ``Blocks``, so that this is a copy."""
        assert isinstance(edges, GridPartition)
        assert edges.blocks.into is not None
        csr, n_local = edges.blocks.into[self.row_of(edges.rank).index(owner)], np.uint32(edges.stripe.n_local)
        rows = csr.columns // n_local
        # The owner of place ``row * n_local + local id`` is ``row * columns + column``.
        owners = rows * np.uint32(self.columns) + np.uint32(edges.rank % self.columns)
        columns = csr.columns.copy()
        columns += n_local * (owners - rows)
        return Csr(csr.row_offsets, columns)

    def partition_bytes(self, stripe: Stripe, m_local: int, *, bottom_up: bool) -> dict[str, int]:
        """See ``Layout``."""
        copies, lists = 2 if bottom_up else 1, self.count_stores(bottom_up=bottom_up)
        return {
            "row offsets": 8 * lists * (stripe.n_local + 1),
            "columns": copies * 4 * m_local,
            "degrees": 8 * stripe.n_local,
        }

    def run_bytes(self, stripe: Stripe, *, bottom_up: bool) -> dict[str, int]:
        """See ``Layout``."""
        from dbfs_workers.features.grid import scratch

        # Messages that become resident: bitmaps for the column, parents for the row.
        messages = (self.rows - 1) * stripe.words_local + (self.columns - 1) * self.bin_entries(stripe)
        return {"state": scratch.nbytes(stripe, self, bottom_up=bottom_up), "bins": 2 * 4 * messages}

    def remote_bytes(self, stripe: Stripe, hosts: Sequence[int]) -> int:
        """See ``Layout``."""
        held = [0] * (max(hosts) + 1)
        for rank, host in enumerate(hosts):
            peers = [(peer, self.bin_entries(stripe)) for peer in self.row_of(rank)]
            peers += [(peer, stripe.words_local) for peer in self.column_of(rank)]
            held[host] += sum(2 * 4 * entries for peer, entries in peers if hosts[peer] != host)
        return max(held)


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
        stripe: how the vertices lie on the ranks.
        grid: the grid of the ranks.
        rank: the rank.
        blocks: the rank's edges.
        degrees: int64[n_local], the out-degrees of the rank's own rows, over all ranks of its column.
        directed: whether an edge may lack its reverse.
    """

    stripe: Stripe
    grid: Grid
    rank: int
    blocks: Blocks
    degrees: NDArray[np.int64]
    directed: bool

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
            yield Partition(self.stripe, owner, csr.row_offsets, csr.columns, 0, 0, 0, self.directed)

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
        )

    def degrees_of(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        """See ``RankEdges``."""
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

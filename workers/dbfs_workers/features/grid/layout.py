"""The layout 2d: what builds a grid's ranks, and what they take and traverse with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building.layout import Layout
from dbfs_workers.features.grid import scratch
from dbfs_workers.features.grid.grid import Grid, GridPartition
from dbfs_workers.features.grid.kernels import NEEDED, TEAM
from dbfs_workers.search.partition.partition import Csr, RankEdges
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    from dbfs_workers.building.delivering import Bins
    from dbfs_workers.features.grid.runner import GridRunner
    from dbfs_workers.search.exchange.nccl import NcclExchange
    from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange


@dataclass(frozen=True)
class GridLayout(Grid, Layout):
    """A grid as a ``Layout``."""

    name: ClassVar[str] = "2d"
    # An edge takes 16 bytes of ids, and as many in each direction, sorted by block.
    binned_bytes: ClassVar[int] = 48

    @property
    def in_words(self) -> str:
        return f"a {self} grid"

    def between_gpus(self) -> tuple[str, ...]:
        """See ``Layout``. One rank has nothing to map."""
        return ("cuda_ipc", "nccl") if self.rows * self.columns > 1 else ()

    def kernels(self, threads: int) -> tuple[str, ...]:
        return (*NEEDED, *(TEAM if threads > 1 else ()))

    def runner(
        self,
        exchange: SharedMemoryExchange | NcclExchange,
        backend: str,
        threads: int,
        between: str,
        graph_id: str,
    ) -> GridRunner:
        from dbfs_workers.features.grid.runner import GridRunner

        return GridRunner(exchange, backend, threads, between, graph_id)

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
        from dbfs_workers.features.grid.building import bin_blocks

        bottom_up = stores > self.count_stores(bottom_up=False)
        return bin_blocks(src, dst, stripe, self, symmetrise=symmetrise, bottom_up=bottom_up, name=name)

    def out_holders(self, owner: int) -> range:
        return self.column_of(owner)

    def in_holders(self, owner: int) -> range:
        return self.row_of(owner)

    def out_part(self, edges: RankEdges, owner: int) -> Csr:
        """See ``Layout``. There is no copy."""
        assert isinstance(edges, GridPartition)
        return edges.blocks.out[self.column_of(edges.rank).index(owner)]

    def in_part(self, edges: RankEdges, owner: int) -> Csr:
        """See ``Layout``. Columns are places in ``Blocks``, so that this is a copy."""
        assert isinstance(edges, GridPartition)
        assert edges.blocks.into is not None
        csr = edges.blocks.into[self.row_of(edges.rank).index(owner)]
        return Csr(csr.row_offsets, edges.sources(csr))

    def places(
        self, rows: NDArray[np.int64], others: NDArray[np.int64], *, by_end: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        starts, ends = (others, rows) if by_end else (rows, others)
        ranks = ends - ends % self.columns + starts % self.columns
        return ranks, rows % self.columns if by_end else rows // self.columns

    def with_degrees(self, edges: RankEdges, degrees: Sequence[NDArray[np.int64]]) -> GridPartition:
        assert isinstance(edges, GridPartition)
        return replace(edges, degrees=np.sum(degrees, axis=0))

    def run_bytes(self, stripe: Stripe, *, bottom_up: bool) -> dict[str, int]:
        # Messages that become resident: bitmaps for the column, parents for the row.
        messages = (self.rows - 1) * stripe.words_local + (self.columns - 1) * self.bin_entries(stripe)
        return {"state": scratch.nbytes(stripe, self, bottom_up=bottom_up), "bins": 2 * 4 * messages}

    def remote_bytes(self, stripe: Stripe, hosts: Sequence[int]) -> int:
        held = [0] * (max(hosts) + 1)
        for rank, host in enumerate(hosts):
            peers = [(peer, self.bin_entries(stripe)) for peer in self.row_of(rank)]
            peers += [(peer, stripe.words_local) for peer in self.column_of(rank)]
            held[host] += sum(2 * 4 * entries for peer, entries in peers if hosts[peer] != host)
        return max(held)

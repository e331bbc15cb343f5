"""Builds of 2-D partitions on CPUs: bins by rank and adjacency list, blocks of the bins, degrees over columns.

Ranks on GPUs copy their partitions to their GPUs when they join the gang; the partitions stay on the host as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dbfs.building.builder import BuildOptions, DealtPieces
from dbfs.building.memory import Estimate, estimate_grid_on_gpu, free_gpu_bytes, too_large_for_gpus
from dbfs.building.on_cpu import HostBuilder
from dbfs.cluster.gang import Ref, TaskGraph
from dbfs.edges.edge_list import EdgeList
from dbfs_workers.storage.grid import Grid, count_stores, describe
from dbfs_workers.storage.partition import PartitionInfo
from dbfs_workers.storage.stripe import Stripe
from dbfs_workers.tasks import build_on_cpu


class GridBuilder(HostBuilder):
    """A build of a 2-D partition in the memory of the workers; arguments as of ``Builder``."""

    @property
    def describe(self) -> Callable[[Any], PartitionInfo]:
        """See ``Builder``."""
        return describe

    @staticmethod
    def stores_twice(edges: EdgeList, options: BuildOptions) -> bool:
        """See ``HostBuilder``. The reverse of an undirected edge is mostly on another rank."""
        return options.in_edges or not edges.directed

    def count_stores(self, p: int) -> int:
        """See ``HostBuilder``."""
        return count_stores(p, bottom_up=self.stores_twice(self.edges, self.options))

    def add_partitions(
        self, graph: TaskGraph, stripe: Stripe, collections: Sequence[Ref], read: list[Ref], m: int
    ) -> list[Ref]:
        """See ``HostBuilder``."""
        grid, edges, ordered = Grid.of(stripe.p), self.edges, self.options.order == "degree"
        blocks = []
        for rank, collection in enumerate(collections):
            arguments = (stripe, rank, collection, read, ordered, edges.name, m, edges.paired)
            blocks.append(graph.add(rank, self._key("blocks", rank), build_on_cpu.make_blocks, *arguments))
        partitions = []
        for rank, own in enumerate(blocks):
            row = rank // grid.columns
            keys = {peer: self._key("row-degrees", rank, peer) for peer in grid.column_of(rank)}
            degrees = [graph.add(peer, key, build_on_cpu.row_degrees, blocks[peer], row) for peer, key in keys.items()]
            options = (stripe, rank, own, degrees, edges.directed)
            partitions.append(graph.add(rank, self._key("partition", rank), build_on_cpu.make_grid_partition, *options))
        return partitions


class GridOnGpuBuilder(GridBuilder):
    """A build of a 2-D partition whose ranks traverse it on GPUs; arguments as of ``Builder``."""

    @classmethod
    def estimate_on_gpu(
        cls, edges: EdgeList, stripe: Stripe, m: int, options: BuildOptions, memory: int | None = None
    ) -> Estimate:
        """Estimate the bytes of a rank's GPU; arguments as of ``CudaBuilder.estimate``."""
        stored = m * (2 if edges.symmetrise else 1)
        needed = estimate_grid_on_gpu(stripe, stored, in_edges=cls.stores_twice(edges, options))
        return replace(needed, passes=options.passes(1), peaks=(needed.peak_bytes,), memory=memory)

    def require_fit(self, n: int, m: int, read: DealtPieces | None = None) -> None:
        """Raise ``GraphTooLargeError`` if the build won't fit the workers, or the partition the free GPU memory."""
        super().require_fit(n, m, read)
        stripe = self.options.stripe(n, self.gang.p)
        needed = self.estimate_on_gpu(self.edges, stripe, m, self.options)
        free = free_gpu_bytes(self.gang, needed.peak_bytes)
        if needed.peak_bytes > min(free):
            raise too_large_for_gpus(stripe, needed, free, self.edges.name)

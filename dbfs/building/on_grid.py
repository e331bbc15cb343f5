"""Builds of 2-D partitions on CPUs: bins by rank and adjacency list, blocks of the bins, degrees over columns."""

from collections.abc import Callable, Sequence
from typing import Any

from dbfs.building.builder import BuildOptions
from dbfs.building.on_cpu import HostBuilder
from dbfs.cluster.gang import Ref, TaskGraph
from dbfs.edges.edge_list import EdgeList
from dbfs_workers.storage.grid import Grid, count_stores
from dbfs_workers.storage.partition import PartitionInfo
from dbfs_workers.storage.stripe import Stripe
from dbfs_workers.tasks import build_on_grid


class GridBuilder(HostBuilder):
    """A build of a 2-D partition in the memory of the workers; arguments as of ``Builder``."""

    @property
    def describe(self) -> Callable[[Any], PartitionInfo]:
        """See ``Builder``."""
        return build_on_grid.describe

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
        blocks = [
            graph.add(
                rank,
                self._key("blocks", rank),
                build_on_grid.make_blocks,
                *(stripe, rank, collection, read, ordered, edges.name, m),
            )
            for rank, collection in enumerate(collections)
        ]
        partitions = []
        for rank, own in enumerate(blocks):
            row = rank // grid.columns
            degrees = [
                graph.add(
                    peer,
                    self._key("row-degrees", rank * grid.rows + at),
                    build_on_grid.row_degrees,
                    blocks[peer],
                    row,
                )
                for at, peer in enumerate(grid.column_of(rank))
            ]
            options = (stripe, rank, own, degrees, edges.directed)
            partitions.append(graph.add(rank, self._key("partition", rank), build_on_grid.make_partition, *options))
        return partitions

"""Builds of 2-D partitions, as Dask tasks on the workers' CPUs.

Ranks bin by rank and adjacency list, and count degrees over columns. Ranks on GPUs copy their partitions to their GPUs
when they join the gang; the partitions stay on the host as well.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from dbfs import config
from dbfs.building.builder import BuildOptions, BuildSize, DealtPieces
from dbfs.building.memory import Estimate, require_fit_gpus
from dbfs.building.on_cpu import HostBuilder
from dbfs.cluster.gang import Ref, TaskGraph
from dbfs.edges.edge_list import EdgeList
from dbfs.errors import InvalidOptionError
from dbfs_workers.base.text import counted
from dbfs_workers.features.grid import sizes as grid_sizes
from dbfs_workers.features.grid import tasks as grid_tasks
from dbfs_workers.features.grid.grid import Grid
from dbfs_workers.features.grid.layout import GridLayout
from dbfs_workers.search.cuda import sizes
from dbfs_workers.search.partition.labels import label_bytes
from dbfs_workers.search.partition.stripe import Stripe

# A grid by its rows and columns, of which ``p`` is the number of ranks.
_SHAPE = re.compile("2d:([1-9][0-9]{0,5}|p)x([1-9][0-9]{0,5}|p)")


def is_shape(layout: str) -> bool:
    """Return whether a layout is that of a grid by its rows and columns, such as ``2d:1x4``."""
    return _SHAPE.fullmatch(layout) is not None


def grid_of(layout: str, p: int) -> GridLayout:
    """Return the grid of p ranks. Raise ``InvalidOptionError`` if the layout's shape does not fit p."""
    shape = _SHAPE.fullmatch(layout)
    if shape is None:
        return GridLayout.of(p)
    found = GridLayout(*(p if size == "p" else int(size) for size in shape.groups()))
    if found.rows * found.columns != p:
        fitting = ", ".join(f"2d:{grid}" for grid in Grid.shapes(p))
        raise InvalidOptionError(
            f"layout={layout!r} is for {counted(found.rows * found.columns, 'rank')}, and the graph has {p}; "
            f"choose 2d, or one of {fitting}"
        )
    return found


def estimate_on_gpu(stripe: Stripe, grid: Grid, directed_edges: int, *, in_edges: bool) -> Estimate:
    """Estimate the bytes of a rank's GPU memory; arguments as of ``building.memory.estimate_bytes``.

    The partition is built in the memory of the workers, where kept edges stay, and validation is.
    """
    run = {**grid_sizes.run_on_gpu(stripe, grid, bottom_up=in_edges), "labels": sizes.labels(stripe)}
    partition = grid.partition_bytes(stripe, -(-directed_edges // stripe.p), bottom_up=in_edges)
    share = float(config.get("build.memory-share"))
    return Estimate(partition, {}, run, result=label_bytes(stripe, predecessors=True), label_share=share)


class GridBuilder(HostBuilder):
    """A build of a 2-D partition in the memory of the workers; arguments as of ``Builder``."""

    @property
    def grid(self) -> GridLayout:
        """The grid of the gang's ranks."""
        return grid_of(self.options.layout, self.gang.p)

    @staticmethod
    def stores_twice(edges: EdgeList, options: BuildOptions) -> bool:
        """See ``HostBuilder``. The reverse of an undirected edge is mostly on another rank."""
        return options.in_edges or not edges.directed

    @property
    def by_ends(self) -> bool:
        return self.stores_twice(self.edges, self.options)

    def count_stores(self) -> int:
        return self.grid.count_stores(bottom_up=self.by_ends)

    def add_partitions(
        self, graph: TaskGraph, stripe: Stripe, collections: Sequence[Ref], read: list[Ref], m: int
    ) -> list[Ref]:
        edges, ordered = self.edges, self.options.ordered
        blocks = []
        for rank, collection in enumerate(collections):
            arguments = (stripe, self.grid, rank, collection, read, ordered, edges.name, m, edges.paired)
            blocks.append(graph.add(rank, self._key("blocks", rank), grid_tasks.make_blocks, *arguments))
        partitions = []
        for rank, own in enumerate(blocks):
            row = rank // self.grid.columns
            keys = {peer: self._key("row-degrees", rank, peer) for peer in self.grid.column_of(rank)}
            degrees = [graph.add(peer, key, grid_tasks.row_degrees, blocks[peer], row) for peer, key in keys.items()]
            options = (stripe, self.grid, rank, own, degrees, edges.directed)
            partitions.append(graph.add(rank, self._key("partition", rank), grid_tasks.make_partition, *options))
        return partitions


class GridOnGpuBuilder(GridBuilder):
    """A build of a 2-D partition whose ranks traverse it on GPUs; arguments as of ``Builder``."""

    @classmethod
    def estimate(cls, of: BuildSize) -> Estimate:
        """See ``Builder``: bytes of a rank's GPU."""
        grid, in_edges = grid_of(of.options.layout, of.stripe.p), cls.stores_twice(of.edges, of.options)
        needed = estimate_on_gpu(of.stripe, grid, of.directed_edges, in_edges=in_edges)
        return replace(needed, passes=of.options.passes(1), peaks=(needed.peak_bytes,), memory=of.memory)

    def require_fit(self, n: int, m: int, read: DealtPieces | None = None) -> None:
        """Raise ``GraphTooLargeError`` if the build won't fit the workers, or the partition the free GPU memory."""
        super().require_fit(n, m, read)
        stripe = self.options.stripe(n, self.gang.p)
        needed = self.estimate(BuildSize(self.edges, stripe, m, self.options))
        require_fit_gpus(self.gang, stripe, needed, self.edges.name)

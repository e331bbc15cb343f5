"""Builds on GPUs, as Dask tasks: edges are generated or read, binned, exchanged and sorted in the GPUs' memory.

A rank bins all its pieces in one task, into memory that the other ranks' GPUs map by CUDA IPC. Every owner copies its
part of each rank's bins. After all owners have copied, the bins are freed, and the owners sort their keys into rows. If
GPUs can't map each other's memory, the parts travel as NumPy arrays through Dask. If the GPUs have no memory to build
all rows at once, rows are built in bands. There are few tasks, because a task costs milliseconds, as much as the rest
of a build.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import distributed

from dbfs import config
from dbfs.building.builder import Builder, BuildOptions, BuildSize, BuildTasks, DealtPieces
from dbfs.building.memory import (
    Estimate,
    estimate_device_bytes,
    fewest_bands,
    free_gpu_bytes,
    require_fit,
    too_large_for_gpus,
)
from dbfs.cluster.gang import Gang, Key, Ref, TaskGraph, host_of
from dbfs.edges.edge_list import EdgeList
from dbfs_workers.base.text import counted
from dbfs_workers.building import on_gpu as tasks
from dbfs_workers.building.pieces import GeneratedPiece, Piece
from dbfs_workers.search.partition.stripe import Stripe

# A generated piece takes about 100 bytes an edge for a short time. All keys of the rank take 8 bytes a directed edge,
# and 8 to sort them: more than a sixteenth of the edges takes.
_PIECES_A_RANK = 16
# Largest number of edges of a piece of a file. 16 threads take about 5 GB of the host while each reads such a piece.
_READ_EDGES = 1 << 22
# With three bands a build takes at most twice the partition's memory. More bands would cost time and save nothing.
_BANDS = (1, 2, 3)


class CudaBuilder(Builder):
    """A build in the memory of the workers' GPUs; arguments as of ``Builder``, and:

    Args:
        through_host: exchange bins through the host, because the ranks' GPUs can't map each other's memory. Always so
            for ranks on several hosts.

    Attributes:
        bands: number of bands of every owner's rows, which are built one after the other. Each generates or reads all
            edges again, unless they were read before the build.
    """

    tasks = tasks

    def __init__(
        self,
        edges: EdgeList,
        gang: Gang,
        options: BuildOptions,
        more: Sequence[distributed.Future] = (),
        near: Sequence[distributed.Future] = (),
        *,
        through_host: bool = False,
    ) -> None:
        super().__init__(edges, gang, options, more, near)
        here = Counter(map(host_of, gang.addresses))
        self._ranks_here = [here[host_of(address)] for address in gang.addresses]
        self.through_host = through_host or len(here) > 1
        self.bands = 1

    @staticmethod
    def piece_edges(m: int | None, p: int) -> int:
        """Return the number of edges in a piece. To generate a piece takes less memory than to build the rows.

        The number is at least ``build.piece-edges``, which is also that of m unknown edges, and at most
        ``build.gpu-piece-edges``.
        """
        least = config.count("build.piece-edges")
        if m is None:
            return least
        return min(config.count("build.gpu-piece-edges"), max(least, -(-m // (_PIECES_A_RANK * p))))

    def cut(self) -> Sequence[Piece]:
        """See ``Builder``. Pieces of files are smaller, because threads read several at once."""
        size = self.piece_edges(self.edges.m, self.gang.p)
        return self.edges.cut(size if self.edges.path is None else min(size, _READ_EDGES))

    @classmethod
    def estimate(cls, of: BuildSize) -> Estimate:
        """See ``Builder``: bytes of a rank's GPU in the fewest bands that fit the memory (one if that is unknown)."""
        return fewest_bands([cls.in_bands(of, bands) for bands in _BANDS], of.memory)

    @classmethod
    def in_bands(cls, of: BuildSize, bands: int) -> Estimate:
        """Estimate bytes of a rank's GPU for a build in ``bands`` bands."""
        edges, stripe, m, options = of.edges, of.stripe, of.m, of.options
        needed = estimate_device_bytes(
            stripe,
            of.directed_edges,
            edges.largest_piece(cls.piece_edges(m, stripe.p), m),
            directed=edges.directed,
            in_edges=options.in_edges and edges.directed,
            ordered=options.ordered,
            kept_edges=m if options.keep_edges else 0,
            bands=bands,
        )
        return replace(needed, passes=options.passes(bands))

    def require_fit(self, n: int, m: int, read: DealtPieces | None = None) -> None:  # noqa: ARG002 - on the host
        """Choose the fewest bands whose estimate fits the free memory of all ranks' GPUs. Errors as for ``build``."""
        stripe = Stripe(n, self.gang.p)
        size = BuildSize(self.edges, stripe, m, self.options)
        free = free_gpu_bytes(self.gang, self.in_bands(size, 1).peak_bytes)
        needed = self.estimate(replace(size, memory=min(free)))
        if not needed.fits:
            raise too_large_for_gpus(stripe, needed, free, self.edges.name)
        self.bands = needed.bands
        if self.edges.attributes is not None and self.options.keeper is not None:
            on_host = Estimate({}, {}, {})
            self.options.keeper.count(on_host, self.edges.attributes.schema, -(-size.directed_edges // stripe.p))
            require_fit(self.gang, counted(m, "edge"), on_host, f"the columns of {self.edges.name}")

    def add_tasks(self, graph: TaskGraph, dealt: DealtPieces, stripe: Stripe) -> BuildTasks:
        """Add the tasks that order vertices, bin and exchange edges, and make the partitions."""
        name, ranks = self.edges.name, range(stripe.p)
        sources = [[dealt.source(index) for index in range(rank, len(dealt.pieces), stripe.p)] for rank in ranks]
        counts: list[Ref] = []
        orders: list[Ref | None] = [None] * stripe.p
        awaited: list[Key] = []
        if self.options.ordered:
            counts = self._add_degree_counts(graph, dealt, sources)
            ordered = self._add_orders(graph, stripe, counts)
            orders = [*ordered]
            if stripe.p > 1:
                awaited += [
                    graph.add(rank, self._key("degrees-read", rank), tasks.degrees_read, order).key
                    for rank, order in enumerate(ordered)
                ]
        rows: list[list[Ref]] = [[] for _ in ranks]
        bins_of_all_bands: list[Ref] = []
        for band in range(self.bands):
            bins = self._add_bins(graph, stripe, sources, orders, band, rows)
            collected, bins_read = self._add_exchange(graph, band, bins, counts if band == 0 else [])
            for rank in ranks:
                # Sorting needs the bins' memory, which is free once all owners have read the bins.
                freed = graph.add(rank, self._key("free-bins", band, rank), tasks.free_bins, bins[rank], bins_read)
                options = (stripe, rank, orders[rank] is not None, name)
                key = self._key("sort", band, rank)
                rows[rank] = [*rows[rank], graph.add(rank, key, tasks.sort_rows, collected[rank], freed, *options)]
            bins_of_all_bands += bins
            awaited += [ref.key for ref in bins_read]
        partitions = []
        for rank in ranks:
            arguments = (rows[rank], stripe, rank, self.edges.directed, name, self.edges.paired)
            partitions.append(graph.add(rank, self._key("partition", rank), tasks.make_partition, *arguments))
        order = orders[0] and graph.add(0, self._key("degree-order", 0), tasks.degree_order, orders[0])
        # After an error on one rank, others may still copy that rank's bins or degrees. So these must not be released
        # before all copies are over.
        held = [ref.key for ref in (*bins_of_all_bands, *counts)]
        return BuildTasks(partitions, order, awaited, held)

    def _add_degree_counts(
        self, graph: TaskGraph, dealt: DealtPieces, sources: Sequence[Sequence[Ref | GeneratedPiece]]
    ) -> list[Ref]:
        """Add a task per rank that counts the degrees of its pieces, or takes what stands in their place."""
        counts = []
        for rank, future in enumerate(self.near):
            place = (Ref(future.key), rank, self.edges.name)
            counts.append(graph.add(rank, self._key("count-degrees", rank), tasks.place_degrees, *place))
        for rank, pieces in enumerate(() if counts else sources):
            arguments = (pieces, rank, dealt.n, self.edges.symmetrise, self.edges.name, self._ranks_here[rank])
            counts.append(graph.add(rank, self._key("count-degrees", rank), tasks.count_degrees, *arguments))
        return counts

    def _add_orders(self, graph: TaskGraph, stripe: Stripe, counts: list[Ref]) -> list[Ref]:
        """Add a task per rank that orders the vertices by all ranks' counts: faster than sending one rank's order."""
        offers, name = self._add_offers(graph, tasks.offer_degrees, "offer-degrees", counts), self.edges.name
        orders = []
        for rank in range(stripe.p):
            arguments = (counts[rank], offers[rank], stripe, self.bands, rank, name, not self.near)
            orders.append(graph.add(rank, self._key("order", rank), tasks.order_by_degree, *arguments))
        return orders

    def _add_bins(
        self,
        graph: TaskGraph,
        stripe: Stripe,
        sources: Sequence[Sequence[Ref | GeneratedPiece]],
        orders: Sequence[Ref | None],
        band: int,
        rows_before: Sequence[Sequence[Ref]],
    ) -> list[Ref]:
        """Add a task per rank that bins its pieces' edges for one band, after the rank's rows of the bands before."""
        edges, bins = self.edges, []
        for rank, pieces in enumerate(sources):
            options = (edges.symmetrise, self.in_edges, edges.name, orders[rank])
            bands = (band, self.bands, self._ranks_here[rank], rows_before[rank])
            key = self._key("bin-edges", band, rank)
            bins.append(graph.add(rank, key, tasks.bin_edges, pieces, stripe, rank, *options, *bands))
        return bins

    def _add_exchange(
        self, graph: TaskGraph, band: int, bins: list[Ref], unused: list[Ref]
    ) -> tuple[list[Ref], list[Ref]]:
        """Add the tasks that copy keys to their owners, which first free degree counts that are ``unused`` by then.

        Returns:
            By rank, the keys collected, and the tasks that are over once the rank has read all bins.
        """
        offers = self._add_offers(graph, tasks.offer_bins, f"offer-bins-{band}", bins)
        collected, bins_read = [], []
        for rank, own in enumerate(bins):
            key, degrees = self._key("collect", band, rank), unused[rank] if unused else None
            collected.append(
                graph.add(rank, key, tasks.collect_keys, own, offers[rank], rank, self.edges.name, degrees)
            )
            bins_read.append(graph.add(rank, self._key("bins-read", band, rank), tasks.bins_read, collected[rank]))
        return collected, bins_read

    def _add_offers(
        self, graph: TaskGraph, offer: Callable[..., object], name: str, results: list[Ref]
    ) -> list[list[Ref]]:
        """Add the tasks that offer each rank's result to its peers; return for each rank its peers' offers."""
        p = self.gang.p
        if self.through_host:
            return [
                [
                    graph.add(peer, self._key(name, peer, rank), offer, results[peer], rank)
                    for peer in range(p)
                    if peer != rank
                ]
                for rank in range(p)
            ]
        if p == 1:
            return [[]]
        offers = [graph.add(rank, self._key(name, rank), offer, results[rank], None) for rank in range(p)]
        # Each rank begins with the rank after it: if all began with rank 0, its links would be the bottleneck.
        return [[offers[(rank + step) % p] for step in range(1, p)] for rank in range(p)]

"""Builds on CPUs, as Dask tasks: one for each piece, and one for each rank's partition.

A piece's task reads the piece on the rank that it was dealt to, bins its edges by owner, and delivers the bins: it ends
when the owners have stored them. So a rank reads as many pieces at once as its worker has threads. An owner makes its
partition of the bins of all pieces.
"""

from collections.abc import Sequence
from dataclasses import replace

from dbfs import config
from dbfs.building.builder import Builder, BuildOptions, BuildSize, BuildTasks, DealtPieces
from dbfs.building.memory import (
    Estimate,
    edge_bytes,
    estimate_bytes,
    hosts_of,
    numbering_bytes,
    require_fit,
)
from dbfs.cluster.gang import Ref, TaskGraph
from dbfs.edges.edge_list import EdgeList
from dbfs_workers.base.text import counted
from dbfs_workers.building import delivering
from dbfs_workers.building import on_cpu as tasks
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.serving.queries import same_value


class HostBuilder(Builder):
    """A build in the memory of the workers; arguments as of ``Builder``."""

    tasks = tasks

    @staticmethod
    def piece_edges(m: int | None, p: int) -> int:
        """Return the edges of a piece: they grow with the graph, so that ``build.max-rounds`` rounds suffice."""
        least = config.count("build.piece-edges")
        return least if m is None else max(least, -(-m // (p * config.count("build.max-rounds"))))

    @staticmethod
    def stores_twice(edges: EdgeList, options: BuildOptions) -> bool:
        """Return whether each edge is also stored by its end, for bottom-up levels."""
        return options.in_edges and edges.directed

    @classmethod
    def estimate(cls, of: BuildSize) -> Estimate:
        return cls.estimate_on_host(of)

    @classmethod
    def estimate_on_host(cls, of: BuildSize, held: int = 0) -> Estimate:
        """Estimate the bytes of a worker's memory.

        Args:
            of: the build.
            held: bytes of edges that a rank holds when the build begins.
        """
        edges, stripe, m, options, ids = of.edges, of.stripe, of.m, of.options, of.ids
        largest = edges.largest_portion(cls.piece_edges(m, stripe.p), m)
        table_bytes, numbering = 0, dict[str, int]()
        if ids is None:
            held = max(held, -(-edges.held_bytes // stripe.p))
        else:
            held = edge_bytes(ids.count) * -(-m // stripe.p)
            table_bytes = 0 if ids.dense or options.ids == "dense" else ids.nbytes
            numbering = numbering_bytes(edges, m, stripe.p, ids, largest)
        needed = estimate_bytes(
            stripe,
            of.directed_edges,
            # The piece that a thread bins, and the bins of as many edges from the other ranks. Twice, for generators
            # and readers that take more memory for a while.
            min(2 * largest, max(m, 1)),
            held,
            in_edges=cls.stores_twice(edges, options),
            ordered=options.ordered,
            kept_edges=m if options.keep_edges else 0,
            table_bytes=table_bytes,
            hosts=of.hosts,
            layout=options.laid_out(stripe.p),
        )
        if edges.reader_bytes:
            needed.build["reading"] = edges.reader_bytes
        if edges.attributes is not None and options.keeper is not None:
            rows = (2 if cls.stores_twice(edges, options) else 1) * -(-of.directed_edges // stripe.p)
            options.keeper.count(needed, edges.attributes.schema, rows)
        needed = replace(needed, numbering=numbering)
        return replace(needed, passes=options.passes(1), peaks=(needed.peak_bytes,), memory=of.memory)

    def require_fit(self, n: int, m: int, read: DealtPieces | None = None) -> None:
        """Raise ``GraphTooLargeError`` if the estimate passes the memory that a worker may still take."""
        stripe = self.options.stripe(n, self.gang.p)
        held, ids = (0, None) if read is None else (read.edge_bytes * -(-m // stripe.p), read.distinct)
        size = BuildSize(self.edges, stripe, m, self.options, hosts=hosts_of(self.gang), ids=ids)
        needed = self.estimate_on_host(size, held)
        # The ids are numbered by now.
        needed = replace(needed, numbering={})
        held += needed.partition.get("ids", 0)
        size_in_words = counted(stripe.n, "vertex", "vertices")
        require_fit(self.makers, size_in_words, needed, self.edges.name, held, self.options.room_makers)

    def add_tasks(self, graph: TaskGraph, dealt: DealtPieces, stripe: Stripe) -> BuildTasks:
        """Add the tasks that order vertices, bin and deliver edges, and make the partitions."""
        standing, order = self.standing, None
        if self.options.ordered:
            order = (standing and standing.order) or self._add_order(graph, dealt)
        stores = self.count_stores()
        collections = [
            graph.add(rank, self._key("open-bins", rank), delivering.open_collection, self.token, rank, stripe, stores)
            for rank in range(stripe.p)
        ]
        opened = [
            graph.add(rank, self._key("bins-open", rank), delivering.collection_open, collection)
            for rank, collection in enumerate(collections)
        ]
        binned = self._add_bins(graph, dealt, stripe, order, collections, opened)
        read = [graph.add(rank, self._key("edges-read", rank), sum, counts) for rank, counts in enumerate(binned)]
        partitions = self.add_partitions(graph, stripe, collections, read, dealt.m)
        # All ranks get copies of the order, of which Dask may keep any. Rank 0 answers questions about the order.
        kept = order and graph.add(0, self._key("kept-order", 0), same_value, order)
        # The gang's first turn needs it there.
        awaited = [] if kept is None else [graph.add(0, self._key("order", 0), bool, kept).key]
        return BuildTasks(partitions, kept, awaited)

    def count_stores(self) -> int:
        """Return the number of stores that each rank collects bins in."""
        return 2 if self.stores_twice(self.edges, self.options) else 1

    def add_partitions(
        self, graph: TaskGraph, stripe: Stripe, collections: Sequence[Ref], read: list[Ref], m: int
    ) -> list[Ref]:
        """Add the tasks that make the partitions of the bins; return them by rank.

        Args:
            graph: the build's tasks.
            read: by rank, the number of edges that its tasks read.
            m: edges promised.
        """
        edges, partitions = self.edges, []
        options = (read, edges.directed, self.options.ordered, edges.name, m, edges.paired)
        for rank, collection in enumerate(collections):
            if self.standing is not None and (stands := self.standing.partition(rank)):
                partitions.append(stands)
                continue
            arguments = (stripe, rank, collection, *options)
            partitions.append(graph.add(rank, self._key("partition", rank), tasks.make_partition, *arguments))
        return partitions

    def _add_order(self, graph: TaskGraph, dealt: DealtPieces) -> Ref:
        """Add the tasks that count degrees and order the vertices: a count per rank, then sums of two counts each."""
        edges, p = self.edges, self.gang.p
        counts = [(rank, Ref(future.key)) for rank, future in enumerate(self.near)]
        for rank in () if counts else range(min(p, len(dealt.pieces))):
            sources = [dealt.source(index) for index in range(rank, len(dealt.pieces), p)]
            options = (dealt.n, edges.symmetrise, edges.name)
            counts.append(
                (rank, graph.add(rank, self._key("count-degrees", rank), tasks.count_degrees, sources, *options))
            )
        sums = 0
        while len(counts) > 1:
            # Two at a time: a rank that adds up all counts at once would hold them all.
            (rank, first), (_, second), *counts = counts
            counts.append((rank, graph.add(rank, self._key("add-degrees", sums), tasks.add_degrees, first, second)))
            sums += 1
        rank, total = counts[0]
        return graph.add(rank, self._key("degree-order", 0), tasks.degree_order, total)

    def _add_bins(
        self,
        graph: TaskGraph,
        dealt: DealtPieces,
        stripe: Stripe,
        order: Ref | None,
        collections: Sequence[Ref],
        opened: list[Ref],
    ) -> list[list[Ref]]:
        """Add the task of each piece, which bins and delivers the piece's edges; return each rank's tasks."""
        edges, binned = self.edges, list[list[Ref]]([] for _ in collections)
        for index in range(len(dealt.pieces)):
            rank = index % stripe.p
            options = (
                stripe,
                edges.symmetrise,
                edges.name,
                order,
                self.deadline.remaining,
                self.options.laid_out(stripe.p),
                None if self.standing is None else self.standing.lost,
            )
            arguments = (dealt.source(index), collections[rank], opened, self.gang.addresses, *options)
            binned[rank].append(graph.add(rank, self._key("bin-edges", index), tasks.bin_piece, *arguments))
        return binned

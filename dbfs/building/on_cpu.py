"""Builds on CPUs, as Dask tasks in rounds of one piece per rank.

One task reads a piece on the rank that it was dealt to, and another bins its edges by owner. Each owner collects its
bins round by round, and makes its partition of the bins of all rounds.
"""

from dataclasses import replace

from dbfs import config
from dbfs.building.builder import Builder, BuildOptions, BuildTasks, DealtPieces
from dbfs.building.memory import Estimate, estimate_bytes, require_fit
from dbfs.cluster.gang import Ref, TaskGraph
from dbfs.edges.edge_list import EdgeList
from dbfs_workers.storage.stripe import Stripe
from dbfs_workers.tasks import build_on_cpu as tasks


class HostBuilder(Builder):
    """A build in the memory of the workers; arguments as of ``Builder``."""

    tasks = tasks

    @staticmethod
    def piece_edges(m: int | None, p: int) -> int:
        """Return the edges of a piece: they grow with the graph, so that ``build.max-rounds`` rounds suffice."""
        least = config.count("build.piece-edges")
        return least if m is None else max(least, -(-m // (p * config.count("build.max-rounds"))))

    @classmethod
    def estimate(
        cls, edges: EdgeList, stripe: Stripe, m: int, options: BuildOptions, memory: int | None = None
    ) -> Estimate:
        """Estimate the bytes of a rank, which may take ``memory`` bytes (None: unknown).

        Arguments as of ``dbfs.building.build.estimate``; ``m`` counts input edges.
        """
        largest = edges.largest_piece(cls.piece_edges(m, stripe.p), m)
        needed = estimate_bytes(
            stripe,
            m * (2 if edges.symmetrise else 1),
            # Two pieces at once, if there are two.
            min(2 * largest, max(m, 1)),
            in_edges=options.in_edges and edges.directed,
            ordered=options.order == "degree",
            kept_edges=m if options.keep_edges else 0,
        )
        return replace(needed, passes=options.passes(1), peaks=(needed.peak_bytes,), memory=memory)

    def require_fit(self, n: int, m: int) -> None:
        """Raise ``GraphTooLargeError`` if the estimate passes the memory that a worker may still take."""
        stripe = Stripe(n, self.gang.p)
        require_fit(self.gang, stripe, self.estimate(self.edges, stripe, m, self.options), self.edges.name)

    def add_tasks(self, graph: TaskGraph, dealt: DealtPieces, stripe: Stripe) -> BuildTasks:
        """Add the tasks that order vertices, read, bin and collect edges, and make the partitions."""
        order = self._add_degree_order(graph, dealt) if self.options.order == "degree" else None
        collected = self._add_exchange(graph, dealt, stripe, order)
        partitions = [
            graph.add(
                rank,
                (f"partition-{self.token}", rank),
                tasks.make_partition,
                stripe,
                rank,
                collected[rank],
                self.edges.directed,
                order is not None,
                self.edges.name,
                dealt.m,
            )
            for rank in range(stripe.p)
        ]
        return BuildTasks(partitions, order)

    def _add_degree_order(self, graph: TaskGraph, dealt: DealtPieces) -> Ref:
        """Add the tasks that count degrees and order the vertices. Each rank adds up its pieces' degrees in turn."""
        edges = self.edges
        counts: dict[int, Ref] = {}
        for index in range(len(dealt.pieces)):
            rank = index % self.gang.p
            key = (f"count-degrees-{self.token}", index)
            options = (dealt.n, edges.symmetrise, edges.name)
            counts[rank] = graph.add(rank, key, tasks.count_degrees, dealt.source(index), *options, counts.get(rank))
        return graph.add(0, (f"degree-order-{self.token}", 0), tasks.degree_order, list(counts.values()))

    def _add_exchange(self, graph: TaskGraph, dealt: DealtPieces, stripe: Stripe, order: Ref | None) -> list[list[Ref]]:
        """Add the tasks that read, bin and collect; return each owner's bins by round."""
        edges, token = self.edges, self.token
        collected: list[list[Ref]] = [[] for _ in range(stripe.p)]
        for first in range(0, len(dealt.pieces), stripe.p):
            this_round = first // stripe.p
            binned: list[Ref] = []
            for rank, index in enumerate(range(first, min(first + stripe.p, len(dealt.pieces)))):
                source = dealt.source(index)
                if dealt.unread:
                    # Bounds memory: a rank reads a piece only after it has collected the round before the last.
                    before = [collected[rank][-2]] if this_round >= 2 else []
                    source = graph.add(rank, (f"read-edges-{token}", index), tasks.read_piece, source, before)
                key = (f"bin-edges-{token}", index)
                options = (edges.symmetrise, self.in_edges, edges.name, order)
                binned.append(graph.add(rank, key, tasks.bin_piece, source, stripe, *options))
            for owner in range(stripe.p):
                parts = [
                    graph.add(rank, (f"edge-bin-{token}", first + rank, owner), tasks.select_bin, bins, owner)
                    for rank, bins in enumerate(binned)
                ]
                collected[owner].append(graph.add(owner, (f"collect-{token}", this_round, owner), list, parts))
        return collected

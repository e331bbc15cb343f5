"""Building on CPUs, as Dask tasks.

Ranks take turns at the pieces. One task reads a piece where it lies, another bins its edges by owner; each owner
collects its bins round by round and makes its partition of them.
"""

from dbfs import config
from dbfs.build.builder import Builder, BuildOptions, BuildTasks, Input
from dbfs.build.memory import Estimate, estimate_bytes, require_fit
from dbfs.cluster.gang import Ref, TaskGraph
from dbfs.edges.edge_list import EdgeList
from dbfs_workers.storage.stripe import Stripe
from dbfs_workers.tasks import build_on_cpu as tasks


class HostBuilder(Builder):
    """See ``Builder``."""

    tasks = tasks

    @staticmethod
    def piece_edges(m: int | None, p: int) -> int:
        """Pieces grow with the graph, so that the rounds are bounded."""
        least = config.count("build.piece-edges")
        return least if m is None else max(least, -(-m // (p * config.count("build.max-rounds"))))

    @classmethod
    def estimate(cls, edges: EdgeList, stripe: Stripe, m: int, options: BuildOptions) -> Estimate:
        """See ``dbfs.build.estimate``."""
        return estimate_bytes(
            stripe,
            m * (2 if edges.symmetrise else 1),
            min(cls.piece_edges(m, stripe.p), max(m, 1)),
            in_edges=options.in_edges and edges.directed,
            ordered=options.order == "degree",
            kept_edges=m if options.keep_edges else 0,
        )

    def require_fit(self, n: int, m: int) -> None:
        """By the workers' memory limits."""
        stripe = Stripe(n, self.gang.p)
        require_fit(self.gang, stripe, self.estimate(self.edges, stripe, m, self.options), self.edges.name)

    def lay_out(self, graph: TaskGraph, source: Input, stripe: Stripe) -> BuildTasks:
        """Add the tasks that read, bin, collect and build."""
        order = self._degree_order(graph, source) if self.options.order == "degree" else None
        collected = self._exchange(graph, source, stripe, order)
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
            )
            for rank in range(stripe.p)
        ]
        return BuildTasks(partitions, order)

    def _degree_order(self, graph: TaskGraph, source: Input) -> Ref:
        """Add the tasks that count degrees, each rank over its pieces one after another, and order the vertices."""
        edges = self.edges
        counted: dict[int, Ref] = {}
        for index in range(len(source.pieces)):
            rank = index % self.gang.p
            key = (f"count-degrees-{self.token}", index)
            options = (source.n, edges.symmetrise, edges.name, source.ids)
            counted[rank] = graph.add(rank, key, tasks.count_degrees, source.edges(index), *options, counted.get(rank))
        return graph.add(0, (f"degree-order-{self.token}", 0), tasks.degree_order, list(counted.values()))

    def _exchange(self, graph: TaskGraph, source: Input, stripe: Stripe, order: Ref | None) -> list[list[Ref]]:
        """Add the tasks that read, bin and collect; returns each owner's collected rounds."""
        edges, token = self.edges, self.token
        collected: list[list[Ref]] = [[] for _ in range(stripe.p)]
        for first in range(0, len(source.pieces), stripe.p):
            this_round = first // stripe.p
            binned: list[Ref] = []
            for rank, index in enumerate(range(first, min(first + stripe.p, len(source.pieces)))):
                read = source.edges(index)
                if source.unread:
                    # Reading waits until the round before the last is collected: unread pieces take no memory.
                    before = [collected[rank][-2]] if this_round >= 2 else []
                    read = graph.add(rank, (f"read-edges-{token}", index), tasks.read, read, before)
                key = (f"bin-edges-{token}", index)
                options = (edges.symmetrise, self.in_edges, edges.name, source.ids, order)
                binned.append(graph.add(rank, key, tasks.bin_piece, read, stripe, *options))
            for owner in range(stripe.p):
                parts = [
                    graph.add(rank, (f"edge-bin-{token}", first + rank, owner), tasks.edge_bin, bins, owner)
                    for rank, bins in enumerate(binned)
                ]
                collected[owner].append(graph.add(owner, (f"collect-{token}", this_round, owner), list, parts))
        return collected

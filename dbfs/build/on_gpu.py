"""Building on GPUs, as Dask tasks: edges are made or read, binned, exchanged and sorted in the GPUs' memory.

A rank bins all its pieces in one task, into memory that the other ranks' GPUs map by CUDA IPC; every owner copies its
part of each rank's bins; when all have, the bins are freed and the owners sort what they copied. Where GPUs can't map
each other, the parts travel as NumPy arrays through Dask. Where there is no room to do so with all rows at once, they
are built in turns. The tasks are few because each costs milliseconds, and the rest of a build does not cost more.
"""

from collections.abc import Callable, Sequence

from dbfs import config
from dbfs.build.builder import Builder, BuildOptions, BuildTasks, Input
from dbfs.build.memory import Estimate, estimate_device_bytes, free_of_gpus, too_large_for_gpus
from dbfs.cluster.gang import Gang, Key, Ref, TaskGraph, host_of
from dbfs.edges.edge_list import EdgeList
from dbfs_workers.storage.pieces import GeneratedPiece
from dbfs_workers.storage.stripe import Stripe
from dbfs_workers.tasks import build_on_gpu as tasks

# Generators take about 100 bytes an edge of a piece for a while; the keys of a directed edge take 8, and as much to be
# sorted.
_PIECES_A_RANK = 16
# With three, building takes no more than the partition twice; further turns would cost time and save nothing.
_MOST_TURNS = 3


class CudaBuilder(Builder):
    """See ``Builder``.

    Args:
        through_host: the ranks' GPUs can't map each other, as those of different hosts can't.

    Attributes:
        turns: in how many turns the graph is built, each of which takes a part of every owner's rows and makes, or
            reads, all edges again.
    """

    tasks = tasks

    def __init__(self, edges: EdgeList, gang: Gang, options: BuildOptions, *, through_host: bool = False) -> None:
        super().__init__(edges, gang, options)
        self.through_host = through_host or len({host_of(address) for address in gang.addresses}) > 1
        self.turns = 1

    @staticmethod
    def piece_edges(m: int | None, p: int) -> int:
        """So few of a rank's edges that to make them takes less memory than to build, but where all are few.

        Of unknown edges, what a CPU reads at once.
        """
        least = config.count("build.piece-edges")
        if m is None:
            return least
        return min(config.count("build.gpu-piece-edges"), max(least, -(-m // (_PIECES_A_RANK * p))))

    @classmethod
    def estimate(cls, edges: EdgeList, stripe: Stripe, m: int, options: BuildOptions, turns: int = 1) -> Estimate:
        """See ``dbfs.build.estimate``."""
        return estimate_device_bytes(
            stripe,
            m * (2 if edges.symmetrise else 1),
            cls.piece_edges(m, stripe.p),
            directed=edges.directed,
            in_edges=options.in_edges and edges.directed,
            ordered=options.order == "degree",
            kept_edges=m if options.keep_edges else 0,
            turns=turns,
        )

    def require_fit(self, n: int, m: int) -> None:
        """By what is free on the GPUs; takes as few turns as will do."""
        stripe = Stripe(n, self.gang.p)
        at_once = self.estimate(self.edges, stripe, m, self.options)
        free = free_of_gpus(self.gang, at_once.peak_bytes)
        for turns in range(1, _MOST_TURNS + 1):
            needed = self.estimate(self.edges, stripe, m, self.options, turns)
            if needed.peak_bytes <= min(free):
                self.turns = turns
                return
        raise too_large_for_gpus(stripe, needed, free, self.edges.name)

    def lay_out(self, graph: TaskGraph, source: Input, stripe: Stripe) -> BuildTasks:
        """Add the tasks that count degrees where vertices are ordered by them, bin, exchange and build."""
        edges, name, ranks = self.edges, self.edges.name, range(stripe.p)
        mine = [[source.edges(index) for index in range(rank, len(source.pieces), stripe.p)] for rank in ranks]
        counted: list[Ref] = []
        orders: list[Ref | None] = [None] * stripe.p
        if self.options.order == "degree":
            counted = self._count_degrees(graph, source, mine)
            orders = [*self._order(graph, stripe, counted)]
        made: list[list[Ref]] = [[] for _ in ranks]
        binned: list[Ref] = []
        copied = [
            graph.add(rank, self._key("counted", rank), tasks.counted, made_of)
            for rank, made_of in enumerate(orders)
            if made_of is not None and stripe.p > 1
        ]
        for turn in range(self.turns):
            bins = []
            for rank in ranks:
                options = (
                    edges.symmetrise,
                    self.in_edges,
                    name,
                    source.ids,
                    orders[rank],
                    turn,
                    self.turns,
                    made[rank],
                )
                key = self._key("bin-edges", turn, rank)
                bins.append(graph.add(rank, key, tasks.bin_edges, mine[rank], stripe, rank, *options))
            spent = counted if turn == 0 else []
            collected, all_copied = self._exchange(graph, turn, bins, spent)
            for rank in ranks:
                # The bins make room for sorting, once nobody reads them any more.
                freed = graph.add(rank, self._key("let-go", turn, rank), tasks.let_go, bins[rank], all_copied)
                about = (stripe, rank, orders[rank] is not None, name)
                key = self._key("sort", turn, rank)
                made[rank] = [*made[rank], graph.add(rank, key, tasks.sort, collected[rank], freed, *about)]
            binned += bins
            copied += all_copied
        partitions = [
            graph.add(
                rank, self._key("partition", rank), tasks.make_partition, made[rank], stripe, rank, edges.directed, name
            )
            for rank in ranks
        ]
        order = orders[0] and graph.add(0, self._key("degree-order", 0), tasks.degree_order, orders[0])
        # After an error some ranks may still copy bins or degrees of others when Dask would let go of what they copy.
        waited, kept = [ref.key for ref in copied], [ref.key for ref in (*binned, *counted)]
        return BuildTasks(partitions, order, waited, kept)

    def _exchange(self, graph: TaskGraph, turn: int, bins: list[Ref], spent: list[Ref]) -> tuple[list[Ref], list[Ref]]:
        """What each owner collects, and the words that it has."""
        offers = self._offer(graph, tasks.offer_bins, f"offer-bins-{turn}", bins)
        collected, copied = [], []
        for rank, own in enumerate(bins):
            key, degrees = self._key("collect", turn, rank), spent[rank] if spent else None
            collected.append(graph.add(rank, key, tasks.collect, own, offers[rank], rank, self.edges.name, degrees))
            copied.append(graph.add(rank, self._key("copied", turn, rank), tasks.copied, collected[rank]))
        return collected, copied

    def _count_degrees(
        self, graph: TaskGraph, source: Input, mine: Sequence[Sequence[Ref | GeneratedPiece]]
    ) -> list[Ref]:
        options = (source.n, self.edges.symmetrise, self.edges.name, source.ids)
        return [
            graph.add(rank, self._key("count-degrees", rank), tasks.count_degrees, pieces, rank, *options)
            for rank, pieces in enumerate(mine)
        ]

    def _order(self, graph: TaskGraph, stripe: Stripe, counted: list[Ref]) -> list[Ref]:
        """Every rank adds up all counts and makes the same order of them: sooner done than sent."""
        offers, name = self._offer(graph, tasks.offer_counts, "offer-counts", counted), self.edges.name
        return [
            graph.add(
                rank, self._key("order", rank), tasks.order, counted[rank], offers[rank], stripe, self.turns, rank, name
            )
            for rank in range(stripe.p)
        ]

    def _offer(self, graph: TaskGraph, offer: Callable[..., object], name: str, made: list[Ref]) -> list[list[Ref]]:
        """For each rank, what it copies from the others."""
        p = self.gang.p
        if self.through_host:
            return [
                [
                    graph.add(other, self._key(name, other, rank), offer, made[other], rank)
                    for other in range(p)
                    if other != rank
                ]
                for rank in range(p)
            ]
        offers = [graph.add(rank, self._key(name, rank), offer, made[rank], None) for rank in range(p)] if p > 1 else []
        # Not all from rank 0 at first.
        return [[offers[(rank + step) % p] for step in range(1, p)] for rank in range(p)]

    def _key(self, name: str, *at: int) -> Key:
        return (f"{name}-{self.token}", *at)

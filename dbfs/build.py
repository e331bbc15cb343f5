"""Building: from an edge list to one partition on each rank, as Dask tasks.

Ranks take turns at the pieces. One task reads a piece where it lies, another bins its edges by owner; each owner
collects its bins round by round and makes its partition of them. The client sees counts only. Where ids are external,
or the number of edges is not known before reading, the pieces are read first and their distinct ids found.
"""

import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import distributed

from dbfs import build_tasks as tasks
from dbfs import config
from dbfs.edges import EdgeList, Piece
from dbfs.errors import EdgeInputError, InvalidOptionError, TruncatedFileError
from dbfs.gang import Deadline, Gang, Key, Ref, TaskGraph, release
from dbfs.memory import Estimate, estimate_bytes, require_fit
from dbfs_workers.partition import PartitionInfo
from dbfs_workers.stripe import Stripe

logger = logging.getLogger(__name__)

ORDERS = ("given", "degree")


@dataclass(frozen=True)
class Built:
    """A graph's data on the workers.

    Attributes:
        partitions: futures by rank.
        infos: the partitions' counts by rank.
        external_ids: future of (int64[n], edges): the ids as they were given, ascending; None where they are 0..n-1.
        order: future of the ``ordering.DegreeOrder``; None where vertices have the order given.
        seconds: how long building took.
    """

    stripe: Stripe
    partitions: tuple[distributed.Future, ...]
    infos: tuple[PartitionInfo, ...]
    external_ids: distributed.Future | None
    order: distributed.Future | None
    seconds: float

    @property
    def futures(self) -> list[distributed.Future]:
        """All of them."""
        return [*self.partitions, *(future for future in (self.external_ids, self.order) if future is not None)]


@dataclass(frozen=True)
class _Input:
    """Pieces on their way to the owners, and where they were read to; ``reads`` is None where building will read."""

    n: int
    m: int
    pieces: list[distributed.Future]
    reads: list[distributed.Future] | None
    external_ids: distributed.Future | None


@dataclass(frozen=True)
class BuildOptions:
    """How a graph is laid out.

    Attributes:
        in_edges: keep a directed graph's in-edges, too, for bottom-up levels.
        order: ``given``, or ``degree`` for an internal numbering by falling degree with hub-first adjacency lists.
    """

    in_edges: bool = False
    order: str = "given"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise InvalidOptionError(f"unknown order {self.order!r}; choose one of {', '.join(ORDERS)}")


def estimate(edges: EdgeList, ranks: int, options: BuildOptions = BuildOptions()) -> Estimate:
    """Bytes per rank that a graph will take, by part: its partition, its build's peak, a traversal.

    Raises:
        EdgeInputError: the numbers of vertices and edges are known only after reading.
        GraphTooLargeError: there are more vertices than internal ids.
    """
    if edges.n is None or edges.m is None:
        raise EdgeInputError(f"{edges.name}: how many vertices and edges it has is known only after reading it")
    return _estimate(edges, Stripe(edges.n, ranks), edges.m, _piece_edges(edges.m, ranks), options)


def _estimate(edges: EdgeList, stripe: Stripe, m: int, piece_edges: int, options: BuildOptions) -> Estimate:
    return estimate_bytes(
        stripe,
        m * (2 if edges.symmetrise else 1),
        min(piece_edges, max(m, 1)),
        in_edges=options.in_edges and edges.directed,
        ordered=options.order == "degree",
    )


def build(edges: EdgeList, gang: Gang, options: BuildOptions) -> Built:
    """Read, stripe and build a graph. After an error nothing stays on the workers.

    Raises:
        TruncatedFileError: the pieces hold another number of edges than the edge list says.
        GraphTooLargeError: it won't fit the workers.
        WorkerLostError, DeadlineExceededError: see ``Gang.gather``.
        DbfsError: whatever reading a piece raises.
    """
    builder = _Builder(edges, gang, options)
    try:
        return builder.run()
    finally:
        release(builder.held)


class _Builder:
    """One build. Every future is in ``held``, to be let go when it ends, but for those of what it returns."""

    def __init__(self, edges: EdgeList, gang: Gang, options: BuildOptions) -> None:
        self.edges = edges
        self.options = options
        self.in_edges = options.in_edges and edges.directed
        self.gang = gang
        self.token = uuid.uuid4().hex
        self.deadline = Deadline(config.seconds("build-deadline"))
        self.held: set[distributed.Future] = set()

    def run(self) -> Built:
        start = time.perf_counter()
        edges, gang = self.edges, self.gang
        pieces = edges.cut(_piece_edges(edges.m, gang.p))
        if edges.n is not None and edges.m is not None:
            # Before a byte is moved: what is refused must cost nothing.
            self._require_fit(edges.n, edges.m)
            source = _Input(edges.n, edges.m, self._scatter(pieces), None, None)
        else:
            source = self._scan(self._scatter(pieces))
            self._require_fit(source.n, source.m)
        stripe = Stripe(source.n, gang.p)

        graph = TaskGraph()
        order = self._degree_order(graph, source) if self.options.order == "degree" else None
        collected = self._exchange(graph, source, stripe, order)
        keys: list[Key] = [(f"partition-{self.token}", rank) for rank in range(gang.p)]
        info_keys: list[Key] = [(f"partition-info-{self.token}", rank) for rank in range(gang.p)]
        for rank in range(gang.p):
            partition = graph.add(
                rank, keys[rank], tasks.make_partition, stripe, rank, collected[rank], edges.directed, order is not None
            )
            graph.add(rank, info_keys[rank], tasks.describe, partition)
        futures = self._submit(graph, keys + info_keys + ([] if order is None else [order.key]))
        infos = gang.gather([futures[key] for key in info_keys], self.deadline, f"building {edges.name}")
        if infos[0].input_edges != source.m:
            raise TruncatedFileError(
                f"{edges.name}: {source.m} edges are promised (by its header), {infos[0].input_edges} are there"
            )
        seconds = time.perf_counter() - start
        logger.info("built %s: %d vertices, %d edges read, %.2f s", edges.name, source.n, source.m, seconds)
        partitions = tuple(futures[key] for key in keys)
        ordered = None if order is None else futures[order.key]
        built = Built(stripe, partitions, tuple(infos), source.external_ids, ordered, seconds)
        self.held -= set(built.futures)
        return built

    def _submit(self, graph: TaskGraph, keys: list[Key]) -> dict[Key, distributed.Future]:
        futures = self.gang.submit(graph, keys)
        self.held.update(futures.values())
        return futures

    def _require_fit(self, n: int, m: int) -> None:
        stripe = Stripe(n, self.gang.p)
        needed = _estimate(self.edges, stripe, m, _piece_edges(m, self.gang.p), self.options)
        require_fit(self.gang, stripe, needed, self.edges.name)

    def _scatter(self, pieces: Sequence[Piece]) -> list[distributed.Future]:
        """Hand piece i to rank i % p. Apart from the graph: the scheduler holds graphs, and a piece may be large."""
        scattered: list[distributed.Future] = [None] * len(pieces)
        for rank, address in enumerate(self.gang.addresses):
            mine = list(pieces[rank :: self.gang.p])
            if mine:
                futures = self.gang.client.scatter(mine, workers=[address], hash=False)
                self.held.update(futures)
                scattered[rank :: self.gang.p] = futures
        return scattered

    def _scan(self, pieces: list[distributed.Future]) -> _Input:
        """Read all pieces, count their edges, and rank their distinct ids where ids are external."""
        edges, graph = self.edges, TaskGraph()
        keys: list[Key] = [(f"read-edges-{self.token}", index) for index in range(len(pieces))]
        parts = []
        for index, piece in enumerate(pieces):
            rank = index % self.gang.p
            read = graph.add(rank, keys[index], tasks.read, Ref(piece.key))
            key = (f"distinct-ids-{self.token}", index)
            parts.append(graph.add(rank, key, tasks.distinct, read, edges.n is None))
        ids_key, summary_key = (f"vertex-ids-{self.token}", 0), (f"vertex-ids-summary-{self.token}", 0)
        ids = graph.add(0, ids_key, tasks.unite, parts)
        graph.add(0, summary_key, tasks.summarise_ids, ids)
        futures = self._submit(graph, [*keys, ids_key, summary_key])
        n, m, dense = self.gang.gather([futures[summary_key]], self.deadline, f"reading {edges.name}")[0]
        return _Input(
            n=n if edges.n is None else edges.n,
            m=m if edges.m is None else edges.m,
            pieces=pieces,
            reads=[futures[key] for key in keys],
            external_ids=None if dense or edges.n is not None else futures[ids_key],
        )

    def _degree_order(self, graph: TaskGraph, source: _Input) -> Ref:
        """Add the tasks that count degrees, each rank over its pieces one after another, and order the vertices."""
        edges, ids = self.edges, None if source.external_ids is None else Ref(source.external_ids.key)
        counted: dict[int, Ref] = {}
        for index in range(len(source.pieces)):
            rank = index % self.gang.p
            read = Ref((source.pieces if source.reads is None else source.reads)[index].key)
            key = (f"count-degrees-{self.token}", index)
            counted[rank] = graph.add(
                rank, key, tasks.count_degrees, read, source.n, edges.symmetrise, edges.name, ids, counted.get(rank)
            )
        return graph.add(0, (f"degree-order-{self.token}", 0), tasks.degree_order, list(counted.values()))

    def _exchange(self, graph: TaskGraph, source: _Input, stripe: Stripe, order: Ref | None) -> list[list[Ref]]:
        """Add the tasks that read, bin and collect; returns each owner's collected rounds."""
        edges, token = self.edges, self.token
        collected: list[list[Ref]] = [[] for _ in range(stripe.p)]
        ids = None if source.external_ids is None else Ref(source.external_ids.key)
        for first in range(0, len(source.pieces), stripe.p):
            this_round = first // stripe.p
            binned: list[Ref] = []
            for rank, index in enumerate(range(first, min(first + stripe.p, len(source.pieces)))):
                if source.reads is not None:
                    read = Ref(source.reads[index].key)
                else:
                    # Reading waits until the round before the last is collected: unread pieces take no memory.
                    before = [collected[rank][-2]] if this_round >= 2 else []
                    piece = Ref(source.pieces[index].key)
                    read = graph.add(rank, (f"read-edges-{token}", index), tasks.read, piece, before)
                key = (f"bin-edges-{token}", index)
                options = (edges.symmetrise, self.in_edges, edges.name, ids, order)
                binned.append(graph.add(rank, key, tasks.bin_piece, read, stripe, *options))
            for owner in range(stripe.p):
                parts = [
                    graph.add(rank, (f"edge-bin-{token}", first + rank, owner), tasks.edge_bin, bins, owner)
                    for rank, bins in enumerate(binned)
                ]
                collected[owner].append(graph.add(owner, (f"collect-{token}", this_round, owner), list, parts))
        return collected


def _piece_edges(m: int | None, p: int) -> int:
    least = config.count("build.piece-edges")
    return least if m is None else max(least, -(-m // (p * config.count("build.max-rounds"))))

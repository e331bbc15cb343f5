"""Building: from an edge list to one partition on each rank, as Dask tasks.

Ranks take turns at the pieces. One task reads a piece where it lies, another bins its edges by owner; each owner
collects its bins round by round and makes its partition of them. The client sees counts only. Where ids are external,
or the number of edges is not known before reading, the pieces are read first and their distinct ids found; where the
edges are to be kept, they are read first, too, and the graph is built of what is kept.
"""

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import distributed

from dbfs import build_tasks as tasks
from dbfs import config
from dbfs.build_watch import BuildWatch
from dbfs.edges import EdgeList, Piece
from dbfs.errors import EdgeInputError, InvalidOptionError, TruncatedFileError
from dbfs.gang import Deadline, Gang, Key, Ref, TaskGraph, release
from dbfs.memory import Estimate, estimate_bytes, require_fit
from dbfs.records import BuildProgress
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
        input_edges: by rank, futures of the ``InputEdges`` that it keeps; none where they were not to be kept.
        read_seconds: how long reading took where it came first: edges that are kept, ids or counts to be found.
        seconds: how long all of it took.
    """

    stripe: Stripe
    partitions: tuple[distributed.Future, ...]
    infos: tuple[PartitionInfo, ...]
    external_ids: distributed.Future | None
    order: distributed.Future | None
    input_edges: tuple[tuple[distributed.Future, ...], ...]
    read_seconds: float
    seconds: float

    @property
    def futures(self) -> list[distributed.Future]:
        """All of them."""
        extra = [future for future in (self.external_ids, self.order) if future is not None]
        return [*self.partitions, *extra, *(future for kept in self.input_edges for future in kept)]


@dataclass(frozen=True)
class _Input:
    """Pieces on their way to the owners, and what was read of them before building.

    Attributes:
        n, m: vertices and edges.
        pieces: futures.
        reads: futures of ``Edges``; None where building will read.
        kept: futures of ``InputEdges``, which have vertices for ids; None where they are not to be kept.
        external_ids: as in ``Built``.
    """

    n: int
    m: int
    pieces: list[distributed.Future]
    reads: list[distributed.Future] | None
    external_ids: distributed.Future | None
    kept: list[distributed.Future] | None = None

    @property
    def ids(self) -> Ref | None:
        """What makes vertices of the ids read; None where they are vertices."""
        return None if self.kept is not None or self.external_ids is None else Ref(self.external_ids.key)

    @property
    def unread(self) -> bool:
        """Whether building has to read."""
        return self.kept is None and self.reads is None

    def edges(self, index: int) -> Ref:
        """What was read of a piece, or the piece itself."""
        return Ref((self.kept or self.reads or self.pieces)[index].key)


@dataclass(frozen=True)
class BuildOptions:
    """How a graph is laid out.

    Attributes:
        in_edges: keep a directed graph's in-edges, too, for bottom-up levels.
        order: ``given``, or ``degree`` for an internal numbering by falling degree with hub-first adjacency lists.
        keep_edges: keep the edges as they were read beside the graph, for validation against them.
    """

    in_edges: bool = False
    order: str = "given"
    keep_edges: bool = False

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
        kept_edges=m if options.keep_edges else 0,
    )


def check_fit(edges: EdgeList, n: int, m: int, gang: Gang, options: BuildOptions) -> None:
    """Refuse a graph of ``n`` vertices and ``m`` edges read that won't fit a gang's workers.

    Raises:
        GraphTooLargeError: with the bytes (or internal ids) needed, and those there.
    """
    stripe = Stripe(n, gang.p)
    require_fit(gang, stripe, _estimate(edges, stripe, m, _piece_edges(m, gang.p), options), edges.name)


def build(
    edges: EdgeList, gang: Gang, options: BuildOptions, progress: Callable[[BuildProgress], None] | None = None
) -> Built:
    """Read, stripe and build a graph. After an error nothing stays on the workers.

    Args:
        edges: what to build it of.
        gang: its workers.
        options: its layout.
        progress: told how far the build is, as often as ``dbfs.liveness-interval`` says.

    Raises:
        TruncatedFileError: the pieces hold another number of edges than the edge list says.
        GraphTooLargeError: it won't fit the workers.
        WorkerLostError, DeadlineExceededError: see ``Gang.gather``.
        DbfsError: whatever reading a piece raises.
    """
    builder = _Builder(edges, gang, options)
    if progress is not None:
        builder.watch = BuildWatch(gang.client, builder.token, progress).look
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
        self.watch: Callable[[], None] | None = None

    def run(self) -> Built:
        start = time.perf_counter()
        edges, gang = self.edges, self.gang
        pieces = edges.cut(_piece_edges(edges.m, gang.p))
        if edges.n is not None and edges.m is not None:
            # Before a byte is moved: what is refused must cost nothing.
            check_fit(edges, edges.n, edges.m, gang, self.options)
            source = _Input(edges.n, edges.m, self._scatter(pieces), None, None)
        else:
            source = self._scan(self._scatter(pieces))
            check_fit(edges, source.n, source.m, gang, self.options)
        if self.options.keep_edges:
            source = self._keep(source)
        read_seconds = 0.0 if source.unread else time.perf_counter() - start
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
        infos = gang.gather([futures[key] for key in info_keys], self.deadline, f"building {edges.name}", self.watch)
        if infos[0].input_edges != source.m:
            raise TruncatedFileError(
                f"{edges.name}: {source.m} edges are promised (by its header), {infos[0].input_edges} are there"
            )
        seconds = time.perf_counter() - start
        logger.info("built %s: %d vertices, %d edges read, %.2f s", edges.name, source.n, source.m, seconds)
        partitions = tuple(futures[key] for key in keys)
        ordered = None if order is None else futures[order.key]
        kept = tuple(tuple(source.kept[rank :: gang.p]) for rank in range(gang.p)) if source.kept else ()
        built = Built(stripe, partitions, tuple(infos), source.external_ids, ordered, kept, read_seconds, seconds)
        self.held -= set(built.futures)
        return built

    def _submit(self, graph: TaskGraph, keys: list[Key]) -> dict[Key, distributed.Future]:
        futures = self.gang.submit(graph, keys)
        self.held.update(futures.values())
        return futures

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
        summary = self.gang.gather([futures[summary_key]], self.deadline, f"reading {edges.name}", self.watch)
        n, m, dense = summary[0]
        return _Input(
            n=n if edges.n is None else edges.n,
            m=m if edges.m is None else edges.m,
            pieces=pieces,
            reads=[futures[key] for key in keys],
            external_ids=None if dense or edges.n is not None else futures[ids_key],
        )

    def _keep(self, source: _Input) -> _Input:
        """Read all pieces, if that was not done, into the form in which their edges are kept."""
        graph = TaskGraph()
        name = "read-edges" if source.unread else "keep-edges"
        keys: list[Key] = [(f"{name}-{self.token}", index) for index in range(len(source.pieces))]
        count_keys: list[Key] = [(f"count-edges-{self.token}", index) for index in range(len(source.pieces))]
        for index, key in enumerate(keys):
            rank = index % self.gang.p
            kept = graph.add(rank, key, tasks.keep, source.edges(index), source.n, self.edges.name, source.ids)
            graph.add(rank, count_keys[index], tasks.count, kept)
        futures = self._submit(graph, keys + count_keys)
        counts = [futures[key] for key in count_keys]
        self.gang.gather(counts, self.deadline, f"reading {self.edges.name}", self.watch)
        # What they were made of takes as much memory again, and more.
        before = {*source.pieces, *(source.reads or ())}
        release(before)
        self.held -= before
        return replace(source, kept=[futures[key] for key in keys])

    def _degree_order(self, graph: TaskGraph, source: _Input) -> Ref:
        """Add the tasks that count degrees, each rank over its pieces one after another, and order the vertices."""
        edges = self.edges
        counted: dict[int, Ref] = {}
        for index in range(len(source.pieces)):
            rank = index % self.gang.p
            key = (f"count-degrees-{self.token}", index)
            options = (source.n, edges.symmetrise, edges.name, source.ids)
            counted[rank] = graph.add(rank, key, tasks.count_degrees, source.edges(index), *options, counted.get(rank))
        return graph.add(0, (f"degree-order-{self.token}", 0), tasks.degree_order, list(counted.values()))

    def _exchange(self, graph: TaskGraph, source: _Input, stripe: Stripe, order: Ref | None) -> list[list[Ref]]:
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


def _piece_edges(m: int | None, p: int) -> int:
    least = config.count("build.piece-edges")
    return least if m is None else max(least, -(-m // (p * config.count("build.max-rounds"))))

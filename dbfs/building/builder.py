"""The steps that builds on CPUs and on GPUs share, with a build's options and result. ``build`` chooses the builder.

A builder cuts the edges into pieces and deals the pieces out to the ranks. The pieces are read before anything else if
their number of edges is unknown, or if they hold ids that have to be numbered. They are also read first if the graph
keeps its edges: the graph is then built of the kept edges. Only counts travel to the client.
"""

import logging
import time
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import distributed

from dbfs.base.calls import public
from dbfs.base.records import Beside, GraphIds
from dbfs.building.attributes import NO_ATTRIBUTES, AttributeKeeper
from dbfs.building.memory import Estimate, edge_bytes, numbering_bytes, require_fit
from dbfs.building.numbering import number_ids
from dbfs.building.standing import Standing
from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Gang, Key, Ref, TaskGraph, release, scheduler_id
from dbfs.edges.edge_list import DistinctIds, EdgeList
from dbfs.edges.readers.source import require_readable
from dbfs.edges.tables.dask import DelayedPiece
from dbfs.errors import EdgeInputError, InvalidOptionError
from dbfs_workers.base.text import counted
from dbfs_workers.building.layout import Layout
from dbfs_workers.building.pieces import GeneratedPiece, Piece
from dbfs_workers.search.exchange.hosts import Hosts
from dbfs_workers.search.partition.partition import PartitionInfo
from dbfs_workers.search.partition.stripe import Stripe

logger = logging.getLogger(__name__)

CSR = "csr"
BY_DISTANCE = "bfs"
ORDERS = ("given", "degree", BY_DISTANCE)
IDS = ("given", "dense")
STRIPES = "1d"
AUTO = "auto"


@dataclass(frozen=True)
class BuiltGraph:
    """A graph's data on the workers.

    Attributes:
        partitions: futures of the partitions, by rank.
        infos: counts of the partitions, by rank.
        ids: how ids map to vertices.
        id_tables: by rank, futures of the ids' tables; empty if there are none.
        order: future of the ``ordering.DegreeOrder``; None if vertices keep the order given.
        input_edges: futures by rank, each of a list of kept ``InputEdges``; empty if edges are not kept.
        attributes: futures of the edges' attributes.
        beside: what the record says of these; None without any.
        read_seconds: seconds spent reading before the build; 0 if the build itself read the pieces.
        seconds: seconds of the whole build, reading included.
    """

    stripe: Stripe
    partitions: tuple[distributed.Future, ...]
    infos: tuple[PartitionInfo, ...]
    ids: GraphIds
    id_tables: tuple[distributed.Future, ...]
    order: distributed.Future | None
    input_edges: tuple[distributed.Future, ...]
    read_seconds: float
    seconds: float
    attributes: tuple[distributed.Future, ...] = ()
    beside: Beside | None = None

    @property
    def futures(self) -> list[distributed.Future]:
        """All futures of the graph's data."""
        order = [] if self.order is None else [self.order]
        return [*self.partitions, *self.id_tables, *order, *self.input_edges, *self.attributes]

    @property
    def recorded(self) -> dict[str, Any]:
        """The fields of a ``GraphRecord`` that say what was built, and where it is."""
        return {
            "stripe": self.stripe,
            "partition_keys": tuple(future.key for future in self.partitions),
            "ids": self.ids,
            "order_key": None if self.order is None else self.order.key,
            "input_edge_keys": tuple(future.key for future in self.input_edges),
            "infos": self.infos,
            "beside": self.beside,
        }


@dataclass(frozen=True)
class DealtPieces:
    """Pieces dealt out to the ranks (piece i to rank i % p), with the edges that were read before the build.

    Attributes:
        n, m: number of vertices, and of input edges.
        pieces: generated pieces themselves, futures of all others.
        edges: futures of each piece's edges between vertices; None if the pieces were not read for ids or counts.
        ids, id_tables: as in ``BuiltGraph``.
        kept: futures of each piece's ``InputEdges``, between vertex ids; None if edges are not kept.
        kept_lists: futures by rank, each of the list of the rank's ``InputEdges``: p keys to hold and to validate
            against, instead of hundreds.
        edge_bytes: bytes of an edge of ``edges``; 0 without these.
        distinct: the ids that were numbered; None if there were none to number.
    """

    n: int
    m: int
    pieces: list[distributed.Future | GeneratedPiece]
    ids: GraphIds
    edges: list[distributed.Future] | None = None
    id_tables: tuple[distributed.Future, ...] = ()
    kept: list[distributed.Future] | None = None
    kept_lists: tuple[distributed.Future, ...] = ()
    edge_bytes: int = 0
    distinct: DistinctIds | None = None

    @property
    def unread(self) -> bool:
        """Whether the build has yet to read the pieces."""
        return self.kept is None and self.edges is None

    def source(self, index: int) -> Ref | GeneratedPiece:
        """Return a task argument for a piece: its edges if they were read, else the piece itself."""
        return _task_argument((self.kept or self.edges or self.pieces)[index])


@public
@dataclass(frozen=True)
class BuildOptions:
    """A graph's layout.

    Attributes:
        in_edges: keep a directed graph's in-edges too, for bottom-up levels.
        order: ``given``; ``degree`` for an internal numbering by falling degree with hub-first adjacency lists; or
            ``bfs`` for one by the distance from an end of the graph. None for the order of a saved graph, and for
            ``given`` of all other edges.
        keep_edges: keep the edges as they were read beside the graph, for validation against them.
        ids: ``given`` for the ids of the edge list, or ``dense`` for the vertices 0..n-1 as ids.
        room: vertices that updates may add later.
        layout: ``1d``: each rank has the edges of its own vertices. ``2d``: the ranks form a grid, and each has the
            edges from the vertices of its column to those of its row. The grid is as square as the number of ranks
            allows; ``2d:1x4`` has one row of 4 columns, ``2d:1xp`` one row of all ranks. ``auto``, in an estimate only,
            for the one that ``load`` would take.
        storage: ``pages`` keeps the rows on linked pages on one GPU: see ``load``.
        layouts: the layouts that there are beside ``1d``; None without any.
        storages: how the rows of graphs that updates may change are stored.
        keeper: what keeps the attributes of edges; None without such a feature.

    Raise ``InvalidOptionError`` if the order, the ids, the layout or the storage are unknown.
    """

    in_edges: bool = False
    order: str | None = None
    keep_edges: bool = False
    ids: str = "given"
    room: int = 0
    layout: str = STRIPES
    storage: str = CSR
    layouts: ClassVar["Layouts | None"] = None
    storages: ClassVar[tuple["RowStorage", ...]] = ()
    keeper: ClassVar[AttributeKeeper | None] = None

    def __post_init__(self) -> None:
        if self.order not in (None, *ORDERS):
            raise InvalidOptionError(f"unknown order {self.order!r}; choose one of {', '.join(ORDERS)}")
        if self.ids not in IDS:
            raise InvalidOptionError(f"unknown ids {self.ids!r}; choose one of {', '.join(IDS)}")
        if self.layouts is not None:
            self.layouts.require(self.layout)
        elif self.layout != STRIPES:
            raise InvalidOptionError(f"unknown layout {self.layout!r}; there is {STRIPES} alone")
        if self.storage not in (names := self.storage_names()):
            raise InvalidOptionError(f"unknown storage {self.storage!r}; choose one of {', '.join(names)}")

    @classmethod
    def storage_names(cls) -> list[str]:
        """Return what ``load`` takes as ``storage``."""
        return list(dict.fromkeys([CSR, *(each.name for each in cls.storages)]))

    @property
    def row_storage(self) -> "RowStorage | None":
        """What stores the rows of a graph that updates may change; None without such a feature."""
        return next((each for each in self.storages if each.name == self.storage), None)

    def laid_out(self, p: int) -> Layout | None:
        """Return the layout of p ranks; None in ``1d``. Errors as for ``Layouts.of``."""
        return None if self.layout == STRIPES or self.layouts is None else self.layouts.of(self.layout, p)

    def stripe(self, n: int, p: int) -> Stripe:
        """Return the stripe of n vertices on p ranks, with the room."""
        return Stripe(n, p, self.room)

    def nearness(
        self,
        edges: EdgeList,
        gang: Gang,  # noqa: ARG002 - of the assembly
        backend: str,  # noqa: ARG002
    ) -> Sequence[distributed.Future]:
        """Return what ``bfs`` orders the vertices of a build by: see ``Builder.near``. The assembly can traverse."""
        raise InvalidOptionError(f"{edges.name}: order={self.order!r} takes a traversal; use dbfs.BuildOptions")

    @property
    def ordered(self) -> bool:
        """Whether positions of vertices differ from the vertices."""
        return self.order in ("degree", BY_DISTANCE)

    def offset_ids(self, edges: EdgeList) -> GraphIds:
        """Return the ids of an edge list whose number of vertices is known."""
        return GraphIds(edges.first_id if self.ids == "given" else 0)

    def passes(self, bands: int) -> int:
        """Return how often a build in ``bands`` bands generates or reads all edges, if their number is known before."""
        # Kept edges are read once; degrees are counted, and rows are built, from the kept ones.
        once = 1 if self.keep_edges else bands + (self.order == "degree")
        return once + bands * (self.order == BY_DISTANCE)


@dataclass(frozen=True)
class LayoutChoice:
    """What ``layout="auto"`` takes.

    Attributes:
        why: the reason, a clause.
    """

    layout: str
    why: str


class RowStorage(ABC):
    """How the rows of a graph that updates may change are stored: a feature's.

    Attributes:
        name: its name in ``BuildOptions.storage``.
    """

    name: ClassVar[str]

    def require(  # noqa: B027 - a storage may go with all options
        self, edges: EdgeList, options: BuildOptions, p: int, backend: str, *, mutable: bool
    ) -> None:
        """Refuse other options that the storage does not go with. Errors as for ``load``."""

    @abstractmethod
    def with_updates(
        self, needed: Estimate, stripe: Stripe, directed_edges: int, copies: int, backend: str
    ) -> Estimate:
        """Return the estimate of a rank whose graph updates may change.

        Args:
            needed: the estimate without updates.
            directed_edges: number of edges stored once.
            copies: 2 if each edge is also stored by its end, else 1.
            backend: ``cpu`` or ``cuda``.
        """


class Layouts(ABC):
    """Layouts beside ``1d``, by the names that ``BuildOptions.layout`` takes."""

    @abstractmethod
    def require(self, name: str) -> None:
        """Raise ``InvalidOptionError`` unless a name is that of a layout, ``1d`` and ``auto`` included."""

    @abstractmethod
    def of(self, name: str, p: int) -> Layout:
        """Return the layout of p ranks. Raise ``InvalidOptionError`` if there is none of so many ranks."""

    @abstractmethod
    def builder(self, backend: str) -> type["Builder"]:
        """Return what builds graphs in such a layout for a backend."""

    @abstractmethod
    def choose(
        self,
        edges: EdgeList,
        options: BuildOptions,
        backend: str,
        hosts: Hosts,
        fits: Callable[[str], bool],
        *,
        mutable: bool,
    ) -> LayoutChoice:
        """Return the layout that ``auto`` takes.

        Args:
            options: all but the layout.
            backend: ``cpu`` or ``cuda``.
            fits: returns whether a layout fits the ranks, if the numbers of vertices and edges are known.
            mutable: whether updates may change the graph.
        """


@dataclass(frozen=True)
class BuildSize:
    """What a build's memory depends on.

    Attributes:
        edges: their numbers may be unknown.
        m: number of input edges.
        memory: bytes that a rank's device may take; None if unknown.
        hosts: which ranks share memory, if they are on CPUs; None for one host.
        ids: the ids to number; None if there are none.
    """

    edges: EdgeList
    stripe: Stripe
    m: int
    options: BuildOptions
    memory: int | None = None
    hosts: Hosts | None = None
    ids: DistinctIds | None = None

    @property
    def directed_edges(self) -> int:
        """Number of edges stored once; an undirected edge counts twice."""
        return self.m * (2 if self.edges.symmetrise else 1)


@dataclass(frozen=True)
class BuildTasks:
    """Tasks that a builder added to a task graph.

    Attributes:
        partitions: by rank.
        order: task of the ``ordering.DegreeOrder``; None if vertices keep the order given.
        awaited: keys of small results that the client waits for, as well as for the partitions' counts.
        held: keys of results that must stay on the workers until the client has all awaited results.
    """

    partitions: list[Ref]
    order: Ref | None
    awaited: Sequence[Key] = ()
    held: Sequence[Key] = ()


class PartitionMaker(ABC):
    """What makes the partitions of a graph, by a build or without one. The caller releases ``held`` after ``run``.

    Attributes:
        gang: the workers that hold the graph's ranks.
        token: the end of the names of its tasks.
        held: futures of what is made on the way, except those of the result.
        watch: called now and then while the client waits; None to call nothing.
        standing: what is left of the graph; None to make all of it.
    """

    gang: Gang
    token: str
    held: set[distributed.Future]
    watch: Callable[[], None] | None
    standing: Standing | None = None

    @property
    def makers(self) -> Gang:
        """The workers that make a partition, by rank: all but those that have theirs."""
        if self.standing is None:
            return self.gang
        return Gang(self.gang.client, tuple(self.gang.addresses[rank] for rank in self.standing.lost))

    @abstractmethod
    def run(self) -> BuiltGraph:
        """Make the graph; errors as of ``dbfs.building.build.build``."""


class Builder(PartitionMaker):
    """One build. The caller releases ``held`` after ``run``, also after an error.

    Args:
        gang: the workers that hold its ranks.
        options: its layout.
        more: futures of pieces that belong to the edges as well; the caller keeps them.
        near: futures by rank of int64[n], whose sums take the place of degrees in the order; empty for degrees.

    Attributes:
        tasks: module of the tasks that read pieces and describe partitions.
        held: futures of the build, except those of the result.
        watch: called now and then while the client waits; None to call nothing.
    """

    tasks: Any

    def __init__(
        self,
        edges: EdgeList,
        gang: Gang,
        options: BuildOptions,
        more: Sequence[distributed.Future] = (),
        near: Sequence[distributed.Future] = (),
    ) -> None:
        self.edges = edges
        self.options = options
        self.more, self.near = more, near
        self.in_edges = options.in_edges and edges.directed
        self.gang = gang
        self.token = uuid.uuid4().hex
        self.deadline = of_call("build-deadline")
        self.held: set[distributed.Future] = set()
        self.watch: Callable[[], None] | None = None

    def run(self) -> BuiltGraph:
        """Build the graph; errors as of ``dbfs.building.build.build``."""
        start = time.perf_counter()
        edges, gang = self.edges, self.gang
        if edges.path is not None:
            # Dask's client has a cluster if this program started it.
            require_readable(edges.path, shared=gang.client.cluster is None)
        pieces = self.cut()
        if edges.n is not None and edges.m is not None:
            # Before any data moves: refusing a graph must cost nothing.
            self.require_fit(edges.n, edges.m)
            dealt = DealtPieces(edges.n, edges.m, self._deal_out(pieces), self.options.offset_ids(edges))
        else:
            self._require_room_to_number()
            dealt_out = self._deal_out(pieces)
            dealt = self._read_and_number(dealt_out) if edges.n is None else self._read_and_count(edges.n, dealt_out)
            edges.require_count(dealt.m)
            self.require_fit(dealt.n, dealt.m, dealt)
        if self.options.keep_edges:
            dealt = self._read_and_keep(dealt)
        read_seconds = 0.0 if dealt.unread else time.perf_counter() - start
        stripe = self.options.stripe(dealt.n, gang.p)

        graph, attributes = TaskGraph(), NO_ATTRIBUTES
        added = self.add_tasks(graph, dealt, stripe)
        if edges.attributes is not None and self.options.keeper is not None:
            apart, piece_edges = edges.attributes.apart, self.piece_edges(edges.m, gang.p)
            values = self._scatter(edges.attributes.cut(piece_edges))
            sources = [dealt.source(index) for index in range(len(values))] if apart is None else []
            if apart is not None:
                sources = [_task_argument(piece) for piece in self._scatter(apart.cut(piece_edges))]
            refs = [Ref(future.key) for future in values]
            of = (graph, apart or edges, edges.attributes, sources, refs, added.partitions, added.order, stripe)
            attributes = self.options.keeper.add_tasks(*of, self.token, both=self.in_edges)
        info_keys: list[Key] = [self._key("partition-info", rank) for rank in range(gang.p)]
        for rank, partition in enumerate(added.partitions):
            graph.add(rank, info_keys[rank], self.tasks.describe, partition)
        partition_keys = [partition.key for partition in added.partitions]
        order_keys = [] if added.order is None else [added.order.key]
        kept = [*partition_keys, *info_keys, *order_keys, *attributes.kept]
        futures = self._submit(graph, [*kept, *added.awaited, *added.held, *attributes.awaited])
        # The tasks alone keep them from here on: each is freed when its last task is over.
        self._release_read(dealt)
        awaited = [futures[key] for key in (*info_keys, *attributes.awaited, *added.awaited)]
        found = gang.gather(awaited, self.deadline, f"building {edges.name}", self.watch)
        infos, told = found[: gang.p], found[gang.p : gang.p + len(attributes.awaited)]
        built_rank = 0 if self.standing is None else self.standing.lost[0]
        replace(edges, m=dealt.m, stated=None).require_count(infos[built_rank].input_edges)
        seconds = time.perf_counter() - start
        logger.info("built %s: %d vertices, %d edges read, %.2f s", edges.name, dealt.n, dealt.m, seconds)
        built = BuiltGraph(
            stripe,
            tuple(futures[key] for key in partition_keys),
            tuple(infos),
            dealt.ids,
            dealt.id_tables,
            futures[order_keys[0]] if order_keys else None,
            dealt.kept_lists,
            read_seconds,
            seconds,
            tuple(futures[key] for key in attributes.kept),
            attributes.beside(told),
        )
        self.held -= set(built.futures)
        return built

    def cut(self) -> Sequence[Piece]:
        """Cut the edges into pieces."""
        return self.edges.cut(self.piece_edges(self.edges.m, self.gang.p))

    @classmethod
    @abstractmethod
    def estimate(cls, of: BuildSize) -> Estimate:
        """Estimate the bytes of a rank's device."""

    @staticmethod
    @abstractmethod
    def piece_edges(m: int | None, p: int) -> int:
        """Return the number of edges of a piece, for m edges (None: unknown) and p ranks."""

    @abstractmethod
    def require_fit(self, n: int, m: int, read: DealtPieces | None = None) -> None:
        """Raise ``GraphTooLargeError`` if n vertices and m input edges won't fit.

        The ranks hold the pieces ``read`` before the build, if any. These edges give way to the partition.
        """

    @abstractmethod
    def add_tasks(self, graph: TaskGraph, dealt: DealtPieces, stripe: Stripe) -> BuildTasks:
        """Add the tasks that make the partitions of the pieces."""

    def _key(self, name: str, *index: int) -> Key:
        return (f"{name}-{self.token}", *index)

    def _submit(self, graph: TaskGraph, keys: list[Key]) -> dict[Key, distributed.Future]:
        futures = self.gang.submit(graph, keys)
        self.held.update(futures.values())
        return futures

    def _deal_out(self, pieces: Sequence[Piece]) -> list[distributed.Future | GeneratedPiece]:
        """Deal piece i out to rank i % p.

        Generated pieces are small, and go with the tasks. Others may hold data and go straight to their worker: the
        scheduler keeps the tasks' arguments. The pieces of a dask collection are computed where Dask likes best; those
        of a persisted collection where the collection lies.
        """
        delayed = [piece.delayed for piece in pieces if isinstance(piece, DelayedPiece)]
        if delayed:
            self._require_reachable(delayed)
            computed: list[distributed.Future | GeneratedPiece] = [*self.gang.compute(delayed)]
            self.held.update(computed)
            return computed
        dealt = self._scatter(pieces)
        # Futures of this build's own, which it may release.
        more = [distributed.Future(future.key, self.gang.client) for future in self.more]
        self.held.update(more)
        return [*dealt, *more]

    def _scatter(self, pieces: Sequence[Any]) -> list[Any]:
        """Send piece i to rank i % p; return their futures, and generated pieces as they are."""
        dealt = [piece if isinstance(piece, GeneratedPiece) else None for piece in pieces]
        for rank, address in enumerate(self.gang.addresses):
            indices = [index for index in range(rank, len(pieces), self.gang.p) if dealt[index] is None]
            if indices:
                data = [pieces[index] for index in indices]
                futures = self.gang.client.scatter(data, workers=[address], hash=False)
                self.held.update(futures)
                for index, future in zip(indices, futures, strict=True):
                    dealt[index] = future
        return dealt

    def _require_reachable(self, delayed: Sequence[Any]) -> None:
        """Wait for what other clients persisted.

        Raises:
            EdgeInputError: a collection was persisted on another cluster, whose data Dask would not find.
        """
        ours, others = self.gang.client, defaultdict(list)
        for future in distributed.futures_of(delayed):
            theirs = future.client
            running = theirs.status == "running"
            # A scheduler may have several addresses.
            if not running or scheduler_id(theirs) != scheduler_id(ours):
                where = f"on the cluster of {theirs.scheduler.address}" if running else "by a client that is closed"
                raise EdgeInputError(
                    f"{self.edges.name}: the partitions were persisted {where}, not on that of "
                    f"{ours.scheduler.address}; pass the client that persisted them, or edges.compute()"
                )
            if theirs is not ours:
                others[theirs].append(future)
        # The scheduler may not have heard yet of what the other client persists.
        for theirs, futures in others.items():
            Gang(theirs, self.gang.addresses).wait(futures, self.deadline, f"reading {self.edges.name}", self.watch)

    def _read_and_number(self, pieces: list[distributed.Future | GeneratedPiece]) -> DealtPieces:
        """Read all pieces, and number their ids."""
        name = self.edges.name

        def gather(futures: list[distributed.Future]) -> list[Any]:
            # The tasks alone keep the pieces from here on: each is freed when its ids are read.
            read = {piece for piece in pieces if not isinstance(piece, GeneratedPiece)}
            release(read)
            self.held -= read
            return self.gang.gather(futures, self.deadline, f"reading {name}", self.watch)

        arguments = [_task_argument(piece) for piece in pieces]
        found = number_ids(arguments, self.gang.p, name, self.token, self._submit, gather)
        ids, tables = found.ids, found.tables
        if found.distinct.dense or self.options.ids == "dense":
            release(tables)
            self.held -= set(tables)
            ids, tables = ids if self.options.ids == "given" else GraphIds(), ()
        size = edge_bytes(found.n)
        return DealtPieces(
            found.n, found.m, [*found.edges], ids, found.edges, tables, edge_bytes=size, distinct=found.distinct
        )

    def _require_room_to_number(self) -> None:
        """Raise ``GraphTooLargeError`` if a rank can't even hold its edges while their ids are numbered.

        The distinct ids come on top; the ranks refuse them when they are found.
        """
        m, p = self.edges.m, self.gang.p
        if m is None:
            return
        batch = self.edges.largest_portion(self.piece_edges(m, p), m)
        numbering = numbering_bytes(self.edges, m, p, DistinctIds(0, 0), batch)
        require_fit(self.gang, counted(m, "edge"), Estimate({}, {}, {}, numbering=numbering), self.edges.name)

    def _read_and_count(self, n: int, pieces: list[distributed.Future | GeneratedPiece]) -> DealtPieces:
        """Read all pieces, and count their edges."""
        graph = TaskGraph()
        keys: list[Key] = [self._key("read-edges", index) for index in range(len(pieces))]
        count_keys: list[Key] = [self._key("count-edges", index) for index in range(len(pieces))]
        for index, piece in enumerate(pieces):
            rank = index % self.gang.p
            read = graph.add(rank, keys[index], self.tasks.read_piece, _task_argument(piece))
            graph.add(rank, count_keys[index], self.tasks.count_edges, read)
        futures = self._submit(graph, [*keys, *count_keys])
        counted = [futures[key] for key in count_keys]
        counts = self.gang.gather(counted, self.deadline, f"reading {self.edges.name}", self.watch)
        ids = self.options.offset_ids(self.edges)
        return DealtPieces(n, sum(counts), pieces, ids, [futures[key] for key in keys], edge_bytes=16)

    def _read_and_keep(self, dealt: DealtPieces) -> DealtPieces:
        """Read all pieces that are not read yet, and convert the edges to the form in which they are kept."""
        graph = TaskGraph()
        keys: list[Key] = [self._key("keep-edges", index) for index in range(len(dealt.pieces))]
        count_keys: list[Key] = [self._key("count-edges", index) for index in range(len(dealt.pieces))]
        list_keys: list[Key] = [self._key("input-edges", rank) for rank in range(self.gang.p)]
        kept: list[list[Ref]] = [[] for _ in list_keys]
        for index, key in enumerate(keys):
            rank = index % self.gang.p
            edges = graph.add(rank, key, self.tasks.keep_edges, dealt.source(index), dealt.n, self.edges.name)
            graph.add(rank, count_keys[index], self.tasks.count_edges, edges)
            kept[rank].append(edges)
        for rank, key in enumerate(list_keys):
            graph.add(rank, key, list, kept[rank])
        futures = self._submit(graph, keys + count_keys + list_keys)
        self.gang.gather([futures[key] for key in count_keys], self.deadline, f"reading {self.edges.name}", self.watch)
        # The pieces and the edges read of them take at least as much memory as the kept edges.
        self._release_read(dealt)
        lists = tuple(futures[key] for key in list_keys)
        return replace(dealt, kept=[futures[key] for key in keys], kept_lists=lists)

    def _release_read(self, dealt: DealtPieces) -> None:
        """Release the pieces and the edges read of them, except kept edges."""
        read = {item for item in (*dealt.pieces, *(dealt.edges or ())) if not isinstance(item, GeneratedPiece)}
        release(read)
        self.held -= read


def _task_argument(item: distributed.Future | GeneratedPiece) -> Ref | GeneratedPiece:
    """Return a task argument: a reference for a future, a generated piece as it is."""
    return item if isinstance(item, GeneratedPiece) else Ref(item.key)

"""What every build shares: its options and result, and the order of its steps. ``dbfs.build`` chooses the builder.

A builder cuts the edges into pieces and deals them out to the ranks. Where ids are external, or the number of edges is
not known before reading, the pieces are read first and their distinct ids found; where the edges are to be kept, they
are read first, too, and the graph is built of what is kept. The client sees counts only.
"""

import logging
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import distributed

from dbfs import config
from dbfs.cluster.gang import Deadline, Gang, Key, Ref, TaskGraph, release
from dbfs.edges.edge_list import EdgeList
from dbfs.errors import InvalidOptionError, TruncatedFileError
from dbfs_workers.storage.partition import PartitionInfo
from dbfs_workers.storage.pieces import GeneratedPiece, Piece
from dbfs_workers.storage.stripe import Stripe

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
        input_edges: by rank, futures of lists of the ``InputEdges`` that it keeps; none where they were not to be kept.
        read_seconds: how long reading took where it came first: edges that are kept, ids or counts to be found.
        seconds: how long all of it took.
    """

    stripe: Stripe
    partitions: tuple[distributed.Future, ...]
    infos: tuple[PartitionInfo, ...]
    external_ids: distributed.Future | None
    order: distributed.Future | None
    input_edges: tuple[distributed.Future, ...]
    read_seconds: float
    seconds: float

    @property
    def futures(self) -> list[distributed.Future]:
        """All of them."""
        extra = [future for future in (self.external_ids, self.order) if future is not None]
        return [*self.partitions, *extra, *self.input_edges]


@dataclass(frozen=True)
class Input:
    """Pieces on their way to the owners, and what was read of them before building.

    Attributes:
        n, m: vertices and edges.
        pieces: of generated edges themselves, else futures of them.
        reads: futures of ``Edges``; None where building will read.
        kept: futures of ``InputEdges``, which have vertices for ids; None where they are not to be kept.
        kept_lists: by rank, futures of lists of the same: one key to hold and to check against, not hundreds.
        external_ids: as in ``Built``.
    """

    n: int
    m: int
    pieces: list[distributed.Future | GeneratedPiece]
    reads: list[distributed.Future] | None
    external_ids: distributed.Future | None
    kept: list[distributed.Future] | None = None
    kept_lists: tuple[distributed.Future, ...] = ()

    @property
    def ids(self) -> Ref | None:
        """What makes vertices of the ids read; None where they are vertices."""
        return None if self.kept is not None or self.external_ids is None else Ref(self.external_ids.key)

    @property
    def unread(self) -> bool:
        """Whether building has to read."""
        return self.kept is None and self.reads is None

    def edges(self, index: int) -> Ref | GeneratedPiece:
        """What was read of a piece, or the piece itself."""
        return _argument((self.kept or self.reads or self.pieces)[index])


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


@dataclass(frozen=True)
class BuildTasks:
    """The tasks that a builder has added.

    Attributes:
        partitions: by rank.
        order: the ``ordering.DegreeOrder``; None where vertices have the order given.
        waited: keys of small results without which the build is not over.
        kept: keys whose results have to stay until it is.
    """

    partitions: list[Ref]
    order: Ref | None
    waited: Sequence[Key] = ()
    kept: Sequence[Key] = ()


class Builder(ABC):
    """One build. Every future is in ``held``, to be let go when it ends, but for those of what it returns.

    Attributes:
        tasks: the module with the tasks that read pieces and tell what partitions there are.
        watch: called now and then while the client waits.
    """

    tasks: Any

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
        """Build; see ``dbfs.build.build``."""
        start = time.perf_counter()
        edges, gang = self.edges, self.gang
        pieces = edges.cut(self.piece_edges(edges.m, gang.p))
        if edges.n is not None and edges.m is not None:
            # Before a byte is moved: what is refused must cost nothing.
            self.require_fit(edges.n, edges.m)
            source = Input(edges.n, edges.m, self._deal(pieces), None, None)
        else:
            source = self._scan(self._deal(pieces))
            self.require_fit(source.n, source.m)
        if self.options.keep_edges:
            source = self._keep(source)
        read_seconds = 0.0 if source.unread else time.perf_counter() - start
        stripe = Stripe(source.n, gang.p)

        graph = TaskGraph()
        layout = self.lay_out(graph, source, stripe)
        info_keys: list[Key] = [(f"partition-info-{self.token}", rank) for rank in range(gang.p)]
        for rank, partition in enumerate(layout.partitions):
            graph.add(rank, info_keys[rank], self.tasks.describe, partition)
        keys = [partition.key for partition in layout.partitions]
        ordered = [] if layout.order is None else [layout.order.key]
        futures = self._submit(graph, [*keys, *info_keys, *ordered, *layout.waited, *layout.kept])
        waited = [futures[key] for key in (*info_keys, *layout.waited)]
        infos = gang.gather(waited, self.deadline, f"building {edges.name}", self.watch)[: gang.p]
        if infos[0].input_edges != source.m:
            raise TruncatedFileError(
                f"{edges.name}: {source.m} edges are promised (by its header), {infos[0].input_edges} are there"
            )
        seconds = time.perf_counter() - start
        logger.info("built %s: %d vertices, %d edges read, %.2f s", edges.name, source.n, source.m, seconds)
        built = Built(
            stripe,
            tuple(futures[key] for key in keys),
            tuple(infos),
            source.external_ids,
            futures[ordered[0]] if ordered else None,
            source.kept_lists,
            read_seconds,
            seconds,
        )
        self.held -= set(built.futures)
        return built

    @staticmethod
    @abstractmethod
    def piece_edges(m: int | None, p: int) -> int:
        """Edges of a piece, of which m are cut for p ranks."""

    @abstractmethod
    def require_fit(self, n: int, m: int) -> None:
        """Raise ``GraphTooLargeError`` where n vertices and m edges won't fit."""

    @abstractmethod
    def lay_out(self, graph: TaskGraph, source: Input, stripe: Stripe) -> BuildTasks:
        """Add the tasks that make the partitions."""

    def _submit(self, graph: TaskGraph, keys: list[Key]) -> dict[Key, distributed.Future]:
        futures = self.gang.submit(graph, keys)
        self.held.update(futures.values())
        return futures

    def _deal(self, pieces: Sequence[Piece]) -> list[distributed.Future | GeneratedPiece]:
        """Piece i is rank i % p's. Those that may be large travel apart from the graph, which the scheduler holds."""
        dealt: list[distributed.Future | GeneratedPiece] = [
            piece if isinstance(piece, GeneratedPiece) else None for piece in pieces
        ]
        for rank, address in enumerate(self.gang.addresses):
            mine = [at for at in range(rank, len(pieces), self.gang.p) if dealt[at] is None]
            if mine:
                futures = self.gang.client.scatter([pieces[at] for at in mine], workers=[address], hash=False)
                self.held.update(futures)
                for at, future in zip(mine, futures, strict=True):
                    dealt[at] = future
        return dealt

    def _scan(self, pieces: list[distributed.Future | GeneratedPiece]) -> Input:
        """Read all pieces, count their edges, and rank their distinct ids where ids are external."""
        edges, graph = self.edges, TaskGraph()
        keys: list[Key] = [(f"read-edges-{self.token}", index) for index in range(len(pieces))]
        parts = []
        for index, piece in enumerate(pieces):
            rank = index % self.gang.p
            read = graph.add(rank, keys[index], self.tasks.read, _argument(piece))
            key = (f"distinct-ids-{self.token}", index)
            parts.append(graph.add(rank, key, self.tasks.distinct, read, edges.n is None))
        ids_key, summary_key = (f"vertex-ids-{self.token}", 0), (f"vertex-ids-summary-{self.token}", 0)
        ids = graph.add(0, ids_key, self.tasks.unite, parts)
        graph.add(0, summary_key, self.tasks.summarise_ids, ids)
        futures = self._submit(graph, [*keys, ids_key, summary_key])
        summary = self.gang.gather([futures[summary_key]], self.deadline, f"reading {edges.name}", self.watch)
        n, m, dense = summary[0]
        return Input(
            n=n if edges.n is None else edges.n,
            m=m if edges.m is None else edges.m,
            pieces=pieces,
            reads=[futures[key] for key in keys],
            external_ids=None if dense or edges.n is not None else futures[ids_key],
        )

    def _keep(self, source: Input) -> Input:
        """Read all pieces, if that was not done, into the form in which their edges are kept."""
        graph = TaskGraph()
        keys: list[Key] = [(f"keep-edges-{self.token}", index) for index in range(len(source.pieces))]
        count_keys: list[Key] = [(f"count-edges-{self.token}", index) for index in range(len(source.pieces))]
        list_keys: list[Key] = [(f"input-edges-{self.token}", rank) for rank in range(self.gang.p)]
        kept: list[list[Ref]] = [[] for _ in list_keys]
        for index, key in enumerate(keys):
            rank = index % self.gang.p
            edges = graph.add(rank, key, self.tasks.keep, source.edges(index), source.n, self.edges.name, source.ids)
            graph.add(rank, count_keys[index], self.tasks.count, edges)
            kept[rank].append(edges)
        for rank, key in enumerate(list_keys):
            graph.add(rank, key, list, kept[rank])
        futures = self._submit(graph, keys + count_keys + list_keys)
        self.gang.gather([futures[key] for key in count_keys], self.deadline, f"reading {self.edges.name}", self.watch)
        # What they were made of takes as much memory again, and more.
        before = {made for made in (*source.pieces, *(source.reads or ())) if not isinstance(made, GeneratedPiece)}
        release(before)
        self.held -= before
        lists = tuple(futures[key] for key in list_keys)
        return replace(source, kept=[futures[key] for key in keys], kept_lists=lists)


def _argument(made: distributed.Future | GeneratedPiece) -> Ref | GeneratedPiece:
    """As tasks take it."""
    return made if isinstance(made, GeneratedPiece) else Ref(made.key)

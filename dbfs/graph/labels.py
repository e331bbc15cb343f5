"""How a client reads the labels of a result: whole, as vertices at some distances, or as the path to a vertex.

Ranks on the client's host write whole labels into its label buffer (``serving.reads.label_buffer``), in order of
vertices. Ranks elsewhere send their rows, which are put into their places here.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Gang, Ref, TaskGraph, release
from dbfs.cluster.own_process import require_own
from dbfs.cluster.rank_calls import RankCalls
from dbfs.engines import PublishedLabels
from dbfs.errors import ExchangeUnavailableError, GraphNotFoundError, GraphTooLargeError, StaleRunError
from dbfs.graph.striped import StripedGraph
from dbfs.service.client import ServiceClient
from dbfs_workers.search.partition.stripe import NO_VERTEX
from dbfs_workers.serving.queries import same_value
from dbfs_workers.serving.reads.label_buffer import SLOT_ITEMS, SLOTS, ClientBuffer, items_of_rank
from dbfs_workers.serving.reads.messages import (
    MOST_STEPS,
    FindChanged,
    FindRows,
    KeptLabels,
    LabelData,
    ReadMessage,
    ReadRows,
    Walk,
    WalkAll,
    WriteByVertex,
    WriteLabels,
)
from dbfs_workers.serving.rpc import A

if TYPE_CHECKING:
    from dbfs_workers.search.partition.ordering import DegreeOrder

FEW_VERTICES: Final = 1 << 16
"""Vertices of a graph up to which each rank sends its rows: one message takes less time than the buffer's pages."""

# Fetching all predecessors of 8.4 million vertices takes 0.03 s on 2 cores, 0.24 s in a graph ordered by degree.
_FETCH_SECONDS = 2e-3
_FETCH_SECONDS_PER_VERTEX = 4e-9
_FETCH_SECONDS_PER_ORDERED_VERTEX = 2e-8
# Share of that time which a walk may take before all predecessors are fetched.
_WALK_SHARE = 0.2

# Threads that copy labels into the caller's array, and labels for which one thread is enough.
# Of 16.8 million distances the copy took 15 ms in one thread, 5 in four.
_COPY_THREADS = min(4, os.cpu_count() or 1)
_COPIED_ALONE = 1 << 20

# Ranks that put labels into order on their GPUs: the client joins a label of each rank for every vertex.
_MOST_GPUS = 8

_buffers: weakref.WeakKeyDictionary[distributed.Client, ClientBuffer] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class _Way:
    """How whole labels pass the client's buffer.

    Attributes:
        items: most vertices of a slot.
        write: has ranks write a slot, given its number, the first vertex, the number of vertices, and the ranks.
        take: copies a slot that these ranks wrote into the caller's array, given its number, the ranks, and the array.
    """

    items: int
    write: Callable[[int, int, int, Sequence[int]], RankCalls[bool]]
    take: Callable[[int, Sequence[int], NDArray[Any]], None]


class LabelReader:
    """Reads the labels of one traversal.

    Args:
        graph: the graph. Its order by degree, if it has one, travels to the client only for many labels.
        location: where the labels are, each rank's on its worker.
        run_id: the run, for messages.
        depth: the largest distance.

    Methods raise ``GraphNotFoundError`` if another client unloaded the graph, and ``ResultReleasedError`` if the labels
    were released. ``WorkerLostError``, ``SchedulerLostError`` and ``DeadlineExceededError`` are as for ``Gang.gather``.
    """

    def __init__(
        self,
        graph: StripedGraph,
        location: PublishedLabels | KeptLabels,
        run_id: str,
        depth: int,
    ) -> None:
        require_own(graph.gang.client)
        self._graph = graph
        self._gang = graph.gang
        self._stripe = graph.stripe
        self._location = location
        self._run_id = run_id
        self._depth = depth
        self._deadline = of_call()
        self._doing = fetching(run_id)

    def whole(self, label: str) -> NDArray[Any]:
        """Return a label (``distances``, ``predecessors``) by vertex: int32[n] or int64[n], -1 unreached."""
        into = np.empty(self._stripe.n, np.int32 if label == "distances" else np.int64)
        remote = list(range(self._gang.p))
        if into.size > FEW_VERTICES:
            with contextlib.suppress(ExchangeUnavailableError):
                remote = self._read_buffer(label, into)
        for first in range(0, self._stripe.owned(0) if remote else 0, SLOT_ITEMS):
            self._read_rows(label, remote, first, into)
        return into

    def between(self, least: int, most: int) -> NDArray[np.int64]:
        """Return the vertices at a distance of ``least`` to ``most``, ascending."""
        ranks = range(self._gang.p)
        found = self._answers(self._calls(ranks, FindRows, least, most, ()))
        return self._graph.numbering.vertices_of_rows([found[rank][0].astype(np.int64) for rank in ranks])

    def changed(self) -> NDArray[np.int64]:
        """Return the vertices, ascending, whose distance the repair of the labels has changed.

        Errors as for ``BFSResult.changed``.
        """
        ranks = range(self._gang.p)
        found = self._answers(self._calls(ranks, FindChanged))
        return self._graph.numbering.vertices_of_rows([found[rank].astype(np.int64) for rank in ranks])

    def labels_between(
        self, least: int, most: int, *, predecessors: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64] | None]:
        """Return the vertices at a distance of ``least`` to ``most``, ascending, and their labels.

        Only these vertices' labels travel to the client. Unreached vertices have the distance -1.

        Returns:
            The vertices, int64; their distances, int32; and their predecessors, int64 and -1 for unreached vertices, or
            None without ``predecessors``.
        """
        labels = ("distances", "predecessors")[: 1 + predecessors]
        found = self._answers(self._calls(range(self._gang.p), FindRows, least, most, labels))
        positions = np.concatenate([rows[0].astype(np.int64) * self._gang.p + rank for rank, rows in found.items()])
        vertices = self._graph.numbering.vertices(positions)
        # Stable: the sort finds that each rank's vertices ascend already.
        ascending = np.argsort(vertices, kind="stable")
        columns: list[NDArray[Any]] = []
        for index, label in enumerate(labels, 1):
            travelled = np.concatenate([rows[index] for rows in found.values()])[ascending]
            columns.append(np.empty(travelled.size, np.int32 if label == "distances" else np.int64))
            _copy(travelled, label, self._stripe.n, None, columns[-1])
        if predecessors:
            reached = columns[1] >= 0
            columns[1][reached] = self._graph.numbering.vertices(columns[1][reached])
        return vertices[ascending], columns[0], columns[1] if predecessors else None

    def path(self, position: int) -> list[int] | None:
        """Return the positions from ``position`` to its source; none if unreached.

        Returns None instead if the path is so long that fetching all predecessors takes less time than its messages.
        """
        pace = _FETCH_SECONDS_PER_ORDERED_VERTEX if self._graph.numbering.by_degree else _FETCH_SECONDS_PER_VERTEX
        end = time.monotonic() + _WALK_SHARE * (_FETCH_SECONDS + pace * self._stripe.n)
        path = [position]
        while self._stripe.n > FEW_VERTICES:
            at = path.pop()
            rank = self._stripe.owner(at)
            more, over = self._answers(self._calls([rank], Walk, at))[rank]
            path += more
            if over:
                return path
            if time.monotonic() > end:
                break
        return None

    def walk_all(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the paths to many positions, int64: which of them each place of a path belongs to, and its position.

        The paths are in the order of the positions, each from its end back to its source; an unreached position has
        none. All paths that are on a rank go on there with one message.
        """
        walks, at = np.arange(positions.size), positions
        found = [(walks, at)]
        while walks.size:
            owners, more = self._stripe.owner(at), np.zeros(walks.size, bool)
            groups = {rank: np.flatnonzero(owners == rank) for rank in np.unique(owners).tolist()}
            places = {rank: self._place(rank) for rank in groups}
            messages = {rank: WalkAll(places[rank], self._stripe, rank, at[group]) for rank, group in groups.items()}
            ends = at.copy()
            for rank, steps in self._answers(RankCalls(self._gang, messages, self._deadline, self._doing)).items():
                # By walk, and then by step.
                moved = (steps[1:] != steps[:-1]).T
                found.append((walks[groups[rank]][np.nonzero(moved)[0]], steps[1:].T[moved]))
                ends[groups[rank]] = steps[-1]
                more[groups[rank]] = len(steps) > MOST_STEPS
            more = (ends >= 0) & (more | (self._stripe.owner(ends) != owners))
            walks, at = walks[more], ends[more]
        of, at = (np.concatenate(part) for part in zip(*found, strict=True))
        reached = np.ones(positions.size, bool)
        reached[of[at < 0]] = False
        order = np.argsort(of, kind="stable")
        order = order[reached[of[order]]]
        return of[order], at[order]

    def _read_buffer(self, label: str, into: NDArray[Any]) -> list[int]:
        """Read the labels of ranks on this host through the buffer; return the other ranks.

        Errors as for ``ClientBuffer``.
        """
        client = self._gang.client
        buffer = _buffer(client)
        way = self._way_on_cpus(label, buffer)
        if self._on_gpus:
            # A GPU may be too full for the order.
            with contextlib.suppress(GraphTooLargeError):
                way = self._way_on_gpus(label, buffer)
        local = list(range(self._gang.p))
        written: list[tuple[RankCalls[bool], int, NDArray[Any]]] = []
        with buffer.lock:
            try:
                for first, slot in zip(range(0, into.size, way.items), itertools.cycle(range(SLOTS))):
                    part = into[first : first + way.items]
                    written.append((way.write(slot, first, part.size, local), slot, part))
                    # The ranks fill one slot while this thread empties the other.
                    if first == 0 or len(written) == SLOTS:
                        opened = self._take(way, *written.pop(0))
                        local = [rank for rank in local if opened[rank]]
                        if not local:
                            break
                while written:
                    self._take(way, *written.pop(0))
            except BaseException:
                # A rank may still write into the buffer.
                _buffers.pop(client, None)
                raise
        return [rank for rank in range(self._gang.p) if rank not in local]

    def _take(self, way: _Way, calls: RankCalls[bool], slot: int, into: NDArray[Any]) -> dict[int, bool]:
        """Wait until a slot is written, and copy the slot into its part of the caller's array."""
        opened = self._answers(calls)
        way.take(slot, [rank for rank, own in opened.items() if own], into)
        return opened

    @property
    def _on_gpus(self) -> bool:
        """Whether the ranks put labels into the order of the vertices on their GPUs."""
        few = self._gang.p <= _MOST_GPUS
        return few and self._graph.record.backend == "cuda" and self._graph.numbering.by_degree

    def _way_on_gpus(self, label: str, buffer: ClientBuffer) -> _Way:
        """Each rank writes all vertices' labels into its section of the slot, in their order and smallest type."""
        gang, stripe = self._gang, self._stripe
        orders = self._graph.numbering.on_ranks(self._deadline, self._doing)
        width = _width(self._depth) if label == "distances" else 4

        def write(slot: int, first: int, count: int, ranks: Sequence[int]) -> RankCalls[bool]:
            fields = (label, buffer.handle, slot, first, count, width)
            messages = {rank: WriteByVertex(self._place(rank), stripe, rank, *fields, orders[rank]) for rank in ranks}
            return RankCalls(gang, messages, self._deadline, self._doing)

        def take(slot: int, ranks: Sequence[int], into: NDArray[Any]) -> None:
            sections = [buffer.of_rank(slot, rank, stripe.p, into.size, width) for rank in ranks]

            def join(piece: slice) -> None:
                joined, *others = (section[piece] for section in sections)
                for other in others:
                    np.bitwise_and(joined, other, out=joined)
                if width == 4:
                    _copy(joined, label, stripe.n, None, into[piece])
                else:
                    into[piece] = joined.view(f"i{width}")

            if sections:
                _in_threads(join, into.size)

        return _Way(items_of_rank(stripe.p, width), write, take)

    def _way_on_cpus(self, label: str, buffer: ClientBuffer) -> _Way:
        """Each rank writes the labels of its vertices into their places in the slot."""

        def write(slot: int, first: int, count: int, ranks: Sequence[int]) -> RankCalls[bool]:
            order = self._graph.order
            if order is not None:
                buffer.positions(slot, count)[:] = order.position[first : first + count]
            begin = first if order is None else None
            return self._calls(ranks, WriteLabels, label, buffer.handle, slot, begin, count)

        def take(slot: int, _: Sequence[int], into: NDArray[Any]) -> None:
            labels, order = buffer.labels(slot, into.size), self._graph.order
            _in_threads(lambda piece: _copy(labels[piece], label, self._stripe.n, order, into[piece]), into.size)

        return _Way(SLOT_ITEMS, write, take)

    def _read_rows(self, label: str, ranks: list[int], first: int, into: NDArray[Any]) -> None:
        """Read some consecutive rows of some ranks, and put them into their places."""
        p, order = self._gang.p, self._graph.order
        for rank, rows in self._answers(self._calls(ranks, ReadRows, label, first, first + SLOT_ITEMS)).items():
            part = np.empty(rows.size, into.dtype)
            _copy(rows, label, self._stripe.n, order, part)
            places = slice(first * p + rank, (first + rows.size) * p, p)
            if order is None:
                into[places] = part
            else:
                into[order.vertex[places]] = part

    def _calls(self, ranks: Iterable[int], message: Callable[..., ReadMessage[A]], *fields: Any) -> RankCalls[A]:
        """Send each of some ranks a message with the given fields besides those of every ``ReadMessage``."""
        messages = {rank: message(self._place(rank), self._stripe, rank, *fields) for rank in ranks}
        return RankCalls(self._gang, messages, self._deadline, self._doing)

    def _answers(self, calls: RankCalls[A]) -> dict[int, A]:
        try:
            return calls.answers()
        except StaleRunError as error:
            gone = GraphNotFoundError(f"the graph was unloaded, which released the labels of run {self._run_id}")
            raise ServiceClient.of(self._gang.client).gone(self._graph.record.graph_id, gone) from error

    def _place(self, rank: int) -> KeptLabels | LabelData:
        location = self._location
        if isinstance(location, KeptLabels):
            return location
        parents = location.predecessors
        return LabelData(location.distances[rank].key, None if parents is None else parents[rank].key)


def fetching(run_id: str) -> str:
    """Return what a client does that reads labels of a run, for messages."""
    return f"fetching labels of run {run_id}"


def on_ranks(gang: Gang, labels: PublishedLabels, run_id: str) -> PublishedLabels:
    """Wait for labels that are Dask data, and return them with each rank's on its worker.

    Dask may have moved them: see ``Gang.strayed``. Errors as for ``LabelReader``.
    """
    doing, deadline = fetching(run_id), of_call()
    held = [of for of in (labels.distances, labels.predecessors) if of is not None]
    # The taskgraph engine's labels may still be under way.
    gang.wait([future for of in held for future in of], deadline, doing)
    if not gang.strayed(held, deadline, doing):
        return labels
    plan, token = TaskGraph(), uuid.uuid4().hex
    keys = [
        plan.add(rank, (f"labels-{token}", place, rank), same_value, Ref(future.key)).key
        for place, of in enumerate(held)
        for rank, future in enumerate(of)
    ]
    made = tuple(gang.submit(plan, keys).values())
    try:
        gang.finish(made, deadline, doing)
    except BaseException:
        release(made)
        raise
    return PublishedLabels(made[: gang.p], made[gang.p :] or None)


def _in_threads(copy: Callable[[slice], None], count: int) -> None:
    """Copy ``count`` labels by slices, in several threads if they are many: new pages take longer than the copies."""
    threads = min(_COPY_THREADS, count // _COPIED_ALONE)
    if threads < 2:
        copy(slice(0, count))
        return
    each = -(-count // threads)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(copy, [slice(first, first + each) for first in range(0, count, each)]))


def _width(largest: int) -> int:
    """Return the bytes of the smallest signed integer for numbers from -1 to ``largest``: 1, 2 or 4."""
    return np.min_scalar_type(-1 - largest).itemsize


def _copy(labels: NDArray[np.uint32], label: str, n: int, order: DegreeOrder | None, into: NDArray[Any]) -> None:
    """Copy labels of a graph with ``n`` vertices, as they travel, into the caller's type and numbering."""
    if label == "predecessors" and order is not None:
        into[:] = order.vertex.take(labels, mode="clip")
        np.copyto(into, -1, where=labels == NO_VERTEX)
    else:
        into[:] = labels.view(np.int32)
        if into.dtype == np.int64 and n > 2**31:
            # Vertices from 2^31 on look negative.
            into[into < -1] += 2**32


def _buffer(client: distributed.Client) -> ClientBuffer:
    """Return a client's buffer; its first call makes it."""
    buffer = _buffers.get(client)
    return buffer if buffer is not None else _buffers.setdefault(client, ClientBuffer())

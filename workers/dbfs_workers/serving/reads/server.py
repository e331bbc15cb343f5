"""The worker's half of reading labels, ids and edges: answers the messages of ``reads.messages``.

A label travels as uint32: a distance, or a predecessor's position in a graph ordered by degree (its vertex id in other
graphs). 0xFFFFFFFF is unreached: -1 as int32, ``NO_VERTEX`` as a position.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import LateError, ResultReleasedError, StaleRunError
from dbfs_workers.ids.table import ABSENT, IdTable, LaterIds
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.search.partition.partition import Partition, RankEdges, array_module, on_host, require_present
from dbfs_workers.search.partition.stripe import NO_VERTEX, Stripe
from dbfs_workers.serving.reads.label_buffer import LabelBuffer, OpenBuffers
from dbfs_workers.serving.reads.messages import (
    MOST_STEPS,
    FindChanged,
    FindIds,
    FindIdsAround,
    FindLaterIds,
    FindLaterVertices,
    FindRows,
    FindVertices,
    KeptLabels,
    ReadMessage,
    ReadNeighbours,
    ReadOrder,
    ReadRows,
    Walk,
    WalkAll,
    WriteByVertex,
    WriteLabels,
)


@dataclass(frozen=True)
class RankRows:
    """The labels of one rank's rows. Arrays are NumPy's or CuPy's, with or without padding.

    Attributes:
        distances: int32, -1 unreached.
        predecessors: uint32 internal ids, ``NO_VERTEX`` unreached, or int64 positions, -1 unreached; None if the
            traversal records none.
    """

    stripe: Stripe
    rank: int
    distances: Any
    predecessors: Any

    def read(self, label: str, first: int, last: int) -> NDArray[np.uint32]:
        """Return a label (``distances``, ``predecessors``) of rows ``first`` to ``last``, the last excluded."""
        return self._travelling(self._values(label)[first : min(last, self.stripe.owned(self.rank))])

    def write_vertices(self, label: str, buffer: LabelBuffer, slot: int, first: int, count: int) -> None:
        """Write the labels of the rank's vertices among ``first`` to ``first + count`` into a slot, in their order."""
        p, rank = self.stripe.p, self.rank
        start, stop = (max(0, -(-(vertex - rank) // p)) for vertex in (first, first + count))
        buffer.labels(slot, count)[start * p + rank - first :: p] = self.read(label, start, stop)

    def write_positions(self, label: str, buffer: LabelBuffer, slot: int, count: int) -> None:
        """Write the rank's labels of a slot's vertices, whose positions the client wrote there, in their order."""
        positions, into = buffer.positions(slot, count), buffer.labels(slot, count)
        values = self._values(label)
        if isinstance(values, np.ndarray):
            from dbfs_workers.serving.reads.kernels import labels as kernels

            n_local = self.stripe.n_local if values.dtype == np.uint32 else 0
            kernels.place(_as_uint32(values), n_local, self.rank, self.stripe.p, positions, into)
            return
        xp = array_module(values)
        there = xp.asarray(positions)
        own = xp.flatnonzero(there % self.stripe.p == self.rank)
        into[on_host(own)] = self._travelling(values[there[own] // self.stripe.p])

    def write_by_vertex(self, label: str, into: NDArray[Any], first: int, order: Any) -> None:
        """Write the rank's labels of consecutive vertices, in their order, from a GPU; all bits of others' labels set.

        Args:
            label: ``distances`` or ``predecessors``; predecessors are written as vertices.
            into: unsigned integers, as many as vertices; the labels' lowest bits.
            first: the first vertex.
            order: the graph's order by degree, of NumPy or CuPy arrays.
        """
        from dbfs_workers.serving.reads.ordered_labels import write

        write(self.stripe, self.rank, self._values(label), into, first, order, predecessors=label == "predecessors")

    def between(self, least: int, most: int, labels: tuple[str, ...]) -> NDArray[np.uint32]:
        """Return the rows (local ids) at a distance of ``least`` to ``most``, ascending, and labels of these rows.

        Returns:
            uint32[1 + labels, rows]: the rows, and then each label in the form that this file describes.
        """
        distances = self.distances[: self.stripe.owned(self.rank)]
        found = array_module(distances).flatnonzero((distances >= least) & (distances <= most))
        answer = np.empty((1 + len(labels), found.size), np.uint32)
        answer[0] = on_host(found)
        for index, label in enumerate(labels, 1):
            answer[index] = self._travelling(self._values(label)[found])
        return answer

    def walk(self, position: int) -> tuple[list[int], bool]:
        """Follow predecessors from one of the rank's positions while they are the rank's, for at most ``MOST_STEPS``.

        Returns:
            The positions passed, the given one first; the last may be another rank's. And whether the walk is over:
            the last is its own predecessor. An unreached position has an empty walk, which is over.
        """
        path = [position]
        while len(path) <= MOST_STEPS and self.stripe.owner(position) == self.rank:
            row = self.stripe.row(position)
            parent = int(self._travelling(self.predecessors[row : row + 1])[0])
            if parent == NO_VERTEX:
                return [], True
            if parent == position:
                return path, True
            path.append(parent)
            position = parent
        return path, False

    def walk_all(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Follow predecessors from many of the rank's positions at once, as ``walk`` does from one.

        Returns:
            int64[steps, walks]: the positions of each walk, the given ones first. A walk that is over stays where it
            is, and so does one that has come to another rank's position; an unreached position is followed by -1.
        """
        steps = [positions]
        while len(steps) <= MOST_STEPS:
            at = steps[-1].copy()
            own = np.flatnonzero((at >= 0) & (self.stripe.owner(at) == self.rank))
            rows = array_module(self.predecessors).asarray(self.stripe.row(at[own]))
            parents = self._travelling(self.predecessors[rows])
            at[own] = np.where(parents == NO_VERTEX, -1, parents.astype(np.int64))
            if (at == steps[-1]).all():
                break
            steps.append(at)
        return np.stack(steps)

    def _values(self, label: str) -> Any:
        return self.distances if label == "distances" else self.predecessors

    def _travelling(self, values: Any) -> NDArray[np.uint32]:
        """Return values of a label as they travel."""
        # Internal ids alone are uint32.
        if values.dtype != np.uint32:
            return _as_uint32(on_host(values))
        if isinstance(values, np.ndarray):
            from dbfs_workers.serving.reads.kernels import labels as kernels

            positions = np.empty(values.size, np.uint32)
            kernels.positions_of(values, self.stripe.n_local, self.stripe.p, positions)
            return positions
        vertices = self.stripe.vertex(values.astype(np.int64)).astype(np.uint32)
        found: NDArray[np.uint32] = on_host(array_module(values).where(values == NO_VERTEX, values, vertices))
        return found


def _as_uint32(values: NDArray[Any]) -> NDArray[np.uint32]:
    """Return int32 or int64 labels modulo 2^32, so that -1 becomes ``NO_VERTEX``."""
    return values.view(np.uint32) if values.dtype.itemsize == 4 else values.astype(np.uint32)


# Lookups from which a thread of its own takes less of the event loop's time than the lookup itself.
_LONG_IDS = 1 << 10

Keeper = Callable[[str, str, int], RankLabels]
"""Function that returns labels that the worker's rank keeps, given the graph, the run and the index."""


class Reads:
    """The handlers of one worker. Most read in threads, so that the event loop can answer messages.

    Args:
        data: the worker's Dask data.
        kept: returns labels that the worker's rank keeps.
        changed: returns the rows that the repair of these labels has changed.
    """

    def __init__(self, data: Any, kept: Keeper, changed: Callable[[str, str, int], NDArray[np.uint32]]) -> None:
        self._data = data
        self._kept = kept
        self._changed = changed
        self._buffers = OpenBuffers()

    @ReadRows.handler
    async def read_rows(self, message: ReadRows) -> NDArray[np.uint32]:
        return await asyncio.to_thread(self._rows(message).read, message.label, message.first, message.last)

    @WriteLabels.handler
    async def write_labels(self, message: WriteLabels) -> bool:
        buffer = self._buffers.open(message.buffer)
        if buffer is None:
            return False
        rows, slot = self._rows(message), (message.label, buffer, message.slot)
        if message.first is None:
            await asyncio.to_thread(rows.write_positions, *slot, message.count)
        else:
            await asyncio.to_thread(rows.write_vertices, *slot, message.first, message.count)
        return True

    @WriteByVertex.handler
    async def write_by_vertex(self, message: WriteByVertex) -> bool:
        buffer = self._buffers.open(message.buffer)
        if buffer is None:
            return False
        order = self._held(message.order, "order of its vertices")
        into = buffer.of_rank(message.slot, message.rank, message.stripe.p, message.count, message.width)
        await asyncio.to_thread(self._rows(message).write_by_vertex, message.label, into, message.first, order)
        return True

    @FindRows.handler
    async def find_rows(self, message: FindRows) -> NDArray[np.uint32]:
        return await asyncio.to_thread(self._rows(message).between, message.least, message.most, message.labels)

    @FindChanged.handler
    async def find_changed(self, message: FindChanged) -> NDArray[np.uint32]:
        place = message.place
        if not isinstance(place, KeptLabels):
            raise ResultReleasedError(f"rank {message.rank}: the labels were published without their changes")
        changed = self._changed(place.graph_id, place.run_id, place.index)
        rows: NDArray[np.uint32] = changed[changed < message.stripe.owned(message.rank)]
        return rows

    @Walk.handler
    async def walk(self, message: Walk) -> tuple[list[int], bool]:
        return await asyncio.to_thread(self._rows(message).walk, message.position)

    @WalkAll.handler
    async def walk_all(self, message: WalkAll) -> NDArray[np.int64]:
        return await asyncio.to_thread(self._rows(message).walk_all, message.positions)

    @FindVertices.handler
    async def find_vertices(self, message: FindVertices) -> NDArray[np.int64]:
        table = self._table(message.table)
        if len(message.ids) < _LONG_IDS:
            return table.vertices(message.ids)
        return await asyncio.to_thread(table.vertices, message.ids)

    @FindIds.handler
    async def find_ids(self, message: FindIds) -> Any:
        table, vertices = self._table(message.table), message.vertices
        if vertices is None:
            return table.ids
        if vertices.size < _LONG_IDS:
            return table.ids_of(vertices)
        return await asyncio.to_thread(table.ids_of, vertices)

    @FindIdsAround.handler
    async def find_ids_around(self, message: FindIdsAround) -> list[Any]:
        return self._table(message.table).around(message.one)

    @FindLaterVertices.handler
    async def find_later_vertices(self, message: FindLaterVertices) -> list[int]:
        return self._later(message.partition).vertices(message.ids, message.n, ABSENT)

    @FindLaterIds.handler
    async def find_later_ids(self, message: FindLaterIds) -> list[Any]:
        return self._later(message.partition).ids(message.vertices)

    @ReadOrder.handler
    async def read_order(self, message: ReadOrder) -> NDArray[np.uint32]:
        order: DegreeOrder = self._held(message.order, "order of its vertices")
        held = order.position if message.wanted == "position" else order.vertex
        if message.indices.size < _LONG_IDS:
            return held[message.indices]
        return await asyncio.to_thread(held.take, message.indices)

    @ReadNeighbours.handler
    async def read_neighbours(self, message: ReadNeighbours) -> NDArray[np.uint32]:
        found = [np.empty(0, np.uint32)]
        for part in edges_of(self._data, message.partition).parts():
            if part.rank == part.stripe.owner(message.position):
                require_present(part, [message.position])
                if array_module(part.rows.columns) is np:
                    # At once, since an update writes over pages that are no longer in use.
                    found.append(_row(part, message.position))
                else:
                    # The GPU may be busy with a traversal.
                    found.append(await asyncio.to_thread(_row, part, message.position))
        return np.concatenate(found)

    def _rows(self, message: ReadMessage[Any]) -> RankRows:
        place = message.place
        if isinstance(place, KeptLabels):
            kept = self._kept(place.graph_id, place.run_id, place.index)
            return RankRows(message.stripe, message.rank, kept.distances, kept.predecessors)
        try:
            distances = self._data[place.distances]
            predecessors = None if place.predecessors is None else self._data[place.predecessors]
        except KeyError:
            where = f"rank {message.rank}: the labels under {place.distances}"
            raise ResultReleasedError(f"{where} are not on its worker any more; traverse again") from None
        return RankRows(message.stripe, message.rank, distances, predecessors)

    def _table(self, key: Hashable) -> IdTable:
        table: IdTable = self._held(key, "table of its ids")
        return table

    def _later(self, key: Hashable) -> LaterIds:
        partition: Partition = self._held(key, "partition")
        if partition.later is None:
            raise LateError(f"rank {partition.rank} has yet to commit the graph's version; ask again")
        return partition.later

    def _held(self, key: Hashable, what: str) -> Any:
        try:
            return self._data[key]
        except KeyError:
            raise StaleRunError(f"the graph was unloaded: its worker has no {what} any more; load it again") from None


def edges_of(data: Any, key: Hashable) -> RankEdges:
    """Return the edges of a rank from the worker's data. Raise ``StaleRunError`` if they are not there any more."""
    try:
        edges: RankEdges = data[key]
    except KeyError:
        raise StaleRunError("the graph was unloaded: its worker has no edges any more; load it again") from None
    return edges


def _row(partition: Partition, position: int) -> NDArray[np.uint32]:
    rows, row = partition.rows, partition.stripe.row(position)
    columns: NDArray[np.uint32] = on_host(rows.columns[int(rows.starts[row]) : int(rows.ends[row])])
    return columns

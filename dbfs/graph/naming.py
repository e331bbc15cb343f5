"""NamedVertices: the part of a graph that maps the caller's ids to vertices and back, and vertices to positions."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs.cluster.deadline import Deadline, of_call
from dbfs.cluster.gang import Gang, Key, Ref, TaskGraph
from dbfs.cluster.own_process import StaysHere
from dbfs.cluster.rank_calls import RankCalls
from dbfs.errors import (
    GraphNotFoundError,
    InvalidVertexError,
    InvalidVertexTypeError,
    ResultReleasedError,
    StaleRunError,
)
from dbfs.graph.counts import GraphCounts
from dbfs.graph.ids import IdLookup
from dbfs.integers import vertex_number
from dbfs.records import GraphRecord
from dbfs_workers.reads.messages import ReadOrder
from dbfs_workers.spec import RunSpec
from dbfs_workers.tasks import queries
from dbfs_workers.tasks.validation import place_order

if TYPE_CHECKING:
    from dbfs_workers.storage.id_table import Ids, IdType
    from dbfs_workers.storage.ordering import DegreeOrder


# Entries of the order that a rank looks up, at most: so many, or so large a part of all. An entry takes 12 bytes on its
# way, the whole order 8 bytes a vertex, but only once.
_FEW = 64
_FEW_PART = 8


class NamedVertices(StaysHere, GraphCounts):
    """The vertices of a graph, and the ids that callers have for them.

    Args:
        record: the service's record of the graph.
        gang: the workers that hold the graph.
    """

    def __init__(self, record: GraphRecord, gang: Gang) -> None:
        super().__init__(record)
        self._gang = gang
        self._unloaded = False
        self._lookup = IdLookup(gang, record)
        self._order: DegreeOrder | None = None
        # Futures, by rank, of copies of the order beside the ranks' edges; empty before the first.
        self.placed_orders: list[distributed.Future] = []
        # One of many threads fetches or places: each copy has n numbers.
        self._fetching = threading.Lock()

    @property
    def elsewhere(self) -> str:
        """See ``StaysHere``."""
        name = repr(self.record.name) if self.record.named else "name"
        before = "" if self.record.named else "load the graph with name=, and "
        in_task = f"dbfs.open({name}, client=distributed.get_client())"
        return f"{before}open the graph there: dbfs.open({name}), in a task {in_task}"

    @property
    def gang(self) -> Gang:
        """The workers that hold the graph."""
        return self._gang

    @property
    def unloaded(self) -> bool:
        """Whether this object has unloaded the graph."""
        return self._unloaded

    @property
    def order(self) -> DegreeOrder | None:
        """The internal numbering of a graph loaded with ``order="degree"``; else None."""
        with self._fetching:
            if self.record.order_key is not None and self._order is None:
                self._order = self._fetch_order(self.record.order_key)
        return self._order

    def order_on_ranks(self, deadline: Deadline, doing: str) -> list[Hashable]:
        """Return the Dask keys, by rank, of copies of the internal numbering beside the ranks' edges.

        The first call has the copies made. Otherwise Dask would send each rank the order, 8 bytes a vertex, whenever it
        is needed there.

        Raises:
            GraphTooLargeError, DeviceFailedError: a rank's GPU is full, or failed.
            WorkerLostError, DeadlineExceededError: see ``Gang.gather``.
        """
        record, kept = self.record, self.placed_orders
        assert record.order_key is not None
        with self._fetching:
            if any(future.status not in ("pending", "finished") for future in kept):
                kept.clear()
            if not kept:
                graph, token = TaskGraph(), uuid.uuid4().hex
                keys: list[Key] = [(f"place-order-{token}", rank) for rank in range(self._gang.p)]
                beside = record.input_edge_keys or record.partition_keys
                for rank, key in enumerate(keys):
                    graph.add(rank, key, place_order, Ref(record.order_key), Ref(beside[rank]))
                kept += self._gang.submit(graph, keys).values()
            placed = list(kept)
        if any(future.status != "finished" for future in placed):
            self._gang.wait(placed, deadline, doing)
            # Raises the error of a copy that failed. The others stay where they are.
            self._gang.gather([future for future in placed if future.status != "finished"], deadline, doing)
        return [future.key for future in placed]

    @property
    def id_type(self) -> IdType:
        """The type of the graph's ids: integers, strings, or tuples of these."""
        return self._lookup.id_type

    def vertex(self, id: Any) -> int:  # noqa: A002 - the word users expect
        """Return the vertex, 0..n-1, of an id: the index of its labels in ``distances()``.

        Raises:
            InvalidVertexError: the graph has no such id; the message names ids near it.
            InvalidVertexTypeError: the id is not of the type ``id_type``.
        """
        self._require_tables()
        return self._lookup.vertex(id)

    def vertices_of(self, ids: Any) -> NDArray[np.int64]:
        """Return the vertices of many ids, int64, in their order.

        Args:
            ids: a sequence, a set, a NumPy array, a series, or an Arrow array.

        Raises:
            InvalidVertexError, InvalidVertexTypeError: see ``vertex``.
        """
        self._require_tables()
        return self._lookup.vertices_of(ids)

    def id_of(self, vertex: int) -> Any:
        """Return the id of a vertex: an int, a str, or a tuple of these.

        Raises:
            InvalidVertexError: the vertex is outside 0..n-1.
            InvalidVertexTypeError: the vertex is not an integer.
        """
        number = vertex_number(vertex, "vertex")
        if not 0 <= number < self.n:
            raise InvalidVertexError(f"there is no vertex {number} in {self.record.name}: vertices are 0..{self.n - 1}")
        return self.python_ids([number])[0]

    def ids_of(self, vertices: Any) -> Ids:
        """Return the ids of many vertices, in their order: an int64 array, or an Arrow array of strings or structs.

        Args:
            vertices: an array of integers, or a sequence.

        Raises:
            InvalidVertexError: a vertex is outside 0..n-1.
            InvalidVertexTypeError: the vertices are not integers.
        """
        self._require_tables()
        array = np.asarray(vertices)
        if array.size and (array.dtype.kind not in "iu" or np.ma.is_masked(vertices)):
            kind = "masked" if np.ma.is_masked(vertices) else array.dtype
            raise InvalidVertexTypeError(f"vertices must be integers, not {kind}")
        return self._lookup.ids_of(array.astype(np.int64))

    def ids(self) -> Ids:
        """Return the ids of all vertices, in the order of vertices, as ``ids_of`` does. The client takes n ids."""
        self._require_tables()
        return self._lookup.everything()

    def vertices_named(self, given: Any, what: str) -> tuple[int, ...]:
        """Return the vertices of one id, or of several; ``what`` is the name of an id in messages.

        Raises:
            InvalidVertexError, InvalidVertexTypeError: see ``vertex``.
        """
        self._require_tables()
        return self._lookup.several(given, what)

    def positions(self, vertices: Sequence[int]) -> tuple[int, ...]:
        """Return the vertices' numbers in the internal numbering, which specs and labels on the workers use."""
        return tuple(self._ordered("position", np.array(vertices, np.int64)).tolist())

    def in_positions(self, specs: RunSpec) -> RunSpec:
        """Return a run's specs in the internal numbering, given in vertices."""
        return specs if self.record.order_key is None else specs.renumbered(self.positions)

    def vertices_at_positions(self, positions: Sequence[int]) -> list[int]:
        """Return the vertices of numbers in the internal numbering."""
        return list(self.vertices_by_position(np.array(positions, np.int64)).tolist())

    def vertices_by_position(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the vertices of many numbers in the internal numbering, int64, in their order."""
        return self._ordered("vertex", positions)

    @property
    def is_ordered(self) -> bool:
        """Whether the internal numbering differs from the numbering of the vertices."""
        return self.record.order_key is not None

    def python_ids(self, vertices: Sequence[int]) -> list[Any]:
        """Return the ids of vertices 0..n-1 as Python's integers, strings or tuples."""
        self._require_tables()
        return self._lookup.python_ids(vertices)

    def _ordered(self, wanted: str, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the entries ``position`` or ``vertex`` of the order by degree; without one the indices themselves."""
        if self.record.order_key is None or not indices.size:
            return indices
        many = indices.size > max(_FEW, self.n // _FEW_PART)
        order = self.order if many else self._order
        if order is not None:
            held: NDArray[np.uint32] = getattr(order, wanted)
            return held[indices].astype(np.int64)
        # A rank looks few entries up: the whole order of a large graph would take seconds to reach the client.
        message = ReadOrder(self.record.order_key, wanted, indices)
        deadline, doing = of_call(), f"reading the order of {self.record.name}"
        # Rank 0 made the order. Of the copies that other ranks got since, Dask may keep any.
        for rank in range(self._gang.p):
            try:
                return RankCalls(self._gang, {rank: message}, deadline, doing).answers()[rank].astype(np.int64)
            except StaleRunError as error:
                gone = error
        raise GraphNotFoundError(f"{self.record.name}: {gone}") from gone

    def _fetch_order(self, key: Hashable) -> DegreeOrder:
        self._require_loaded()
        # A task copies the order, because the service owns the key and this client has no future of it.
        graph, copied = TaskGraph(), f"fetch-{uuid.uuid4().hex}"
        graph.add(0, copied, queries.same_value, Ref(key))
        future = self._gang.submit(graph, [copied])[copied]
        doing = f"fetching the degree order of {self.record.name}"
        order: DegreeOrder = self._gang.gather([future], of_call(), doing)[0]
        return order

    def _require_tables(self) -> None:
        # Ids without tables can be named after the graph was unloaded.
        if self.record.ids.keys:
            self._require_loaded()

    def _require_loaded(self) -> None:
        if self._unloaded:
            raise ResultReleasedError(f"{self.record.name} was unloaded; load it again")

"""Positions of vertices: their numbers in the internal numbering, which a graph with ``order="degree"`` has.

Specs and labels on the workers use positions. In all other graphs the position of a vertex is the vertex itself.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs.base.records import GraphRecord
from dbfs.cluster.deadline import Deadline, of_call
from dbfs.cluster.gang import Gang, Key, Ref, TaskGraph, release
from dbfs.cluster.rank_calls import RankCalls
from dbfs.errors import GraphNotFoundError, ResultReleasedError, StaleRunError
from dbfs.service.client import ServiceClient
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.serving import queries
from dbfs_workers.serving.orders import place_order
from dbfs_workers.serving.reads.messages import ReadOrder

if TYPE_CHECKING:
    from dbfs_workers.search.partition.ordering import DegreeOrder

# Entries of the order that a rank looks up, at most: so many, or this share of all. An entry takes 12 bytes on its
# way, the whole order 8 bytes a vertex, but only once.
_FEW_ENTRIES = 64
_FEW_SHARE = 1 / 8


class Numbering:
    """The internal numbering of a graph. Updates do not change it.

    Args:
        gang: the workers that hold the graph.
        record: the service's record of the graph.

    Attributes:
        placed: futures, by rank, of copies of the order beside the ranks' edges; empty before the first.
    """

    def __init__(self, gang: Gang, record: GraphRecord) -> None:
        self._gang = gang
        self._record = record
        self._released = False
        self._order: DegreeOrder | None = None
        self.placed: list[distributed.Future] = []
        # One of many threads fetches or places: each copy has n numbers.
        self._fetching = threading.Lock()

    @property
    def by_degree(self) -> bool:
        """Whether positions differ from vertices."""
        return self._record.order_key is not None

    @property
    def order(self) -> DegreeOrder | None:
        """The order by degree; None without one. The first call fetches the order."""
        with self._fetching:
            if self.by_degree and self._order is None:
                self._order = self._fetch_order()
        return self._order

    def on_ranks(self, deadline: Deadline, doing: str) -> list[Hashable]:
        """Return the Dask keys, by rank, of copies of the internal numbering beside the ranks' edges.

        The first call has the copies made. Otherwise Dask would send each rank the order, 8 bytes a vertex, whenever it
        is needed there. Errors as for ``Graph.bfs``.
        """
        record, gang, kept = self._record, self._gang, self.placed
        assert record.order_key is not None
        with self._fetching:
            if any(future.status not in ("pending", "finished") for future in kept):
                kept.clear()
            if not kept:
                graph, token = TaskGraph(), uuid.uuid4().hex
                keys: list[Key] = [(f"place-order-{token}", rank) for rank in range(gang.p)]
                beside = record.input_edge_keys or record.partition_keys
                for rank, key in enumerate(keys):
                    graph.add(rank, key, place_order, Ref(record.order_key), Ref(beside[rank]))
                kept += gang.submit(graph, keys).values()
            placed = list(kept)
        if any(future.status != "finished" for future in placed):
            gang.finish(placed, deadline, doing)
        return [future.key for future in placed]

    def release(self) -> None:
        """Release the copies of the order beside the ranks' edges, since the graph is unloaded."""
        self._released = True
        release(self.placed)

    def positions(self, vertices: Sequence[int]) -> tuple[int, ...]:
        """Return the positions of vertices."""
        return tuple(self._ordered("position", np.array(vertices, np.int64)).tolist())

    def in_positions(self, specs: RunSpec) -> RunSpec:
        """Return a run's specs in positions, given in vertices."""
        return specs.renumbered(self.positions) if self.by_degree else specs

    def vertices_at(self, positions: Sequence[int]) -> list[int]:
        """Return the vertices at positions."""
        return list(self.vertices(np.array(positions, np.int64)).tolist())

    def vertices(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the vertices at many positions, int64, in their order."""
        return self._ordered("vertex", positions)

    def vertices_of_rows(self, rows: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the vertices, ascending, of rows (int64 local ids) by rank."""
        p = len(rows)
        return np.sort(self.vertices(np.concatenate([mine * p + rank for rank, mine in enumerate(rows)])))

    def _ordered(self, wanted: str, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the entries ``position`` or ``vertex`` of the order by degree; without one the indices themselves."""
        gang, record = self._gang, self._record
        if record.order_key is None or not indices.size:
            return indices
        many = indices.size > max(_FEW_ENTRIES, record.stripe.n * _FEW_SHARE)
        order = self.order if many else self._order
        if order is not None:
            held: NDArray[np.uint32] = getattr(order, wanted)
            return held[indices].astype(np.int64)
        # A rank looks few entries up: the whole order of a large graph would take seconds to reach the client.
        message = ReadOrder(record.order_key, wanted, indices)
        deadline, doing = of_call(), f"reading the order of {record.name}"
        # Rank 0 made the order. Of the copies that other ranks got since, Dask may keep any.
        for rank in range(gang.p):
            try:
                return RankCalls(gang, {rank: message}, deadline, doing).answers()[rank].astype(np.int64)
            except StaleRunError as error:
                gone = error
        unloaded = GraphNotFoundError(f"{record.name}: {gone}")
        raise ServiceClient.of(gang.client).gone(record.graph_id, unloaded) from gone

    def _fetch_order(self) -> DegreeOrder:
        gang, record = self._gang, self._record
        if self._released:
            raise ResultReleasedError(f"{record.name} was unloaded; load it again")
        # A task copies the order, because the service owns the key and this client has no future of it.
        arguments, doing = [(Ref(record.order_key),)], f"fetching the degree order of {record.name}"
        order: DegreeOrder = gang.on_each_rank("fetch", queries.same_value, arguments, of_call(), doing)[0]
        return order

"""The worker's half of looking up ids and positions: a handler for each of their messages."""

import asyncio
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.errors import LateError, StaleRunError
from dbfs_workers.reads.messages import (
    FindIds,
    FindIdsAround,
    FindLaterIds,
    FindLaterVertices,
    FindVertices,
    ReadOrder,
)
from dbfs_workers.storage.id_table import ABSENT, IdTable
from dbfs_workers.storage.later_ids import LaterIds
from dbfs_workers.storage.ordering import DegreeOrder
from dbfs_workers.storage.partition import Partition

# Lookups from which a thread of its own takes less of the event loop's time than the lookup itself.
_LONG_IDS = 1 << 10


class IdReads:
    """The handlers of one worker.

    Args:
        data: the worker's Dask data.
    """

    def __init__(self, data: Any) -> None:
        self._data = data

    @FindVertices.handler
    async def find_vertices(self, message: FindVertices) -> NDArray[np.int64]:
        """See ``FindVertices``."""
        table = self._table(message.table)
        if len(message.ids) < _LONG_IDS:
            return table.vertices(message.ids)
        return await asyncio.to_thread(table.vertices, message.ids)

    @FindIds.handler
    async def find_ids(self, message: FindIds) -> Any:
        """See ``FindIds``."""
        table, vertices = self._table(message.table), message.vertices
        if vertices is None:
            return table.ids
        if vertices.size < _LONG_IDS:
            return table.ids_of(vertices)
        return await asyncio.to_thread(table.ids_of, vertices)

    @FindIdsAround.handler
    async def find_ids_around(self, message: FindIdsAround) -> list[Any]:
        """See ``FindIdsAround``."""
        return self._table(message.table).around(message.one)

    @FindLaterVertices.handler
    async def find_later_vertices(self, message: FindLaterVertices) -> list[int]:
        """See ``FindLaterVertices``."""
        return self._later(message.partition).vertices(message.ids, message.n, ABSENT)

    @FindLaterIds.handler
    async def find_later_ids(self, message: FindLaterIds) -> list[Any]:
        """See ``FindLaterIds``."""
        return self._later(message.partition).ids(message.vertices)

    @ReadOrder.handler
    async def read_order(self, message: ReadOrder) -> NDArray[np.uint32]:
        """See ``ReadOrder``."""
        order: DegreeOrder = self._held(message.order, "order of its vertices")
        held = order.position if message.wanted == "position" else order.vertex
        if message.indices.size < _LONG_IDS:
            return held[message.indices]
        return await asyncio.to_thread(held.take, message.indices)

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

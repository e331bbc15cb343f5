"""The worker's half of reading labels: answers the messages of ``reads.messages``."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.errors import ResultReleasedError, StaleRunError
from dbfs_workers.reads.messages import (
    FindChanged,
    FindRows,
    KeptLabels,
    ReadMessage,
    ReadRows,
    Walk,
    WriteByVertex,
    WriteWindow,
)
from dbfs_workers.reads.rows import RankRows
from dbfs_workers.reads.window import OpenWindows
from dbfs_workers.storage.labels import RankLabels

Keeper = Callable[[str, str, int], RankLabels]
"""Function that returns labels that the worker's rank keeps, given the graph, the run and the index."""


class LabelReads:
    """The handlers of one worker. Labels are read in other threads, so that the event loop can still answer messages.

    Args:
        data: the worker's Dask data.
        kept: returns labels that the worker's rank keeps.
        changed: returns the rows that the repair of these labels has changed.
    """

    def __init__(self, data: Any, kept: Keeper, changed: Callable[[str, str, int], NDArray[np.uint32]]) -> None:
        self._data = data
        self._kept = kept
        self._changed = changed
        self._windows = OpenWindows()

    @ReadRows.handler
    async def read_rows(self, message: ReadRows) -> NDArray[np.uint32]:
        """See ``ReadRows``."""
        return await asyncio.to_thread(self._rows(message).read, message.label, message.first, message.last)

    @WriteWindow.handler
    async def write_window(self, message: WriteWindow) -> bool:
        """See ``WriteWindow``."""
        window = self._windows.open(message.window)
        if window is None:
            return False
        rows, slot = self._rows(message), (message.label, window, message.slot)
        if message.first is None:
            await asyncio.to_thread(rows.write_positions, *slot, message.count)
        else:
            await asyncio.to_thread(rows.write_vertices, *slot, message.first, message.count)
        return True

    @WriteByVertex.handler
    async def write_by_vertex(self, message: WriteByVertex) -> bool:
        """See ``WriteByVertex``."""
        window = self._windows.open(message.window)
        if window is None:
            return False
        try:
            order = self._data[message.order]
        except KeyError:
            raise StaleRunError("the graph was unloaded: its worker has no order of it any more") from None
        into = window.of_rank(message.slot, message.rank, message.stripe.p, message.count, message.width)
        await asyncio.to_thread(self._rows(message).write_by_vertex, message.label, into, message.first, order)
        return True

    @FindRows.handler
    async def find_rows(self, message: FindRows) -> NDArray[np.uint32]:
        """See ``FindRows``."""
        return await asyncio.to_thread(self._rows(message).between, message.least, message.most, message.labels)

    @FindChanged.handler
    async def find_changed(self, message: FindChanged) -> NDArray[np.uint32]:
        """See ``FindChanged``."""
        place = message.place
        if not isinstance(place, KeptLabels):
            raise ResultReleasedError(f"rank {message.rank}: the labels were published without their changes")
        changed = self._changed(place.graph_id, place.run_id, place.index)
        rows: NDArray[np.uint32] = changed[changed < message.stripe.owned(message.rank)]
        return rows

    @Walk.handler
    async def walk(self, message: Walk) -> tuple[list[int], bool]:
        """See ``Walk``."""
        return await asyncio.to_thread(self._rows(message).walk, message.position)

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

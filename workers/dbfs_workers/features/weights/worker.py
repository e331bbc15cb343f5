"""Shortest paths by weight on a worker: columns are made ready, and distances read."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import InvalidOptionError, ResultReleasedError, StaleRunError
from dbfs_workers.features.weights.columns import WrongWeight, weights_of
from dbfs_workers.features.weights.messages import PrepareWeights, ReadWeighted
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.serving.feature import WorkerFeature, WorkerView
from dbfs_workers.serving.reads.messages import KeptLabels, LabelData
from dbfs_workers.serving.reads.server import RankRows, edges_of
from dbfs_workers.serving.rpc import PickledValue


class WeightReads(WorkerFeature):
    """The handlers of one worker."""

    def __init__(self, view: WorkerView) -> None:
        super().__init__(view)
        self._data = view.worker.data

    @PrepareWeights.handler
    async def prepare_weights(self, message: PrepareWeights) -> PickledValue[WrongWeight | None]:
        # Imported here, because the import of the loop takes the event loop's time.
        from dbfs_workers.features.weights.part import weights_part

        partition = edges_of(self._data, message.partition)
        part = weights_part(self.view.member(message.graph_id), partition)
        assert isinstance(partition, Partition)
        attributes, name = self._attributes(message.attributes), message.column
        if part.has(name, partition.version):
            return PickledValue.of(None)

        def read() -> tuple[NDArray[Any], WrongWeight | None]:
            table = attributes.columns_of(partition)
            if name not in table.column_names:
                names = ", ".join(map(repr, table.column_names)) or "none"
                raise InvalidOptionError(f"the graph's edges have no column {name!r}; the columns are: {names}")
            return weights_of(table[name], name, partition)

        weights, wrong = await asyncio.to_thread(read)
        if wrong is None:
            part.keep(name, weights, partition.version)
        return PickledValue.of(wrong)

    @ReadWeighted.handler
    async def read_weighted(self, message: ReadWeighted) -> list[NDArray[Any]]:
        return await asyncio.to_thread(self._read, message)

    def _read(self, message: ReadWeighted) -> list[NDArray[Any]]:
        stripe, owned = message.stripe, message.stripe.owned(message.rank)
        distances, parents = self._labels(message.place)
        distances = distances[:owned]
        if message.most is None:
            rows = np.arange(owned)
        else:
            rows = np.flatnonzero((distances >= message.least) & (distances <= message.most))
        found = [rows.astype(np.uint32), distances[rows]]
        if message.predecessors:
            found.append(RankRows(stripe, message.rank, distances, parents).read("predecessors", 0, owned)[rows])
        return found

    def _labels(self, place: KeptLabels | LabelData) -> tuple[Any, Any]:
        """Return a rank's distances and predecessors."""
        if isinstance(place, KeptLabels):
            kept = self.view.kept_labels(place.graph_id, place.run_id, place.index)
            return kept.distances, kept.predecessors
        try:
            parents = None if place.predecessors is None else self._data[place.predecessors]
            return self._data[place.distances], parents
        except KeyError:
            where = f"the labels under {place.distances}"
            raise ResultReleasedError(f"{where} are not on their worker any more; traverse again") from None

    def _attributes(self, key: Hashable) -> Any:
        try:
            return self._data[key]
        except KeyError:
            raise StaleRunError("the graph was unloaded: its worker has no columns any more; load it again") from None

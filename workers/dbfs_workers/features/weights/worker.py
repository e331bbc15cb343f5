"""Shortest paths by weight on a worker: columns are made ready, and distances read."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import InvalidOptionError, ResultReleasedError, StaleRunError
from dbfs_workers.features.weights.columns import EdgeWeights, WrongWeight, weights_of
from dbfs_workers.features.weights.messages import PrepareWeights, ReadWeighted
from dbfs_workers.search.partition.partition import Partition, array_module, on_host
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
        from dbfs_workers.features.weights.part import LoopWeights, weights_part

        partition = edges_of(self._data, message.partition)
        part = weights_part(self.view.member(message.graph_id), partition)
        assert isinstance(partition, Partition)
        attributes, name = self._attributes(message.attributes), message.column
        table = attributes.out
        # A GPU searches from one end.
        goes_back = message.path and partition.has_parents and isinstance(part, LoopWeights)
        known = part.weights.get(name)
        if known is not None and known.of is attributes and (known.into is not None or not goes_back):
            return PickledValue.of(None)
        if name not in table.column_names:
            names = ", ".join(map(repr, table.column_names)) or "none"
            raise InvalidOptionError(f"the graph's edges have no column {name!r}; the columns are: {names}")
        weights, wrong = await asyncio.to_thread(weights_of, table[name], name, partition)
        if wrong is None:
            into = weights if goes_back else None
            if goes_back and partition.directed:
                into = (await asyncio.to_thread(weights_of, attributes.into[name], name, partition))[0]
            part.weights[name] = EdgeWeights(attributes, weights, into)
        return PickledValue.of(wrong)

    @ReadWeighted.handler
    async def read_weighted(self, message: ReadWeighted) -> list[NDArray[Any]]:
        return await asyncio.to_thread(self._read, message)

    def _read(self, message: ReadWeighted) -> list[NDArray[Any]]:
        stripe, owned = message.stripe, message.stripe.owned(message.rank)
        distances, parents = self._labels(message.place)
        distances = distances[:owned]
        xp = array_module(distances)
        if message.most is None:
            there = xp.arange(owned)
        else:
            there = xp.flatnonzero((distances >= message.least) & (distances <= message.most))
        rows = on_host(there)
        found = [rows.astype(np.uint32), on_host(distances[there])]
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

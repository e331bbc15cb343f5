"""Shortest paths by weight on a worker: columns are made ready, and distances read."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import InvalidOptionError, ResultReleasedError, StaleRunError
from dbfs_workers.features.weights.columns import EdgeWeights, Prepared, Stripes, weights_of
from dbfs_workers.features.weights.messages import PrepareWeights, ReadWeighted
from dbfs_workers.features.weights.purpose import Weighted
from dbfs_workers.search.cuda import failures
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
    async def prepare_weights(self, message: PrepareWeights) -> PickledValue[Prepared]:
        name = message.column
        part: Any = self.view.member(message.graph_id).part_for(Weighted(name))
        striped = await asyncio.to_thread(self._striped, part, message)
        if striped is None:
            return PickledValue.of(Prepared(striped=False))
        attributes, partition, of_edges = striped
        goes_back = message.path and partition.has_parents and part.goes_back
        known = part.weights.get(name)
        if known is not None and known.of is attributes and (known.into is not None or not goes_back):
            return PickledValue.of(Prepared())
        table, in_table = await asyncio.to_thread(of_edges.tables_of, partition)
        if name not in table.column_names:
            names = ", ".join(map(repr, table.column_names)) or "none"
            raise InvalidOptionError(f"the graph's edges have no column {name!r}; the columns are: {names}")
        weights, wrong = await asyncio.to_thread(weights_of, table[name], name, partition)
        if wrong is None:
            into = weights if goes_back else None
            if goes_back and partition.directed:
                into = (await asyncio.to_thread(weights_of, in_table[name], name, partition))[0]
            part.weights[name] = EdgeWeights(attributes, partition, weights, into)
        return PickledValue.of(Prepared(wrong))

    def _striped(self, part: Any, message: PrepareWeights) -> Stripes | None:
        """Return the edges that searches follow; None if the rank's edges lie in another layout, and it has no others.

        Raises:
            GraphTooLargeError: the worker has no memory for a copy of the edges on its GPU.
        """
        edges, attributes = edges_of(self._data, message.partition), self._attributes(message.attributes)
        if isinstance(edges, Partition) and not part.on_host:
            return Stripes(attributes, edges, attributes)
        found: Stripes | None = part.stripes
        if message.stripes is not None:
            partition, of_stripes = (self._attributes(key) for key in message.stripes)
            found = Stripes(attributes, replace(partition, deleted=edges.deleted), of_stripes)
        elif found is not None and found.of is not attributes:
            found = None
        if found is None and isinstance(edges, Partition):
            where = f"rank {edges.rank}, copying its edges for shortest paths by weight"
            self.view.member(message.graph_id).room.require(edges.nbytes, where)
            with failures.on_gpu(where):
                found = Stripes(attributes, edges.on(np), attributes)
        part.stripes = found
        return found

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

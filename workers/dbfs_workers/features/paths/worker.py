"""What searches between two vertices add to a worker: the ids of a graph that is ordered by degree."""

from __future__ import annotations

from dbfs_workers.base.errors import StaleRunError
from dbfs_workers.features.paths.messages import PlaceIds
from dbfs_workers.features.paths.part import LoopPaths
from dbfs_workers.serving.feature import WorkerFeature


class PathOrders(WorkerFeature):
    """The handlers of one worker."""

    @PlaceIds.handler
    async def place_ids(self, message: PlaceIds) -> None:
        member, data = self.view.member(message.graph_id), self.view.worker.data
        if message.order not in data:
            raise StaleRunError(f"rank {member.rank} does not have the order of {message.graph_id}")
        for part in member.parts:
            if isinstance(part, LoopPaths):
                part.order = data[message.order].vertex

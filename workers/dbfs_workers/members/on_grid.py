"""A rank of a 2-D partition: the member that runs the grid's level loop."""

from typing import TYPE_CHECKING, Any

from dbfs_workers.members.on_cpu import LoopMember
from dbfs_workers.reports import RankRun
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.label_pool import LabelPool
from dbfs_workers.storage.partition import Partition

if TYPE_CHECKING:
    from dbfs_workers.exchange.grid import GridExchange
    from dbfs_workers.levels.traversals import Watch


class GridMember(LoopMember):
    """A member that runs ``levels.grid_loop.traverse``. See ``Member``."""

    def __init__(self, rank: int, partition_key: Any, exchange: "GridExchange") -> None:
        super().__init__(rank, partition_key, exchange.carrier)
        self._grid_exchange = exchange

    def _make_scratch(self, partition: Any, pool: LabelPool | None) -> Any:
        from dbfs_workers.storage.grid_scratch import GridScratch

        return GridScratch(partition, pool)

    def _traverse_each(
        self, partition: Partition, specs: list[TraversalSpec], watch: "Watch", deadline: float
    ) -> list[RankRun]:
        from dbfs_workers.levels import grid_loop

        scratch = self._scratch_of(partition)
        return grid_loop.traverse(scratch, specs, self._grid_exchange, watch=watch, deadline=deadline)

"""Batches on a rank that runs the level loop, on CPU cores or on a GPU."""

from typing import TYPE_CHECKING, Any

from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.batches.purpose import Batch
from dbfs_workers.search import backends
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import RankRun

if TYPE_CHECKING:
    from dbfs_workers.features.batches.levels import BatchLevels


class LoopBatches(MemberPart):
    """The batches of a member: see ``MemberPart``."""

    purpose = Batch

    def __init__(self, runner: LoopRunner) -> None:
        self._runner = runner

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:  # noqa: ARG002
        return self._runner.traverse_levels(lambda: self._levels(partition), specs, deadline)

    def _levels(self, partition: Any) -> "BatchLevels":
        from dbfs_workers.features.batches.levels import levels_of_batches

        runner = self._runner
        backend, on_cpu = backends.get(runner.backend), runner.backend == "cpu"
        # Not ``runner.free_bytes``: the pool of a CPU rank serves labels only.
        free_bytes = runner.member.room.free_bytes if on_cpu else runner.free_bytes
        # A run has its team from its begin on. A batch is long, and would stay on one thread.
        runner.require_team(partition)
        return levels_of_batches(runner.levels(partition), backend, runner.loop_exchange, free_bytes)

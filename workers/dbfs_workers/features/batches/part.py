"""Batches on a member that runs the level loop, on CPU cores or on a GPU."""

from typing import TYPE_CHECKING, Any

from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.batches.purpose import Batch
from dbfs_workers.search import backends
from dbfs_workers.search.members.on_cpu import LoopMember
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import RankRun

if TYPE_CHECKING:
    from dbfs_workers.features.batches.levels import BatchLevels


class LoopBatches(MemberPart):
    """The batches of a member: see ``MemberPart``.

    Args:
        member: the member.
    """

    purpose = Batch

    def __init__(self, member: LoopMember) -> None:
        self._member = member

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:  # noqa: ARG002
        """See ``MemberPart``."""
        return self._member.traverse_levels(lambda: self._levels(partition), specs, deadline)

    def _levels(self, partition: Any) -> "BatchLevels":
        from dbfs_workers.features.batches.levels import levels_of_batches

        member = self._member
        backend, on_cpu = backends.get(member.backend), member.backend == "cpu"
        # Not ``member.free_bytes``: the pool of a CPU rank serves labels only.
        free_bytes = member.room.free_bytes if on_cpu else member.free_bytes
        return levels_of_batches(member.levels(partition), backend, member.loop_exchange, free_bytes)

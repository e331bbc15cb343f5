"""Strategies of the laboratory on a member that runs the level loop: baselines on one rank, and levels on a grid."""

from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.lab.purpose import ByStrategy
from dbfs_workers.search.levels.traversals import traverse_each
from dbfs_workers.search.members.on_cpu import LoopMember
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import RankRun


class LoopStrategies(MemberPart):
    """The strategies of a member: see ``MemberPart``."""

    purpose = ByStrategy

    def __init__(self, member: LoopMember) -> None:
        self._member = member

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:  # noqa: ARG002
        from dbfs_workers.features.grid.member import GridMember

        member = self._member
        if isinstance(member, GridMember):
            from dbfs_workers.features.lab.on_grids import fold_of

            return member.traverse_levels(lambda: member.levels_with(partition, fold_of), specs, deadline)
        from dbfs_workers.features.lab.member import BaselineTraversal

        scratch = member.scratch_of(partition)
        return traverse_each(
            lambda some: [BaselineTraversal(scratch, spec, member.loop_exchange) for spec in some],
            specs,
            member.loop_exchange,
            watch=member.watch,
            deadline=deadline,
            stops=member.stops,
        )

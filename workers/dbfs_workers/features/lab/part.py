"""Strategies of the laboratory on a rank that runs the level loop: baselines on one rank, and levels on a grid."""

from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.lab.purpose import ByStrategy
from dbfs_workers.search.levels.traversals import traverse_each
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import RankRun


class LoopStrategies(MemberPart):
    """The strategies of a member: see ``MemberPart``."""

    purpose = ByStrategy

    def __init__(self, runner: LoopRunner) -> None:
        self._runner = runner

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:  # noqa: ARG002
        from dbfs_workers.features.grid.runner import GridRunner

        runner = self._runner
        if isinstance(runner, GridRunner):
            from dbfs_workers.features.lab.on_grids import fold_of

            return runner.traverse_levels(lambda: runner.levels_with(partition, fold_of), specs, deadline)
        from dbfs_workers.features.lab.member import BaselineTraversal

        scratch = runner.scratch_of(partition)
        return traverse_each(
            lambda some: [BaselineTraversal(scratch, spec, runner.loop_exchange) for spec in some],
            specs,
            runner.loop_exchange,
            watch=runner.watch,
            deadline=deadline,
            stops=runner.member.stops,
        )

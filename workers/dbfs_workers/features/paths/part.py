"""Searches between two vertices on a rank of CPU cores that runs the level loop."""

from typing import TYPE_CHECKING

from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.paths.purpose import COUNTS, DISTANCES, PairSearch
from dbfs_workers.search.levels.traversals import traverse_each
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import RankRun

if TYPE_CHECKING:
    from dbfs_workers.features.paths.search import PathMemory


class LoopPaths(MemberPart):
    """The searches between two vertices of a member: see ``MemberPart``."""

    purpose = PairSearch

    def __init__(self, runner: LoopRunner) -> None:
        self._runner = runner
        self._memory: PathMemory | None = None

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:  # noqa: ARG002
        from dbfs_workers.base import compiling
        from dbfs_workers.features.paths.kernels import NEEDED

        compiling.prepare(NEEDED)
        from dbfs_workers.features.paths.counting import CountRun
        from dbfs_workers.features.paths.search import PairRun, PathMemory

        runner, purpose = self._runner, specs.options.purpose
        assert isinstance(purpose, PairSearch)
        if self._memory is None:
            self._memory = PathMemory(partition.stripe)
        memory = self._memory
        many = purpose.wants == DISTANCES and len(specs[0].sources) > 2 and partition.stripe.p == 1
        team = runner.scratch_of(partition).team if many else None
        kind = CountRun if purpose.wants == COUNTS else PairRun
        try:
            return traverse_each(
                lambda some: [kind(partition, spec, runner.loop_exchange, memory, team) for spec in some],
                specs,
                runner.loop_exchange,
                watch=runner.watch,
                deadline=deadline,
            )
        except BaseException:
            # A search that ended early has left vertices in it.
            self._memory = None
            raise

    def free(self) -> None:
        self._memory = None

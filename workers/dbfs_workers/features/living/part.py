"""A living graph in a rank's member: the log of its versions, updates and repairs; here on a member of CPU cores."""

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.features.living.change_log import ChangeLog
from dbfs_workers.features.living.purpose import Repair, place_of
from dbfs_workers.features.living.update_spec import UpdateSpec
from dbfs_workers.search.levels.traversals import traverse_each
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.search.members.member import Member, Runner
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.partition.partition import GraphTotals, Partition
from dbfs_workers.search.reports import RankRun

if TYPE_CHECKING:
    from dbfs_workers.features.living.repair import RepairLoop
    from dbfs_workers.features.living.versions import NextVersion

R = TypeVar("R", bound=Runner)


class LivingPart(MemberPart, Generic[R]):
    """What a member keeps of a living graph: see ``MemberPart``. ``worker.Updates`` calls the methods below.

    Attributes:
        log: the changes that made the latest versions.
        takes_over: whether ``take_over`` has anything to do.
    """

    purpose = Repair
    takes_over = False

    def __init__(self, runner: R) -> None:
        self._runner = runner
        self.log = ChangeLog()

    def updated(
        self, partition: Partition, spec: UpdateSpec, edges: Any | None = None, in_edges: Any | None = None
    ) -> "NextVersion":
        """Return the next version of the partition; see ``versions.updated``. Called in the member's thread.

        Raises:
            GraphTooLargeError, InvalidVertexError: see there.
        """
        # Imported here, because the import compiles kernels, which takes the event loop's time once.
        from dbfs_workers.features.living.versions import updated

        return updated(partition, spec, edges, in_edges, self._runner.free_bytes)

    def update_keys(
        self, partition: Partition, src: NDArray[np.uint32], dst: NDArray[np.uint32], symmetrise: bool
    ) -> tuple[Any, Any | None]:
        """Return the keys of an update's edges; see ``versions.update_keys``. Called in the member's thread.

        Raises:
            GraphTooLargeError: see there.
        """
        from dbfs_workers.features.living.versions import update_keys

        return update_keys(partition, src, dst, symmetrise=symmetrise, free_bytes=self._runner.free_bytes)

    def take_over(self, partition: Partition, totals: GraphTotals, facts: Any) -> None:
        """Make ready to traverse a new version of the partition from now on. Called in the member's thread.

        Args:
            partition: the version.
            totals: its counts over all ranks.
            facts: see ``NextVersion``.
        """


class LoopLiving(LivingPart[LoopRunner]):
    """A living graph on CPU cores: see ``LivingPart``."""

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:  # noqa: ARG002
        from dbfs_workers.features.living.repair import EarlierLabels, RepairLoop
        from dbfs_workers.search.levels.loop import LevelLoop

        runner, member = self._runner, self._runner.member

        def repair(spec: TraversalSpec) -> "RepairLoop":
            place = place_of(spec.purpose)
            kept, earlier = member.kept.get(place), None
            if kept is not None:
                versions = kept.version, partition.version
                earlier = EarlierLabels(
                    kept.labels,
                    self.log.count(*versions),
                    lambda: self.log.between(*versions),
                    min(kept.seconds, member.fastest),
                    kept.depth,
                    lambda: member.kept.pop(place),
                )
            return RepairLoop(
                partition, spec, runner.loop_exchange, earlier, lambda: LevelLoop(runner.levels(partition), spec)
            )

        return traverse_each(
            lambda some: [*map(repair, some)], specs, runner.loop_exchange, watch=runner.watch, deadline=deadline
        )


def living_of(member: Member) -> LivingPart[Runner]:
    """Return a member's part for living graphs."""
    return next(part for part in member.parts if isinstance(part, LivingPart))

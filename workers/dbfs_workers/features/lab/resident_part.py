"""Strategies of the laboratory, and linked pages, on a GPU whose resident kernels make other traversals."""

from collections.abc import Iterator
from typing import Any

from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.lab import linked
from dbfs_workers.features.lab import member as laboratory
from dbfs_workers.features.lab.pages import LinkedPages
from dbfs_workers.features.lab.purpose import ByStrategy, strategy_of
from dbfs_workers.features.living.gpu_parts import ResidentLiving, RowsForm
from dbfs_workers.features.living.update_spec import UpdateSpec
from dbfs_workers.features.living.versions import NextVersion
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.members.resident import ResidentRunner
from dbfs_workers.search.partition.partition import GraphTotals, Partition
from dbfs_workers.search.reports import RankRun


class ResidentStrategies(MemberPart, RowsForm):
    """The strategies of a member, and the linked pages of its living graph: see ``MemberPart`` and ``RowsForm``.

    Args:
        runner: the member's runner.
        living: the part for living graphs, which learns of the pages.
    """

    purpose = ByStrategy

    def __init__(self, runner: ResidentRunner, living: ResidentLiving) -> None:
        self._runner = runner
        self._pages: LinkedPages | None = None
        living.form = self

    def make(self, partition: Partition) -> None:
        if isinstance(partition, linked.LinkedPartition):
            self._pages = partition.out_pages.latest.pages

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> Iterator[RankRun]:
        runner = self._runner
        runner.member.require_room(partition.stripe, specs)
        for spec in specs:
            pages = self._pages if strategy_of(spec).policy.storage == "pages" else None
            run = laboratory.traverse_on_gpu(
                pages or runner.graph(), spec, deadline, lambda where: runner.raise_if_stopped(number, where)
            )
            run.version = partition.version
            yield run

    def free(self) -> None:
        self._pages = None

    def makes(self, partition: Partition, spec: UpdateSpec) -> bool:
        return spec.kind == "link" or isinstance(partition, linked.LinkedPartition)

    def updated(self, partition: Partition, spec: UpdateSpec, edges: Any | None, where: str) -> NextVersion:
        return linked.updated(partition, spec, edges, where)

    def take_over(self, partition: Partition, totals: GraphTotals, facts: Any) -> bool:
        """See ``RowsForm``. The engines read a copy of the pages, made for the next run that needs it."""
        if not isinstance(partition, linked.LinkedPartition):
            return False
        runner = self._runner
        self._pages = linked.commit(partition, facts)
        if runner.unread or facts.update or runner.graph().stripe != partition.stripe:
            runner.read(partition, totals, None)
        return True

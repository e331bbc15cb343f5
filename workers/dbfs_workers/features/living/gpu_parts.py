"""A living graph in a rank's member on a GPU, whether resident kernels or the level loop make its traversals."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.features.living import cuda_repair as repair
from dbfs_workers.features.living.cuda_versions import update_keys, updated
from dbfs_workers.features.living.part import LivingPart, R
from dbfs_workers.features.living.purpose import place_of
from dbfs_workers.features.living.update_spec import UpdateSpec
from dbfs_workers.features.living.versions import NextVersion
from dbfs_workers.search.cuda import failures
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.search.members.member import OwnedLabels
from dbfs_workers.search.members.resident import ResidentRunner, on_device
from dbfs_workers.search.partition.labels import ChangedRows
from dbfs_workers.search.partition.partition import GraphTotals, Partition
from dbfs_workers.search.reports import COUNT_FIELDS, TIME_FIELDS, CountedLevels, RankRun


class LivingOnGpu(LivingPart[R]):
    """A living graph on a GPU: see ``LivingPart``."""

    def updated(
        self, partition: Partition, spec: UpdateSpec, edges: Any | None = None, in_edges: Any | None = None
    ) -> "NextVersion":
        import cupy

        with failures.typed_errors(f"rank {self._runner.member.rank}, changing its edges"):
            following = updated(partition, spec, edges, in_edges)
            # Runs use streams of their own.
            cupy.cuda.get_current_stream().synchronize()
            return following

    def update_keys(
        self, partition: Partition, src: NDArray[np.uint32], dst: NDArray[np.uint32], symmetrise: bool
    ) -> tuple[Any, Any | None]:

        with failures.typed_errors(f"rank {self._runner.member.rank}, binning a batch"):
            return update_keys(partition, src, dst, symmetrise=symmetrise)


class LoopLivingOnGpu(LivingOnGpu[LoopRunner]):
    """A living graph on a GPU that the level loop traverses: see ``LivingPart``. Repairs are new traversals."""

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:  # noqa: ARG002
        kept = self._runner.member.kept.get(place_of(specs.options.purpose))
        anew = replace(specs, options=replace(specs.options, purpose=None))
        runs = self._runner.traverse_levels(lambda: self._runner.levels(partition), anew, deadline)
        return [_with_changed(run, kept) for run in runs]


class RowsForm(ABC):
    """Another form in which a GPU has the rows of a living graph, beside the CSR that resident kernels read."""

    @abstractmethod
    def makes(self, partition: Partition, spec: UpdateSpec) -> bool:
        """Return whether an update of a partition makes a version in this form."""

    @abstractmethod
    def updated(self, partition: Partition, spec: UpdateSpec, edges: Any | None, where: str) -> "NextVersion":
        """Return the next version; ``where`` is for errors. See ``LivingPart``."""

    @abstractmethod
    def take_over(self, partition: Partition, totals: GraphTotals, facts: Any) -> bool:
        """Take a version over if it is in this form; return whether it is. See ``LivingPart``."""


class ResidentLiving(LivingOnGpu[ResidentRunner]):
    """A living graph on a GPU that resident kernels traverse: see ``LivingPart``.

    Attributes:
        form: another form of the rows; None if there is none.
    """

    takes_over = True

    def __init__(self, runner: ResidentRunner) -> None:
        super().__init__(runner)
        self.form: RowsForm | None = None

    def updated(
        self, partition: Partition, spec: UpdateSpec, edges: Any | None = None, in_edges: Any | None = None
    ) -> "NextVersion":
        where = f"rank {self._runner.member.rank}, changing its edges"
        if self._runner.leading is not None:
            # Of the version before. The next one needs the memory.
            self._runner.leading.drop()
        if self.form is not None and self.form.makes(partition, spec):
            with failures.typed_errors(where):
                return self.form.updated(partition, spec, edges, where)
        following = super().updated(partition, spec, edges, in_edges)
        with failures.typed_errors(where):
            return replace(following, facts=on_device(following.partition))

    def take_over(self, partition: Partition, totals: GraphTotals, facts: Any) -> None:
        with failures.typed_errors(f"rank {self._runner.member.rank}, taking version {partition.version} over"):
            if self.form is None or not self.form.take_over(partition, totals, facts):
                self._runner.read(partition, totals, facts)

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> Iterator[RankRun]:
        runner, member = self._runner, self._runner.member
        member.require_room(partition.stripe, specs)
        for spec in specs:
            runner.raise_if_stopped(number, f"rank {member.rank}, before a repair")
            kept = member.kept.get(place_of(spec.purpose))
            repaired = self._repaired(partition, spec, kept)
            if repaired is None:
                (run,) = runner.traverse_all(number, RunSpec.single(spec), deadline)
                run.version = partition.version
                repaired = _with_changed(run, kept)
            yield repaired

    def _repaired(self, partition: Partition, spec: TraversalSpec, kept: OwnedLabels | None) -> RankRun | None:
        """Repair labels; None if a new traversal has to take the place of the repair.

        Args:
            partition: the version to repair to.
            spec: the traversal whose labels are repaired.
            kept: the labels; None if the rank has none.
        """

        graph, whole = self._runner.graph(), spec.max_depth is None and not spec.targets
        if kept is None or kept.labels.predecessors is None or not whole or not repair.can_repair(graph, kept.seconds):
            return None
        changes = self.log.between(kept.version, partition.version)
        if changes is None:
            return None
        began = time.perf_counter()
        # Predecessors are of no version until the repair ends.
        self._runner.member.kept.pop(place_of(spec.purpose))
        done = repair.repair(graph, kept.labels, changes, kept.seconds)
        if done is None:
            return None
        return RankRun(
            labels=done.labels,
            levels=CountedLevels.of(np.empty((0, len(COUNT_FIELDS)), np.int64), np.empty((0, len(TIME_FIELDS)))),
            reached=done.reached,
            edges=done.edges,
            depth=done.depth,
            elapsed=done.seconds,
            setup=time.perf_counter() - began - done.seconds,
            version=partition.version,
            changed=done.changed,
            traversal_seconds=kept.seconds,
        )


def _with_changed(run: RankRun, kept: OwnedLabels | None) -> RankRun:
    """Return a new traversal in the place of a repair, with the rows whose distance has changed.

    Args:
        run: the traversal.
        kept: the labels that were to be repaired; None if the rank has none.
    """
    import cupy

    now = run.labels.distances
    run.changed = ChangedRows.where(now >= 0 if kept is None else now != kept.labels.distances)
    # Runs use streams of their own, and one of them may get the memory of the labels before.
    cupy.cuda.get_current_stream().synchronize()
    return run

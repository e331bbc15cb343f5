"""Batches on a GPU whose resident kernels make traversals. Their kernels are launched level by level.

The ranks cross on the host, by a barrier of their own. What the peers have mapped of a batch stays between runs, since
mapping takes longer than a batch; it goes if a rank needs the memory.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from dbfs_workers.base.errors import NoRoomForLabelsError
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.batches.purpose import Batch
from dbfs_workers.features.batches.words import MappedMemory
from dbfs_workers.search.members.crossing import CrossingPart, barrier_of
from dbfs_workers.search.members.resident import ResidentRunner
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import RankProgress, RankRun
from dbfs_workers.search.reports.crossings import Most

if TYPE_CHECKING:
    from dbfs_workers.features.batches.levels import BatchLevels

# Share of the free memory that batches may keep during other runs.
_SHARE: Final = 1 / 4


class MappingPart(CrossingPart):
    """A part whose ranks cross on the host, and map memory of each other's GPUs."""

    def __init__(self, runner: ResidentRunner) -> None:
        super().__init__(runner)
        # What peers map.
        self._memory = MappedMemory()

    def offer(self) -> Any:
        self._memory.unmap()
        return super().offer()

    def connect(self, offers: Sequence[Any]) -> None:
        self._memory.free()
        super().connect(offers)

    def disconnect(self) -> None:
        self._memory.unmap()

    def free(self) -> None:
        self._memory.unmap()
        self._memory.free()
        super().free()


class ResidentBatches(MappingPart):
    """The batches of a member: see ``MemberPart``.

    Attributes:
        levels: what has run the levels of the last batch; None after its memory was freed.
    """

    purpose = Batch

    def __init__(self, runner: ResidentRunner) -> None:
        super().__init__(runner)
        self.levels: BatchLevels | None = None
        # The end of the batch under way.
        self._deadline = 0.0

    def connect(self, offers: Sequence[Any]) -> None:
        self.levels = None
        super().connect(offers)

    def progress(self, number: int) -> RankProgress | None:
        watch = self._watch
        return None if watch is None or watch.number != number else watch.progress()

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:
        from dbfs_workers.search.levels.loop import traverse

        runner = self._runner
        if self.barrier is None:
            self.barrier = barrier_of(partition.stripe, runner.member.rank, runner.graph_id)
            self.barrier.connect([self.barrier.offer()])
        watch = self._watch_run(number)
        self._deadline = deadline
        try:
            runs = traverse(
                lambda: self._levels(partition, specs),
                specs,
                self.barrier,
                watch=watch,
                deadline=deadline,
                stops=runner.member.stops,
            )
        except BaseException:
            if self.levels is not None:
                self.levels.reset()
            raise
        for run in runs:
            run.version = partition.version
        return runs

    def make_room(self, partition: Partition, specs: RunSpec, number: int, deadline: float) -> None:
        """Free what the batches before have left, on all ranks together, if a rank needs the memory."""
        levels = self.levels
        if levels is None or self.barrier is None or self._stays(levels, partition, specs):
            return
        self._watch_run(number)
        self.barrier.begin(specs.options.run_id, number, deadline)
        self._free_if_wanted(levels, partition, specs, levels.nbytes > _SHARE * self._runner.free_bytes())
        self._watch = None

    def free(self) -> None:
        self.levels = None
        super().free()

    def _stays(self, levels: "BatchLevels", partition: Partition, specs: RunSpec) -> bool:
        """Return whether all ranks keep the memory without asking: they ask each other before a run's first burst."""
        return specs.options.run_id == self._runner.member.checked_run and not _is_of_before(levels, partition)

    def _free_if_wanted(self, levels: "BatchLevels", partition: Partition, specs: RunSpec, large: bool) -> None:
        """Cross; free the memory if a rank wants that. A rank also wants it if the run has no room, or is ``large``."""
        assert self.barrier is not None
        wanted = large or _is_of_before(levels, partition)
        try:
            self._runner.member.require_room(partition.stripe, specs)
        except NoRoomForLabelsError:
            wanted = True
        if self.barrier.cross(0, "memory of a batch", Most(wanted), sliced=False).most:
            levels.close()
            self.levels = None

    def _levels(self, partition: Partition, specs: RunSpec) -> "BatchLevels":
        """Return what runs the levels of batches. The run has begun to cross."""
        if self.levels is not None and not self._stays(self.levels, partition, specs):
            self._free_if_wanted(self.levels, partition, specs, large=False)
        self._runner.member.require_room(partition.stripe, specs)
        levels = self.levels or self._new_levels(partition)
        levels.scratch.partition = partition
        self.levels = levels if partition.stripe.p > 1 else None
        return levels

    def _new_levels(self, partition: Partition) -> "BatchLevels":
        import cupy

        from dbfs_workers.features.batches.levels import BatchLevels, LoneTraversal, Placement, operators_of
        from dbfs_workers.features.batches.storage import BatchScratch
        from dbfs_workers.features.batches.words import BatchWords, MappedWords, OwnWords
        from dbfs_workers.search import backends

        def alone(specs: RunSpec) -> Iterator[LoneTraversal]:
            for run in self._runner.traverse_all(self._runner.member.number, specs, self._deadline):
                yield LoneTraversal(run.labels.distances, run.depth, run.reached, run.edges)

        assert self.barrier is not None
        barrier, memory = self.barrier, self._memory

        def place(part: Partition) -> Placement:
            operators, mapped = operators_of(backends.get("cuda")), part.stripe.p > 1
            zeros = memory.zeros if mapped else cupy.zeros
            scratch = BatchScratch(part, cupy, zeros, in_edges=part.parents is not None, together=True)
            words: BatchWords = MappedWords(scratch, operators, barrier, memory) if mapped else OwnWords(scratch)
            return Placement(scratch, operators, words)

        return BatchLevels(place(partition), place, barrier, self._runner.free_bytes, alone, together=True)


def _is_of_before(levels: "BatchLevels", partition: Partition) -> bool:
    """Return whether the last batch was of another version."""
    # All ranks agree on versions. Partitions of one version may be one object on some ranks and two on others.
    return levels.scratch.partition.version != partition.version

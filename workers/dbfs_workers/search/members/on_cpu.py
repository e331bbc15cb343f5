"""A rank on the CPU: the member that runs the level loop over an exchange of the host."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from dbfs_workers.base import compiling
from dbfs_workers.base.errors import NoRoomForLabelsError
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.base.team import Team
from dbfs_workers.features.lab.strategies import STRATEGIES, parse
from dbfs_workers.search import backends
from dbfs_workers.search.cpu.kernels import TEAM
from dbfs_workers.search.cpu.row_threads import RowThreads
from dbfs_workers.search.exchange.protocol import Cause, Exchange, GangExchange
from dbfs_workers.search.levels.traversals import Watch, traverse_each
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.partition.labels import LabelPool, RankLabels
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import RankProgress, RankRun

if TYPE_CHECKING:
    from dbfs_workers.search.levels.rank_levels import RankLevels

_TEAM: Final = compiling.Optional(*TEAM)
# Largest share of the memory that labels may fill which the pool of released labels keeps.
_POOL_SHARE: Final = 1 / 16


class LoopMember(Member):
    """A member that runs ``levels.loop.traverse`` with a ``Scratch`` and an exchange. See ``Member``.

    Args:
        rank, partition_key: see ``Member``.
        exchange: see below.
        threads: threads that share the rank's work.

    Attributes:
        backend: name of the backend that runs the phases.
        exchange: this rank's end of the exchange in host memory. It takes aborts and the messages of peers.
    """

    backend = "cpu"
    burst_seconds = 1.0

    def __init__(self, rank: int, partition_key: Any, exchange: GangExchange, threads: int = 1) -> None:
        super().__init__(rank, partition_key)
        self._threads = threads
        self._team: Team | None = None
        self._row_threads = RowThreads(threads)
        self.exchange = exchange
        # The exchange that the level loop crosses. ``StagedMember`` puts its own in front of ``exchange``.
        self._loop_exchange: Exchange = exchange
        self._scratch: Any = None
        # The value of ``latest`` when the scratch was made.
        self._traversed: Partition | None = None
        # Pool for labels in the host's memory.
        self._pool: LabelPool | None = None
        self._watch: Watch | None = None

    def offer(self) -> Any:
        """See ``Member``."""
        return self.exchange.offer()

    def connect(self, offers: Sequence[Any]) -> None:
        """See ``Member``."""
        self.exchange.connect(offers)

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:
        """See ``Member``. The first traversal of a version allocates the scratch."""
        try:
            self.require_room(partition.stripe, specs)
        except NoRoomForLabelsError as error:
            # The peers would wait for this rank until the deadline.
            self.abort(number, Cause.FAILED, str(error))
            raise
        if self._pool is None and self._scratch is None:
            self._pool = LabelPool(partition.stripe.n_local, int(_POOL_SHARE * self.room.total_bytes()))
        self._watch = Watch(number)
        return self._traverse_each(partition, specs, self._watch, deadline)

    def progress(self, number: int) -> RankProgress | None:
        """See ``Member``."""
        watch = self._watch
        return None if watch is None or watch.number != number else watch.progress()

    def fetch(self, labels: RankLabels) -> RankLabels:
        """Return the labels as they are: NumPy arrays."""
        if self._pool is not None:
            # A task of a user may write them.
            for label in (labels.distances, labels.predecessors):
                if label is not None:
                    self._pool.forget_owner(label)
        return labels

    def free_bytes(self) -> int:
        """See ``Member``."""
        return self.room.free_bytes() + self.pooled_bytes()

    def pooled_bytes(self) -> int:
        """See ``Member``."""
        return 0 if self._pool is None else self._pool.nbytes

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        """Stop a run on all ranks by their next crossing."""
        self.exchange.abort(number, cause, message, rank)

    def _make_scratch(self, partition: Any, pool: LabelPool | None) -> Any:
        from dbfs_workers.search.partition.scratch import Scratch

        return Scratch(partition, backends.get(self.backend).xp, pool)

    def _scratch_of(self, partition: Any) -> Any:
        """Return the scratch of a version."""
        if self._scratch is None:
            self._scratch = self._make_scratch(partition, self._pool)
        elif self._traversed is not self.latest:
            self._scratch.take(partition)
        self._traversed = self.latest
        self._scratch.team = self._team_for(partition)
        return self._scratch

    def _team_for(self, partition: Any) -> Team | None:
        """Return the threads that share the work on a version; None if no level is large enough for several."""
        from dbfs_workers.search.cpu.team_calls import LEAST_EDGES, LEAST_ROWS

        if self._threads == 1 or (partition.m_local < LEAST_EDGES and partition.stripe.n < LEAST_ROWS):
            return None
        if self._team is None and _TEAM.ready():
            # Imported here because the import compiles kernels.
            from dbfs_workers.search.cpu.kernels import team_tasks as cpu_team_task_kernels

            self._team = Team(self._threads, cpu_team_task_kernels.serve, cpu_team_task_kernels.end)
        return self._team

    def _levels(self, partition: Any) -> "RankLevels[Any]":
        """Return what runs the levels of the rank."""
        from dbfs_workers.search.levels.rank_levels import StripeLevels

        scratch = self._scratch_of(partition)
        return StripeLevels(backends.get(self.backend), scratch, self._loop_exchange, self.room.free_bytes)

    def _batch_levels(self, partition: Any) -> "RankLevels[Any]":
        """Return what runs the levels of batches."""
        from dbfs_workers.features.batches.levels import levels_of_batches

        backend = backends.get(self.backend)
        # Not ``self.free_bytes``: the pool of a CPU rank serves labels only.
        free_bytes = self.room.free_bytes if self.backend == "cpu" else self.free_bytes
        exchange = self._loop_exchange
        return levels_of_batches(self._levels(partition), backend, exchange, free_bytes, self._row_threads)

    def _traverse_each(self, partition: Partition, specs: RunSpec, watch: Watch, deadline: float) -> list[RankRun]:
        # Imported here because the import compiles kernels.
        from dbfs_workers.search.levels.loop import LevelLoop, traverse

        if specs.options.strategy and not STRATEGIES[parse(specs.options.strategy).strategy].grid:
            from dbfs_workers.features.lab.member import BaselineTraversal

            laboratory_scratch = self._scratch_of(partition)
            return traverse_each(
                lambda some: [BaselineTraversal(laboratory_scratch, spec, self._loop_exchange) for spec in some],
                *(specs, self._loop_exchange),
                watch=watch,
                deadline=deadline,
                stops=self._stops,
            )
        exchange = self._loop_exchange
        if specs.options.repairs is None:
            levels = self._batch_levels if specs.options.batch else self._levels
            return traverse(
                *(lambda: levels(partition), specs, exchange), watch=watch, deadline=deadline, stops=self._stops
            )
        from dbfs_workers.features.living.repair import Earlier, RepairLoop

        def repair(spec: TraversalSpec) -> RepairLoop:
            kept, earlier = self.kept.get(spec.repairs or ("", 0)), None
            if kept is not None:
                versions = kept.version, partition.version
                earlier = Earlier(
                    kept.labels,
                    self.log.count(*versions),
                    lambda: self.log.between(*versions),
                    min(kept.seconds, self.fastest),
                    kept.depth,
                    lambda: self.kept.pop(spec.repairs or ("", 0)),
                )
            return RepairLoop(partition, spec, exchange, earlier, lambda: LevelLoop(self._levels(partition), spec))

        return traverse_each(lambda some: [*map(repair, some)], specs, exchange, watch=watch, deadline=deadline)

    def _free(self) -> None:
        self.exchange.close()
        if self._team is not None:
            self._team.close()
        self._row_threads.close()
        self._loop_exchange = self.exchange
        self._scratch = self._traversed = None
        if self._pool is not None:
            self._pool.close()

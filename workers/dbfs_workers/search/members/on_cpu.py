"""A rank on the CPU: the member that runs the level loop over an exchange of the host."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from dbfs_workers.base import compiling
from dbfs_workers.base.errors import InvalidOptionError, NoRoomForLabelsError
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.base.team import Tasks, Team
from dbfs_workers.search import backends
from dbfs_workers.search.cpu.kernels import TEAM
from dbfs_workers.search.exchange.protocol import Cause, Exchange, GangExchange
from dbfs_workers.search.levels.traversals import Watch
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
        threads: see below.

    Attributes:
        backend: name of the backend that runs the phases.
        exchange: this rank's end of the exchange in host memory. It takes aborts and the messages of peers.
        loop_exchange: the exchange that the levels cross. ``StagedMember`` puts its own in front of ``exchange``.
        threads: threads that share the rank's work.
        watch: shows how far the run under way is.
    """

    backend = "cpu"
    burst_seconds = 1.0

    def __init__(self, rank: int, partition_key: Any, exchange: GangExchange, threads: int = 1) -> None:
        super().__init__(rank, partition_key)
        self.threads = threads
        self._team: Team | None = None
        self.exchange = exchange
        self.loop_exchange: Exchange = exchange
        self._scratch: Any = None
        # The value of ``latest`` when the scratch was made.
        self._traversed: Partition | None = None
        # Pool for labels in the host's memory.
        self._pool: LabelPool | None = None
        self.watch = Watch(0)

    def offer(self) -> Any:
        """See ``Member``."""
        return self.exchange.offer()

    def connect(self, offers: Sequence[Any]) -> None:
        """See ``Member``."""
        self.exchange.connect(offers)

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:
        """See ``Member``. The first traversal of a version allocates the scratch."""
        purpose = specs.options.purpose
        try:
            part = None if purpose is None else self.part_for(purpose)
            self.require_room(partition.stripe, specs)
        except (NoRoomForLabelsError, InvalidOptionError) as error:
            # The peers would wait for this rank until the deadline.
            self.abort(number, Cause.FAILED, str(error))
            raise
        if self._pool is None and self._scratch is None:
            self._pool = LabelPool(partition.stripe.n_local, int(_POOL_SHARE * self.room.total_bytes()))
        self.watch = Watch(number)
        if part is None:
            return self.traverse_levels(lambda: self.levels(partition), specs, deadline)
        return [*part.traverse(partition, number, specs, deadline)]

    def traverse_levels(
        self, levels: Callable[[], "RankLevels[Any]"], specs: RunSpec, deadline: float
    ) -> list[RankRun]:
        """Make the traversals of a run by the loop, with the levels that a function returns."""
        # Imported here because the import compiles kernels.
        from dbfs_workers.search.levels.loop import traverse

        return traverse(levels, specs, self.loop_exchange, watch=self.watch, deadline=deadline, stops=self.stops)

    def progress(self, number: int) -> RankProgress | None:
        """See ``Member``."""
        watch = self.watch
        return watch.progress() if watch.number == number else None

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

    def scratch_of(self, partition: Any) -> Any:
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

        if self.threads == 1 or (partition.m_local < LEAST_EDGES and partition.stripe.n < LEAST_ROWS):
            return None
        if self._team is None:
            tasks = self._team_tasks()
            self._team = None if tasks is None else Team(self.threads, tasks)
        return self._team

    def _team_tasks(self) -> Tasks | None:
        """Return the tasks that the threads share; None until their kernels are compiled."""
        if not _TEAM.ready():
            return None
        # Imported here because the import compiles kernels.
        from dbfs_workers.search.cpu.kernels.team_tasks import TASKS

        return TASKS

    def levels(self, partition: Any) -> "RankLevels[Any]":
        """Return what runs the levels of the rank."""
        from dbfs_workers.search.levels.rank_levels import StripeLevels

        scratch = self.scratch_of(partition)
        return StripeLevels(backends.get(self.backend), scratch, self.loop_exchange, self.room.free_bytes)

    def _free(self) -> None:
        self.exchange.close()
        if self._team is not None:
            self._team.close()
        for part in self.parts:
            part.free()
        self.loop_exchange = self.exchange
        self._scratch = self._traversed = None
        if self._pool is not None:
            self._pool.close()

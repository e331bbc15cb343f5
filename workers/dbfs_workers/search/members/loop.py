"""The runner that runs the level loop over an exchange, on CPU cores or on a GPU that can't map its peers' memory.

On a GPU a level costs several kernel launches; a level of the resident kernel costs one barrier. Staged through the
host, bins cross the bus twice, once at the sender and once at the receiver, and no kernel waits for a peer, so that
several ranks may share a GPU. NCCL moves bins between GPUs, each of which has one rank only.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dbfs_workers.base import compiling
from dbfs_workers.base.errors import InvalidOptionError, NoRoomForLabelsError
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.base.team import Tasks, Team
from dbfs_workers.search import backends
from dbfs_workers.search.cpu.kernels import TEAM
from dbfs_workers.search.cuda import device_memory, failures
from dbfs_workers.search.exchange.protocol import Cause, Exchange, GangExchange
from dbfs_workers.search.levels.traversals import Watch
from dbfs_workers.search.members.member import Runner
from dbfs_workers.search.partition import scratch
from dbfs_workers.search.partition.labels import LabelPool, RankLabels
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import RankProgress, RankRun

if TYPE_CHECKING:
    from dbfs_workers.search.levels.rank_levels import RankLevels

_TEAM: Final = compiling.Optional(*TEAM)
# Largest share of the memory that labels may fill which the pool of released labels keeps.
_POOL_SHARE: Final = 1 / 16
# Temporary bytes of a level on a GPU for each row: the frontier's offsets, degrees and their sums (8 bytes each), and a
# received bin with its parents.
_LEVEL_BYTES: Final = 3 * 8 + 8


class LoopRunner(Runner):
    """A runner by ``levels.loop.traverse`` with a ``Scratch`` and an exchange. See ``Runner``.

    Args:
        exchange, backend, threads: see below.

    Attributes:
        exchange: this rank's end of the exchange that the ranks set up. It takes aborts and the messages of peers.
        backend: name of the backend that runs the phases.
        threads: threads that share the rank's work on the CPU.
        loop_exchange: the exchange that the levels cross: on a GPU ``GangExchange.on_gpu``.
        watch: shows how far the run under way is.
    """

    def __init__(self, exchange: GangExchange, backend: str = "cpu", threads: int = 1) -> None:
        self.exchange, self.backend, self.threads = exchange, backend, threads
        if backend == "cpu":
            self.burst_seconds = 1.0
        self.loop_exchange: Exchange = exchange
        self._team: Team | None = None
        self._scratch: Any = None
        # The value of ``latest`` when the scratch was made.
        self._traversed: Partition | None = None
        # Pool for labels in the host's memory.
        self._pool: LabelPool | None = None
        self.watch = Watch(0)

    def make(self, partition: Partition) -> None:
        """Upload the partition and allocate the state on the GPU. Compiles the kernels that the cache lacks."""
        where = f"rank {self.member.rank}"
        device_memory.require(self.gpu_bytes(partition), where)
        with failures.typed_errors(where):
            self._scratch = self._make_scratch(partition)

    def offer(self) -> Any:
        """See ``GangExchange.offer``."""
        return self.exchange.offer()

    def connect(self, offers: Sequence[Any]) -> None:
        """See ``GangExchange.connect``."""
        self.exchange.connect(offers)

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:
        """See ``Runner``. On the CPU the first traversal of a version allocates the scratch."""
        if self.backend == "cpu":
            return self._traverse(partition, number, specs, deadline)
        with failures.typed_errors(f"rank {self.member.rank}"):
            return self._traverse(partition, number, specs, deadline)

    def _traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:
        purpose = specs.options.purpose
        try:
            part = None if purpose is None else self.member.part_for(purpose)
            on_host = part is not None and part.on_host
            if on_host:
                specs = RunSpec(replace(specs.options, backend="cpu"), specs.sources)
            self.member.require_room(partition.stripe, specs, on_host=on_host)
        except (NoRoomForLabelsError, InvalidOptionError) as error:
            # The peers would wait for this rank until the deadline.
            self.abort(number, Cause.FAILED, str(error))
            raise
        if self._pool is None and self._scratch is None:
            self._pool = LabelPool(partition.stripe.n_local, int(_POOL_SHARE * self.member.room.total_bytes()))
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

        return traverse(levels, specs, self.loop_exchange, watch=self.watch, deadline=deadline, stops=self.member.stops)

    def progress(self, number: int) -> RankProgress | None:
        """See ``Runner``."""
        watch = self.watch
        return watch.progress() if watch.number == number else None

    def fetch(self, labels: RankLabels) -> RankLabels:
        """See ``Runner``. Without a copy on the CPU."""
        if self._pool is not None:
            # A task of a user may write them.
            for label in (labels.distances, labels.predecessors):
                if label is not None:
                    self._pool.forget_owner(label)
        return labels.to_host()

    def free_bytes(self) -> int:
        """See ``Runner``."""
        room = self.member.room
        on_cpu = self.backend == "cpu"
        return room.free_bytes() + self.pooled_bytes() if on_cpu else device_memory.free_for_labels(room.share)

    def pooled_bytes(self) -> int:
        """See ``Runner``."""
        if self.backend != "cpu":
            return device_memory.pooled_bytes()
        return 0 if self._pool is None else self._pool.nbytes

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        """Stop a run on all ranks by their next crossing."""
        self.exchange.abort(number, cause, message, rank)

    def gpu_bytes(self, partition: Any) -> int:
        """Return the bytes that a rank takes on its GPU, with one traversal's labels.

        The partition is included unless it is on the GPU already.
        """
        stripe: Stripe = partition.stripe
        kept: int = partition.nbytes if isinstance(partition.columns, np.ndarray) else 0
        kept += scratch.nbytes(stripe, bottom_up=partition.parents is not None) + self.exchange.gpu_bytes(stripe)
        return kept + stripe.n_local * (2 * 4 + _LEVEL_BYTES)

    def _make_scratch(self, partition: Any) -> Any:
        backend = backends.get(self.backend)
        made = scratch.Scratch(partition, backend.xp, self._pool)
        if self.backend != "cpu":
            self.loop_exchange = self.exchange.on_gpu(backend, partition.stripe)
        return made

    def scratch_of(self, partition: Any) -> Any:
        """Return the scratch of a version."""
        if self._scratch is None:
            self._scratch = self._make_scratch(partition)
        elif self._traversed is not self.member.latest:
            self._scratch.take(partition)
        self._traversed = self.member.latest
        self._scratch.team = self._team_for(partition)
        return self._scratch

    def require_team(self, partition: Any) -> None:
        """Compile what the threads need to share the work on a version, where they do."""
        if self._shared(partition):
            _TEAM.require()

    def _shared(self, partition: Any) -> bool:
        """Return whether threads share the work on a version: no level of a small one is large enough for several."""
        from dbfs_workers.search.cpu.team_calls import LEAST_EDGES, LEAST_ROWS

        return self.threads > 1 and (partition.m_local >= LEAST_EDGES or partition.stripe.n >= LEAST_ROWS)

    def _team_for(self, partition: Any) -> Team | None:
        """Return the threads that share the work on a version.

        None stands for one thread: the version is small, or the kernels of several are not compiled yet.
        """
        if not self._shared(partition):
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

        backend, free_bytes = backends.get(self.backend), self.member.room.free_bytes
        return StripeLevels(backend, self.scratch_of(partition), self.loop_exchange, free_bytes)

    def free(self) -> None:
        """See ``MemberPart``."""
        self.exchange.close()
        if self._team is not None:
            self._team.close()
        self.loop_exchange = self.exchange
        self._scratch = self._traversed = None
        if self._pool is not None:
            self._pool.close()
        if self.backend != "cpu":
            device_memory.release_pool()

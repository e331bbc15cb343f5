"""A worker's part in one gang: its thread, the labels that it keeps, and what makes its runs.

New traversals are made by the member's runner: ``loop.LoopRunner``, ``resident.ResidentRunner`` on GPUs that map each
other's memory, or that of a ``Layout``. Runs with a purpose are made by the parts of a member, which features have.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import math
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from dbfs_workers.base.errors import InvalidOptionError, NoRoomForLabelsError, StaleRunError
from dbfs_workers.base.spec import Purpose, RunSpec, TraversalPlace
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.levels.traversals import never
from dbfs_workers.search.members import label_room
from dbfs_workers.search.members.burst import Burst
from dbfs_workers.search.members.label_room import LabelRoom
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import RankProgress, RankReport, RankRun

T = TypeVar("T")

# Traversals reach about as many rows as each other if their numbers differ by less than this factor.
_ALIKE: Final = 1.1
# Seconds between two looks whether the rank has left the gang, while a thread waits for the event loop.
_LOOK_SECONDS: Final = 0.5
# Time for the thread of a run that was aborted to leave it.
_LEAVE_SECONDS: Final = 5.0


class Runner(MemberPart):
    """The part of a member that makes new traversals, and has the parts of features make runs with a purpose.

    Attributes:
        member: the member, which sets itself.
        awake_seconds: how long a thread waits for the rank's next run before it sleeps; see ``Line``. 0 where the
            levels of the ranks need the cores.
        burst_seconds: about how long a burst takes. Another client waits for the end of a burst, or for the end of a
            traversal if the burst can stop there. Between two bursts threads of ranks and client wake,
            which takes ranks on CPU cores from their levels.
        answer_seconds: about how long the traversals of one answer take, while those of the next one run; 0 if a burst
            has one answer, at its end.
    """

    member: Member
    awake_seconds = 0.0
    burst_seconds = 0.02
    answer_seconds = 0.0

    @abstractmethod
    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> Iterable[RankRun]:
        """Take part in the traversals of a run. Called, and iterated, in the member's thread.

        Args:
            partition: this rank's edges.
            number: the gang's serial number of the run.
            specs: the traversals.
            deadline: end of all waits, in seconds of ``time.monotonic()``.

        Returns:
            The labels, counts and times of each traversal on this rank, fewer than ``specs`` if the run stopped early:
            a list, or a generator that makes the traversals as they are taken.

        Raises:
            DeadlineExceededError, RunCancelledError, RunAbortedError, WorkerLostError: the run is over on all ranks.
            StaleRunError: the number is not greater than that of the last run, or a peer is in another run.
            InvalidOptionError: a traversal is bottom-up, and the partition has no in-edges; or no part makes the run.
            NoRoomForLabelsError: the labels do not fit.
        """

    @abstractmethod
    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        """Stop a run by its next level, on this rank at least; arguments as of ``Exchange.abort``. From any thread.

        Ignored if this run was aborted before, or is over.
        """

    @abstractmethod
    def free_bytes(self) -> int:
        """Return the bytes that labels may still take in the memory of the rank's device."""

    @abstractmethod
    def pooled_bytes(self) -> int:
        """Return the bytes of released labels that the process keeps for later labels. ``free_bytes`` counts them."""

    @abstractmethod
    def fetch(self, labels: RankLabels) -> RankLabels:
        """Return labels as NumPy arrays."""


@dataclass(slots=True)
class OwnedLabels:
    """This rank's labels of one traversal.

    Attributes:
        client: id of the client that the labels belong to.
        labels: distances and predecessors, in the memory of the member's device.
        version: version of the graph that was traversed.
        seconds: time of the latest new traversal that made the labels.
        changed: the rows whose distance the repair of the labels has changed: uint32, ascending, or
            ``ChangedRows``; None for labels of a new traversal.
        depth: the largest distance.
    """

    client: str
    labels: RankLabels
    version: int = 0
    seconds: float = 0.0
    changed: Any | None = None
    depth: int = 0


class Member:
    """This worker's part in one gang.

    Args:
        rank, partition_key, runner, parts: see below.

    Attributes:
        rank: the worker's rank in the gang.
        partition_key: Dask key of the rank's partition.
        runner: makes the new traversals.
        number: the gang's serial number of the run in progress, or of the last run; 0 before the first.
        closed: whether the rank has left the gang.
        kept: labels of traversals, by run id and the traversal's index in the run.
        latest: the partition of the latest version that an update has made; None before the first update.
        fastest: least time of a traversal that reached about as many rows as any has, in seconds; infinite at first.
        stops: returns whether the burst under way is to stop before its next traversal.
        parts: what features keep in the member.
        room: the worker's memory that labels may fill. The worker's plugin sets it.
        in_use: held by the one thread that makes a run: the member's, or one of ``turns``.
    """

    room = LabelRoom()

    def __init__(self, rank: int, partition_key: Any, runner: Runner, parts: Iterable[MemberPart] = ()) -> None:
        self.rank = rank
        self.partition_key = partition_key
        self.runner = runner
        self.parts = tuple(parts)
        self._makers: tuple[MemberPart, ...] = runner, *self.parts
        runner.member = self
        # One thread, because the runs of a gang come one after another, and because the exchange and the state on the
        # GPU may be used by one thread only.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="dbfs-run")
        self.in_use = threading.Lock()
        self.number = 0
        self.closed = False
        self._following = 0
        self.stops: Callable[[], bool] = never
        # The run that was checked for room last, and how many of its later traversals that check counted.
        self._roomy = ("", 0)
        self._reached, self.fastest = 0, math.inf
        self.latest: Partition | None = None
        self.kept: dict[tuple[str, int], OwnedLabels] = {}

    def part_for(self, purpose: Purpose) -> MemberPart:
        """Return the part that makes the runs of a purpose.

        Raises:
            InvalidOptionError: there is none.
        """
        for part in self.parts:
            if isinstance(purpose, part.purpose):
                return part
        raise InvalidOptionError(f"rank {self.rank} makes no {type(purpose).__name__}: its worker has no part for that")

    def make(self, partition: Partition) -> None:
        """Make ready to offer and to run, on a GPU. Called in the member's thread, once.

        Raises:
            ImportError: CuPy can't be imported.
            GraphTooLargeError: the GPU has too little free memory.
            DeviceFailedError: CUDA failed.
            ExchangeUnavailableError: there are more ranks than the exchange serves.
        """
        for maker in self._makers:
            maker.make(partition)

    def offer(self) -> list[Any]:
        """See ``GangExchange.offer``. Called in the member's thread, while no run is made; so in the next two."""
        return [maker.offer() for maker in self._makers]

    def connect(self, offers: Sequence[list[Any]]) -> None:
        """See ``GangExchange.connect``. After a failed run this also clears the state of the run."""
        for maker, of_ranks in zip(self._makers, zip(*offers, strict=True), strict=True):
            maker.connect(of_ranks)

    def disconnect(self) -> None:
        """Unmap the peers' GPU memory. All ranks must do so before any of them closes."""
        for maker in self._makers:
            maker.disconnect()

    def progress(self, number: int) -> RankProgress | None:
        """Return how far a run is. None if it is not in progress here, or before its first level. From any thread."""
        # The parts first: a batch has the runner make traversals.
        found = (maker.progress(number) for maker in reversed(self._makers))
        return next((progress for progress in found if progress is not None), None)

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call ``work`` in the member's thread, after the calls queued there, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self.alone, work, *arguments)

    def make_burst(
        self,
        partition: Partition,
        burst: Burst,
        stops: Callable[[], bool] = never,
    ) -> Generator[RankReport, None, None]:
        """Release labels, take part in consecutive traversals of a run, keep their labels, and yield their reports.

        Iterated in the member's thread, or in the thread of a line that holds ``in_use``.

        Args:
            partition: this rank's edges.
            burst: the traversals.
            stops: see ``traverse_each``. Runners that make a burst's traversals in another way make all of them.

        Yields:
            The reports of the traversals that were made.

        Raises:
            DbfsError: see ``Runner.traverse``.
        """
        end = time.monotonic() + burst.deadline
        self.number = burst.number
        self._following, self.stops = burst.following, stops
        self.drop(burst.dropped)
        try:
            options = burst.specs.options
            purpose = options.purpose
            replaced = None if purpose is None else purpose.replaced
            for index, run in enumerate(self.runner.traverse(partition, burst.number, burst.specs, end), burst.first):
                seconds = run.elapsed
                if replaced is not None:
                    seconds = run.traversal_seconds or seconds
                    self.kept.pop(replaced, None)
                elif purpose is None and options.max_depth is None and not options.targets:
                    self._note_speed(run)
                self.kept[options.run_id, index] = OwnedLabels(
                    burst.client, run.labels, run.version, seconds, run.changed, run.depth
                )
                yield RankReport.of(run)
        finally:
            self._following, self.stops = 0, never

    def _note_speed(self, run: RankRun) -> None:
        """Keep the least time of the traversals that reached about as much as any did: the first ones are slow."""
        if run.reached > _ALIKE * self._reached:
            self._reached, self.fastest = run.reached, run.elapsed
        elif run.reached * _ALIKE >= self._reached:
            self.fastest = min(self.fastest, run.elapsed)

    def wait_for(self, future: Future[T]) -> T:
        """Return what the event loop does for a thread of this rank. Called in that thread.

        Raises:
            StaleRunError: the rank left the gang meanwhile.
            Exception: the future has it.
        """
        while not concurrent.futures.wait([future], timeout=_LOOK_SECONDS).done:
            if self.closed:
                raise StaleRunError(f"rank {self.rank} left the gang")
        return future.result()

    def forget(self, client: str) -> None:
        """Release the labels of a client."""
        for place in [place for place, kept in list(self.kept.items()) if kept.client == client]:
            self.kept.pop(place, None)

    def alone(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call ``work`` in a thread that may not be the member's. Waits until no other thread uses the member."""
        with self.in_use:
            return work(*arguments)

    def require_room(self, stripe: Stripe, specs: RunSpec, *, on_host: bool = False) -> None:
        """Check that the labels of a run will fit beside those that this worker keeps. Called in the member's thread.

        The check of a burst counts the traversals that follow. Their own bursts are not checked again. ``on_host`` is
        as of ``MemberPart``.

        Raises:
            NoRoomForLabelsError: see ``label_room.require``.
        """
        run_id, counted = self._roomy
        if specs.options.run_id == run_id and len(specs) + self._following <= counted:
            self._roomy = run_id, self._following
            return
        self._require_room(stripe, specs, on_host=on_host)
        self._roomy = specs.options.run_id, self._following

    def has_room(self, stripe: Stripe, specs: RunSpec, beside: int) -> bool:
        """Return whether the labels of a run will fit beside those kept and so many bytes. ``checked_run`` stays."""
        try:
            self._require_room(stripe, specs, beside)
        except NoRoomForLabelsError:
            return False
        return True

    def _require_room(self, stripe: Stripe, specs: RunSpec, beside: int = 0, *, on_host: bool = False) -> None:
        free, pooled = self.runner.free_bytes, self.runner.pooled_bytes
        if on_host:
            free, pooled = self.room.free_bytes, lambda: 0
        label_room.require(
            lambda: free() - beside,
            lambda: pooled() - beside,
            [kept.labels for kept in list(self.kept.values())],
            stripe,
            specs,
            self._following,
            where=f"run {specs.options.run_id}, rank {self.rank}",
        )

    @property
    def checked_run(self) -> str:
        """Id of the run that was checked for room last."""
        return self._roomy[0]

    def drop(self, dropped: Iterable[TraversalPlace]) -> None:
        """Release the labels of traversals."""
        for place in dropped:
            self.kept.pop(place, None)

    def close(self) -> Future[None]:
        """Abort the run in progress, if any, and release the memory. Returns at once; the future is done after that."""
        self.closed = True
        self.runner.abort(self.number, Cause.FAILED, f"rank {self.rank} left the gang")
        freed = self._executor.submit(self._free)
        self._executor.shutdown(wait=False)
        self.kept = {}
        return freed

    def _free(self) -> None:
        """Release the memory. Called in the member's thread."""
        with contextlib.ExitStack() as stack:
            # The thread of a run reads memory that a GPU writes, until it has left the run. A stuck thread is let be.
            if self.in_use.acquire(timeout=_LEAVE_SECONDS):
                stack.callback(self.in_use.release)
            for maker in self._makers:
                stack.callback(maker.free)

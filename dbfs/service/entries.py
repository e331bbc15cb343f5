"""Entries of the scheduler's service: a graph with its gang, and the kinds of runs.

Also the choice of one error among those of a run's ranks.
"""

import asyncio
import itertools
import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from dbfs.base.records import Formation, GraphRecord, GraphStatus, RunProgress, RunStatus, WorkerStatus
from dbfs.base.units import format_seconds
from dbfs.errors import (
    DbfsError,
    DeadlineExceededError,
    LateError,
    RunAbortedError,
    RunCancelledError,
    UnreachableError,
    WorkerLostError,
)
from dbfs.service.messages import ChangeReport, RunEnd
from dbfs_workers.serving.answers import error_of, read_answer

# About eight minutes of looks, enough for a plot.
_LOOKS_KEPT = 2000
# Seconds over which a rate counts events.
_MEAN_SECONDS = 10.0


@dataclass(frozen=True)
class Reservation:
    """What is kept for a graph while the graph is built.

    Attributes:
        client: id of the client that builds the graph.
        addresses: the workers that will hold the graph.
        name: the name, which the graph alone may take; None for a graph without a name.
    """

    client: str
    addresses: tuple[str, ...]
    name: str | None


class GraphEntry:
    """A graph in the cluster.

    Attributes:
        record: the graph as it is now: as it was loaded, and then updated.
        formed: the backend and the exchange of its gang.
        must_recover: whether a run ended early that leaves state behind (see ``recovers``).
        lost: ranks whose workers left.
        retired: those of them whose workers Dask retired.
        stands: whether the other ranks keep their data then, since a feature may build the lost ranks again.
        returning: how a feature brings lost ranks back, and how far that is, in words; empty if none does.
        runs: runs started so far.
        changes: edges and vertices that updates insert and delete.
        decided: reports of the latest updates, by batch id.
        numbers: serial numbers for the gang's next runs.
        lines: the turn in which rank 0 opened its lines to the other ranks; 0 if the next turn is to open them.
        last_client: id of the client of the last run.
        revoked: when a client's turn on the gang was last revoked, in seconds of ``time.monotonic()``.
        stuck: whether a rank on CPU cores is late. The other ranks of its run sleep until then, so that other graphs'
            runs may use their workers. A rank that waits on a GPU keeps the GPU.
    """

    def __init__(self, record: GraphRecord) -> None:
        self.record = record
        self.formed = Formation("", "")
        self.must_recover = False
        self.lost: set[int] = set()
        self.retired: set[int] = set()
        self.stands = False
        self.returning = ""
        self.runs = 0
        self.changes = RecentRate()
        self.decided: dict[str, ChangeReport] = {}
        self.numbers = itertools.count(1)
        self.lines = 0
        self.last_client = ""
        self.revoked = -math.inf
        self.stuck = False

    def take(self, record: GraphRecord) -> None:
        """Make the version of an update the graph's."""
        # A message that comes late must not bring back an earlier version.
        if record.version >= self.record.version:
            self.changes.add(record.updated - self.record.updated)
            self.record = record

    @property
    def changes_per_second(self) -> float:
        """Edges and vertices that updates have inserted and deleted in each of the last seconds."""
        return self.changes.per_second

    @property
    def maps_gpus(self) -> bool:
        """Whether its ranks map each other's GPU memory, where resident kernels wait for each other."""
        return self.formed.exchange == "cuda_ipc"

    @property
    def recovers(self) -> bool:
        """Whether a failed run leaves state to clear: of resident kernels, streams between hosts, or NCCL."""
        return self.maps_gpus or self.formed.exchange == "nccl" or bool(self.formed.hosts)

    @property
    def is_gone(self) -> bool:
        """Whether it lost ranks that nothing brings back."""
        return bool(self.lost) and not self.stands

    def require_whole(self, where: str = "") -> None:
        """Check that no rank's worker has left; ``where`` goes into the message.

        Raises:
            WorkerLostError: a worker left.
        """
        if self.lost:
            ranks = ", ".join(f"rank {rank} ({self.record.addresses[rank]})" for rank in sorted(self.lost))
            place = f", {where}" if where else ""
            raise WorkerLostError(f"{self.record.name}{place}: lost {ranks}; load the graph again")

    def status(self, not_ready: tuple[WorkerStatus, ...]) -> GraphStatus:
        """Return the graph as ``dbfs.graphs()`` lists it, given its workers that are late or paused."""
        return GraphStatus(
            name=self.record.name,
            n=self.record.stripe.n,
            m=sum(info.m_local for info in self.record.infos),
            bytes_per_rank=tuple(info.nbytes for info in self.record.infos),
            ranks=self.record.stripe.p,
            created=datetime.fromtimestamp(self.record.created, UTC),
            runs=self.runs,
            backend=self.formed.backend,
            exchange=self.formed.exchange,
            lost=tuple(sorted(self.lost)),
            returning=self.returning if self.lost else "",
            version=self.record.version,
            free_pages=sum(info.free_pages for info in self.record.infos),
            changes_per_second=self.changes_per_second,
            not_ready=not_ready,
            view_of="" if self.record.beside is None else self.record.beside.view_of,
        )


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


@dataclass(eq=False)
class RunEntry:
    """A run that waits or is under way: a ``QueuedRun``, a ``TaskRun`` or a ``DirectRun``. Times are since the epoch.

    Attributes:
        graph: the graph that is traversed.
        client: id of the client that waits for the run.
        run_id: the run's id.
        traversals: number of traversals; 0 for an update.
        update: kind of the update that the run makes; empty for traversals.
        queued: when the run was queued.
        started: when the run started; None while it waits.
        number: the gang's serial number of the run; 0 until it starts.
        before: number of traversals that earlier bursts have made.
        progress: the latest look at the ranks; None before the first.
        trail: looks at the traversal under way, oldest first: those that found a frontier.
    """

    graph: GraphEntry
    client: str
    run_id: str
    traversals: int
    update: str = field(default="", kw_only=True)
    queued: float = field(default_factory=time.time, init=False)
    started: float | None = field(default=None, init=False)
    number: int = field(default=0, kw_only=True)
    before: int = field(default=0, init=False)
    progress: RunProgress | None = field(default=None, init=False)
    trail: deque[RunProgress] = field(default_factory=lambda: deque(maxlen=_LOOKS_KEPT), init=False)

    @cached_property
    def workers(self) -> frozenset[str]:
        """Addresses of the gang's workers."""
        return frozenset(self.graph.record.addresses)

    def note(self, progress: RunProgress) -> None:
        """Keep the result of a look at the ranks, unless an earlier look came further."""
        before = self.progress
        if before is None or (before.finished, before.level) <= (progress.finished, progress.level):
            self.progress = progress
            # Between two levels a look may find no frontier. A plot of such looks alone would show nothing.
            if progress.frontier:
                if self.trail and self.trail[-1].finished != progress.finished:
                    self.trail.clear()
                self.trail.append(progress)

    def status(self, waits_for: str) -> RunStatus:
        """Return the run as ``dbfs.runs()`` lists it, given whom it waits for, in words."""
        return RunStatus(
            run_id=self.run_id,
            graph=self.graph.record.name,
            client=self.client,
            traversals=self.traversals,
            running=self.started is not None,
            seconds=time.time() - (self.started or self.queued),
            progress=self.progress,
            update=self.update,
            version=self.graph.record.version,
            waits_for=waits_for,
        )


@dataclass(eq=False)
class DirectRun(RunEntry):
    """A run that its client sends to rank 0, in a turn that it holds: the run waits for none, and ends with its turn.

    Attributes:
        began: when rank 0 began the run.
    """

    began: float

    def __post_init__(self) -> None:
        self.queued = self.started = self.began


@dataclass(eq=False)
class QueuedRun(RunEntry):
    """A run in the queue, which rank 0 leads when its turn has come. Other attributes as of ``RunEntry``.

    Attributes:
        deadline: seconds that the run may take, waiting included.
        ends: when these seconds are over, in seconds of the event loop.
        behind: the runs that the run had to wait for, in words; empty if there was none.
        turn: done when the run may start.
        stopped: done with the error with which the run must end, if it must.
    """

    deadline: float
    ends: float = field(init=False)
    behind: str = field(default="", init=False)
    turn: asyncio.Future[None] = field(default_factory=_future, init=False)
    stopped: asyncio.Future[DbfsError] = field(default_factory=_future, init=False)

    def __post_init__(self) -> None:
        self.ends = asyncio.get_running_loop().time() + self.deadline

    def queue_behind(self, ahead: Iterable[RunEntry]) -> None:
        """Note the runs ahead, those that share a worker with this one."""
        blocking = [other for other in ahead if other.workers & self.workers]
        if blocking:
            more = f" and {len(blocking) - 1:,} more" if len(blocking) > 1 else ""
            self.behind = f"run {blocking[0].run_id}{more}"

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; at least a millisecond, since 0 is no timeout for some of its users."""
        return max(1e-3, self.ends - self.turn.get_loop().time())

    def waited(self) -> str:
        """Describe how long the run has waited, and behind which runs, for messages."""
        waited = f"waited {format_seconds((self.started or time.time()) - self.queued)} in the queue"
        return f"{waited} behind {self.behind}" if self.behind else waited

    def times(self) -> str:
        """Describe where the run's time went, for messages."""
        if self.started is None:
            return self.waited()
        return f"{self.waited()}, ran {format_seconds(time.time() - self.started)}"

    def stop(self, error: DbfsError) -> None:
        """Have the run end with an error, which names what happened only; the first error counts."""
        if not self.stopped.done():
            self.stopped.set_result(error)

    async def wait(self, event: asyncio.Future[Any], seconds: float | None = None) -> None:
        """Wait until ``event`` is done or the run must end, for at most so many seconds."""
        either: tuple[asyncio.Future[Any], ...] = (event, self.stopped)
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    def require_going_on(self) -> None:
        """Raise the error of ``stop``, with the run's id, if the run must end."""
        if self.stopped.done():
            error, where = self.stopped.result(), "" if self.started else ", waiting for its turn"
            raise type(error)(f"run {self.run_id}{where}: {error}")


@dataclass(eq=False)
class TaskRun(QueuedRun):
    """A run whose levels its client submits as Dask tasks when its turn has come. Others as of ``QueuedRun``.

    Attributes:
        begun: done when the run holds its workers, with its wait in the queue in words; an error if it never does.
        ended: the end that the client tells; cancelled if the run is over without that.
        applying: held while the ranks change the graph in the run, which keeps the workers in any case.
    """

    begun: asyncio.Future[str] = field(default_factory=_future, init=False)
    ended: asyncio.Future[RunEnd] = field(default_factory=_future, init=False)
    applying: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)


def values_of(answers: Sequence[bytes]) -> list[Any]:
    """Return the values of ranks' answers.

    Raises:
        Exception: a rank failed; of several errors, the one that says most about the cause.
    """
    errors = [error for error in map(error_of, answers) if error is not None]
    if errors:
        raise first_cause(errors)
    return [read_answer(answer) for answer in answers]


def first_cause(errors: Sequence[BaseException]) -> BaseException:
    """Return the error that says most about why a run ended: the failure itself rather than its echo on other ranks."""

    def order(error: BaseException) -> int:
        # A rank that lost a peer names the level; the broken connection to the same worker does not.
        # The deadline of a rank that waited for a late one names the level.
        kinds = (
            UnreachableError,
            WorkerLostError,
            LateError,
            DeadlineExceededError,
            RunCancelledError,
            RunAbortedError,
        )
        places = (1, 0, 3, 2, 4, 6)
        return next((place for kind, place in zip(kinds, places, strict=True) if isinstance(error, kind)), 5)

    return min(errors, key=order)


class RecentRate:
    """The mean number of events per second over the last ``_MEAN_SECONDS``."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        """Count ``count`` events that have just happened."""
        self._forget()
        self._counts.append((time.monotonic(), count))

    @property
    def per_second(self) -> float:
        """Events per second."""
        self._forget()
        return sum(count for _, count in self._counts) / _MEAN_SECONDS

    def _forget(self) -> None:
        while self._counts and self._counts[0][0] < time.monotonic() - _MEAN_SECONDS:
            self._counts.popleft()

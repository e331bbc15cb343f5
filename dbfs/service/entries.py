"""What the catalog keeps: a graph and its gang, a run and its turn, and how the ranks' errors become one."""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Sequence

from dbfs.errors import DeadlineExceededError, RunAbortedError, RunCancelledError, WorkerLostError
from dbfs.records import Formed, GraphRecord, RunProgress, RunStatus

# About eight minutes of looks, enough for a plot.
_LOOKS_KEPT = 2000


class UnreachableError(WorkerLostError):
    """A call to a worker broke off."""


class GraphEntry:
    """A graph in the catalog."""

    def __init__(self, record: GraphRecord) -> None:
        self.record = record
        self.formed = Formed("", "")
        # A run on GPUs ended early: the ranks have to forget it before the next.
        self.failed = False
        self.lost: set[int] = set()
        self.runs = 0
        self.numbers = itertools.count(1)

    @property
    def maps_gpus(self) -> bool:
        """Whether its ranks are kernels that wait for each other in each other's memory."""
        return self.formed.exchange == "cuda_ipc"

    def require_whole(self, doing: str = "") -> None:
        """Raise ``WorkerLostError`` if a rank is gone."""
        if self.lost:
            ranks = ", ".join(f"rank {rank} ({self.record.addresses[rank]})" for rank in sorted(self.lost))
            where = f", {doing}" if doing else ""
            raise WorkerLostError(f"{self.record.name}{where}: lost {ranks}; load the graph again")


class RunEntry:
    """A run, waiting or under way."""

    def __init__(self, graph: GraphEntry, client: str, run_id: str, traversals: int) -> None:
        self.graph = graph
        self.client = client
        self.run_id = run_id
        self.traversals = traversals
        self.workers = frozenset(graph.record.addresses)
        self.queued = time.time()
        self.started: float | None = None
        # Set when it may start; an exception where it must not any more.
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.number = 0
        self.progress: RunProgress | None = None
        # Of the traversal under way, where the looks found it; those with a frontier.
        self.trail: deque[RunProgress] = deque(maxlen=_LOOKS_KEPT)

    def note(self, progress: RunProgress) -> None:
        """Take what a look at the ranks showed, or what an earlier look showed more of."""
        before = self.progress
        if before is None or (before.finished, before.level) <= (progress.finished, progress.level):
            self.progress = progress
            # Between two levels a look may find no frontier; of such looks alone there would be nothing to see.
            if progress.frontier:
                if self.trail and self.trail[-1].finished != progress.finished:
                    self.trail.clear()
                self.trail.append(progress)

    def refuse(self, error: Exception) -> None:
        """End it before its turn."""
        if not self.turn.done():
            self.turn.set_exception(error)

    def status(self) -> RunStatus:
        """As it is listed."""
        return RunStatus(
            run_id=self.run_id,
            graph=self.graph.record.name,
            client=self.client,
            traversals=self.traversals,
            running=self.started is not None,
            seconds=time.time() - (self.started or self.queued),
            progress=self.progress,
        )


def of_rank(run: RunEntry, rank: int, error: BaseException) -> BaseException:
    """What ended a rank's part in a run; a call that broke off knows the worker only."""
    if isinstance(error, UnreachableError):
        return UnreachableError(f"run {run.run_id}: lost rank {rank}; {error}")
    return error


def cause_of(errors: Sequence[BaseException]) -> BaseException:
    """Of the ranks' errors the one that says most: what happened, rather than its echo on another rank."""

    def order(error: BaseException) -> int:
        # A rank that lost a peer knows in which level; that a call broke off is the same news with less in it.
        kinds = (UnreachableError, WorkerLostError, DeadlineExceededError, RunCancelledError, RunAbortedError)
        places = (1, 0, 2, 3, 5)
        return next((place for kind, place in zip(kinds, places, strict=True) if isinstance(error, kind)), 4)

    return min(errors, key=order)

"""What the service remembers of runs that are over: for its page in Dask's dashboard, and for metrics."""

import time
from collections import Counter, deque
from collections.abc import Sequence

from dbfs.errors import RunCancelledError
from dbfs.records import EarlyEnd, FinishedRun
from dbfs.service.entries import RunEntry
from dbfs_workers.reports import RankReport

_KEPT = 100


class History:
    """Runs that are over, and sums over all there ever were.

    Attributes:
        finished: the last of those that came to their end, oldest first.
        failed: the same of those that did not.
        last: by rank, the report of the last traversal of the run that came to its end last.
        early: the run that ended early last, of those that were seen; None where one came to its end since.
        outcomes: runs by how they ended: ``finished``, ``cancelled`` or ``failed``.
        traversals: traversals made.
        edges: directed edges traversed.
        seconds: time that traversals took.
    """

    def __init__(self) -> None:
        self.finished: deque[FinishedRun] = deque(maxlen=_KEPT)
        self.failed: deque[FinishedRun] = deque(maxlen=_KEPT)
        self.last: tuple[RankReport, ...] = ()
        self.early: EarlyEnd | None = None
        self.outcomes = Counter({"finished": 0, "cancelled": 0, "failed": 0})
        self.traversals = 0
        self.edges = 0
        self.seconds = 0.0

    def add(self, run: RunEntry, reports: Sequence[Sequence[RankReport]]) -> None:
        """A run came to its end. Microseconds: its client waits for the answer."""
        traversals = list(zip(*reports, strict=True))
        edges = sum(rank.edges for ranks in traversals for rank in ranks)
        seconds = sum(max(rank.elapsed for rank in ranks) for ranks in traversals)
        self.finished.append(
            FinishedRun(
                run_id=run.run_id,
                graph=run.graph.record.name,
                client=run.client,
                traversals=run.traversals,
                ended=time.time(),
                seconds=seconds,
                depth=max(rank.depth for rank in traversals[-1]),
                reached=sum(rank.reached for rank in traversals[-1]),
                edges=edges,
            )
        )
        self.last = traversals[-1]
        self.early = None
        self.outcomes["finished"] += 1
        self.traversals += len(traversals)
        self.edges += edges
        self.seconds += seconds

    def fail(self, run: RunEntry, error: Exception) -> None:
        """A run ended early."""
        now = time.time()
        ended = FinishedRun(
            run_id=run.run_id,
            graph=run.graph.record.name,
            client=run.client,
            traversals=run.traversals,
            ended=now,
            seconds=0.0 if run.started is None else now - run.started,
            depth=0 if run.progress is None else run.progress.level,
            reached=0 if run.progress is None else run.progress.reached,
            error=f"{type(error).__name__}: {error}",
        )
        outcome = "cancelled" if isinstance(error, RunCancelledError) else "failed"
        self.failed.append(ended)
        self.outcomes[outcome] += 1
        # Of one run only: looks are many. One that nobody saw takes no other's place.
        if run.trail:
            self.early = EarlyEnd(ended, outcome, tuple(run.trail))

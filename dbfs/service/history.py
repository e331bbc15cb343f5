"""Runs that are over, as the service remembers them: for its page in Dask's dashboard, and for metrics."""

import time
from collections import Counter, deque
from dataclasses import replace
from typing import Any

from dbfs.base.records import EarlyEnd, FinishedRun
from dbfs.errors import RunCancelledError
from dbfs.service import log
from dbfs.service.entries import RunEntry
from dbfs_workers.search.reports import RankReport, RunSummary

_RUNS_KEPT = 100


class History:
    """The latest runs that are over, and sums over all runs.

    Attributes:
        finished: the latest runs that finished, oldest first.
        failed: the latest runs that failed or were cancelled, oldest first.
        last: by rank, the report of the last traversal of the latest run that finished.
        early: the most recent run that failed or was cancelled and that a look had found with a frontier; None if a
            later run finished.
        outcomes: number of runs by outcome: ``finished``, ``cancelled`` or ``failed``.
        traversals: number of traversals of the runs that finished.
        edges: directed edges that these traversed.
        seconds: time that these took.
    """

    def __init__(self) -> None:
        self.finished: deque[FinishedRun] = deque(maxlen=_RUNS_KEPT)
        self.failed: deque[FinishedRun] = deque(maxlen=_RUNS_KEPT)
        self.last: tuple[RankReport, ...] = ()
        self.early: EarlyEnd | None = None
        self.outcomes = Counter({"finished": 0, "cancelled": 0, "failed": 0})
        self.traversals = 0
        self.edges = 0
        self.seconds = 0.0

    def add(self, run: RunEntry, summary: RunSummary) -> None:
        """Add a run that finished. Takes microseconds, because the client waits meanwhile."""
        depth, reached = max(rank.depth for rank in summary.last), sum(rank.reached for rank in summary.last)
        finished = _over(run, seconds=summary.seconds, depth=depth, reached=reached, edges=summary.edges)
        self.finished.append(finished)
        log.run_finished(run, finished)
        self.last = summary.last
        self.early = None
        self.outcomes["finished"] += 1
        self.traversals += summary.traversals
        self.edges += summary.edges
        self.seconds += summary.seconds

    def add_update(self, run: RunEntry) -> None:
        """Add an update that finished."""
        finished = replace(_over(run), traversals=0)
        self.finished.append(finished)
        log.run_finished(run, finished)
        self.outcomes["finished"] += 1

    def fail(self, run: RunEntry, error: Exception) -> None:
        """Add a run that failed or was cancelled, with the error that ended it."""
        level, reached = (0, 0) if run.progress is None else (run.progress.level, run.progress.reached)
        ended = _over(run, depth=level, reached=reached, error=f"{type(error).__name__}: {error}")
        outcome = "cancelled" if isinstance(error, RunCancelledError) else "failed"
        self.failed.append(ended)
        log.run_ended_early(run, outcome, ended)
        self.outcomes[outcome] += 1
        # The looks of one run only, because they are many. A run without looks does not replace one that has them.
        if run.trail:
            self.early = EarlyEnd(ended, outcome, tuple(run.trail))


def _over(run: RunEntry, **rest: Any) -> FinishedRun:
    """Return the record of a run that ends now; ``rest`` has fields of ``FinishedRun``."""
    now = time.time()
    rest = {"seconds": now - (run.started or now), "update": run.update, **rest}
    return FinishedRun(run.run_id, run.graph.record.name, run.client, run.traversals, ended=now, **rest)

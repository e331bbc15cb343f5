"""Watching a run: the scheduler asks the ranks for their ranks, if the run lasts long enough.

A traversal may take a millisecond, and reading its progress must not delay it. So the first look comes when a run has
lasted ``_LOOK_SECONDS``. A look is one message to each worker's event loop, which reads the counters that the
traversing thread keeps in memory anyway.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

import distributed
from tornado.ioloop import PeriodicCallback

from dbfs.base.records import RunProgress, WorkerState
from dbfs.service.entries import RunEntry, TaskRun
from dbfs.service.late_workers import WorkerWatch
from dbfs.service.worker_calls import WorkerCalls
from dbfs_workers.base.spec import direction_name
from dbfs_workers.search.reports import RankProgress
from dbfs_workers.serving.messages import GetRankProgress

# Seconds between two looks, and seconds more for each rank of the gang. Measured with 4 ranks on 2 busy cores: a look
# takes 2 ms of the scheduler's time and 0.8 ms of each worker's event loop.
_LOOK_SECONDS = 0.25
_PAUSE_SECONDS_PER_RANK = 0.01
# Seconds. A stopped worker does not answer, and meanwhile the answers of the other workers grow old.
_ANSWER_SECONDS = 1.0


def watch(
    scheduler: distributed.Scheduler, runs: Callable[[], Iterable[RunEntry]], workers: WorkerCalls, states: WorkerWatch
) -> None:
    """Look at the runs under way, again and again, until the scheduler closes. A look updates a run's ``progress``."""
    looks: dict[str, asyncio.Task[None]] = {}

    async def look_at(run: RunEntry) -> None:
        try:
            await update_progress(run, workers, states)
            await asyncio.sleep(_PAUSE_SECONDS_PER_RANK * len(run.workers))
        finally:
            del looks[run.run_id]

    def look() -> None:
        for run in counted_by_ranks(runs()):
            if time.time() - (run.started or run.queued) > _LOOK_SECONDS and run.run_id not in looks:
                looks[run.run_id] = asyncio.ensure_future(look_at(run))

    # The scheduler stops these when it closes.
    every = PeriodicCallback(look, 1e3 * _LOOK_SECONDS)
    scheduler.periodic_callbacks["dbfs-runs"] = every
    every.start()


def counted_by_ranks(runs: Iterable[RunEntry]) -> list[RunEntry]:
    """Return those runs under way whose levels the ranks count; the client of a run of tasks tells its progress."""
    return [run for run in runs if run.started is not None and not isinstance(run, TaskRun)]


async def update_progress(run: RunEntry, workers: WorkerCalls, states: WorkerWatch) -> None:
    """Ask the ranks for their progress, and note the run's if all ranks have one. A late rank is not asked."""
    if any(worker.state is WorkerState.LATE for worker in states.not_ready(run.workers)):
        return
    message = GetRankProgress(run.graph.record.graph_id, run.number)

    async def of_rank(address: str) -> RankProgress | None:
        # The call is made in here: a look that is cancelled before it begins leaves no coroutine that is never awaited.
        return await workers.call(address, message, _ANSWER_SECONDS)

    answers = await asyncio.gather(*map(of_rank, run.graph.record.addresses), return_exceptions=True)
    ranks = [answer for answer in answers if isinstance(answer, RankProgress)]
    # A rank that is lost or does not answer ends the run elsewhere, with an error of its own.
    if len(ranks) == len(answers):
        run.note(_total(run, ranks))


def _total(run: RunEntry, ranks: Sequence[RankProgress]) -> RunProgress:
    # The rank that is ahead has counted more than the others, which are about to reach the same level.
    ahead = max(ranks, key=lambda rank: (rank.traversal, rank.level))
    same = [rank for rank in ranks if rank.traversal == ahead.traversal]
    return RunProgress(
        traversals=run.traversals,
        finished=run.before + ahead.traversal,
        level=ahead.level,
        direction=direction_name(ahead.bottom_up),
        frontier=sum(rank.frontier for rank in same),
        reached=sum(rank.reached for rank in same),
        seconds=time.time() - (run.started or run.queued),
        completed=ahead.completed,
    )

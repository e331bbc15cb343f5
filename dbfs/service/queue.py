"""The queue of runs on the scheduler: one for all graphs, since graphs share workers.

A run starts when its workers are free and no earlier run waits for any of them. So any number of clients may traverse
at once, and no two gangs wait for each other. A run that waits for a late rank keeps other graphs' runs from no worker.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable

from dbfs import config
from dbfs.errors import DeadlineExceededError, QueueFullError
from dbfs.service import log
from dbfs.service.entries import GraphEntry, QueuedRun, RunEntry
from dbfs.service.history import History


class RunQueue:
    """The runs that wait or are under way.

    Args:
        history: takes the runs that fail.
        revoke: begins to end the turns that a run has to wait for, and returns whether there are any. The end of such
            a turn calls ``start_runs``.

    Attributes:
        runs: the runs, in the order of arrival.
        refusals: the runs that found no place.
    """

    def __init__(self, history: History, revoke: Callable[[QueuedRun], bool]) -> None:
        self.runs: list[QueuedRun] = []
        self.refusals = log.Refusals()
        self._history = history
        self._revoke = revoke

    @contextlib.asynccontextmanager
    async def turn(self, run: QueuedRun, direct: Iterable[RunEntry] = ()) -> AsyncIterator[None]:
        """Queue a run and wait for its turn. The run is over when the context ends.

        Args:
            run: the run.
            direct: the runs under way in turns that clients hold, for which the run waits as well.

        Errors as for ``Enqueue``.
        """
        self._require_place(run)
        run.queue_behind([*direct, *self.runs])
        self.runs.append(run)
        try:
            self.start_runs()
            await self._take_turn(run)
            run.graph.require_whole()
            yield
        except DeadlineExceededError as error:
            timed = type(error)(f"{error} ({run.times()})")
            self._history.fail(run, timed)
            raise timed from error
        except Exception as error:
            self._history.fail(run, error)
            raise
        finally:
            self.runs.remove(run)
            self.start_runs()

    def start_runs(self) -> None:
        """Start every waiting run whose workers are free and are not wanted by an earlier run."""
        wanted: set[str] = set()
        stuck: list[GraphEntry] = []
        for run in self.runs:
            free = not wanted & run.workers and run.graph not in stuck
            if run.started is None and not run.stopped.done() and free:
                if self._revoke(run):
                    # The end of the turn starts the run.
                    wanted |= run.workers
                    continue
                run.started = time.time()
                run.turn.set_result(None)
                log.run_started(run)
            if run.graph.stuck:
                stuck.append(run.graph)
            else:
                wanted |= run.workers

    def _require_place(self, run: QueuedRun) -> None:
        """Check that no more runs wait than the configuration allows."""
        most = config.count("service.waiting-runs")
        waiting = sum(other.started is None for other in self.runs)
        if waiting >= most:
            full = f"as many runs wait as dbfs.service.waiting-runs allows, {waiting:,}"
            self.refusals.add(run, full)
            raise QueueFullError(
                f"run {run.run_id}: {full}; try again later, or make several traversals in one run (bfs_many)"
            )

    async def _take_turn(self, run: QueuedRun) -> None:
        """Wait until ``start_runs`` gives the run its turn.

        Raises:
            DeadlineExceededError: the deadline passed first.
            RunCancelledError, WorkerLostError: the run was ended while it waited.
        """
        await run.wait(run.turn, run.remaining)
        run.require_going_on()
        if not run.turn.done():
            raise DeadlineExceededError(f"run {run.run_id}: its turn did not come within {run.deadline:g} s")

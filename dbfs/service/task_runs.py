"""Runs of Dask tasks on the scheduler: runs whose client submits the levels itself, in the one queue of all runs.

Such a run waits for its turn like any other, and then holds its workers until its client ends the run.
The scheduler cannot stop Dask tasks of a client. So a run that must end early ends between two of its levels: the
answer to the client's ``AwaitEnd`` is the error, and the client submits no further level.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from dbfs.base.records import RunProgress
from dbfs.errors import DbfsError, DeadlineExceededError, RunNotFoundError
from dbfs.service.entries import TaskRun
from dbfs.service.messages import AwaitEnd, TellTurn
from dbfs.service.worker_calls import GRACE_SECONDS
from dbfs_workers.search.reports import RankReport
from dbfs_workers.serving.rpc import LATE_SECONDS


class TaskRuns:
    """The runs of Dask tasks whose turn has come.

    Args:
        is_present: whether the client with an id is in the cluster.
    """

    def __init__(self, is_present: Callable[[str], bool]) -> None:
        self._is_present = is_present
        self._held: dict[str, TaskRun] = {}

    async def hold(self, run: TaskRun) -> list[list[RankReport]]:
        """Keep the workers of a run, whose turn has come, until its client ends it; return the reports by rank.

        A client that does not end a run in time, because it is stopped or lost, loses the workers.

        Raises:
            DbfsError: the run ended early.
        """
        self._held[run.run_id] = run
        run.begun.set_result(run.waited())
        try:
            await run.wait(run.ended, run.remaining + LATE_SECONDS)
            if run.stopped.done() and self._is_present(run.client):
                # The tasks of the level under way still use the workers.
                await asyncio.wait([run.ended], timeout=GRACE_SECONDS)
            if not run.ended.done():
                run.require_going_on()
                late = f"run {run.run_id}: not done after {run.deadline:g} s; no answer from its client"
                raise DeadlineExceededError(late)
            end = run.ended.result()
            if isinstance(end, DbfsError):
                raise end
            return end.value()
        finally:
            run.ended.cancel()
            async with run.applying:
                self._held.pop(run.run_id, None)

    def holds(self, run_id: str) -> bool:
        """Return whether a run holds its workers."""
        return run_id in self._held

    @contextlib.asynccontextmanager
    async def applying(self, run_id: str, client: str) -> AsyncIterator[TaskRun]:
        """Keep the workers of a run for the length of the context, whatever happens to its client or its deadline.

        Raises:
            RunNotFoundError: the run does not hold workers.
            RunCancelledError, WorkerLostError: the run must end.
        """
        run = self._of_client(run_id, client)
        async with run.applying:
            run.require_going_on()
            yield run

    @AwaitEnd.handler
    async def await_end(self, message: AwaitEnd) -> None:
        run = self._of_client(message.run_id, message.client)
        await run.wait(run.ended)
        if run.stopped.done():
            raise run.stopped.result()

    @TellTurn.handler
    async def tell_turn(self, message: TellTurn) -> None:
        with contextlib.suppress(RunNotFoundError):
            run = self._of_client(message.run_id, message.client)
            if isinstance(message.told, RunProgress):
                run.note(message.told)
            else:
                run.ended.set_result(message.told)

    def _of_client(self, run_id: str, client: str) -> TaskRun:
        run = self._held.get(run_id)
        if run is None or run.client != client or run.ended.done():
            raise RunNotFoundError(f"no run {run_id} of {client} holds workers; it is over")
        return run

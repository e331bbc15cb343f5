"""Runs of Dask tasks on the scheduler: runs whose client submits the levels itself, in the one queue of all runs.

Such a run waits for its turn like any other, and then holds its workers until its client ends the run.
The scheduler cannot stop Dask tasks of a client. So a run that must end early ends between two of its levels: the
answer to the client's ``AwaitEnd`` is the error, and the client submits no further level.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from dbfs.errors import DeadlineExceededError, RunNotFoundError
from dbfs.service.entries import RunEntry
from dbfs.service.messages import TellTurn, TurnOver
from dbfs.service.worker_calls import GRACE_SECONDS
from dbfs_workers.reports import RankReport
from dbfs_workers.rpc import LATE_SECONDS


class Held:
    """A run that holds its workers.

    Attributes:
        run: the run.
        ended: the end that the client tells; cancelled if the run is over without that.
        applying: held while the ranks change the graph, for which the run keeps the workers in any case.
    """

    def __init__(self, run: RunEntry) -> None:
        self.run = run
        self.ended: asyncio.Future[TurnOver] = asyncio.get_running_loop().create_future()
        self.applying = asyncio.Lock()


class TaskRuns:
    """The runs of Dask tasks whose turn has come.

    Args:
        is_present: whether the client with an id is in the cluster.
    """

    def __init__(self, is_present: Callable[[str], bool]) -> None:
        self._is_present = is_present
        self._held: dict[str, Held] = {}

    async def hold(self, run: RunEntry, begun: asyncio.Future[str]) -> list[list[RankReport]]:
        """Keep the workers of a run until its client ends the run; return the reports by rank.

        A client that does not end a run in time, because it is stopped or lost, loses the workers.

        Args:
            run: the run, whose turn has come.
            begun: takes the description of the wait in the queue, for the client.

        Raises:
            DbfsError: the run ended early.
        """
        held = self._held[run.run_id] = Held(run)
        begun.set_result(run.waited())
        try:
            await run.wait(held.ended, run.remaining + LATE_SECONDS)
            if run.stopped.done() and self._is_present(run.client):
                # The tasks of the level under way still use the workers.
                await asyncio.wait([held.ended], timeout=GRACE_SECONDS)
            if held.ended.done():
                end = held.ended.result()
                if end.error is not None:
                    raise end.error
                return end.reports.value()
            run.require_going_on()
            raise DeadlineExceededError(
                f"run {run.run_id}: not done after {run.deadline:g} s; no answer from its client"
            )
        finally:
            del self._held[run.run_id]
            async with held.applying:
                pass
            held.ended.cancel()

    def holds(self, run_id: str) -> bool:
        """Return whether a run holds its workers."""
        return run_id in self._held

    @contextlib.asynccontextmanager
    async def applying(self, run_id: str, client: str) -> AsyncIterator[RunEntry]:
        """Keep the workers of a run for the length of the context, whatever happens to its client or its deadline.

        Raises:
            RunNotFoundError: the run does not hold workers.
            RunCancelledError, WorkerLostError: the run must end.
        """
        held = self._of_client(run_id, client)
        async with held.applying:
            held.run.require_going_on()
            yield held.run

    async def wait(self, run_id: str, client: str) -> None:
        """See ``AwaitEnd``."""
        held = self._of_client(run_id, client)
        await held.run.wait(held.ended)
        if held.run.stopped.done():
            raise held.run.stopped.result()

    def tell(self, message: TellTurn) -> None:
        """See ``TellTurn``."""
        held = self._held.get(message.run_id)
        if held is not None and held.run.client == message.client:
            if not isinstance(message.told, TurnOver):
                held.run.note(message.told)
            elif not held.ended.done():
                held.ended.set_result(message.told)

    def _of_client(self, run_id: str, client: str) -> Held:
        held = self._held.get(run_id)
        if held is None or held.run.client != client:
            raise RunNotFoundError(f"no run {run_id} of {client} holds workers; it is over")
        return held

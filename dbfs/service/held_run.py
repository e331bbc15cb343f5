"""The client's half of a run of Dask tasks: waits for the run's turn, and holds the workers until the run is over.

``dbfs.service.task_runs`` is the scheduler's half.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import Final

from dbfs.base.records import RunProgress
from dbfs.cluster.awaiting import begin, outcome, scheduler_of
from dbfs.cluster.deadline import Deadline, of_call
from dbfs.cluster.gang import scheduler_lost
from dbfs.errors import DbfsError, DeadlineExceededError, LateError, OutcomeUnknownError, RunCancelledError
from dbfs.service.client import ServiceClient, with_times
from dbfs.service.messages import AwaitEnd, EnqueueTasks, RunEnd, TellTurn
from dbfs_workers.search.reports import RankReport
from dbfs_workers.serving import rpc
from dbfs_workers.serving.rpc import PickledValue

# Seconds between two notes of the progress. A note takes a millisecond of the client and another of the scheduler.
_NOTE_EVERY: Final = 0.1
# Seconds in which the scheduler notices the loss of a worker whose connections broke.
_SOON: Final = 2.0


class HeldRun:
    """A run that has its turn, and so the workers of its gang.

    Attributes:
        reports: by rank, a report of each traversal; the engine sets them before the run ends.
    """

    def __init__(self, service: ServiceClient, run_id: str) -> None:
        self.reports: list[list[RankReport]] = []
        self._service = service
        self._noted = time.monotonic()
        client = service.client
        self._scheduler = scheduler_of(client)
        self._waiting = AwaitEnd(run_id, client.id)
        waiting = functools.partial(rpc.send, self._scheduler, self._waiting, of_call().last)
        self._end = begin(waiting, client.loop.asyncio_loop)

    def check(self, doing: Callable[[], str]) -> None:
        """Check that the run may go on; ``doing`` names the run and the level in the error.

        Raises:
            RunCancelledError, WorkerLostError, SchedulerLostError: the run must end.
        """
        if self._end.done():
            client = self._service.client
            try:
                answer = outcome(self._end, client)
            except TimeoutError:
                # The deadline of the run, which the caller of this sees itself.
                return
            except OSError as error:
                raise scheduler_lost(client, doing()) from error
            try:
                rpc.unpack(self._scheduler.address, self._waiting, answer)
            except DbfsError as error:
                raise type(error)(f"{doing()}: {error}") from error

    def check_soon(self, doing: Callable[[], str]) -> None:
        """Wait a little for the error that ends the run, then ``check``: a lost worker fails tasks first."""
        concurrent.futures.wait([self._end], timeout=_SOON)
        self.check(doing)

    def note(self, progress: RunProgress) -> None:
        """Send the progress to the scheduler, unless the last note is recent."""
        now = time.monotonic()
        if now - self._noted > _NOTE_EVERY:
            self._noted = now
            self._service.send(TellTurn(self._waiting.run_id, self._waiting.client, progress))


@contextlib.contextmanager
def held_run(
    service: ServiceClient, graph_id: str, run_id: str, traversals: int, deadline: Deadline, update: str = ""
) -> Iterator[HeldRun]:
    """Wait for the turn of a run, and hold the workers of its gang for the length of the context.

    Args:
        service: the client's half of the service.
        update: kind of the update that the run makes; empty for traversals.

    Errors as for ``EnqueueTasks``.
    """
    client = service.client.id
    message = EnqueueTasks(graph_id, client, run_id, traversals, deadline.remaining, update)
    with service.cancelling(run_id):
        waited = service.call(message)
    began = time.monotonic()
    run = HeldRun(service, run_id)

    def over(end: RunEnd) -> TellTurn:
        return TellTurn(run_id, client, end)

    try:
        yield run
    except DbfsError as error:
        # If the scheduler is lost, the run is over in any case.
        if isinstance(error, LateError | OutcomeUnknownError):
            service.send(over(error))
        else:
            with contextlib.suppress(DbfsError):
                service.call(over(error))
        if type(error) is DeadlineExceededError:
            raise with_times(error, waited, began) from error
        raise
    except BaseException as error:
        # Ctrl-C, or the caller's progress function raised. The message is not awaited: the caller wants to leave.
        service.send(over(RunCancelledError(f"run {run_id}: its caller ended the run: {type(error).__name__}")))
        raise
    else:
        # The run was made. A scheduler that is late ends it by the deadline.
        with contextlib.suppress(LateError):
            service.call(over(PickledValue.of(run.reports)))

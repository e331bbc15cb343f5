"""The graphs and runs of a cluster, as callers list them."""

from __future__ import annotations

import distributed

from dbfs.base.calls import public
from dbfs.base.records import GraphStatus, RunStatus
from dbfs.cluster.awaiting import AsyncView, awaitable, awaited, unchanged
from dbfs.cluster.connect import current_client
from dbfs.cluster.deadline import bounded
from dbfs.cluster.own_process import StaysHere
from dbfs.service.client import ServiceClient
from dbfs.service.messages import CancelRun, ListGraphs, ListRuns


@public
@awaitable(unchanged)
@bounded()
def graphs(*, client: distributed.Client | None = None) -> list[GraphStatus]:
    """Return the graphs in the cluster, in the order of loading."""
    return ServiceClient.of(current_client(client)).call(ListGraphs())


def async_runs(listed: list[Run]) -> list[AsyncRun]:
    """Return the runs as an asynchronous client lists them."""
    return [AsyncRun(run) for run in listed]


@public
@awaitable(async_runs)
@bounded()
def runs(*, client: distributed.Client | None = None) -> list[Run]:
    """Return the runs that wait or are under way, in the order of arrival."""
    client = current_client(client)
    return [Run(status, client) for status in ServiceClient.of(client).call(ListRuns())]


@public
class Run(StaysHere):
    """A run that waits or is under way.

    Attributes:
        status: the run's state when it was listed.
        client: the client that listed the run.
    """

    def __init__(self, status: RunStatus, client: distributed.Client) -> None:
        self.status = status
        self.client = client

    @property
    def elsewhere(self) -> str:
        return "connect there, and call dbfs.runs()"

    @bounded()
    def cancel(self) -> None:
        """End the run by its next level. The call that waits for its result raises ``RunCancelledError``.

        Raises:
            RunNotFoundError: the run is over.
            NotOwnerError: another client started the run, and ``dbfs.service.anyone-may-stop`` is not set.
        """
        service = ServiceClient.of(self.client)
        service.call(CancelRun(self.status.run_id, service.client.id))

    def __repr__(self) -> str:
        return f"<dbfs.Run {self.status}>"


class AsyncRun(AsyncView[Run]):
    """A run that waits or is under way, as an asynchronous client lists it. ``cancel`` returns an awaitable.

    Attributes:
        status: the run's state when it was listed.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run, run.client)
        self.status = run.status

    cancel = awaited(Run.cancel, unchanged)

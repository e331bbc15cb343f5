"""The graphs and runs of a cluster, as callers list them."""

from __future__ import annotations

import distributed

from dbfs.cluster.connect import current_client
from dbfs.records import GraphStatus, RunStatus
from dbfs.service.client import ServiceClient
from dbfs.service.messages import CancelRun, ListGraphs, ListRuns


def graphs(*, client: distributed.Client | None = None) -> list[GraphStatus]:
    """Return the graphs in the cluster, in the order of loading."""
    return ServiceClient.of(current_client(client)).call(ListGraphs())


def runs(*, client: distributed.Client | None = None) -> list[Run]:
    """Return the resident runs that wait or are under way, in the order of arrival."""
    client = current_client(client)
    return [Run(status, client) for status in ServiceClient.of(client).call(ListRuns())]


class Run:
    """A run of the resident engine.

    Attributes:
        status: the run's state when it was listed.
    """

    def __init__(self, status: RunStatus, client: distributed.Client) -> None:
        self.status = status
        self._client = client

    def cancel(self) -> None:
        """End the run by its next level. The call that waits for its result raises ``RunCancelledError``.

        Raises:
            RunNotFoundError: the run is over.
            NotOwnerError: another client started the run, and ``dbfs.service.anyone-may-stop`` is not set.
        """
        service = ServiceClient.of(self._client)
        service.call(CancelRun(self.status.run_id, service.client.id))

    def __repr__(self) -> str:
        return f"<dbfs.Run {self.status}>"

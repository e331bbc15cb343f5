"""The graphs and runs that are in a cluster, as callers list them."""

from __future__ import annotations

import distributed

from dbfs.cluster.connect import current_client
from dbfs.records import GraphStatus, RunStatus
from dbfs.service.client import ServiceClient


def graphs(*, client: distributed.Client | None = None) -> list[GraphStatus]:
    """The graphs in the cluster, in the order in which they were loaded."""
    return ServiceClient.of(current_client(client)).graphs()


def runs(*, client: distributed.Client | None = None) -> list[Run]:
    """The resident runs that wait or are under way, in the order in which they came."""
    client = current_client(client)
    return [Run(status, client) for status in ServiceClient.of(client).runs()]


class Run:
    """A run of the resident engine.

    Attributes:
        status: as it was when it was listed.
    """

    def __init__(self, status: RunStatus, client: distributed.Client) -> None:
        self.status = status
        self._client = client

    def cancel(self) -> None:
        """End the run by its next level; whoever waits for it gets ``RunCancelledError``.

        Raises:
            RunNotFoundError: it is over.
        """
        ServiceClient.of(self._client).call("cancel", run_id=self.status.run_id)

    def __repr__(self) -> str:
        return f"<dbfs.Run {self.status}>"

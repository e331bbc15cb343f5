"""The client's way to the service on its scheduler (``dbfs.catalog``)."""

import weakref
from typing import Any

import distributed

from dbfs.errors import WorkerLostError
from dbfs.records import GraphStatus, RunStatus

_installed: weakref.WeakSet[distributed.Client] = weakref.WeakSet()


class Service:
    """Calls to the service of one client's scheduler; installs it there first."""

    def __init__(self, client: distributed.Client) -> None:
        from dbfs.catalog import CatalogPlugin

        self.client = client
        # Once for each client: does nothing where the scheduler has it.
        if client not in _installed:
            client.register_plugin(CatalogPlugin())
            _installed.add(client)

    def call(self, operation: str, **message: Any) -> Any:
        """Call a handler; raises what it raises.

        Raises:
            WorkerLostError: the scheduler is gone.
        """
        from dbfs_workers.plugin import unpack

        try:
            answer = self.client.sync(getattr(self.client.scheduler, f"dbfs_{operation}"), **message)
        except OSError as error:
            raise WorkerLostError(f"the scheduler at {self.client.scheduler.address} is gone: {error}") from error
        return unpack(answer)

    def tell(self, operation: str, **message: Any) -> None:
        """Call a handler without waiting for its answer; from a finalizer, or when the client may be closing."""
        if self.client.status == "running":
            self.client.loop.add_callback(getattr(self.client.scheduler, f"dbfs_{operation}"), **message)

    def graphs(self) -> list[GraphStatus]:
        """Every graph in the cluster."""
        statuses: list[GraphStatus] = self.call("list_graphs")
        return statuses

    def runs(self) -> list[RunStatus]:
        """The runs that wait or are under way."""
        statuses: list[RunStatus] = self.call("list_runs")
        return statuses

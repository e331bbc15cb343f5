"""The client's way to the service on its scheduler (``dbfs.catalog``)."""

import threading
import weakref
from typing import Any

import distributed

from dbfs.errors import ClientError, WorkerLostError
from dbfs.records import GraphStatus, RunStatus

_FLUSH_AFTER = 0.2
"""Seconds that dropped labels wait for a message to go along with."""

_services: weakref.WeakKeyDictionary[distributed.Client, "Service"] = weakref.WeakKeyDictionary()


class Service:
    """Calls to the service of one client's scheduler."""

    def __init__(self, client: distributed.Client) -> None:
        self._client = weakref.ref(client)
        self._dropped: dict[str, list[tuple[str, int]]] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, client: distributed.Client) -> "Service":
        """The client's one service; installs it on the scheduler at first."""
        from dbfs.catalog import CatalogPlugin

        service = _services.get(client)
        if service is None:
            # Does nothing where the scheduler has it.
            client.register_plugin(CatalogPlugin())
            service = _services.setdefault(client, cls(client))
        return service

    @property
    def client(self) -> distributed.Client:
        """Whose service it is."""
        client = self._client()
        if client is None:
            raise ClientError("the client is gone")
        return client

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
        client = self._client()
        if client is not None and client.status == "running":
            client.loop.add_callback(getattr(client.scheduler, f"dbfs_{operation}"), **message)

    def drop(self, graph_id: str, run_id: str, index: int) -> None:
        """Have the labels of a traversal forgotten: with the next run of the graph, or a little later by themselves."""
        client = self._client()
        if client is None or client.status != "running":
            return
        with self._lock:
            first = not self._dropped
            self._dropped.setdefault(graph_id, []).append((run_id, index))
        if first:
            client.loop.add_callback(client.loop.call_later, _FLUSH_AFTER, self._flush)

    def take_dropped(self, graph_id: str) -> list[tuple[str, int]]:
        """The graph's dropped labels, for a message that is about to be sent."""
        with self._lock:
            return self._dropped.pop(graph_id, [])

    def _flush(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, {}
        for graph_id, traversals in dropped.items():
            self.tell("drop", graph_id=graph_id, dropped=traversals)

    def graphs(self) -> list[GraphStatus]:
        """Every graph in the cluster."""
        statuses: list[GraphStatus] = self.call("list_graphs")
        return statuses

    def runs(self) -> list[RunStatus]:
        """The runs that wait or are under way."""
        statuses: list[RunStatus] = self.call("list_runs")
        return statuses

"""The client's way to the service on its scheduler (``dbfs.service.scheduler``)."""

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import Callable
from typing import Any

import distributed

from dbfs.cluster.connect import current_client
from dbfs.errors import ClientError, VersionMismatchError, WorkerLostError
from dbfs.records import GraphStatus, RunProgress, RunStatus

_FLUSH_AFTER = 0.2
"""Seconds that dropped labels wait for a message to go along with, at most."""

_LOOK_EVERY = 0.25
"""Seconds between two looks at a run's progress; one that is over sooner is told of once, when it is over."""

_services: weakref.WeakKeyDictionary[distributed.Client, "ServiceClient"] = weakref.WeakKeyDictionary()


def install(client: distributed.Client | None = None) -> None:
    """Put dbfs's plugins on a cluster's scheduler and on its workers, those to come included.

    ``load``, ``open``, ``graphs`` and ``runs`` do it by themselves; calling it first tells whether a cluster can serve.

    Args:
        client: any synchronous ``distributed.Client``; Dask's current one if None.

    Raises:
        ClientError: there is no usable client.
        VersionMismatchError: the scheduler or a worker has no dbfs, or another version than this client.
    """
    ServiceClient.of(current_client(client))


class ServiceClient:
    """Calls to the service of one client's scheduler."""

    def __init__(self, client: distributed.Client) -> None:
        self._client = weakref.ref(client)
        self._dropped: dict[str, list[tuple[str, int]]] = {}
        # Whether a flush is due: it takes what is dropped until then, so that a loop over sources rarely wakes Dask's
        # thread, which the next call would wait for.
        self._flushing = False
        self._lock = threading.Lock()

    @classmethod
    def of(cls, client: distributed.Client) -> "ServiceClient":
        """The client's one service; installs it on the scheduler at first.

        Raises:
            VersionMismatchError: see ``install``.
        """
        from dbfs.service.scheduler import SchedulerService

        service = _services.get(client)
        if service is None:
            _check_versions(client)
            # Does nothing where the scheduler has it.
            client.register_plugin(SchedulerService())
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
        from dbfs_workers.rpc import unpack

        try:
            answer = self.client.sync(getattr(self.client.scheduler, f"dbfs_{operation}"), **message)
        except OSError as error:
            raise self._gone(error) from error
        return unpack(answer)

    def follow(self, operation: str, progress: Callable[[RunProgress], None], run_id: str, **message: Any) -> Any:
        """As ``call``, of a handler that makes a run; tells where the run is while it lasts, if it lasts.

        The caller's thread asks and tells, so that ``progress`` may do what it likes, and raise.
        """
        from dbfs_workers.rpc import unpack

        async def make() -> Any:
            return await getattr(self.client.scheduler, f"dbfs_{operation}")(run_id=run_id, **message)

        made = asyncio.run_coroutine_threadsafe(make(), self.client.loop.asyncio_loop)
        while not concurrent.futures.wait([made], timeout=_LOOK_EVERY).done:
            known: RunProgress | None = self.call("progress", run_id=run_id)
            if known is not None:
                progress(known)
        try:
            answer = made.result()
        except OSError as error:
            raise self._gone(error) from error
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
            first, self._flushing = not self._flushing, True
            self._dropped.setdefault(graph_id, []).append((run_id, index))
        if first:
            client.loop.add_callback(client.loop.call_later, _FLUSH_AFTER, self._flush)

    def take_dropped(self, graph_id: str) -> list[tuple[str, int]]:
        """The graph's dropped labels, for a message that is about to be sent."""
        with self._lock:
            return self._dropped.pop(graph_id, [])

    def _gone(self, error: OSError) -> WorkerLostError:
        return WorkerLostError(f"the scheduler at {self.client.scheduler.address} is gone: {error}")

    def _flush(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, {}
            self._flushing = False
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


def _check_versions(client: distributed.Client) -> None:
    # Else the scheduler or a worker fails to unpickle something, and says so in words that help nobody.
    found = client.get_versions(packages=["dbfs"])
    here = found["client"]["packages"]["dbfs"]
    there = {f"the scheduler {client.scheduler.address}": found["scheduler"]}
    there |= {f"the worker {address}": versions for address, versions in found["workers"].items()}
    others = {who: version for who, info in there.items() if (version := info["packages"]["dbfs"]) != here}
    if others:
        listed = ", ".join(f"{who} has {version or 'none'}" for who, version in list(others.items())[:3])
        more = f", and {len(others) - 3} more" if len(others) > 3 else ""
        raise VersionMismatchError(f"dbfs {here} wanted everywhere: {listed}{more}; install it there")

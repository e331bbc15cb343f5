"""The client's half of the service: sends messages to the scheduler's half (``dbfs.service.scheduler``)."""

import concurrent.futures
import contextlib
import functools
import getpass
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import distributed
from distributed.diagnostics.plugin import SchedulerPlugin

from dbfs.base.calls import public
from dbfs.base.records import NO_PROGRESS, RunProgress
from dbfs.base.units import format_seconds
from dbfs.cluster import local
from dbfs.cluster.awaiting import (
    awaitable,
    begin,
    check_cancelled,
    late,
    outcome,
    require_open,
    scheduler_of,
    sync,
    sync_to_end,
    unchanged,
)
from dbfs.cluster.connect import current_client
from dbfs.cluster.deadline import bounded, limit, of_call
from dbfs.cluster.gang import require_connected, require_same_scheduler, scheduler_id, scheduler_lost, versions_of
from dbfs.cluster.lookout import note_service
from dbfs.cluster.own_process import is_inherited
from dbfs.errors import (
    ClientError,
    DbfsError,
    DeadlineExceededError,
    GraphNotFoundError,
    LateError,
    OutcomeUnknownError,
    SchedulerLostError,
    VersionMismatchError,
    WorkerLostError,
)
from dbfs.service.messages import (
    AddGraph,
    CancelRun,
    ChooseBackend,
    DropLabels,
    ExplainLoss,
    FreeAll,
    GetGraph,
    GetProgress,
    Introduce,
    SchedulerMessage,
    TryGang,
)
from dbfs_workers.base.spec import TraversalPlace
from dbfs_workers.base.text import LONGEST_NAME, printable
from dbfs_workers.serving import rpc
from dbfs_workers.serving.rpc import A

_DROP_SECONDS = 0.2
"""Seconds that dropped labels wait, at most, for a run that takes them along."""

PROGRESS_SECONDS = 0.25
"""Seconds between two requests for a run's progress."""

_SEND_SECONDS = 10.0
"""Seconds that a message may take whose answer is not waited for."""

_TELL_SECONDS = 0.5
"""Seconds that a message for the scheduler's log may take, which a program that ends may cut off."""

_INSTALL_ATTEMPTS = 3
"""Times that dbfs is installed on a cluster which a worker leaves meanwhile."""

_FREE_SECONDS = 3.0
"""Seconds that the end of a program may take for freeing the graphs."""

_services: weakref.WeakKeyDictionary[distributed.Client, "ServiceClient"] = weakref.WeakKeyDictionary()


@public
@awaitable(unchanged)
@bounded()
def install(client: distributed.Client | None = None) -> None:
    """Install dbfs's plugins on a cluster's scheduler and on all its workers, later ones included.

    A worker that does not answer is not waited for: the plugin is installed when the worker answers again.
    ``load``, ``open``, ``graphs`` and ``runs`` do this themselves. Call ``install`` first to check a cluster.

    Args:
        client: any ``distributed.Client``; Dask's current one if None.

    Raises:
        ClientError: there is no usable client.
        VersionMismatchError: the scheduler or a worker has no dbfs, or another version than this client.
    """
    ServiceClient.of(current_client(client))


class ServiceClient:
    """The client's half of the service, one for each Dask client. ``dbfs.service.messages`` lists the messages.

    Attributes:
        scheduler_half: makes the scheduler's half, which is installed there; the package ``dbfs`` sets it, since only
            the assembly knows all features.
    """

    scheduler_half: ClassVar[Callable[[], SchedulerPlugin]]

    def __init__(self, client: distributed.Client) -> None:
        self._client = weakref.ref(client)
        # The scheduler that has the service. A client connects to another one at the same address by itself.
        self._scheduler: str | None = None
        self._dropped: dict[str, list[TraversalPlace]] = {}
        # Whether a flush is scheduled. One flush sends all labels dropped until then, because each flush wakes Dask's
        # thread, and the next call waits for that thread.
        self._flushing = False
        self._lock = threading.Lock()

    @classmethod
    def of(cls, client: distributed.Client) -> "ServiceClient":
        """Return the client's half for a Dask client; the first call for a scheduler installs the service there.

        Errors as for ``install``.
        """
        service, scheduler = _services.get(client), scheduler_id(client)
        if service is None or service._scheduler != scheduler:
            require_open(client)
            for tried in range(1, _INSTALL_ATTEMPTS + 1):
                try:
                    _check_versions(client)
                    # Does nothing if the scheduler has the plugin.
                    sync(client, client.register_plugin, cls.scheduler_half())
                    break
                except LateError:
                    raise
                except OSError as error:
                    # A worker left meanwhile, of which Dask says that a connection is closed; or the scheduler is lost.
                    scheduler_of(client)
                    if tried == _INSTALL_ATTEMPTS:
                        raise scheduler_lost(client, "installing dbfs on the cluster") from error
            service = _services.setdefault(client, cls(client))
            service._scheduler = scheduler
            note_service(client)
            if local.ends_with_process(client):
                local.free_before_close(client, service.free_all)
            service.call(_introduction(client.id))
        return service

    @property
    def client(self) -> distributed.Client:
        """The Dask client.

        Raises:
            ClientError: the client was deleted or is closed.
            SchedulerLostError: the client lost its scheduler just now.
        """
        client = self._client()
        if client is None:
            raise ClientError("the distributed.Client of this object was deleted; keep a reference to the client")
        require_connected(client)
        return client

    def call(self, message: SchedulerMessage[A]) -> A:
        """Send a message and wait for the answer, as long as the deadline of the call allows.

        Raises:
            LateError: the scheduler did not answer in time.
            SchedulerLostError: the connection to the scheduler is lost.
            Exception: the handler raised it.
        """
        scheduler = scheduler_of(self.client)
        return self._unpack(scheduler.address, message, self._answer(message))

    def call_update(self, message: SchedulerMessage[A], batch_id: str) -> A:
        """Send a message that changes a graph, and wait for the answer. Other errors as for ``call``.

        Raises:
            OutcomeUnknownError: the scheduler did not answer in time.
        """
        scheduler = scheduler_of(self.client)
        try:
            answer = self._answer(message)
        except LateError as error:
            raise OutcomeUnknownError(
                f"{error}; graph.version shows then whether the change was made. "
                f"The same batch with batch_id={batch_id!r} is made once, however often it is sent"
            ) from error
        return self._unpack(scheduler.address, message, answer)

    def _answer(self, message: SchedulerMessage[Any]) -> rpc.Envelope | None:
        """Send a message and return the answer, unread; errors as for ``call``."""
        client, deadline = self.client, of_call()
        scheduler = scheduler_of(client)
        try:
            with deadline.lookout.over(_whom(message)):
                return sync_to_end(client, rpc.send, scheduler, message, deadline.last)
        except TimeoutError as error:
            raise late(scheduler.address, deadline.seconds) from error
        except OSError as error:
            raise scheduler_lost(client) from error

    def call_run(self, message: SchedulerMessage[A], run_id: str, progress: Callable[[RunProgress], None] | None) -> A:
        """Send a message that starts a run, and wait for the answer, which may take as long as the run.

        Args:
            progress: called again and again until the answer, in the caller's own thread: it may block, or raise.

        Raises:
            asyncio.CancelledError: the call was cancelled. Other errors as for ``call``.
        """
        client, deadline = self.client, of_call()
        scheduler = scheduler_of(client)
        sending = functools.partial(rpc.send, scheduler, message, deadline.last)
        try:
            with deadline.lookout.over(_whom(message)):
                if progress is None:
                    answer = sync(client, sending)
                else:
                    request = begin(sending, client.loop.asyncio_loop)
                    while not concurrent.futures.wait([request], timeout=min(PROGRESS_SECONDS, deadline.last)).done:
                        check_cancelled()
                        deadline.lookout.look(client)
                        self.look(run_id, progress)
                    answer = outcome(request, client)
        except TimeoutError as error:
            raise LateError(f"run {run_id}: {late(scheduler.address, deadline.seconds)}") from error
        except OSError as error:
            raise scheduler_lost(client) from error
        return self._unpack(scheduler.address, message, answer)

    def _unpack(self, address: str, message: SchedulerMessage[A], answer: rpc.Envelope | None) -> A:
        try:
            return rpc.unpack(address, message, answer)
        except (GraphNotFoundError, VersionMismatchError):
            require_same_scheduler(self.client, self._scheduler)
            raise

    @contextlib.contextmanager
    def cancelling(self, run_id: str) -> Iterator[None]:
        """Cancel a run if the block that waits for it ends early.

        By Ctrl-C, as the progress function raised, or as the scheduler is late, which then refuses the run.
        """
        client = self.client.id
        try:
            yield
        except BaseException as error:
            if not isinstance(error, DbfsError) or isinstance(error, LateError | OutcomeUnknownError):
                self.send(CancelRun(run_id, client))
            raise

    def look(self, run_id: str, progress: Callable[[RunProgress], None]) -> None:
        """Call ``progress`` with the latest look at a run, if there is one, and with whom the run waits for."""
        latest, why = self.call(GetProgress(run_id)), of_call().lookout.why
        if latest is not None or why:
            progress(replace(latest or NO_PROGRESS, waits_for=why))

    def why_lost(self, graph_id: str) -> str:
        """Return why ranks of a graph lost their workers, in words; empty if the scheduler does not know.

        Raises:
            SchedulerLostError: the workers ended with their scheduler.
        """
        try:
            return self.call(ExplainLoss(graph_id))
        except SchedulerLostError:
            raise
        except DbfsError:
            return ""

    def gone(self, graph_id: str, error: GraphNotFoundError) -> DbfsError:
        """Return why a rank has no data of a graph: a worker was lost, it was built again, or ``error``: unloaded."""
        try:
            name = self.call(GetGraph(graph_id)).name
        except GraphNotFoundError:
            return error
        except WorkerLostError as moved:
            return moved
        return WorkerLostError(f"{name}: its data was lost with a worker; load the graph again")

    def send(self, message: SchedulerMessage[Any]) -> None:
        """Send a message without waiting for the answer: for finalizers, and for clients that may be closing."""
        client = self._usable()
        scheduler = None if client is None else client.scheduler
        if client is not None and scheduler is not None:
            client.loop.add_callback(_send, scheduler, message)

    def tell(self, message: SchedulerMessage[Any]) -> None:
        """Send a message for the scheduler's log; wait ``_TELL_SECONDS`` for its arrival at most."""
        client = self._usable()
        scheduler = None if client is None else client.scheduler
        if client is not None and scheduler is not None:
            with contextlib.suppress(ClientError):
                told = begin(functools.partial(_send, scheduler, message), client.loop.asyncio_loop)
                concurrent.futures.wait([told], _TELL_SECONDS)

    def free_all(self) -> None:
        """Unload every graph, because the cluster is about to end. Gives up after ``_FREE_SECONDS`` seconds."""
        with limit(_FREE_SECONDS):
            self.call(FreeAll(self.client.id))

    def drop(self, graph_id: str, run_id: str, index: int) -> None:
        """Have the labels of a traversal released, by the next run of the graph or after ``_DROP_SECONDS`` seconds."""
        client = self._usable()
        if client is None:
            return
        with self._lock:
            first, self._flushing = not self._flushing, True
            self._dropped.setdefault(graph_id, []).append((run_id, index))
        if first:
            client.loop.add_callback(client.loop.call_later, _DROP_SECONDS, self._flush)

    def take_dropped(self, graph_id: str) -> tuple[TraversalPlace, ...]:
        """Return the graph's dropped labels for a message that is about to be sent, and forget them here."""
        with self._lock:
            return tuple(self._dropped.pop(graph_id, []))

    def _usable(self) -> distributed.Client | None:
        """Return the Dask client; None if it is gone, does not run, is of another process, or has a new scheduler."""
        client = self._client()
        if client is None or client.status != "running" or is_inherited(client):
            return None
        return client if scheduler_id(client) == self._scheduler else None

    def _flush(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, {}
            self._flushing = False
        for graph_id, traversals in dropped.items():
            self.send(DropLabels(graph_id, tuple(traversals)))


def with_times(error: DeadlineExceededError, waited: str, began: float) -> DeadlineExceededError:
    """Return the error of a run that met its deadline, with the times of the run.

    Args:
        waited: how long the run waited, and behind which runs, in words.
        began: when the run's turn came, in seconds of ``time.monotonic()``.
    """
    return DeadlineExceededError(f"{error} ({waited}, ran {format_seconds(time.monotonic() - began)})")


def error_words(error: BaseException) -> str:
    """Return an error as ``EndLoad`` tells it."""
    if isinstance(error, Exception):
        return printable(f"{type(error).__name__}: {error}")
    return f"cancelled: {type(error).__name__}"


def _introduction(client: str) -> Introduce:
    """Return what this process says of itself."""
    user = "unknown"
    # A process in a container may have no name in the list of users.
    with contextlib.suppress(KeyError, OSError):
        user = getpass.getuser()
    program = Path(sys.argv[0] if sys.argv else "")
    name = program.parent.name if program.name == "__main__.py" else program.name
    said = (printable(word, LONGEST_NAME).strip() or "unknown" for word in (user, socket.gethostname(), name))
    return Introduce(client, *said)


def _whom(message: SchedulerMessage[Any]) -> Sequence[str] | str:
    """Return for whom the scheduler may wait before it answers a message: see ``Lookout.over``."""
    if isinstance(message, AddGraph):
        return message.record.addresses
    return message.addresses if isinstance(message, ChooseBackend | TryGang) else getattr(message, "graph_id", ())


async def _send(scheduler: Any, message: SchedulerMessage[Any]) -> None:
    """Send a message without waiting for its answer."""
    # The end of the client cuts the connection off: OSError, or RuntimeError if Dask has no connections any more.
    with contextlib.suppress(OSError, RuntimeError):
        await rpc.send(scheduler, message, _SEND_SECONDS)


def _check_versions(client: distributed.Client) -> None:
    # Without this check the scheduler or a worker would fail to unpickle something, with a message that does not help.
    found = sync(client, versions_of, client, ["dbfs"])
    wanted = found["client"]["packages"]["dbfs"]
    servers = {f"the scheduler {client.scheduler.address}": found["scheduler"]}
    servers |= {f"the worker {address}": versions for address, versions in found["workers"].items()}
    others = {name: version for name, info in servers.items() if (version := info["packages"]["dbfs"]) != wanted}
    if others:
        listed = ", ".join(f"{name} has {version or 'none'}" for name, version in list(others.items())[:3])
        more = f", and {len(others) - 3} more" if len(others) > 3 else ""
        raise VersionMismatchError(f"the client has dbfs {wanted}, but {listed}{more}; install dbfs {wanted} there")

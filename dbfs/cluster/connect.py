"""Clients: connect to a scheduler or a new local cluster, and choose the workers that become a graph's ranks."""

import asyncio
import importlib.util
import inspect
import logging
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import distributed
from distributed.comm import CommClosedError
from distributed.comm.addressing import parse_address, parse_host_port
from distributed.comm.core import Connector
from distributed.comm.registry import get_backend
from tornado.iostream import StreamClosedError

from dbfs import config
from dbfs.base.calls import public
from dbfs.base.integers import whole_count
from dbfs.base.records import BACKENDS, waits_for
from dbfs.cluster import local
from dbfs.cluster.awaiting import require_other_thread, sync
from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import identified_workers, joined_workers, require_connected, scheduler_lost
from dbfs.cluster.lookout import not_ready_of
from dbfs.cluster.options import require_cluster_options
from dbfs.cluster.worker_states import rank_order
from dbfs.errors import (
    ClientError,
    ExchangeUnavailableError,
    InvalidOptionError,
    NoWorkersError,
    SchedulerLostError,
)
from dbfs_workers.base.text import counted

logger = logging.getLogger(__name__)

PROTOCOLS = ("auto", "tcp", "ucx")

# Options of a local cluster that say nothing of its workers' processes.
_OF_BOTH = {"dashboard_address", "threads_per_worker"}

JOIN_SECONDS: Final = 1.0
"""Time in which further workers join after the first one that was waited for."""

# Seconds between two looks for workers that join.
_LOOK_SECONDS: Final = 0.1


@public
def connect(
    address: str | None = None,
    *,
    n_workers: int | None = None,
    backend: str = "auto",
    processes: bool | None = None,
    timeout: float | str | None = None,
    set_as_default: bool = True,
    **cluster: Any,
) -> distributed.Client:
    """Return a client of the scheduler at ``address``, or of a new local cluster.

    A local cluster has one worker for each GPU (``dask_cuda.LocalCUDACluster``) if the machine has GPUs and dask-cuda.
    Otherwise the workers share the CPU cores: one worker within this process on a machine of up to 7 cores, a process
    of 4 threads for each 4 cores on a larger one. Closing the client closes the local cluster, and so does the end of
    the program. dbfs works with any other ``distributed.Client`` as well. With an asynchronous client the calls return
    awaitables.

    Workers within this process start at once, and need no ``if __name__ == "__main__":``. Workers that are processes
    import the script that starts them.

    Args:
        address: scheduler address, such as ``tcp://host:8786``.
        n_workers: workers to start, which share all cores; see above if None. With an address: workers to wait for, at
            least 1.
        backend: backend of a local cluster: ``cuda`` for a GPU for each worker, ``cpu`` for workers without GPUs,
            ``auto`` for GPUs if there are enough of them.
        processes: whether the workers of a local cluster are processes, or within this process, on CPU cores. None:
            processes if ``n_workers`` or options of the workers are given, on GPUs, and on a machine of 8 cores or
            more.
        timeout: seconds (or a Dask duration) to wait for workers; ``dbfs.workers-timeout`` if None.
        set_as_default: whether the client becomes Dask's current one, which Dask's own collections use as well.
        cluster: further arguments of ``distributed.LocalCluster`` (or ``dask_cuda.LocalCUDACluster``). Defaults:
            ``protocol`` of ``dbfs.cluster.protocol``; port 8787 of the loopback for
            ``dashboard_address`` (any free port if that is taken), because the dashboard has no password.
            ``dashboard_address=":8787"`` opens the dashboard to other machines. Worker processes are paused at 95 % of
            their memory, and ended at 98 %, unless Dask's configuration changes its defaults.

    Raises:
        MainGuardError: processes would be started by a script without ``if __name__ == "__main__":``.
        NoWorkersError: nothing listens at the address, the scheduler did not answer, or too few workers joined in time.
        SchedulerLostError: the scheduler ended while workers were waited for.
        InvalidOptionError: the address has no port, ``n_workers`` is below 1, the backend is unknown, cluster
            arguments came with an address, or Dask's configuration has no certificates that the address needs.
        InvalidCallError: neither ``connect`` nor Dask's local cluster nor its workers have an option of that name.
        InvalidOptionTypeError: an option has a value of the wrong type, such as a number as the address.
        BackendUnavailableError: ``backend="cuda"``, and there are too few GPUs, or CuPy or dask-cuda is not installed.
        ExchangeUnavailableError: the address or the protocol is UCX, and distributed-ucxx is not installed.
    """
    if backend not in BACKENDS:
        raise InvalidOptionError(f"unknown backend {backend!r}; choose one of {', '.join(BACKENDS)}")
    if n_workers is not None:
        n_workers = whole_count(n_workers, "n_workers", 1)
    seconds = config.seconds("workers-timeout", timeout)
    if processes is None and address is None and (n_workers is not None or cluster.keys() - _OF_BOTH):
        processes = True
    require_cluster_options(cluster, inspect.signature(connect).parameters, backend, processes=processes is not False)
    if address is not None:
        if processes is not None:
            cluster["processes"] = processes
        if cluster:
            raise InvalidOptionError(f"{', '.join(cluster)}: only for a new local cluster, not with an address")
        _require_ucx(address)
        _require_certificates(address)
        client = _remote_client(address, seconds, set_as_default)
    else:
        protocol = config.choice("cluster.protocol", PROTOCOLS)
        cluster = {**({} if protocol == "auto" else {"protocol": protocol}), **cluster}
        _require_ucx(cluster.get("protocol"))
        client = local.start(n_workers, backend, processes, cluster, set_as_default)
    try:
        _joined(client, n_workers, timeout)
    except (NoWorkersError, SchedulerLostError):
        client.close()
        raise
    return client


def _remote_client(address: str, seconds: float, set_as_default: bool) -> distributed.Client:
    try:
        scheme, location = parse_address(address)
        connector = get_backend(scheme).get_connector()
        if scheme != "inproc":
            parse_host_port(location)
    except ValueError as error:
        raise InvalidOptionError(f"{error}; expected a scheduler's address such as tcp://HOST:8786") from error
    began = time.monotonic()
    try:
        # Dask's client waits without an end for a scheduler that takes connections, but is stopped, and tries a port
        # that refuses connections again and again.
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(asyncio.run, _ask(connector, location, seconds)).result()
        if "workers" in answer:
            return distributed.Client(address, timeout=seconds, set_as_default=set_as_default)
    except (CommClosedError, MemoryError, ValueError) as error:
        # A scheduler with TLS ends an unencrypted connection at once. Of another protocol the first bytes are read as
        # the size of a message.
        others = {"tcp": "with TLS has the address tls", "tls": "without TLS has the address tcp"}
        hint = f"; a scheduler {others[scheme]}://{location}" if scheme in others else ""
        raise NoWorkersError(f"what listens at {address} does not answer as a scheduler{hint}") from error
    except OSError as error:
        after = time.monotonic() - began
        waited = f"within {seconds:g} s" if after >= seconds else f"({after:.1f} s)"
        reason = error.strerror or str(error) or "the scheduler is stopped, or the port is not its own"
        if isinstance(error, ConnectionRefusedError):
            reason = "nothing listens there; is the scheduler running, and is its port right?"
        raise NoWorkersError(f"no scheduler answered at {address} {waited}: {reason}") from error
    raise NoWorkersError(f"{address} is the address of a worker or a nanny of Dask, not of a scheduler")


async def _ask(connector: Connector, location: str, seconds: float) -> dict[str, Any]:
    """Have a scheduler describe itself; one attempt. Raise ``OSError`` if none answers within ``seconds``."""
    arguments = distributed.Security().get_connection_args("client")
    async with asyncio.timeout(seconds):
        try:
            comm = await connector.connect(location, **arguments)
        except CommClosedError as error:
            reason = error.__cause__
            if isinstance(reason, OSError) and not isinstance(reason, ssl.SSLError | StreamClosedError):
                raise reason from None
            raise
        try:
            # The first message of either side is Dask's handshake.
            for message in (comm.handshake_info(), {"op": "identity", "reply": True}):
                await comm.write(message)
                answer: dict[str, Any] = await comm.read()
        finally:
            comm.abort()
    return answer


def _require_ucx(address: str | None) -> None:
    # Dask's own error says only that the scheme is unknown. "ucxx" is an older name of "ucx".
    if address is not None and address.startswith("ucx") and importlib.util.find_spec("distributed_ucxx") is None:
        raise ExchangeUnavailableError(
            f"{address}: UCX needs distributed-ucxx, which is not installed; pip install '.[ucx-cu13]', or "
            "'.[ucx-cu12]', in a clone of dbfs"
        )


def _require_certificates(address: str) -> None:
    # Checked before the client is created: a client that fails in this never closes.
    security = distributed.Security()
    settings = "distributed.comm.tls in Dask's configuration"
    try:
        context = security.get_connection_args("client")["ssl_context"]
    except OSError as error:
        raise InvalidOptionError(f"{address}: the certificates of {settings} can't be read: {error}") from error
    encrypted = parse_address(address)[0] in ("tls", "wss")
    if encrypted and context is None:
        raise InvalidOptionError(f"{address}: TLS needs certificates; name them under {settings}")
    if security.require_encryption and not encrypted:
        raise InvalidOptionError(f"{address}: Dask's configuration requires encryption; expected tls://...")


def current_client(client: distributed.Client | None) -> distributed.Client:
    """Return the given client, or Dask's current client if None.

    Raises:
        ClientError: there is no client, it is closed, this thread runs its event loop, or the object is not a client.
        SchedulerLostError: the client lost its scheduler.
    """
    if client is None:
        try:
            client = distributed.Client.current()
        except ValueError:
            raise ClientError(
                "no Dask client: pass client=, or make one with dbfs.connect() or distributed.Client()"
            ) from None
    if not isinstance(client, distributed.Client):
        raise ClientError(f"client must be a distributed.Client, not {type(client).__name__}")
    require_other_thread(client)
    require_connected(client)
    if client.status != "running":
        raise ClientError(f"client is {client.status}; dbfs needs a running one")
    return client


def roster(client: distributed.Client, ranks: int | None, *, timeout: float | str | None = None) -> tuple[str, ...]:
    """Return the addresses of the workers that become ranks 0..p-1: the first ``ranks`` in order, or all if None.

    The order is by length of the address, then alphabetical. Workers that are late or paused are left out if the
    others are enough, and if ``ranks`` is None. Workers may join after the client: the call waits for
    ``ranks`` of them. If None, it waits for the first one, and takes those that join within ``JOIN_SECONDS`` after it.

    Args:
        ranks: the number of workers; all if None.
        timeout: seconds (or a Dask duration) to wait; ``dbfs.workers-timeout`` if None. The deadline of the call around
            this one ends the wait as well. Without a timeout a local cluster that has some workers, but too few, is
            refused at once.

    Raises:
        NoWorkersError: fewer than ``ranks`` workers (or none) joined within the timeout, or a local cluster has fewer.
        SchedulerLostError: the scheduler ended meanwhile.
        InvalidOptionError: ``ranks`` is below 1.
        InvalidOptionTypeError: ``ranks`` is not an integer.
    """
    return _ready_first(client, _joined(client, ranks, timeout), ranks)


def _joined(client: distributed.Client, ranks: int | None, timeout: float | str | None) -> list[str]:
    """Wait for workers, and return the addresses of all in order. Arguments and errors as for ``roster``."""
    least = 1 if ranks is None else whole_count(ranks, "ranks", 1)
    workers = _addresses(client)
    if len(workers) < least:
        workers = _awaited(client, least, len(workers), timeout)
        if ranks is None:
            sync(client, asyncio.sleep, JOIN_SECONDS)
            workers = _addresses(client)
        logger.warning("going on with %s of %d that joined", counted(len(workers[:ranks]), "worker"), len(workers))
    return workers


def _awaited(client: distributed.Client, least: int, found: int, timeout: float | str | None) -> list[str]:
    """Wait for ``least`` workers, of which ``found`` are there, and return the addresses of all; see ``roster``."""
    longest, call = config.seconds("workers-timeout", timeout), of_call("build-deadline")
    seconds = min(longest, call.seconds)
    cluster, wanted = client.cluster, f"{counted(least, 'worker')} wanted"
    adaptive = getattr(cluster, "_adaptive", None) is not None
    hint = "workers may be starting: each logs 'Registered to' in the end; dbfs doctor --scheduler ADDRESS lists them"
    if adaptive:
        hint = f"an adaptive cluster starts workers for tasks only: adapt(minimum={least})"
    elif isinstance(cluster, distributed.SpecCluster):
        # Such a cluster has as many workers as it was told, and no more by itself. An entry of a batch system's cluster
        # is a job, which may start a group of workers.
        told = sum(len(entry.get("group", ("",))) for entry in cluster.worker_spec.values())
        if told < least:
            hint = f"the cluster has {told}: start it with n_workers={least}, or call client.cluster.scale({least})"
        if 0 < told < least and timeout is None:
            raise NoWorkersError(f"{wanted}, {hint}")
    logger.warning("%s, %d found; waiting %g s for more; %s", wanted, found, seconds, hint)
    try:
        sync(client, _wait_for_workers, client, least, min(longest, call.remaining))
    except TimeoutError:
        found = len(_addresses(client))
        where = f"(scheduler {client.scheduler.address})"
        raise NoWorkersError(f"{wanted}, {found} found after {seconds:g} s {where}; {hint}") from None
    return _addresses(client)


def _ready_first(client: distributed.Client, workers: list[str], ranks: int | None) -> tuple[str, ...]:
    """Return the workers of a graph's ranks, without those that are late or paused if the others are enough."""
    not_ready = {worker.address: worker for worker in sync(client, not_ready_of, client, workers)}
    if not not_ready:
        return tuple(workers[:ranks])
    ready = [address for address in workers if address not in not_ready]
    ranks = ranks or len(ready) or len(workers)
    chosen = sorted([*ready, *not_ready][:ranks], key=rank_order)
    if waited := waits_for(not_ready[address] for address in chosen if address in not_ready):
        logger.warning("%s, of which %d are ready; the graph %s", counted(len(workers), "worker"), len(ready), waited)
    else:
        left_out = ", and ".join(map(str, not_ready.values()))
        logger.warning("going on with %s of %d, without %s", counted(ranks, "worker"), len(workers), left_out)
    return tuple(chosen)


async def _wait_for_workers(client: distributed.Client, least: int, seconds: float) -> None:
    # Dask's own wait asks the cluster, whose event loop may be another one.
    async with asyncio.timeout(seconds):
        while True:
            # A client tries to reach a lost scheduler again for as long as its own timeout lasts.
            require_connected(client)
            try:
                joined = await identified_workers(client)
            except OSError as error:
                raise scheduler_lost(client, "waiting for workers") from error
            if len(joined) >= least:
                return
            await asyncio.sleep(_LOOK_SECONDS)


def _addresses(client: distributed.Client) -> list[str]:
    return sorted(joined_workers(client), key=rank_order)

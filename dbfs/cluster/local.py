"""Local clusters: workers as processes or within this process, on CPU cores or GPUs, and their client."""

import asyncio
import contextlib
import importlib.util
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

import dask
import distributed
from dask.system import CPU_COUNT
from distributed.utils import LoopRunner, format_dashboard_link

from dbfs.cluster import kernels
from dbfs.cluster.main_guard import require_main_guard
from dbfs.cluster.own_process import is_inherited
from dbfs.errors import BackendUnavailableError, InvalidOptionError
from dbfs_workers.base import interrupts
from dbfs_workers.base.gpus import visible_gpus
from dbfs_workers.serving.quiet import not_a_lost_wait

logger = logging.getLogger(__name__)

# A local cluster's scheduler shares stderr with its user, who gets a run's error itself. Python writes warnings there
# if the program has set up no log.
_NO_STDERR = logging.NullHandler()

_QUIET = "dbfs_workers.serving.quiet"
LOOPBACK = "127.0.0.1"
"""Host of a local cluster's ports: other machines can't reach them."""

# Threads of a worker on a machine of at least twice as many cores.
_WORKER_THREADS = 4

# Workers for each core from which on a warning says that they are many.
_WORKERS_A_CORE = 4

# How long a closing cluster waits for a killed process. Dask waits 5 s; one with a GPU took longer beside 44 others.
_DYING_SECONDS = 60

# On the loopback, because the dashboard has no password. Dask's own default is all of the machine's addresses.
_DASHBOARD_PORT = 8787


MEMORY: Final = {"distributed.worker.memory.pause": 0.95, "distributed.worker.memory.terminate": 0.98}
"""Dask's settings of a local cluster's worker processes, as in ``configs/cluster.yaml``, which has the reasons."""


class InnerWorker(distributed.Worker):  # type: ignore[misc]  # distributed is untyped
    """A worker within the process, whose web server listens on the loopback; Dask's own choice is all addresses."""

    def start_http_server(self, routes: Any, dashboard_address: str | None, *arguments: Any, **keywords: Any) -> None:
        """Start the web server. Dask calls this when the worker starts."""
        super().start_http_server(routes, dashboard_address or f"{LOOPBACK}:0", *arguments, **keywords)


class LocalNanny(distributed.Nanny):  # type: ignore[misc]  # distributed is untyped
    """The parent of a worker process. The settings of ``MEMORY`` hold where Dask's configuration has the defaults."""

    def __init__(self, *arguments: Any, config: dict[str, Any] | None = None, **keywords: Any) -> None:
        defaults = dask.config.merge(*dask.config.defaults)
        unset = {key for key in MEMORY if dask.config.get(key) == dask.config.get(key, config=defaults)}
        settings = {key: MEMORY[key] for key in unset}
        # The parent reads one setting of its own configuration, the worker the other of the configuration given here.
        with dask.config.set(settings):
            super().__init__(*arguments, config={**settings, **(config or {})}, **keywords)

    async def kill(self, *arguments: Any, **keywords: Any) -> None:
        """Kill the worker process. Its death may take longer than Dask waits; a close ends in any case."""
        worker = self.process
        with contextlib.suppress(TimeoutError):
            return await super().kill(*arguments, **keywords)  # type: ignore[no-any-return]
        try:
            await asyncio.wait_for(worker.stopped.wait(), _DYING_SECONDS)
        except TimeoutError:
            if self.status != distributed.Status.closing:
                raise
            words = "the process %d of worker %s was killed, and is still there %d s later"
            logger.warning(words, worker.pid, self.name, _DYING_SECONDS)


class InnerCluster(distributed.LocalCluster):  # type: ignore[misc]  # distributed is untyped
    """A cluster within the process. Its link to the dashboard has the address that the web server listens on."""

    @property
    def dashboard_link(self) -> str:
        """Address of the dashboard. Dask takes the host from the scheduler's address, which names the machine."""
        server = getattr(self.scheduler, "http_server", None)
        if server is None or server.address in ("0.0.0.0", "::"):
            return str(super().dashboard_link)
        return str(format_dashboard_link(server.address, server.port))


class LocalClient(distributed.Client):  # type: ignore[misc]  # distributed is untyped
    """A client of a local cluster that frees the graphs, and closes the cluster, when it closes."""

    def close(self, *arguments: Any, **keywords: Any) -> Any:
        """Free the graphs, then close the client, the cluster and the event loop; in a forked child do nothing."""
        if is_inherited(self):
            return None
        with without_log():
            free(self)
            done = super().close(*arguments, **keywords)
            if self.cluster is not None:
                self.cluster.close()
        return done

    def shutdown(self) -> None:
        """Close the client and the cluster, as ``close`` does."""
        self.close()


def start(
    n_workers: int | None, backend: str, processes: bool | None, options: dict[str, Any], set_as_default: bool
) -> LocalClient:
    """Start a local cluster and return its client. Arguments and errors as for ``connect``."""
    if backend == "cuda" and processes is False:
        raise InvalidOptionError("backend='cuda' needs a process for each worker; leave out processes=False")
    gpus = visible_gpus()
    lacking = "workers within the process" if processes is False else _lacking(gpus, n_workers)
    on_gpus = backend == "cuda" or (backend == "auto" and not lacking)
    if processes is None:
        processes = on_gpus or _has_many_cores()
    if processes:
        require_main_guard()
    for log in ("dbfs.service.log", "dbfs.graphs"):
        logging.getLogger(log).addHandler(_NO_STDERR)
    if n_workers is not None and n_workers > _WORKERS_A_CORE * CPU_COUNT:
        words = "%d workers on %d cores: they take about a second each to start, and are slower than one for each core"
        logger.warning(words, n_workers, CPU_COUNT)
    options = {"preload": [_QUIET], **_web(options)}
    if on_gpus:
        if lacking:
            raise BackendUnavailableError(f"no local cluster on GPUs: {lacking}")
        from dask_cuda import LocalCUDACluster

        logger.info("a local cluster on GPUs: %s", ", ".join(gpus[:n_workers]))
        kernels.begin_on_gpus(len(gpus[:n_workers]))
        a_worker_each = {"CUDA_VISIBLE_DEVICES": gpus[:n_workers], "threads_per_worker": 1}
        if not options.get("log_spilling"):
            # dask-cuda logs what it spills by a worker class of its own.
            a_worker_each["worker_class"] = LocalNanny
        return _client(LocalCUDACluster, {**a_worker_each, **options}, set_as_default)
    if backend == "auto":
        logger.info("a local cluster on CPU cores: %s", lacking)
    workers, threads = shares(n_workers, options.get("threads_per_worker"), processes=processes)
    options = {"n_workers": workers, "threads_per_worker": threads, **options}
    kernels.begin(workers, threads)
    if not processes:
        # No limit of a worker's memory, because Dask would compare the memory of the whole process with each worker's
        # limit, and pause all workers of a large process for good.
        inner = {"worker_class": InnerWorker, "memory_limit": 0, "processes": False}
        return _client(InnerCluster, {**inner, **options}, set_as_default)
    if backend == "cpu" and gpus:
        # Hide the GPUs: all workers see the same one, and a graph of one rank would use it.
        options = {"env": {"CUDA_VISIBLE_DEVICES": ""}, **options}
    return _client(distributed.LocalCluster, {"worker_class": LocalNanny, **options}, set_as_default)


def _has_many_cores() -> bool:
    return bool(CPU_COUNT >= 2 * _WORKER_THREADS)


def shares(n_workers: int | None, threads: int | None, *, processes: bool = False) -> tuple[int, int]:
    """Return the number of workers that share the CPU cores, and the threads of each; None is not given.

    Measured on 16 cores, milliseconds with 16 workers of 1 thread, 4 of 4, and 1 of 16: a Kronecker graph of scale 22
    took 12.5, 10.6, 10.8; the roads of Florida 41, 21, 45. One rank has no peers to wait for: see ``docs/decisions``.
    """
    if n_workers is None:
        threads = threads or (_WORKER_THREADS if _has_many_cores() else 1 if processes else CPU_COUNT)
        return max(1, CPU_COUNT // threads), threads
    return n_workers, threads or max(1, CPU_COUNT // n_workers)


def _client(kind: Any, options: dict[str, Any], set_as_default: bool) -> LocalClient:
    with interrupts.blocked():
        # The thread of the loop starts the worker processes, and they inherit that it blocks SIGINT. So Ctrl-C in a
        # terminal interrupts only this process, which ends its workers.
        loop = LoopRunner()
        loop.start()
    others = set(distributed.SpecCluster._instances)
    started: list[LocalClient] = []
    try:
        with warnings.catch_warnings(), interrupts.held(second_at_once=True):
            # Another cluster may have the usual port. Dask takes any free port then, and warns.
            warnings.filterwarnings("ignore", message=f"Port {_DASHBOARD_PORT} is already in use")
            started.append(LocalClient(kind(loop=loop.loop, **options), set_as_default=set_as_default))
        return started[0]
    except KeyboardInterrupt:
        # Dask would wait ten seconds for a half-started cluster at the program's end. Its workers end with the program.
        distributed.SpecCluster._instances.intersection_update(others)
        for client in started:
            client.close()
        raise
    finally:
        # The cluster and the client keep the loop running from here on.
        loop.stop()


def _web(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a local cluster, with the options of its web server added."""
    if options.get("dashboard_address", "") is not None:
        return {"dashboard_address": f"{LOOPBACK}:{_DASHBOARD_PORT}", **options}
    # Without the dashboard there is still a server, for metrics. Dask would let it listen on all addresses.
    scheduler = {"dashboard": False, **options.get("scheduler_kwargs", {})}
    return {**options, "dashboard_address": f"{LOOPBACK}:0", "scheduler_kwargs": scheduler}


def _lacking(gpus: list[str], n_workers: int | None) -> str:
    """Describe what a GPU cluster lacks on this machine; an empty string if nothing is missing."""
    if len(gpus) < (n_workers or 1):
        return f"{n_workers or 1} GPUs wanted, {len(gpus)} found" if gpus else "there is no GPU"
    missing = [name for name in ("cupy", "dask_cuda") if importlib.util.find_spec(name) is None]
    install = "pip install '.[cu13]', or '.[cu12]', in a clone of dbfs"
    return f"{' and '.join(missing)} not installed; {install}" if missing else ""


_frees: weakref.WeakKeyDictionary[distributed.Client, Callable[[], None]] = weakref.WeakKeyDictionary()


def free_before_close(client: distributed.Client, free: Callable[[], None]) -> None:
    """Register the function that frees all graphs of a client's cluster, which must end with this process."""
    _frees[client] = free


def free(client: distributed.Client) -> None:
    """Free all graphs of a client's cluster, if one is registered and the client can still reach its scheduler."""
    registered = _frees.pop(client, None)
    if registered is not None and client.status == "running":
        # The cluster ends in any case. A failure here must not keep it from closing.
        with contextlib.suppress(Exception):
            registered()


def ends_with_process(client: distributed.Client) -> bool:
    """Return whether the client's cluster was started by this process and closes with it."""
    cluster = client.cluster
    return isinstance(cluster, distributed.SpecCluster) and cluster.shutdown_on_close


@contextlib.contextmanager
def without_log() -> Iterator[None]:
    """Drop Dask's log of this process: while a cluster closes, cut connections and slow workers are expected."""
    # Not a level of the handlers: a local cluster sets the level back to Dask's when it closes.
    handlers = list(logging.getLogger("distributed").handlers)
    for handler in handlers:
        handler.addFilter(_drop)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(_drop)


def _drop(record: logging.LogRecord) -> bool:
    # A handler may be that of other logs as well.
    return record.name.partition(".")[0] != "distributed"


def _close_all() -> None:
    with without_log():
        for client in list(_frees):
            free(client)
            with contextlib.suppress(Exception):
                client.close()
                if client.cluster is not None:
                    client.cluster.close()


# A forked child has no part in the clusters of its parent. It could not even wait for their end.
os.register_at_fork(after_in_child=_frees.clear)

# For good, because asyncio logs a lost wait when Python frees it, which may be long after the close.
logging.getLogger("asyncio").addFilter(not_a_lost_wait)

# atexit would be too late: Python has shut down all thread pools by then, which workers within the process need.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]

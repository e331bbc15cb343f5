"""Preload for workers and the scheduler: ``dask worker --preload dbfs.preload``, ``dask scheduler --preload ...``.

A worker joins at once, and compiles the CPU kernels that its host lacks beside other work, as its log says. A graph
that is loaded before the end waits for the kernels that it needs. A worker also serves its metrics at a port of
``dbfs.metrics-ports``.

A scheduler has the service, the page ``/dbfs``, the metrics and the log from its start, and loads the graphs of the
catalog ``dbfs.service.catalog``. Without the preload, the first client that uses dbfs installs them, but for the
catalog, and the log follows Python's own settings.
"""

import asyncio
import contextlib
import logging
from typing import Final

import distributed

from dbfs import config
from dbfs.cluster import kernels
from dbfs_workers.base.lines.worker_door import ports_of

# By scheduler id, the task that waits for the process which loads the catalog.
_catalogs: Final[dict[str, asyncio.Task[None]]] = {}


def dask_setup(server: distributed.Worker | distributed.Scheduler) -> None:
    """Prepare a worker before it joins, or a scheduler before it takes clients. Dask calls this."""
    _log_like_dask("dbfs")
    if isinstance(server, distributed.Scheduler):
        from dbfs.assembly import scheduler_service
        from dbfs.service.log import GRAPHS

        graphs = logging.getLogger(GRAPHS)
        if graphs.level == logging.NOTSET:
            # So that ``logging: {dbfs: warning}`` keeps loads, unloads and saves.
            graphs.setLevel(logging.INFO)
        # Dask starts the plugins of a scheduler after its preloads.
        server.add_plugin(scheduler_service(), idempotent=True)
        if (catalog := config.get("service.catalog")) not in (None, "none"):
            from dbfs.features.catalog.process import load_catalog

            _catalogs[server.id] = asyncio.get_running_loop().create_task(load_catalog(str(catalog), server.address))
    else:
        _log_like_dask("dbfs_workers")
        # More than one rank is what most clusters are for.
        kernels.begin(2, server.state.nthreads, every=True)
        _serve_metrics(server, ports_of("dbfs.metrics-ports", "any"))


async def dask_teardown(server: distributed.Worker | distributed.Scheduler) -> None:
    """End the process that loads a scheduler's catalog. Dask calls this when a server closes."""
    if (task := _catalogs.pop(server.id, None)) is not None:
        task.cancel()
        await asyncio.wait([task])


def _serve_metrics(worker: distributed.Worker, ports: range) -> None:
    """Serve a worker's metrics at the first free of the ports, which the scheduler then lists as the worker's.

    Dask has one port for all workers of a command: one worker gets that port, and each other any free one.
    """
    web = worker.http_server
    for port in ports if ports[0] else ():
        with contextlib.suppress(OSError):
            web.listen(port, web.address)
            web.port = port
            return
    if ports[0]:
        raise OSError(f"dbfs.metrics-ports: ports {ports[0]} to {ports[-1]} of {web.address} are all in use")


def _log_like_dask(name: str) -> None:
    """Write a log of dbfs where Dask writes its own, unless the configuration has settings for that log."""
    log, dasks = logging.getLogger(name), logging.getLogger("distributed")
    if log.level == logging.NOTSET and not log.handlers:
        log.setLevel(dasks.level)
        log.handlers = list(dasks.handlers)
        log.propagate = dasks.propagate

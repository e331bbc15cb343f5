"""Preload for workers and the scheduler: ``dask worker --preload dbfs.preload``, ``dask scheduler --preload ...``.

A worker compiles the CPU kernels before it takes work. Without the preload, the first graph on a host whose Numba cache
is empty waits for the compiler.

A scheduler has the service, the page ``/dbfs``, the metrics and the log from its start. Without the preload, the first
client that uses dbfs installs them, and the log follows Python's own settings.
"""

import logging

import distributed

from dbfs.cluster.kernels import warm_up


def dask_setup(server: distributed.Worker | distributed.Scheduler) -> None:
    """Prepare a worker before it joins, or a scheduler before it takes clients. Dask calls this."""
    if isinstance(server, distributed.Scheduler):
        from dbfs.service.scheduler import SchedulerService

        _log_like_dask()
        # Dask starts the plugins of a scheduler after its preloads.
        server.add_plugin(SchedulerService(), idempotent=True)
    else:
        warm_up()


def _log_like_dask() -> None:
    """Write the log of dbfs where Dask writes its own, unless the configuration has settings for dbfs."""
    log, dasks = logging.getLogger("dbfs"), logging.getLogger("distributed")
    if log.level == logging.NOTSET and not log.handlers:
        log.setLevel(dasks.level)
        log.handlers = list(dasks.handlers)
        log.propagate = dasks.propagate

"""The options of a local cluster that ``connect`` passes on to Dask's cluster and its workers."""

import importlib.util
import inspect
from collections.abc import Collection
from typing import Any

import distributed
from distributed.core import Server

from dbfs.base.calls import without_option
from dbfs.base.integers import whole_count
from dbfs.errors import InvalidCallError
from dbfs_workers.base.gpus import visible_gpus

# Dask's cluster sets these itself, and so does dbfs: a caller's value would be dropped, or fail as given twice.
_NOT_TAKEN = {"self", "nthreads", "dashboard", "services", "scheduler_ip", "scheduler_file", "loop", "asynchronous"}


def require_cluster_options(
    options: dict[str, Any], own: Collection[str], backend: str, *, processes: bool = True
) -> None:
    """Raise an error for options that neither a local cluster nor its workers take, and for threads that can't be.

    Args:
        options: the options for the cluster.
        own: the options of ``connect`` itself, which may be meant.
        backend, processes: as for ``connect``.

    Raises:
        InvalidCallError: an option has a name that is not known.
        InvalidOptionError: ``threads_per_worker`` is below 1.
        InvalidOptionTypeError: ``threads_per_worker`` is not an integer.
    """
    # A nanny hands on to its worker what it does not take itself, and a worker to its server.
    kinds = [distributed.LocalCluster, *([distributed.Nanny] if processes else []), distributed.Worker, Server]
    kinds += getattr(options.get("worker_class"), "__mro__", ())
    if processes and backend != "cpu" and visible_gpus() and importlib.util.find_spec("dask_cuda"):
        from dask_cuda import LocalCUDACluster

        kinds.append(LocalCUDACluster)
    taken = {name for kind in kinds for name in inspect.signature(kind.__init__).parameters} - _NOT_TAKEN
    if unknown := sorted(options.keys() - taken):
        raise InvalidCallError(without_option("connect", unknown, [*own, *sorted(taken.difference(own))]))
    if options.get("threads_per_worker") is not None:
        whole_count(options["threads_per_worker"], "threads_per_worker", 1)

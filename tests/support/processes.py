"""How tests start the processes of workers and ranks: forked from one process that has the libraries and the kernels.

Such a worker imports nothing and loads no kernel. Programs that tests run, such as notebooks and commands, start their
workers as users do.
"""

import multiprocessing
from multiprocessing.context import ForkServerContext, SpawnContext

import dask
from distributed.utils import get_mp_context

from dbfs_workers.base.gpus import visible_gpus

_LOADED = (
    "distributed",
    "distributed.nanny",
    "scipy.sparse",
    "dbfs.preload",
    "dbfs_workers.serving.plugin",
    "tests.support.loaded_kernels",
)


def fork_workers() -> None:
    """Have Dask's nannies fork their workers. A machine with GPUs keeps Dask's own way."""
    if visible_gpus():
        return
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    # Dask's first call sets libraries of its own choice.
    get_mp_context()
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(_LOADED))


def context(backend: str) -> ForkServerContext | SpawnContext:
    """Return the way to start a rank. CUDA does not outlive a fork."""
    if backend == "cpu" and not visible_gpus():
        return multiprocessing.get_context("forkserver")
    return multiprocessing.get_context("spawn")

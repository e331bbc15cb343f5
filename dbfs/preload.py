"""``dask worker --preload dbfs.preload``: a worker that has its kernels before it takes work.

Where Numba's cache is cold, as on a new host or in a new container, the first graph would wait for them.
"""

import distributed

from dbfs.cluster.kernels import warm_up


def dask_setup(worker: distributed.Worker) -> None:  # noqa: ARG001 - Dask's signature
    """Called by Dask before the worker joins the scheduler."""
    warm_up()

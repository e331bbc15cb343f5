"""Preload for ``dask worker --preload dbfs.preload``: compiles the CPU kernels before the worker takes work.

Without the preload, the first graph on a host whose Numba cache is empty waits for the compiler.
"""

import distributed

from dbfs.cluster.kernels import warm_up


def dask_setup(worker: distributed.Worker) -> None:  # noqa: ARG001 - Dask's signature
    """Compile the kernels; Dask calls this before the worker joins the scheduler."""
    warm_up()

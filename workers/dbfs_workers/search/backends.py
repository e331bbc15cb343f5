"""Backends: the phases of one level on one kind of device, behind one interface (``backend.Backend``).

In: the arrays of ``search.partition`` (partition, scratch, labels) and the bins of an exchange, changed in place.
Out: the counts of the phase. ``cpu`` calls Numba kernels: ``cpu.kernels.phases`` has one a phase,
``cpu.kernels.level`` one a level of the resident loop. ``cuda`` launches those of ``search/cuda/kernels/phases``.
"""

from functools import cache
from typing import Final

from dbfs_workers.base.errors import InvalidOptionError
from dbfs_workers.search.backend import Backend

BACKENDS: Final = ("cpu", "cuda")


@cache
def get(name: str) -> Backend:
    """Return the backend of a name, the same object at every call.

    Raises:
        InvalidOptionError: no backend has this name.
        BackendUnavailableError: NVRTC, which compiles the CUDA backend's kernels, is not installed.
    """
    if name not in BACKENDS:
        raise InvalidOptionError(f"unknown backend {name!r}; choose one of {', '.join(BACKENDS)}")
    # Imported here because the import compiles the backend's kernels, which a client that only names it never runs.
    if name == "cpu":
        from dbfs_workers.search.cpu.backend import CpuBackend

        return CpuBackend()
    from dbfs_workers.search.cuda.backend import CudaBackend

    return CudaBackend()

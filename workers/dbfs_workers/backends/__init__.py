"""Backends: one device's kernels for the phases of a level, behind one protocol."""

from functools import cache
from typing import Final

from dbfs_workers.backends.protocol import Backend
from dbfs_workers.errors import InvalidOptionError

BACKENDS: Final = ("cpu", "cuda")


@cache
def get(name: str) -> Backend:
    """The backend of that name.

    Raises:
        InvalidOptionError: no such backend.
        BackendUnavailableError: there is no NVRTC to compile its kernels with.
    """
    if name not in BACKENDS:
        raise InvalidOptionError(f"unknown backend {name!r}; choose one of {', '.join(BACKENDS)}")
    # Imported here because each compiles its kernels: a client that only names one needs none.
    if name == "cpu":
        from dbfs_workers.backends.cpu import CpuBackend

        return CpuBackend()
    from dbfs_workers.backends.cuda import CudaBackend

    return CudaBackend()

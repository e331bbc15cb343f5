"""Backends: one device's kernels for the phases of a level, behind one protocol."""

from dbfs_workers.backends.protocol import Backend
from dbfs_workers.errors import InvalidOptionError

BACKENDS = ("auto", "cpu")


def get(name: str) -> Backend:
    """The backend of that name; ``auto`` is the CPU's.

    Raises:
        InvalidOptionError: no such backend.
    """
    if name not in BACKENDS:
        raise InvalidOptionError(f"unknown backend {name!r}; choose one of {', '.join(BACKENDS)}")
    # Imported here because it compiles its kernels: a client that only names a backend needs none.
    from dbfs_workers.backends.cpu import CpuBackend

    return CpuBackend()

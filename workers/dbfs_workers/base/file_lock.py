"""A lock by a file, among the threads and processes of a machine: who holds it makes what the others then find made."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of a file in the block, and remove the file at the end.

    The folder of the file is made; nothing is held where that can't be written.
    """
    lock = None
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _taken(path)
    try:
        yield
    finally:
        if lock is not None:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(lock)


def _taken(path: Path) -> int:
    """Return the descriptor of the locked file."""
    while True:
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            # The system releases the lock of a process that died. The file stays for the next holder.
            fcntl.flock(lock, fcntl.LOCK_EX)
            # The holder before removed the file that this process waited for, and another process may have a new one.
            if path.stat().st_ino == os.fstat(lock).st_ino:
                return lock
        except FileNotFoundError:
            pass
        except OSError:
            os.close(lock)
            raise
        os.close(lock)

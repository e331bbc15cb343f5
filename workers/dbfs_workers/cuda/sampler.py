"""The most memory of a GPU that is in use while something else goes on, as a thread of its process reads it.

CuPy's pool knows only what was allocated through it: windows and exported bins show as memory that CUDA has no longer
free. ``start`` and ``stop`` are for ``Client.run``: the worker holds the sampler in between.
"""

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dbfs_workers.cuda import device_memory, failures
from dbfs_workers.errors import DbfsError, DeadlineExceededError, RunAbortedError

INTERVAL: Final = 0.2e-3
# A client that is gone stops no sampler.
DEADLINE: Final = 600.0
# Python lets a thread run for 5 ms before another one, such as the sampler, has its turn; some buffers live for less.
SWITCH_INTERVAL: Final = 0.1e-3


@dataclass(frozen=True)
class Peak:
    """What a sampler saw.

    Attributes:
        nbytes: the largest reading.
        gap: the longest time between two readings, in seconds: what came and went in it was missed.
    """

    nbytes: int
    gap: float


class Sampler:
    """Reads in a thread, from when it is made until it is stopped.

    Args:
        read: what to read, in bytes.
        deadline: seconds after which the thread ends by itself.
    """

    def __init__(self, read: Callable[[], int], deadline: float = DEADLINE) -> None:
        self._read = read
        self._deadline = deadline
        self._stopped = threading.Event()
        self._failure: Exception | None = None
        self._peak, self._gap = read(), 0.0
        self._thread = threading.Thread(target=self._sample, name="dbfs-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> Peak:
        """Read once more, and end the thread.

        Raises:
            DeadlineExceededError: it had ended by itself.
            Exception: what a reading raised.
        """
        self._stopped.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return Peak(self._peak, self._gap)

    def _sample(self) -> None:
        last = time.monotonic()
        end = last + self._deadline
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_INTERVAL)
        try:
            stopped = False
            while not stopped:
                stopped = self._stopped.wait(INTERVAL)
                self._peak = max(self._peak, self._read())
                now = time.monotonic()
                self._gap, last = max(self._gap, now - last), now
                if not stopped and now > end:
                    raise DeadlineExceededError(f"memory was sampled for {self._deadline:g} s, and nobody stopped it")
        except Exception as error:
            self._failure = error
        finally:
            sys.setswitchinterval(before)


def used() -> int:
    """Bytes in use of this process's GPU, whoever uses them.

    Raises:
        RunAbortedError: CUDA does not say.
    """
    import cupy

    with failures.typed_errors("reading what is in use of a GPU"):
        free, total = cupy.cuda.runtime.memGetInfo()
    return int(total) - int(free)


def cleared() -> int:
    """The same, once all is given back that nothing refers to."""
    gc.collect()
    device_memory.give_back()
    return used()


def start(dask_worker: Any) -> None:
    """Sample the GPU of this worker; a sampler that somebody left here is stopped."""
    with contextlib.suppress(DbfsError):
        stop(dask_worker)
    dask_worker.dbfs_sampler = Sampler(used)


def stop(dask_worker: Any) -> Peak:
    """What was seen since ``start``.

    Raises:
        RunAbortedError: there is no sampler here; or see ``used``.
        DeadlineExceededError: see ``Sampler.stop``.
    """
    sampler: Sampler | None = getattr(dask_worker, "dbfs_sampler", None)
    if sampler is None:
        raise RunAbortedError("nobody samples the memory of this worker's GPU; it may have been restarted")
    dask_worker.dbfs_sampler = None
    return sampler.stop()

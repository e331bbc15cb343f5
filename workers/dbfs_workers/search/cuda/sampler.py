"""Peak memory of a GPU during a build or a run, read again and again by a thread of the worker.

The thread reads CUDA's free memory, because CuPy's pool counts only its own allocations: not windows, nor exported
bins. ``start`` and ``stop`` are for ``Client.run``; the worker holds the sampler in between.
"""

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dbfs_workers.base.errors import DbfsError, DeadlineExceededError, StaleRunError
from dbfs_workers.search.cuda import device_memory, failures

# Seconds between readings.
INTERVAL: Final = 0.2e-3
# Seconds after which a sampler ends by itself: a client that was lost will never stop it.
DEADLINE: Final = 600.0
# Seconds. By default Python lets a thread run for 5 ms before the sampler's turn, and some buffers live for less.
SWITCH_INTERVAL: Final = 0.1e-3


@dataclass(frozen=True)
class Peak:
    """A sampler's result.

    Attributes:
        nbytes: the largest reading.
        gap: the longest time between two readings, in seconds. A shorter peak may have been missed.
    """

    nbytes: int
    gap: float


class Sampler:
    """A thread that reads a number of bytes from its creation until ``stop``.

    Args:
        read: returns the bytes in use.
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
        """Read once more, end the thread, and return the peak.

        Raises:
            DeadlineExceededError: the thread had ended at its deadline.
            Exception: a reading raised it.
        """
        self._stopped.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return Peak(self._peak, self._gap)

    def _sample(self) -> None:
        """Read until stopped or past the deadline; keep the error of a reading for ``stop``."""
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
                    raise DeadlineExceededError(
                        f"the memory sampler was not stopped within {self._deadline:g} s; its client may be lost"
                    )
        except Exception as error:
            self._failure = error
        finally:
            sys.setswitchinterval(before)


def used() -> int:
    """Return the bytes in use on this process's GPU, by all processes. Errors as for ``typed_errors``."""
    import cupy

    with failures.typed_errors("reading a GPU's memory in use"):
        free, total = cupy.cuda.runtime.memGetInfo()
    return int(total) - int(free)


def used_after_release() -> int:
    """Return the bytes in use after unreferenced objects and the pool's free blocks are released."""
    gc.collect()
    device_memory.release_pool()
    return used()


def start(dask_worker: Any) -> None:
    """Start to sample the GPU of this worker. Stops a sampler that a lost client left running."""
    with contextlib.suppress(DbfsError):
        stop(dask_worker)
    dask_worker.dbfs_sampler = Sampler(used)


def stop(dask_worker: Any) -> Peak:
    """Stop the worker's sampler and return the peak since ``start``.

    Raises:
        StaleRunError: the worker has no sampler.
        DeviceFailedError: CUDA failed while the sampler read.
        DeadlineExceededError: the sampler had ended at its deadline.
    """
    sampler: Sampler | None = getattr(dask_worker, "dbfs_sampler", None)
    if sampler is None:
        raise StaleRunError(
            "this worker has no memory sampler: another measurement stopped it, or the worker was restarted since; "
            "measure again, with no other measurement on these workers"
        )
    dask_worker.dbfs_sampler = None
    return sampler.stop()

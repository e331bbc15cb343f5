"""A kernel of one launch that the host stops by a word of its memory: the word, and the wait for the kernel's end."""

import ctypes
import time
from typing import Any, Final

import numpy as np

from dbfs_workers.search.cuda.records import EAGER_SECONDS, LEAVE_SECONDS
from dbfs_workers.search.cuda.run import KernelHungError

# cudaErrorNotReady.
_NOT_READY: Final = 600


class AbortFlag:
    """A word of the host's memory that the kernel reads.

    Attributes:
        address: where the kernel finds it.
        word: uint64[1], not 0 to stop the kernel.
    """

    def __init__(self) -> None:
        import cupy

        self._runtime = cupy.cuda.runtime
        self.address: int = self._runtime.hostAlloc(8, 2)  # cudaHostAllocMapped
        memory: Any = (ctypes.c_char * 8).from_address(self.address)
        self.word = np.frombuffer(memory, np.uint64)
        self.word[0] = 0

    def free(self) -> None:
        """Free the memory."""
        self._runtime.freeHost(self.address)


def wait(done: Any, flag: AbortFlag, deadline: float) -> None:
    """Wait for an event behind a kernel; stop the kernel at the deadline, in seconds of ``time.monotonic()``.

    Raises:
        KernelHungError: the kernel did not end.
    """
    import cupy

    patient = time.monotonic() + EAGER_SECONDS
    while cupy.cuda.runtime.eventQuery(done.ptr) == _NOT_READY:
        now = time.monotonic()
        if now > deadline:
            flag.word[0] = 1
        if now > deadline + LEAVE_SECONDS:
            raise KernelHungError(f"the kernel did not end within {LEAVE_SECONDS:g} s after it was stopped")
        time.sleep(20e-6 if now > patient else 0)
    # Raises CUDA's error if the kernel failed.
    done.synchronize()

"""The memory that a worker's process may take, and the return of freed memory to the system.

Dask pauses a worker by the resident memory of its process: a paused worker begins no task. The C library keeps freed
blocks in its heap, labels among them: blocks of up to 32 MiB, or of 128 KiB under Dask's nanny, which sets
``MALLOC_TRIM_THRESHOLD_``. A worker of 600 MiB stayed at 480 MiB, paused, after a client with 270 MB of labels had
left, until ``malloc_trim`` returned 230 MiB.
"""

import asyncio
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

import distributed
import psutil
from distributed.system import MEMORY_LIMIT
from tornado.ioloop import PeriodicCallback

from dbfs_workers.base.errors import GraphTooLargeError

# Share of the limit between what dbfs fills and the share at which Dask pauses a worker: for what is taken later
# without a check, such as messages and what Python keeps.
_BELOW_PAUSE: Final = 0.05
# A process that takes less than this share of its room keeps what it freed.
_RETURN_FROM: Final = 0.75
# With 3,000 free blocks in the heap ``malloc_trim`` takes 6 ms, and 60 ms if it returns 220 MB.
_LOOK_SECONDS: Final = 1.0
_LOOKS: Final = "dbfs-memory"


@dataclass(frozen=True)
class MemoryRoom:
    """The memory that a process may take.

    Attributes:
        limit: the worker's memory limit, in bytes; None for none.
        share: share of the limit (of the machine's memory, if there is none) that the process may take.
    """

    limit: int | None = None
    share: float = 1.0

    @classmethod
    def of(cls, worker: distributed.Worker | None, share: float) -> Self:
        """Return the room of a Dask worker, of this process if None; ``share`` is the largest share to take."""
        # Workers that are threads of one process have a limit each, while the process has the memory of all of them.
        if worker is None or worker.address.startswith("inproc://") or not worker.memory_manager.memory_limit:
            return cls(None, share)
        manager: Any = worker.memory_manager
        return cls(manager.memory_limit, usable_share(share, manager.memory_pause_fraction))

    def total_bytes(self) -> int:
        """Return the bytes that the process may take."""
        return int(self.share * (self.limit or MEMORY_LIMIT))

    def free_bytes(self) -> int:
        """Return the bytes that the process may still take; below 0 if too much is taken already."""
        available = int(self.share * psutil.virtual_memory().available)
        return min(self.total_bytes() - resident_bytes(), available)

    def require(self, needed: int, what: str) -> None:
        """Refuse to take ``needed`` bytes that the process may not take.

        Raises:
            GraphTooLargeError: with the bytes needed, and those free; ``what`` begins the message.
        """
        free = room_for(needed, self.free_bytes)
        if needed > free:
            raise GraphTooLargeError(
                f"{what} takes about {needed:,} bytes, and this worker may take {max(free, 0):,} more "
                f"({self.share:.0%} of its memory, less what it holds). More or larger workers would hold it"
            )


def resident_bytes() -> int:
    """Return the bytes of memory that this process takes, as Dask counts them."""
    return int(psutil.Process().memory_info().rss)


def usable_share(share: float, pause: float | bool) -> float:
    """Return the share of a worker's memory limit that may be filled: ``share``, or less if Dask would pause it.

    Args:
        share: the largest share.
        pause: share at which Dask pauses the worker (``distributed.worker.memory.pause``); False for none.
    """
    return min(share, max(0.0, round(pause - _BELOW_PAUSE, 9))) if pause else share


def room_for(needed: int, free_bytes: Callable[[], int]) -> int:
    """Return the bytes that are free. If fewer than ``needed`` are, freed memory returns to the system first."""
    free = free_bytes()
    if needed > free:
        return_freed()
        free = free_bytes()
    return free


def free_bytes(share: float, wanted: int, dask_worker: distributed.Worker) -> tuple[int, float]:
    """Return the bytes that a worker may still take, and its ``MemoryRoom.share``; see ``room_for`` for ``wanted``.

    Clients run this on workers (``Client.run``).
    """
    room = MemoryRoom.of(dask_worker, share)
    return room_for(wanted, room.free_bytes), room.share


def return_freed() -> None:
    """Make the C library return memory that it keeps for itself; does nothing if the library can't (glibc can)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def start_returning(worker: distributed.Worker, share: float) -> None:
    """Return freed memory of a worker's process whenever the process takes most of its room; see ``MemoryRoom.of``.

    Called in the worker's event loop.
    """

    async def look() -> None:
        total = MemoryRoom.of(worker, share).total_bytes()
        if resident_bytes() > _RETURN_FROM * total:
            # In a thread: the call takes the heap's locks for some milliseconds, and not Python's.
            await asyncio.to_thread(return_freed)

    stop_returning(worker)
    looks = worker.periodic_callbacks[_LOOKS] = PeriodicCallback(look, 1000 * _LOOK_SECONDS)
    looks.start()


def stop_returning(worker: distributed.Worker) -> None:
    """End what ``start_returning`` began, if anything."""
    looks = worker.periodic_callbacks.pop(_LOOKS, None)
    if looks is not None:
        looks.stop()

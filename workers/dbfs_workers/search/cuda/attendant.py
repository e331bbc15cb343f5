"""Takes the records of runs between their launch and the wait for their end. Their own thread may wait for CUDA then.

The thread calls CUDA for the run before this one, or for the next. While a kernel runs, CUDA loads no other one and
frees no memory, and no other kernel finds room on the GPU. So such a call may last as long as the run, which waits for
its records to be taken where the ring is full (docs/decisions/led-traversals.md).
"""

import threading
import time
from typing import Final

from dbfs_workers.search.cuda.records import MANY_RECORDS, Slot

# A kernel waits where half of the ring is late: 19 ms of the fastest levels.
_EVERY_SECONDS: Final = 5e-3
# Looks without a run until the thread sleeps: waking takes 20 us or more.
_IDLE_LOOKS: Final = 200


class Attendant:
    """A thread that begins with the first run, and sleeps where none comes. One serves all engines of a process."""

    def __init__(self) -> None:
        self._lock, self._some = threading.Lock(), threading.Event()
        self._slots: set[Slot] = set()
        self._thread: threading.Thread | None = None

    def begin(self, slot: Slot) -> None:
        """Take a run's records from now on."""
        with self._lock:
            self._slots.add(slot)
            self._some.set()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._attend, name="dbfs records", daemon=True)
                self._thread.start()

    def end(self, slot: Slot) -> None:
        """Leave a run's records, if they are taken here, to the caller."""
        with self._lock:
            self._slots.discard(slot)

    def _attend(self) -> None:
        idle = 0
        while self._some.wait():
            time.sleep(_EVERY_SECONDS)
            with self._lock:
                idle = 0 if self._slots else idle + 1
                for slot in self._slots:
                    if slot.records.pending > MANY_RECORDS:
                        slot.records.drain()
                if idle > _IDLE_LOOKS:
                    idle = 0
                    self._some.clear()


ATTENDANT: Final = Attendant()

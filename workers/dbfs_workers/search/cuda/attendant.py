"""Takes the records of runs between their launch and the wait for their end, when their own thread may not.

In that time the thread may call CUDA, for the run before this one or for the next. While a kernel runs, CUDA loads no
other one and frees no memory, and no other kernel finds room on the GPU. So such a call may last as long as the run,
which waits for its records to be taken after ``records.CAPACITY`` levels (docs/decisions/led-traversals.md).
"""

import threading
import time
from typing import Final

from dbfs_workers.search.cuda.records import MANY_RECORDS, Slot

# The fastest levels fill the ring in 30 ms.
_EVERY_SECONDS: Final = 5e-3


class Attendant:
    """A thread that begins with the first run, and sleeps while there is none. One serves all engines of a process."""

    def __init__(self) -> None:
        self._lock, self._some = threading.Lock(), threading.Event()
        self._slots: set[Slot] = set()
        self._thread: threading.Thread | None = None

    def begin(self, slot: Slot) -> None:
        """Take a run's records from now on."""
        with self._lock:
            self._slots.add(slot)
            self._some.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._attend, name="dbfs records", daemon=True)
                self._thread.start()

    def end(self, slot: Slot) -> None:
        """Leave a run's records, if they are taken here, to the caller."""
        with self._lock:
            self._slots.discard(slot)

    def _attend(self) -> None:
        while self._some.wait():
            time.sleep(_EVERY_SECONDS)
            with self._lock:
                for slot in self._slots:
                    if slot.records.pending > MANY_RECORDS:
                        slot.records.drain()
                if not self._slots:
                    self._some.clear()


ATTENDANT: Final = Attendant()

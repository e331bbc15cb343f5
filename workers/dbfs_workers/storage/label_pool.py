"""Host memory for labels that is used again: the labels of a traversal take over the memory of released ones.

New memory costs a page fault for every 4 KiB. Of a graph with a million vertices, the faults take longer than writing
the labels does.
"""

import ctypes
import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray


class LabelPool:
    """The memory of one rank's released labels. A label takes 4 bytes a row, distances and predecessors alike.

    Memory returns to the pool when the last array that shows it is gone, in whatever thread, so that a reader or Dask
    may hold labels for as long as it wants.

    Args:
        rows: number of rows of a label.
        most: bytes that the pool may keep. Further memory goes back to the system.
    """

    def __init__(self, rows: int, most: int) -> None:
        self._rows = rows
        # A full deque drops its first entry for a new one. No lock: a finalizer may interrupt any line of this class.
        self._free: deque[NDArray[np.uint32]] = deque(maxlen=most // (4 * rows))
        self._closed = False

    @property
    def nbytes(self) -> int:
        """Bytes that the pool keeps, free for labels."""
        return 4 * self._rows * len(self._free)

    def full(self, value: Any, dtype: Any) -> NDArray[Any]:
        """Return an array of ``value``, one entry a row; ``dtype`` is a type of 4 bytes."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = np.empty(self._rows, np.uint32)
        # Views of an array have the array's own base as base, so that an array may end before its views. All of them
        # hold the object that is lent here.
        lent = (ctypes.c_char * memory.nbytes).from_buffer(memory.data)
        weakref.finalize(lent, self._take_back, memory).atexit = False
        labels: NDArray[Any] = np.frombuffer(memoryview(lent), dtype)
        labels[:] = value
        return labels

    def close(self) -> None:
        """Give the kept memory back to the system, and keep no more."""
        self._closed = True
        self._free.clear()

    def _take_back(self, memory: NDArray[np.uint32]) -> None:
        if not self._closed:
            self._free.append(memory)

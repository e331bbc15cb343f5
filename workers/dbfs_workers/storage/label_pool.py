"""Host memory for labels that is used again: the labels of a traversal take over the memory of released ones.

New memory costs a page fault for every 4 KiB. Of a graph with a million vertices, the faults take longer than writing
the labels does. Writing "unreached" takes long as well, so the rows that no traversal reaches keep it from one
traversal to the next (``LabelPool.begun``).
"""

import ctypes
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Distance and predecessor of an unreached row: -1 and ``NO_VERTEX``.
_UNREACHED = 2**32 - 1


@dataclass
class _Memory:
    """Memory of a label.

    Attributes:
        array: uint32[rows].
        address: where the array begins.
        owner: whose rows without in-edges are unreached here, as ``LabelPool.begun`` was given it; None if unknown.
    """

    array: NDArray[np.uint32]
    address: int
    owner: object = None


class LabelPool:
    """The memory of one rank's released labels. A label takes 4 bytes a row, distances and predecessors alike.

    Memory returns to the pool when the last array that shows it is gone, in whatever thread, so that a reader or Dask
    may hold labels for any length of time.

    Args:
        rows: number of rows of a label.
        most: bytes that the pool may keep. Further memory goes back to the system.
    """

    def __init__(self, rows: int, most: int) -> None:
        self._rows = rows
        # A full deque drops its first entry for a new one. No lock: a finalizer may interrupt any line of this class.
        self._free: deque[_Memory] = deque(maxlen=most // (4 * rows))
        # Memory that is lent, by address.
        self._lent: dict[int, _Memory] = {}
        self._lent_type = ctypes.c_char * (4 * rows)
        self._closed = False

    @property
    def nbytes(self) -> int:
        """Bytes that the pool keeps, free for labels."""
        return 4 * self._rows * len(self._free)

    def full(self, value: Any, dtype: Any) -> NDArray[Any]:
        """Return an array of ``value``, one entry a row; ``dtype`` is a type of 4 bytes."""
        memory = self._take()
        memory.owner = None
        labels = self._lend(memory, dtype)
        labels[:] = value
        return labels

    def begun(self, owner: object, dtype: Any) -> NDArray[Any]:
        """Return an array for the labels of a traversal, unreached in the rows without in-edges.

        The other rows hold anything: the caller writes all of them. If the caller writes a row without in-edges too,
        ``forget_owner`` follows.

        Args:
            owner: stands for the set of rows without in-edges.
            dtype: a type of 4 bytes.
        """
        memory = self._take()
        if memory.owner is not owner:
            memory.array[:] = _UNREACHED
            memory.owner = owner
        return self._lend(memory, dtype)

    def forget_owner(self, labels: NDArray[Any]) -> None:
        """Have a lent array written in full before its memory is used again: others may write any row of it."""
        memory = self._lent.get(labels.ctypes.data)
        if memory is not None:
            memory.owner = None

    def close(self) -> None:
        """Give the kept memory back to the system, and keep no more."""
        self._closed = True
        self._free.clear()

    def _take(self) -> _Memory:
        try:
            return self._free.pop()
        except IndexError:
            array = np.empty(self._rows, np.uint32)
            return _Memory(array, array.ctypes.data)

    def _lend(self, memory: _Memory, dtype: Any) -> NDArray[Any]:
        # Views of an array have the array's own base as base, so that an array may end before its views. All of them
        # hold the object that is lent here.
        lent = self._lent_type.from_buffer(memory.array.data)
        weakref.finalize(lent, self._take_back, memory).atexit = False
        self._lent[memory.address] = memory
        return np.frombuffer(memoryview(lent), dtype)

    def _take_back(self, memory: _Memory) -> None:
        self._lent.pop(memory.address, None)
        if not self._closed:
            self._free.append(memory)

"""The label buffer: memory of a client that ranks on its host write labels into, and the ranks' way to open it.

The buffer has two slots, so that the ranks fill one while the client copies the other into its array. The memory is
used again for all reads of the client: the system's work for a new page takes several times as long as a copy of 4 KiB.

Ranks on GPUs put labels of a graph ordered by degree into the order of the vertices themselves. Each has a section of
the slot, where all bits of other ranks' labels are set, so that the bitwise and of the sections has all labels.

The memory is a nameless file (memfd) with a token, as that of the ranks' exchange is: see ``exchange.segment``.
"""

import fcntl
import mmap
import os
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import ExchangeUnavailableError
from dbfs_workers.base.tokens import Token, issue

SLOTS: Final = 2

SLOT_ITEMS: Final = 1 << 22
"""Most labels in a slot, 16 MiB. Smaller slots take more messages, larger ones more new pages at their first use."""

_SECTIONS: Final = 2
_SLOT_BYTES: Final = _SECTIONS * SLOT_ITEMS * 4
_NBYTES: Final = SLOTS * _SLOT_BYTES
_PURPOSE: Final = "label buffer"
_MOST_BUFFERS: Final = 2  # buffers of clients that a worker keeps mapped, with at most ``_NBYTES`` each


def items_of_rank(ranks: int, width: int) -> int:
    """Return how many labels of ``width`` bytes each of several ranks can write to a slot."""
    return _SLOT_BYTES // ranks // 4 * 4 // width


@dataclass(frozen=True)
class BufferHandle:
    """The handle by which a rank opens a client's buffer. Picklable.

    Attributes:
        token: the token of the client's file, which is the memory.
    """

    token: Token


class LabelBuffer:
    """A buffer as mapped in this process."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _NBYTES)

    def labels(self, slot: int, count: int) -> NDArray[np.uint32]:
        """Return uint32[count], the labels of a slot."""
        return self._section(slot * _SECTIONS, count)

    def positions(self, slot: int, count: int) -> NDArray[np.uint32]:
        """Return uint32[count], the positions of the slot's vertices in a graph ordered by degree."""
        return self._section(slot * _SECTIONS + 1, count)

    def of_rank(self, slot: int, rank: int, ranks: int, count: int, width: int) -> NDArray[Any]:
        """Return ``count`` unsigned integers of ``width`` bytes: one rank's labels in a slot of several ranks."""
        place = slot * _SLOT_BYTES + rank * items_of_rank(ranks, 4) * 4
        return np.frombuffer(self._memory, f"u{width}", count, place)

    def _section(self, section: int, count: int) -> NDArray[np.uint32]:
        return np.frombuffer(self._memory, np.uint32, count, section * SLOT_ITEMS * 4)


class ClientBuffer(LabelBuffer):
    """A client's own buffer.

    Attributes:
        handle: what ranks open the buffer with.
        lock: held by the one read that uses the buffer.

    Errors as for ``tokens.issue``.
    """

    def __init__(self) -> None:
        token = issue(_PURPOSE)
        # The file ends with this object, so that no rank opens it any more. Ranks that mapped it may keep the memory.
        weakref.finalize(self, os.close, token.descriptor)
        os.ftruncate(token.descriptor, _NBYTES)
        fcntl.fcntl(token.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        super().__init__(token.descriptor)
        self.handle = BufferHandle(token)
        self.lock = threading.Lock()


class OpenBuffers:
    """The buffers of clients that a worker has mapped. It keeps those used last."""

    def __init__(self) -> None:
        self._buffers: OrderedDict[str, LabelBuffer] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, handle: BufferHandle) -> LabelBuffer | None:
        """Return a client's buffer; None if the client is on another host, in another container or of another user."""
        token = handle.token
        with self._lock:
            buffer = self._buffers.pop(token.label, None)
            if buffer is None:
                buffer = _attach(token)
            if buffer is not None:
                self._buffers[token.label] = buffer
                if len(self._buffers) > _MOST_BUFFERS:
                    self._buffers.popitem(last=False)
        return buffer


def _attach(token: Token) -> LabelBuffer | None:
    try:
        descriptor = token.open(_PURPOSE, f"the label buffer of process {token.pid}")
    except ExchangeUnavailableError:
        return None
    try:
        return LabelBuffer(descriptor) if os.fstat(descriptor).st_size == _NBYTES else None
    finally:
        os.close(descriptor)

"""The label window: memory of a client that ranks on its host write labels into, and the ranks' way to open it.

A client reads labels window by window, and copies each into its array. The window has two slots, so that the ranks fill
one while the client empties the other. The memory is used again for all reads of the client: the system's work for a
new page takes several times as long as a copy of 4 KiB.

Ranks on GPUs put labels of a graph ordered by degree into the order of the vertices themselves. Each has a part of the
slot, where all bits of other ranks' labels are set, so that the bitwise and of the parts has all labels.

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

from dbfs_workers.errors import ExchangeUnavailableError
from dbfs_workers.tokens import Token, issue

SLOTS: Final = 2

SLOT_ITEMS: Final = 1 << 22
"""Most labels in a slot, 16 MiB. Smaller slots take more messages, larger ones more new pages at their first use."""

_PARTS: Final = 2
_SLOT_BYTES: Final = _PARTS * SLOT_ITEMS * 4
_NBYTES: Final = SLOTS * _SLOT_BYTES
_PURPOSE: Final = "label window"
_MOST_WINDOWS: Final = 2  # windows of clients that a worker keeps mapped, with at most ``_NBYTES`` each


def items_of_rank(ranks: int, width: int) -> int:
    """Return how many labels of ``width`` bytes each of several ranks can write to a slot."""
    return _SLOT_BYTES // ranks // 4 * 4 // width


@dataclass(frozen=True)
class WindowHandle:
    """The handle by which a rank opens a client's window. Picklable.

    Attributes:
        token: the token of the client's file, which is the memory.
    """

    token: Token


class LabelWindow:
    """A window as mapped in this process."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _NBYTES)

    def labels(self, slot: int, count: int) -> NDArray[np.uint32]:
        """Return uint32[count], the labels of a slot."""
        return self._part(slot * _PARTS, count)

    def positions(self, slot: int, count: int) -> NDArray[np.uint32]:
        """Return uint32[count], the positions of the slot's vertices in a graph ordered by degree."""
        return self._part(slot * _PARTS + 1, count)

    def of_rank(self, slot: int, rank: int, ranks: int, count: int, width: int) -> NDArray[Any]:
        """Return ``count`` unsigned integers of ``width`` bytes: one rank's labels in a slot of several ranks."""
        place = slot * _SLOT_BYTES + rank * items_of_rank(ranks, 4) * 4
        return np.frombuffer(self._memory, f"u{width}", count, place)

    def _part(self, part: int, count: int) -> NDArray[np.uint32]:
        return np.frombuffer(self._memory, np.uint32, count, part * SLOT_ITEMS * 4)


class ClientWindow(LabelWindow):
    """A client's own window.

    Attributes:
        handle: what ranks open the window with.
        lock: held by the one read that uses the window.

    Errors as for ``tokens.issue``.
    """

    def __init__(self) -> None:
        token = issue(_PURPOSE)
        # The file ends with this object, so that no rank opens it any more. Ranks that mapped it may keep the memory.
        weakref.finalize(self, os.close, token.descriptor)
        os.ftruncate(token.descriptor, _NBYTES)
        fcntl.fcntl(token.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        super().__init__(token.descriptor)
        self.handle = WindowHandle(token)
        self.lock = threading.Lock()


class OpenWindows:
    """The windows of clients that a worker has mapped. It keeps those used last."""

    def __init__(self) -> None:
        self._windows: OrderedDict[str, LabelWindow] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, handle: WindowHandle) -> LabelWindow | None:
        """Return a client's window; None if the client is on another host, in another container or of another user."""
        token = handle.token
        with self._lock:
            window = self._windows.pop(token.label, None)
            if window is None:
                window = _attach(token)
            if window is not None:
                self._windows[token.label] = window
                if len(self._windows) > _MOST_WINDOWS:
                    self._windows.popitem(last=False)
        return window


def _attach(token: Token) -> LabelWindow | None:
    try:
        descriptor = token.open(_PURPOSE, f"the label window of process {token.pid}")
    except ExchangeUnavailableError:
        return None
    try:
        return LabelWindow(descriptor) if os.fstat(descriptor).st_size == _NBYTES else None
    finally:
        os.close(descriptor)

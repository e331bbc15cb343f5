"""The messages of a 2-D partition: a set of local ids, or parents, for a rank of the same row or column of the grid.

A set of ids travels as a list, or as a bitmap if that is no larger. A message takes the place of the bin for its
receiver. So messages travel as bins do: in shared memory on one host, and by frames of the envoys between hosts. All
ranks cross the same barrier, which also sums their counts; messages go to the ranks of a row or a column alone.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.backends import grid_kernels as kernels
from dbfs_workers.backends.cpu_resident_kernels import mark
from dbfs_workers.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.storage.stripe import Stripe

ID_BYTES = 4
"""Bytes of a local id, of a parent, and of a word of a bitmap."""


class GridExchange:
    """One rank's messages. A rank sends at most one message to a peer between two crossings.

    Args:
        carrier: the rank's end of an exchange with bins of ``storage.grid.bin_entries`` entries.
        stripe: how the vertices lie on the ranks.

    Attributes:
        carrier: see above; a traversal resets it without predecessors.
        entries: most parents of a message.
    """

    def __init__(self, carrier: SharedMemoryExchange, stripe: Stripe) -> None:
        self.carrier = carrier
        self.entries = carrier.entries
        self._words = stripe.words_local
        self._unpacked = np.empty(stripe.n_local, np.uint32)

    def post(self, peers: Iterable[int], rows: NDArray[np.uint32]) -> int:
        """Send local ids, each once, to some peers at the next crossing; return the bytes sent."""
        posted = 0
        message: NDArray[np.uint32] | None = None if rows.size >= self._words else rows
        for peer in peers:
            if message is None:
                message = self._bin(peer, self._words)
                mark(rows, message)
            else:
                self._bin(peer, message.size)[:] = message
            posted += ID_BYTES * message.size
        return posted

    def post_words(self, peer: int, words: NDArray[np.uint32]) -> None:
        """Send a whole bitmap, or at most ``entries`` parents, to a peer at the next crossing."""
        self._bin(peer, words.size)[:] = words

    def rows(self, source: int) -> NDArray[np.uint32]:
        """Return the local ids of a peer's message, ascending in a bitmap; readable until the next crossing or call."""
        message = self.words(source)
        if message.size < self._words:
            return message
        return self._unpacked[: kernels.unpack(message, self._unpacked)]

    def words(self, source: int) -> NDArray[np.uint32]:
        """Return a peer's message as it was sent, readable until the next crossing."""
        return self.carrier.rows_from(source)

    def copy_bits(self, source: int, into: NDArray[np.uint32]) -> None:
        """Write the bitmap of the ids that a peer sent into uint32[words_local]."""
        message = self.words(source)
        if message.size < self._words:
            mark(message, into)
        else:
            into[:] = message

    def cross(self, level: int, phase: str, counts: tuple[int, int, int, int, int]) -> list[int]:
        """Cross with all ranks; return the sums of the counts. Arguments and errors as of ``Exchange.cross``."""
        return self.carrier.cross(level, phase, counts, sliced=False)

    def largest(self, count: int) -> int:
        """Return the largest of a count among the ranks, at the last crossing."""
        return int(self.carrier.gathered[:, count].max())

    def _bin(self, peer: int, size: int) -> NDArray[np.uint32]:
        carrier = self.carrier
        carrier.bin_ends[peer] = size
        return carrier.bin_rows[peer * self.entries : peer * self.entries + size]

"""The exchange of a 2-D partition, in the shared memory of one host: messages along rows and columns of the grid.

A message is a set of local ids: a list, or a bitmap if that is smaller. A rank writes its messages of a crossing into
its own part of the segment, and its peers read them until the next crossing. All ranks cross the same barrier, which
also sums their counts; bins and bitmaps go to the ranks of a row or a column alone.

| uint32 words of a rank's part | content |
| --- | --- |
| ``messages[2][columns][words_local]`` | messages by the crossing's parity and slot |
| ``sizes[2][columns]`` | the number of ids of each message |
| ``parents[n_local]`` | parents of the rank's own rows, written by the ranks of its row at the end |
"""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.backends import grid_kernels as kernels
from dbfs_workers.backends.cpu_resident_kernels import mark
from dbfs_workers.exchange.segment import Segment
from dbfs_workers.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.storage.grid import Grid, part_words
from dbfs_workers.storage.stripe import Stripe

ID_BYTES = 4
"""Bytes of a local id, and of a word of a bitmap."""


class GridExchange(SharedMemoryExchange):
    """One rank's end of the exchange. ``cross`` is that of ``SharedMemoryExchange``, whose bins and slices are unused.

    Attributes:
        grid: the ranks' places.
    """

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment)
        stripe = segment.handle.stripe
        self.grid = grid = Grid.of(stripe.p)
        self._words = words = stripe.words_local
        self._messages: dict[int, NDArray[np.uint32]] = {}
        self._sizes: dict[int, NDArray[np.uint32]] = {}
        self._own_parents: dict[int, NDArray[np.uint32]] = {}
        for peer in {*grid.row_of(self.rank), *grid.column_of(self.rank)}:
            part = segment.part(peer, part_words(stripe))
            sizes, parents = 2 * grid.columns * words, 2 * grid.columns * (words + 1)
            self._messages[peer] = part[:sizes].reshape(2, grid.columns, words)
            self._sizes[peer] = part[sizes:parents].reshape(2, grid.columns)
            self._own_parents[peer] = part[parents:]
        self._unpacked = np.empty(stripe.n_local, np.uint32)

    @classmethod
    def create(cls, stripe: Stripe, graph_id: str, entries: int | None = None) -> Self:
        """See ``SharedMemoryExchange``. The bins are so large that a rank's part fits into their memory."""
        return super().create(stripe, graph_id, entries or -(-part_words(stripe) // (4 * stripe.p)))

    def post(self, slot: int, rows: NDArray[np.uint32]) -> int:
        """Write a message for the next crossing into a slot; return its bytes. ``rows`` are local ids, each once."""
        parity = (self._crossing + 1) & 1
        message = self._messages[self.rank][parity, slot]
        if rows.size > self._words:
            mark(rows, message)
        else:
            message[: rows.size] = rows
        self._sizes[self.rank][parity, slot] = rows.size
        return ID_BYTES * min(rows.size, self._words)

    def post_bits(self, slot: int, bits: NDArray[np.uint32]) -> None:
        """Write a bitmap for the next crossing into a slot. Peers read it with ``bits``, or not at all."""
        self._messages[self.rank][(self._crossing + 1) & 1, slot] = bits

    def rows(self, source: int, slot: int) -> NDArray[np.uint32]:
        """Return the local ids of a message, readable until the next crossing or the next call."""
        size = self.size(source, slot)
        message = self.bits(source, slot)
        if size <= self._words:
            return message[:size]
        kernels.unpack(message, self._unpacked)
        return self._unpacked[:size]

    def bits(self, source: int, slot: int) -> NDArray[np.uint32]:
        """Return the words of a message that was sent as a bitmap, readable until the next crossing."""
        message: NDArray[np.uint32] = self._messages[source][self._crossing & 1, slot]
        return message

    def copy_bits(self, source: int, slot: int, into: NDArray[np.uint32]) -> None:
        """Write the bitmap of a message into uint32[words_local]."""
        if self.size(source, slot) <= self._words:
            mark(self.rows(source, slot), into)
        else:
            into[:] = self.bits(source, slot)

    def size(self, source: int, slot: int) -> int:
        """Return the number of ids of a message."""
        return int(self._sizes[source][self._crossing & 1, slot])

    def parents_of(self, rank: int) -> NDArray[np.uint32]:
        """Return uint32[n_local], the memory for the parents of a rank's own rows."""
        return self._own_parents[rank]

    def close(self) -> None:
        """See ``Exchange.close``."""
        self._messages, self._sizes, self._own_parents = {}, {}, {}
        super().close()

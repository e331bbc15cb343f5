"""The messages of a 2-D partition: a set of local ids, or parents, for a rank of the same row or column of the grid.

A set of ids travels as a list, or as a bitmap if that is no larger. A message takes the place of the bin for its
receiver. So messages travel as bins do: in shared memory on one host, and by frames of the envoys between hosts. All
ranks cross the same barrier, which also sums their counts; messages go to the ranks of a row or a column alone.

The messages of ranks on GPUs are made on the GPU and copied to their places on the host, and from there to the peer's
GPU, if there is no way between the GPUs (``exchange_on_gpus``). No kernel waits for a peer, so ranks may share a GPU.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.grid.operators import GridOperators
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.exchange.protocol import GangExchange
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import C

ID_BYTES = 4
"""Bytes of a local id, of a parent, and of a word of a bitmap."""


class Carrier(GangExchange, Protocol):
    """An exchange that carries messages in the places of its bins.

    Attributes:
        entries: entries of a bin.
    """

    entries: int

    def rows_from(self, source: int) -> NDArray[np.uint32]:
        """Return the rows that a peer binned for this rank before the last crossing, readable until the next one."""


class GridExchange:
    """One rank's messages. A rank sends at most one message to a peer between two crossings.

    Args:
        carrier: the rank's end of an exchange with bins of ``Grid.bin_entries`` entries.
        backend: the backend of the rank's device. All arrays are of its module.
        operators: those of the same device.

    Attributes:
        carrier: see above; a traversal resets it without predecessors.
        backend: see above.
        operators: see above.
        entries: most parents of a message.
    """

    def __init__(self, carrier: Carrier, stripe: Stripe, backend: Backend, operators: GridOperators) -> None:
        self.carrier = carrier
        self.backend = backend
        self.operators = operators
        self.entries = carrier.entries
        self._bits: NDArray[np.uint32] = backend.xp.empty(stripe.words_local, np.uint32)
        self._unpacked: NDArray[np.uint32] = backend.xp.empty(stripe.n_local, np.uint32)

    def post(self, peers: Iterable[int], rows: NDArray[np.uint32]) -> int:
        """Send local ids, each once, to some peers at the next crossing; return the bytes sent."""
        message = rows
        posted = 0
        for peer in peers:
            if message is rows and rows.size >= self._bits.size:
                message = self._bits
                self.backend.mark(rows, message)
            self.post_words(peer, message)
            posted += ID_BYTES * message.size
        return posted

    def post_words(self, peer: int, words: NDArray[np.uint32]) -> None:
        """Send a whole bitmap, or at most ``entries`` parents, to a peer at the next crossing."""
        carrier, size = self.carrier, words.size
        carrier.bin_ends[peer] = size
        if size:
            first = peer * self.entries
            self.backend.to_host(words, carrier.bin_rows[first : first + size])

    def rows(self, source: int) -> NDArray[np.uint32]:
        """Return the local ids of a peer's message, ascending in a bitmap; readable until the next crossing or call."""
        message = self.words(source)
        if message.size < self._bits.size:
            return message
        return self._unpacked[: self.operators.unpack(message, self._unpacked)]

    def words(self, source: int) -> NDArray[np.uint32]:
        """Return a peer's message as it was sent, readable until the next crossing."""
        words: NDArray[np.uint32] = self.backend.to_device(self.carrier.rows_from(source))
        return words

    def copy_bits(self, source: int, into: NDArray[np.uint32]) -> None:
        """Write the bitmap of the ids that a peer sent into uint32[words_local]."""
        message = self.words(source)
        if message.size < self._bits.size:
            self.backend.mark(message, into)
        else:
            into[:] = message

    def lend(self, name: str, words: int) -> tuple[Any, dict[int, int]]:  # noqa: ARG002
        """Return a new array uint32[words] that the peers read where it lies, and the addresses of theirs by rank.

        All ranks call it alike. Without mapped memory there are no peers.
        """
        assert self.carrier.p == 1
        return self.backend.xp.empty(words, np.uint32), {}

    def cross(self, level: int, phase: str, counts: C) -> C:
        """Cross with all ranks; return the counts of all. Arguments and errors as of ``Exchange.cross``."""
        return self.carrier.cross(level, phase, counts, sliced=False)

"""The messages of a 2-D partition from GPU memory to GPU memory: mapped by the peers (CUDA IPC), or by NCCL.

A rank's messages lie on its GPU, as the bins of the exchange below lie on the host. Where the ranks map each other's
memory, the receivers read them there, and the barrier and the sizes remain those of the exchange below. A rank then
waits for its GPU before it crosses, so that its messages are complete and those of the crossing before are read. No
kernel waits for a peer.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.tokens import issue
from dbfs_workers.features.grid.exchange import ID_BYTES, GridExchange
from dbfs_workers.features.grid.operators import GridOperators
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.cuda.run import OfferedMessages
from dbfs_workers.search.exchange.nccl import NcclExchange
from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.search.partition.partition import on_host
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import C, Nothing


class NcclGridExchange(GridExchange):
    """A ``GridExchange`` whose messages go by NCCL, in place of the CUDA-aware MPI of Krajecki 2016."""

    carrier: NcclExchange

    def post_words(self, peer: int, words: NDArray[np.uint32]) -> None:
        carrier, first = self.carrier, peer * self.entries
        carrier.bin_ends[peer] = words.size
        carrier.bin_rows[first : first + words.size] = words

    def words(self, source: int) -> NDArray[np.uint32]:
        """See ``GridExchange.words``. The array lies on this rank's GPU."""
        return self.carrier.rows_from(source)


class MappedGridExchange(GridExchange):
    """A ``GridExchange`` whose messages the peers read in this rank's GPU memory.

    Args:
        carrier, stripe, backend, operators: as of ``GridExchange``; all ranks are on one host.
    """

    carrier: SharedMemoryExchange

    def __init__(
        self,
        carrier: SharedMemoryExchange,
        stripe: Stripe,
        backend: Backend,
        operators: GridOperators,
        graph_id: str,
    ) -> None:
        super().__init__(carrier, stripe, backend, operators)
        self._graph_id = graph_id
        # By parity of the crossing, a place for each peer's message; a peer has the same places. None until offered.
        self._own: Any = None
        self._offered: OfferedMessages | None = None
        self._opened: dict[int, int] = {}
        # By name, what ``lend`` has made, and where the peers' arrays are mapped.
        self._made: dict[str, Any] = {}
        self._lent: dict[str, dict[int, int]] = {}

    def offer(self) -> OfferedMessages:
        """Allocate the rank's messages once, and return what its peers need in order to map them.

        Errors as for ``device_memory.export_allocation`` and ``device_memory.require``.
        """
        if self._offered is None:
            words, rank = 2 * self.carrier.p * self.entries, self.carrier.rank
            device_memory.require(ID_BYTES * words, f"rank {rank}, its messages")
            self._own = device_memory.own_allocation(words, np.uint32)
            handle = device_memory.export_allocation(self._own)
            self._offered = OfferedMessages(rank, handle, issue(self._graph_id))
        return self._offered

    def connect(self, offers: Sequence[OfferedMessages]) -> None:
        """Map the messages of all peers that are not mapped yet. Errors as for ``device_memory.open_handle``.

        What was lent is mapped anew when the next run asks: after a failed one some ranks may lack it.
        """
        self._take_back()
        rank = self.carrier.rank
        for offer in offers:
            if offer.rank != rank and offer.rank not in self._opened:
                what = f"rank {rank} can't map the GPU memory of rank {offer.rank}"
                offer.token.verify(self._graph_id, what)
                self._opened[offer.rank] = device_memory.open_handle(offer.handle, what)

    def disconnect(self) -> None:
        """Unmap the peers' messages, and what they lent. All ranks must do so before any of them closes."""
        self._take_back()
        while self._opened:
            device_memory.close_handle(self._opened.popitem()[1])

    def close(self) -> None:
        """Free the rank's messages, which no peer may have mapped any more."""
        self.disconnect()
        self._own = None
        self._made.clear()
        if self._offered is not None:
            os.close(self._offered.token.descriptor)
            self._offered = None

    def post_words(self, peer: int, words: NDArray[np.uint32]) -> None:
        carrier = self.carrier
        carrier.bin_ends[peer] = words.size
        first = self._place(carrier.crossing + 1, peer)
        self._own[first : first + words.size] = words

    def words(self, source: int) -> NDArray[np.uint32]:
        """See ``GridExchange.words``. The array lies on the peer's GPU."""
        carrier = self.carrier
        size = carrier.rows_from(source).size
        first = self._place(carrier.crossing, carrier.rank)
        at = self._opened[source] + ID_BYTES * first
        words: NDArray[np.uint32] = device_memory.array_at(at, size, np.uint32, self)
        return words

    def cross(self, level: int, phase: str, counts: C) -> C:
        self.backend.xp.cuda.get_current_stream().synchronize()
        return super().cross(level, phase, counts)

    def lend(self, name: str, words: int) -> tuple[Any, dict[int, int]]:
        """See ``GridExchange.lend``. A name has the same array until the gang ends; the first call of a name crosses.

        Errors as for ``offer`` and ``connect``.
        """
        xp, rank, p = self.backend.xp, self.carrier.rank, self.carrier.p
        if name not in self._made:
            device_memory.require(ID_BYTES * words, f"rank {rank}, its {name}")
            self._made[name] = device_memory.own_allocation(words, np.uint32)
        if name not in self._lent:
            handle = np.frombuffer(device_memory.export_allocation(self._made[name]), np.uint32)
            peers = {peer: np.empty_like(handle) for peer in range(p) if peer != rank}
            for first in range(0, handle.size, self.entries):
                part = np.s_[first : first + self.entries]
                for peer in peers:
                    self.post_words(peer, xp.asarray(handle[part]))
                self.cross(0, "lend", Nothing())
                for peer, of_peer in peers.items():
                    of_peer[part] = on_host(self.words(peer))
            self._lent[name] = opened = {}
            for peer, of_peer in peers.items():
                what = f"rank {rank} can't map the {name} of rank {peer}"
                opened[peer] = device_memory.open_handle(of_peer.tobytes(), what)
        return self._made[name], self._lent[name]

    def _take_back(self) -> None:
        """Unmap what the peers lent."""
        while self._lent:
            for address in self._lent.popitem()[1].values():
                device_memory.close_handle(address)

    def _place(self, crossing: int, receiver: int) -> int:
        """Return where a rank's message for a receiver begins at a crossing."""
        return ((crossing & 1) * self.carrier.p + receiver) * self.entries

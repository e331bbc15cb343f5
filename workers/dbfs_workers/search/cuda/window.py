"""Windows: the memory of a rank that its peers map. One ``cudaMalloc`` buffer, shared by a CUDA IPC handle.

A peer maps nothing before the rank's token has shown that the handles are of this host, of a live process and of the
same graph (``dbfs_workers.base.tokens``): CUDA opens a handle of another process without such a check.

A rank keeps its window until every peer has unmapped it: the caller puts a gang barrier between ``PeerWindows.close``
and ``Window.free``.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbfs_workers.base.tokens import issue
from dbfs_workers.search.cuda import device_memory, layout
from dbfs_workers.search.cuda.device_memory import ExportedArray
from dbfs_workers.search.cuda.run import PeerInfo
from dbfs_workers.search.partition.stripe import Stripe

ALIGNMENT = 256


@dataclass(frozen=True)
class WindowLayout:
    """Layout of a window; the same on all ranks.

    Attributes:
        offsets: byte offset of each part, by its field in ``layout.PEER``; a part that is not needed is absent.
        nbytes: size of the window.
    """

    offsets: Mapping[str, int]
    nbytes: int


def window_layout(stripe: Stripe, bin_capacity: int, leader_capacity: int, predecessors: bool) -> WindowLayout:
    """Lay out a window. A graph of one rank needs no inbox and no leader queue, and its labels lie elsewhere."""
    bins = 4 * 2 * stripe.p * bin_capacity if stripe.p > 1 else 0
    leader = 4 * 2 * leader_capacity if stripe.p > 1 else 0
    parts = {
        "flags": 8 * layout.FLAG_SLOTS * layout.MAX_RANKS * layout.FLAG_WORDS,
        "visited": 4 * stripe.words,
        "frontier": 2 * 4 * stripe.words,
        "inbox": bins,
        "inbox_parents": bins if predecessors else 0,
        "parents": 4 * stripe.p * stripe.n_local if predecessors and stripe.p > 1 else 0,
        "distances": 4 * stripe.n_local if stripe.p > 1 else 0,
        "leader_queue": leader,
        "leader_parents": leader if predecessors else 0,
    }
    offsets: dict[str, int] = {}
    at = 0
    for name, nbytes in parts.items():
        if nbytes:
            offsets[name] = at
            # Room behind each part: resets write whole 16-byte words.
            at += -(-(nbytes + 16) // ALIGNMENT) * ALIGNMENT
    return WindowLayout(offsets, at)


class Window:
    """This rank's window for a graph, allocated and zeroed.

    Attributes:
        token: the token that peers check before they map the window.
    """

    def __init__(self, parts: WindowLayout, graph_id: str) -> None:
        import cupy

        self._runtime = cupy.cuda.runtime
        self.layout = parts
        self.address: int = self._runtime.malloc(parts.nbytes)
        # After the allocation: if that finds no room, no file stays open.
        self.token = issue(graph_id)
        self._runtime.memset(self.address, 0, parts.nbytes)
        self._runtime.deviceSynchronize()

    def export(self) -> bytes:
        """Return the IPC handle, for peers in other processes."""
        return device_memory.ipc_handle(self.address)

    def array(self, name: str, count: int, dtype: Any) -> Any:
        """Return a part as a CuPy array, valid until ``free``."""
        return device_memory.array_at(self.address + self.layout.offsets[name], count, dtype, self)

    def clear_flags(self) -> None:
        """Clear the flags that a failed run left."""
        size = 8 * layout.FLAG_SLOTS * layout.MAX_RANKS * layout.FLAG_WORDS
        self._runtime.memset(self.address + self.layout.offsets["flags"], 0, size)

    def free(self) -> None:
        """Free the memory. Every peer must have unmapped it."""
        if self.address:
            os.close(self.token.descriptor)
            self._runtime.free(self.address)
            self.address = 0


class PeerWindows:
    """The windows of a graph's ranks as mapped in this process, and on the leader also the peers' adjacency lists.

    Raises:
        ExchangeUnavailableError: a peer's token is not of this host, of a live process and of this graph.
    """

    def __init__(
        self, rank: int, own: Window, infos: Mapping[int, PeerInfo], graph_id: str, *, is_leader: bool
    ) -> None:
        import cupy

        self._runtime = cupy.cuda.runtime
        self._opened: list[int] = []
        self._addresses = {rank: own.address}
        self._csr: dict[int, tuple[int, int]] = {}
        try:
            for peer, info in infos.items():
                if peer == rank:
                    continue
                info.token.verify(graph_id, f"rank {rank} can't map the GPU memory of rank {peer}")
                self._addresses[peer] = self._open(ExportedArray(info.handle, 0))
                if is_leader and info.csr is not None:
                    offsets, columns = info.csr
                    self._csr[peer] = (self._open(offsets), self._open(columns))
        except BaseException:
            self.close()
            raise
        self._layout = own.layout

    def _open(self, part: ExportedArray) -> int:
        if not part.handle:
            return 0
        # CUDA counts how often an allocation is opened, so every opening is closed once.
        address = int(self._runtime.ipcOpenMemHandle(part.handle))
        self._opened.append(address)
        return address + part.offset

    def params(self) -> np.ndarray[Any, Any]:
        """Return the addresses of all parts, as ``layout.PEER`` records by rank."""
        peers = np.zeros(layout.MAX_RANKS, layout.PEER)
        for rank, address in self._addresses.items():
            for name, offset in self._layout.offsets.items():
                peers[rank][name] = address + offset
        for rank, csr in self._csr.items():
            peers[rank]["out"] = csr
        return peers

    def close(self) -> None:
        """Unmap the peers' windows."""
        while self._opened:
            self._runtime.ipcCloseMemHandle(self._opened.pop())

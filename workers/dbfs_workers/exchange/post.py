"""The post between workers: messages of ``exchange.comm`` over Dask's own comms, one lasting connection to each peer.

Messages are not answered: a crossing is complete when the peers' messages are there, so an answer would only double
the traffic (12 messages a level with 4 ranks).
"""

import asyncio
import logging
import pickle
from collections.abc import Sequence
from typing import Any

import distributed
from distributed.core import send_recv
from distributed.protocol import to_serialize

from dbfs_workers.exchange.comm import Abort, CommExchange, Letter

logger = logging.getLogger(__name__)

_SMALL = 64 * 1024


class WorkerPost:
    """See ``dbfs_workers.exchange.comm.Post``.

    Attributes:
        exchange: who is told that a peer is gone.
    """

    exchange: CommExchange

    def __init__(self, worker: distributed.Worker, graph_id: str, addresses: Sequence[str]) -> None:
        self._worker = worker
        self._graph_id = graph_id
        self._addresses = list(addresses)
        self._loop = asyncio.get_running_loop()
        self._comms: dict[int, Any] = {}
        # One for each peer: messages to it keep their order, and a comm takes one write at a time.
        self._locks = [asyncio.Lock() for _ in addresses]
        self._sending: set[asyncio.Task[None]] = set()

    def send(self, peer: int, message: Letter | Abort) -> None:
        """Send a message to a rank, from any thread."""
        self._loop.call_soon_threadsafe(self._start, peer, message)

    def close(self) -> None:
        """Close the connections."""
        self._loop.call_soon_threadsafe(self._close)

    @staticmethod
    def unwrap(message: bytes | dict[str, Any]) -> Letter | Abort:
        """The message as it was sent."""
        if isinstance(message, bytes):
            unpickled: Letter | Abort = pickle.loads(message)
            return unpickled
        return Letter(**{**message, "counts": tuple(message["counts"])})

    def _start(self, peer: int, message: Letter | Abort) -> None:
        task = self._loop.create_task(self._send(peer, message))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, peer: int, message: Letter | Abort) -> None:
        packed = _pack(message)
        try:
            async with self._locks[peer]:
                comm = self._comms.get(peer)
                if comm is None:
                    comm = self._comms[peer] = await self._worker.rpc.connect(self._addresses[peer])
                await send_recv(comm, op="dbfs_deliver", reply=False, graph_id=self._graph_id, message=packed)
        except OSError as error:
            logger.info("dbfs: no way to rank %d at %s: %s", peer, self._addresses[peer], error)
            self.exchange.lost(message.number, peer)

    def _close(self) -> None:
        for peer, comm in self._comms.items():
            self._worker.rpc.reuse(self._addresses[peer], comm)
        self._comms = {}


def _pack(message: Letter | Abort) -> bytes | dict[str, Any]:
    # Dask sends an array in frames of its own, uncopied but a tenth of a millisecond each: dear for a small one.
    if isinstance(message, Abort) or message.nbytes < _SMALL:
        return pickle.dumps(message)
    fields = {name: getattr(message, name) for name in message.__dataclass_fields__}
    return {name: to_serialize(value) if hasattr(value, "dtype") else value for name, value in fields.items()}

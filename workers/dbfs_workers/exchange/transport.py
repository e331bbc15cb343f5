"""The transport of ``exchange.comm``'s messages between workers: Dask's own comms, one lasting connection to each peer.

Messages are not acknowledged. A crossing is complete when the peers' messages have arrived, so an acknowledgement would
only double the traffic (12 messages a level with 4 ranks).
"""

import asyncio
import logging
import pickle
from collections.abc import Sequence
from typing import Any

import distributed
from distributed.core import send_recv
from distributed.protocol import to_serialize

from dbfs_workers.exchange.comm import AbortMessages, CrossingMessage
from dbfs_workers.exchange.protocol import Abort

logger = logging.getLogger(__name__)

_SMALL = 64 * 1024  # bytes


class DaskTransport:
    """A ``Transport`` over Dask's comms, made in the worker's event loop.

    Attributes:
        exchange: the exchange whose ``peer_lost`` is called if a message can't be delivered.
    """

    exchange: AbortMessages

    def __init__(self, worker: distributed.Worker, graph_id: str, addresses: Sequence[str]) -> None:
        self._worker = worker
        self._graph_id = graph_id
        self._addresses = list(addresses)
        self._loop = asyncio.get_running_loop()
        self._comms: dict[int, Any] = {}
        # One lock for each peer, because a comm takes one write at a time; it also keeps the messages in order.
        self._locks = [asyncio.Lock() for _ in addresses]
        self._sending: set[asyncio.Task[None]] = set()

    def send(self, peer: int, message: CrossingMessage | Abort) -> None:
        """See ``Transport.send``."""
        self._loop.call_soon_threadsafe(self._start, peer, message)

    def close(self) -> None:
        """Give the connections back to Dask's pool."""
        self._loop.call_soon_threadsafe(self._close)

    @staticmethod
    def unwrap(message: bytes | dict[str, Any]) -> CrossingMessage | Abort:
        """Return the message that ``DaskTransport`` packed."""
        if isinstance(message, bytes):
            unpickled: CrossingMessage | Abort = pickle.loads(message)
            return unpickled
        return CrossingMessage(**{**message, "counts": tuple(message["counts"])})

    def _start(self, peer: int, message: CrossingMessage | Abort) -> None:
        task = self._loop.create_task(self._send(peer, message))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, peer: int, message: CrossingMessage | Abort) -> None:
        packed = _pack(message)
        try:
            async with self._locks[peer]:
                comm = self._comms.get(peer)
                if comm is None:
                    comm = self._comms[peer] = await self._worker.rpc.connect(self._addresses[peer])
                await send_recv(comm, op="dbfs_deliver", reply=False, graph_id=self._graph_id, message=packed)
        except OSError as error:
            logger.info("dbfs: can't send to rank %d at %s: %s", peer, self._addresses[peer], error)
            self.exchange.peer_lost(message.number, peer)

    def _close(self) -> None:
        for peer, comm in self._comms.items():
            self._worker.rpc.reuse(self._addresses[peer], comm)
        self._comms = {}


def _pack(message: CrossingMessage | Abort) -> bytes | dict[str, Any]:
    # Dask sends each array in a frame of its own: it copies nothing, but costs 0.1 ms a frame. Pickling copies, which
    # is cheaper for small arrays.
    if isinstance(message, Abort) or message.nbytes < _SMALL:
        return pickle.dumps(message)
    fields = {name: getattr(message, name) for name in message.__dataclass_fields__}
    return {name: to_serialize(value) if hasattr(value, "dtype") else value for name, value in fields.items()}

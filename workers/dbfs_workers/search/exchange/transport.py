"""The end of a run, spread by messages: for exchanges that carry no word of it themselves.

The messages travel between workers by Dask's connections. They are not acknowledged: a peer that is lost is found out
by the scheduler.
"""

import asyncio
import logging
import pickle
import threading
from collections.abc import Callable, Sequence

import distributed

from dbfs_workers.search.exchange.protocol import Abort, Cause, abort_error

logger = logging.getLogger(__name__)

Send = Callable[[int, Abort], None]
"""Queues a message to a rank. Callable from any thread; returns at once."""


class AbortMessages:
    """The base of such exchanges. ``abort`` and ``receive`` may be called from any thread."""

    def __init__(self, p: int, rank: int, send: Send) -> None:
        self.rank = rank
        self.p = p
        self._send = send
        self._peers = [peer for peer in range(p) if peer != rank]
        self._number = 0
        self._changed = threading.Condition()
        self._abort: Abort | None = None

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        """See ``Exchange.abort``."""
        abort = Abort(number, cause, self.rank if rank is None else rank, message)
        if self.receive(abort):
            for peer in self._peers:
                if peer != rank:
                    self._send(peer, abort)

    def receive(self, abort: Abort) -> bool:
        """Take a message of a peer. Return False if it is ignored: of an earlier run, or not the run's first abort."""
        with self._changed:
            if abort.number < self._number or (self._abort is not None and abort.number <= self._abort.number):
                return False
            self._abort = abort
            self._changed.notify_all()
            return True

    def _raise_if_aborted(self, where: str) -> None:
        """Raise the error of this run if the run was aborted; its message begins with ``where``."""
        abort = self._abort
        if abort is not None and abort.number == self._number:
            raise abort_error(abort.cause, where, abort.rank, abort.message)


class DaskTransport:
    """Sends the messages of one rank, over Dask's connections. Made in the worker's event loop.

    Attributes:
        exchange: the exchange whose run ends if a message can't be delivered.
    """

    OPERATION = "dbfs_deliver"
    exchange: AbortMessages

    def __init__(self, worker: distributed.Worker, graph_id: str, addresses: Sequence[str]) -> None:
        self._worker = worker
        self._graph_id = graph_id
        self._addresses = list(addresses)
        self._loop = asyncio.get_running_loop()
        self._sending: set[asyncio.Task[None]] = set()

    def send(self, peer: int, abort: Abort) -> None:
        """See ``Send``."""
        self._loop.call_soon_threadsafe(self._start, peer, abort)

    def _start(self, peer: int, abort: Abort) -> None:
        task = self._loop.create_task(self._deliver(peer, abort))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _deliver(self, peer: int, abort: Abort) -> None:
        address = self._addresses[peer]
        try:
            deliver = getattr(self._worker.rpc(address), self.OPERATION)
            await deliver(reply=False, graph_id=self._graph_id, message=pickle.dumps(abort))
        except OSError as error:
            logger.info("dbfs: can't send to rank %d at %s: %s", peer, address, error)
            self.exchange.abort(abort.number, Cause.LOST, f"lost rank {peer}", peer)

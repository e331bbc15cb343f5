"""The calls of rank 0 to its gang and to the scheduler."""

import asyncio
import contextlib
from concurrent.futures import Future
from typing import Any, Final

import distributed

from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.members.member import Member
from dbfs_workers.serving import rpc
from dbfs_workers.serving.messages import AbortRun
from dbfs_workers.serving.rpc import PickledValue
from dbfs_workers.serving.turns.notes import EnterUpdate, NoteRuns

NOTE_SECONDS: Final = 10.0
"""Seconds that the scheduler may take to answer notes, and another rank the end of a run."""

# Seconds after which a message that must reach the scheduler is sent again.
_TRY_AGAIN_AFTER: Final = 0.2


class GangCalls:
    """The calls of rank 0 to its gang and to the scheduler. Any thread may make them; all return at once.

    Args:
        member: rank 0's part in the gang.
        addresses: workers of the other ranks.
    """

    def __init__(self, worker: distributed.Worker, graph_id: str, member: Member, addresses: tuple[str, ...]) -> None:
        self._worker = worker
        self._graph_id = graph_id
        self._member = member
        self._addresses = addresses
        self._loop = asyncio.get_running_loop()
        self._order = asyncio.Lock()

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        """Abort a run on all ranks; arguments as of ``Exchange.abort``."""
        self._member.runner.abort(number, cause, message, rank)
        calling = self._send_to_peers(AbortRun(self._graph_id, number, cause, message, rank))
        try:
            asyncio.run_coroutine_threadsafe(calling, self._loop)
        except RuntimeError:
            # The loop of a worker that closes is closed.
            calling.close()

    def note(self, notes: NoteRuns) -> Future[None]:
        """Send notes to the scheduler, after all earlier ones; the future is done when the scheduler has them."""
        return asyncio.run_coroutine_threadsafe(self._send_in_order(notes), self._loop)

    def enter(self, update: EnterUpdate) -> Future[PickledValue[Any]]:
        """Have the scheduler enter an update, after all earlier notes; the future has the report, pickled."""
        return asyncio.run_coroutine_threadsafe(self._enter_in_order(update), self._loop)

    async def _enter_in_order(self, update: EnterUpdate) -> PickledValue[Any]:
        # The ranks have the version already, so a scheduler that is late gets the message again and again. The worker
        # closes if the scheduler is lost, and the graph is lost then as well.
        address = self._worker.scheduler.address
        async with self._order:
            while True:
                try:
                    answer = await rpc.send(self._worker.scheduler, update, NOTE_SECONDS)
                except OSError:
                    await asyncio.sleep(_TRY_AGAIN_AFTER)
                else:
                    return rpc.unpack(address, update, answer)

    async def _send_to_peers(self, message: AbortRun) -> None:
        await asyncio.gather(*(self._send(self._worker.rpc(address), message) for address in self._addresses))

    async def _send_in_order(self, notes: NoteRuns) -> None:
        async with self._order:
            await self._send(self._worker.scheduler, notes)

    @staticmethod
    async def _send(server: Any, message: rpc.Message[None]) -> None:
        # A server that can't be reached is lost, which ends the run by other ways. A worker that closes raises
        # RuntimeError: its own connections are closed.
        with contextlib.suppress(OSError, RuntimeError):
            await rpc.send(server, message, NOTE_SECONDS)

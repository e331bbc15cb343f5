"""The leases of all gangs that a worker has a rank of; the worker plugin calls these methods."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

import distributed

from dbfs_workers import rpc
from dbfs_workers.errors import ExchangeUnavailableError, StaleRunError
from dbfs_workers.exchange.protocol import Cause
from dbfs_workers.leases.follower import Follower, MakeRun, MakeUpdate
from dbfs_workers.leases.leader import Leader
from dbfs_workers.leases.messages import EndLease, GrantLease, LeaseEnd, OpenDoor
from dbfs_workers.leases.notes import EnterUpdate, NoteRuns
from dbfs_workers.leases.peer import Peer
from dbfs_workers.leases.requests import BeginUpdate, Burst, EndUpdate
from dbfs_workers.lines.line import Address, Line, LineClosedError
from dbfs_workers.lines.worker_door import WorkerDoor
from dbfs_workers.members.member import Member
from dbfs_workers.messages import AbortRun, ReportLostPeer, WorkerMessage
from dbfs_workers.reports import RankReport
from dbfs_workers.rpc import Pickled
from dbfs_workers.storage.partition import Partition
from dbfs_workers.updates.worker import Updates

# Seconds that the scheduler may take to answer notes, and another rank the end of a run.
_NOTE_SECONDS: Final = 10.0
# Seconds after which a message that must reach the scheduler is sent again.
_TRY_AGAIN_AFTER: Final = 0.2


class WorkerLeases:
    """The leases on one worker. The event loop's thread calls all methods.

    Args:
        worker: the worker.
        door: the worker's door.
        updates: the updates of the worker's ranks.
    """

    def __init__(self, worker: distributed.Worker, door: WorkerDoor, updates: Updates) -> None:
        self._worker = worker
        self._door = door
        self._updates = updates
        # By graph id, with the token of rank 0's line, and the epoch of the lines.
        self._followers: dict[str, tuple[Follower, bytes, int]] = {}
        self._leaders: dict[str, tuple[Leader, int]] = {}
        # By graph id, the serial number of the latest lease, and its holder's token.
        self._holders: dict[str, tuple[int, bytes]] = {}

    async def open_door(self, message: OpenDoor, member: Member) -> Address:
        """See ``OpenDoor``."""
        epoch = self._followers[message.graph_id][2] if message.graph_id in self._followers else 0
        if message.epoch < epoch:
            raise StaleRunError(f"rank {member.rank}: lines of epoch {message.epoch}, and of {epoch} there are some")
        self.leave(message.graph_id)
        follower = Follower(member.rank, *self._makers_of(member, message.graph_id))
        self._followers[message.graph_id] = follower, message.token, message.epoch
        return self._door.admit(message.token, partial(_serve_awake, member, follower.serve))

    async def grant(self, message: GrantLease, member: Member) -> Address:
        """See ``GrantLease``."""
        latest = self._holders.get(message.graph_id, (0, b""))[0]
        if message.lease <= latest:
            raise StaleRunError(f"rank 0: lease {message.lease} comes late, after lease {latest}")
        if self._leaders.get(message.graph_id, (None, 0))[1] != message.epoch:
            self._drop_leader(message.graph_id)
            lines = await asyncio.to_thread(
                _open_lines, self._door.opener(), message.doors, message.doors_token, message.seconds
            )
            if member.closed:
                # The graph was unloaded meanwhile.
                for line in lines:
                    line.close()
                raise StaleRunError(f"{self._worker.address} is not a rank of the graph {message.graph_id} any more")
            for line in lines:
                line.awake_seconds = member.awake_seconds
            peers = [Peer(rank, line) for rank, line in enumerate(lines, 1)]
            calls = _Calls(self._worker, message.graph_id, member, message.addresses)
            makers = self._makers_of(member, message.graph_id)
            order = None
            if message.order_key is not None:
                order = self._worker.data.get(message.order_key)
                if order is None:
                    for line in lines:
                        line.close()
                    raise ExchangeUnavailableError(
                        f"{self._worker.address} has lost the order by degree; load the graph again"
                    )
            leader = Leader(message.graph_id, peers, *makers, calls, member.burst_seconds, member.answer_seconds, order)
            self._leaders[message.graph_id] = leader, message.epoch
        leader = self._leaders[message.graph_id][0]
        leader.grant(message.lease, message.client, message.number, message.run_id)
        self._refuse_holder(message.graph_id)
        self._holders[message.graph_id] = message.lease, message.token
        return self._door.admit(message.token, partial(_serve_awake, member, leader.serve))

    async def end(self, message: EndLease, member: Member) -> LeaseEnd:
        """See ``EndLease``."""
        leader = self._leaders.get(message.graph_id, (None, 0))[0]
        if leader is None:
            if message.graph_id in self._followers and message.cause is not None:
                follower = self._followers[message.graph_id][0]
                follower.stop(message.lease, lambda number: _end_run(member, number, message))
            return LeaseEnd(0, failed=False)
        if message.cause is None:
            await asyncio.to_thread(leader.revoke, message.lease)
        else:
            leader.stop(message.lease, lambda number: _end_run(member, number, message))
        end, sending = await asyncio.to_thread(leader.wait_until_idle)
        # Not before: the holder may open its line while the lease is revoked. During the wait another message may have
        # ended this lease, and the next one may have begun.
        if self._holders.get(message.graph_id, (0, b""))[0] == message.lease:
            self._refuse_holder(message.graph_id)
            if end.failed:
                # A line may be broken, or have an answer of the failed run under way.
                self._drop_leader(message.graph_id)
        if sending:
            # The scheduler must have the notes and the updates before it forgets the lease.
            await asyncio.wait([*map(asyncio.wrap_future, sending)], timeout=_NOTE_SECONDS)
        return end

    def leave(self, graph_id: str) -> None:
        """End the leases of a gang that this worker leaves."""
        follower, token, _ = self._followers.pop(graph_id, (None, b"", 0))
        if follower is not None:
            follower.close()
        self._door.refuse(token)
        self._drop_leader(graph_id)
        self._refuse_holder(graph_id)
        self._holders.pop(graph_id, None)

    def _drop_leader(self, graph_id: str) -> None:
        """Close rank 0's lines to the other ranks; the next grant opens new ones."""
        leader, _ = self._leaders.pop(graph_id, (None, 0))
        if leader is not None:
            leader.close()

    def close(self) -> None:
        """End all leases."""
        for graph_id in [*self._followers, *self._leaders]:
            self.leave(graph_id)

    def _makers_of(self, member: Member, graph_id: str) -> tuple[MakeRun, MakeUpdate]:
        """Return what does this rank's work in bursts, and in updates."""
        updates, partition = self._updates, self._worker.data[member.partition_key]

        def rows() -> Partition:
            return member.latest or partition

        def make_run(burst: Burst, stops: Callable[[], bool] = lambda: False, /) -> Generator[RankReport, None, None]:
            with member.in_use:
                yield from member.make_burst(
                    rows(),
                    burst.number,
                    burst.client,
                    burst.specs,
                    burst.deadline,
                    burst.dropped,
                    burst.first,
                    burst.following,
                    stops,
                )

        def make_update(half: BeginUpdate | EndUpdate) -> object:
            if isinstance(half, BeginUpdate):
                return member.alone(updates.prepare, member, graph_id, half.run_id, rows(), half.spec)
            updates.finish(member, graph_id, half.run_id, half.totals)
            return None

        return make_run, make_update

    def _refuse_holder(self, graph_id: str) -> None:
        """Admit the holder's line no more; the serial number stays, for grants that come late."""
        if graph_id in self._holders:
            lease, token = self._holders[graph_id]
            self._door.refuse(token)
            self._holders[graph_id] = lease, b""


class _Calls:
    """See ``leader.GangCalls``."""

    def __init__(self, worker: distributed.Worker, graph_id: str, member: Member, addresses: tuple[str, ...]) -> None:
        self._worker = worker
        self._graph_id = graph_id
        self._member = member
        self._addresses = addresses
        self._loop = asyncio.get_running_loop()
        self._order = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def abort(self, number: int, cause: Cause, message: str) -> None:
        """See ``GangCalls``."""
        self._member.abort(number, cause, message)
        self._call_peers(AbortRun(self._graph_id, number, cause, message))

    def peer_lost(self, number: int, rank: int) -> None:
        """See ``GangCalls``."""
        self._member.peer_lost(number, rank)
        self._call_peers(ReportLostPeer(self._graph_id, number, rank))

    def note(self, notes: NoteRuns) -> Future[None]:
        """See ``GangCalls``."""
        return asyncio.run_coroutine_threadsafe(self._send_in_order(notes), self._loop)

    def enter(self, update: EnterUpdate) -> Future[Pickled[Any]]:
        """See ``GangCalls``."""
        return asyncio.run_coroutine_threadsafe(self._enter_in_order(update), self._loop)

    async def _enter_in_order(self, update: EnterUpdate) -> Pickled[Any]:
        # The ranks have the version already, so a scheduler that is late gets the message again and again. The worker
        # closes if the scheduler is lost, and the graph is lost then as well.
        address = self._worker.scheduler.address
        async with self._order:
            while True:
                try:
                    answer = await rpc.send(self._worker.scheduler, update, _NOTE_SECONDS)
                except OSError:
                    await asyncio.sleep(_TRY_AGAIN_AFTER)
                else:
                    return rpc.unpack(address, update, answer)

    def _call_peers(self, message: WorkerMessage[None]) -> None:
        for address in self._addresses:
            self._in_loop(self._start, address, message)

    def _in_loop(self, call: Callable[..., None], *arguments: object) -> None:
        # The loop of a worker that closes is closed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *arguments)

    def _start(self, address: str, message: WorkerMessage[None]) -> None:
        self._spawn(self._send(self._worker.rpc(address), message))

    async def _send_in_order(self, notes: NoteRuns) -> None:
        async with self._order:
            await self._send(self._worker.scheduler, notes)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _send(server: Any, message: rpc.Message[None]) -> None:
        # A server that can't be reached is lost, which ends the run by other ways. A worker that closes raises
        # RuntimeError: its own connections are closed.
        with contextlib.suppress(OSError, RuntimeError):
            await rpc.send(server, message, _NOTE_SECONDS)


def _serve_awake(member: Member, serve: Callable[[Line], None], line: Line) -> None:
    line.awake_seconds = member.awake_seconds
    serve(line)


def _end_run(member: Member, number: int, message: EndLease) -> None:
    if message.cause is Cause.LOST:
        member.peer_lost(number, message.lost)
    elif message.cause is not None:
        member.abort(number, message.cause, message.message)


def _open_lines(
    open_line: Callable[[Address, bytes, float], Line], doors: tuple[Address, ...], token: bytes, seconds: float
) -> list[Line]:
    lines: list[Line] = []
    end = time.monotonic() + seconds
    try:
        for address in doors:
            lines.append(open_line(address, token, max(1e-3, end - time.monotonic())))
            lines[-1].notice_silence()
    except BaseException as error:
        for line in lines:
            line.close()
        if isinstance(error, LineClosedError):
            raise ExchangeUnavailableError(str(error)) from error
        raise
    return lines

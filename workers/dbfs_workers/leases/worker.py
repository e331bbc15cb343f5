"""The leases of all gangs that a worker has a rank of; the worker plugin calls these methods."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

import distributed

from dbfs_workers import rpc
from dbfs_workers.errors import ExchangeUnavailableError, StaleRunError, WorkerLostError
from dbfs_workers.exchange.protocol import Cause
from dbfs_workers.leases.follower import Follower, MakeRun, MakeUpdate
from dbfs_workers.leases.leader import Leader
from dbfs_workers.leases.messages import EndLease, GrantLease, LeaseEnd, OpenDoor
from dbfs_workers.leases.notes import DecideUpdate, Decision, NoteRuns
from dbfs_workers.leases.peer import Peer
from dbfs_workers.leases.requests import EndOfUpdate, PartOfRun, PartOfUpdate
from dbfs_workers.levels.traversals import never
from dbfs_workers.lines.line import Address, Line, LineClosedError
from dbfs_workers.lines.worker_door import WorkerDoor
from dbfs_workers.members.member import Member
from dbfs_workers.messages import AbortRun, ReportLostPeer, WorkerMessage
from dbfs_workers.reports import RankReport
from dbfs_workers.storage.partition import Partition
from dbfs_workers.updates.worker import Updates

# Seconds that opening a line to another rank may take.
_OPEN_SECONDS = 2.0
# Times that the scheduler is asked for a decision while connections to it break, and seconds between these.
_TRIES: Final = 5
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
        self._followers: dict[str, tuple[Follower, bytes]] = {}
        self._leaders: dict[str, Leader] = {}
        # By graph id, the serial number of the latest lease, and its holder's token.
        self._holders: dict[str, tuple[int, bytes]] = {}

    async def open_door(self, message: OpenDoor, member: Member) -> Address:
        """See ``OpenDoor``."""
        self.leave(message.graph_id)
        follower = Follower(member.rank, *self._parts_of(member, message.graph_id))
        self._followers[message.graph_id] = follower, message.token
        return self._door.admit(message.token, partial(_serve_awake, member, follower.serve))

    async def grant(self, message: GrantLease, member: Member) -> Address:
        """See ``GrantLease``."""
        if message.graph_id not in self._leaders:
            lines = await asyncio.to_thread(_open_lines, self._door.opener(), message.doors, message.doors_token)
            if member.closed:
                # The graph was unloaded meanwhile.
                for line in lines:
                    line.close()
                raise StaleRunError(f"{self._worker.address} is not a rank of the graph {message.graph_id} any more")
            for line in lines:
                line.awake_seconds = member.awake_seconds
            peers = [Peer(rank, line) for rank, line in enumerate(lines, 1)]
            calls = _Calls(self._worker, message.graph_id, member, message.addresses)
            parts = self._parts_of(member, message.graph_id)
            order = None
            if message.order_key is not None:
                order = self._worker.data.get(message.order_key)
                if order is None:
                    for line in lines:
                        line.close()
                    raise ExchangeUnavailableError(
                        f"{self._worker.address} has lost the order by degree; load the graph again"
                    )
            self._leaders[message.graph_id] = Leader(
                message.graph_id, peers, *parts, calls, member.part_seconds, member.answer_seconds, order
            )
        leader = self._leaders[message.graph_id]
        leader.grant(message.lease, message.client, message.number, message.run_id)
        self._refuse_holder(message.graph_id)
        self._holders[message.graph_id] = message.lease, message.token
        return self._door.admit(message.token, partial(_serve_awake, member, leader.serve))

    async def end(self, message: EndLease, member: Member) -> LeaseEnd:
        """See ``EndLease``."""
        leader = self._leaders.get(message.graph_id)
        if leader is None:
            if message.graph_id in self._followers and message.cause is not None:
                follower = self._followers[message.graph_id][0]
                follower.stop(message.lease, lambda number: _end_run(member, number, message))
            return LeaseEnd(0, failed=False)
        if message.cause is None:
            await asyncio.to_thread(leader.revoke, message.lease)
        else:
            leader.stop(message.lease, lambda number: _end_run(member, number, message))
        end, noted = await asyncio.to_thread(leader.wait_until_idle)
        # Not before: the holder may open its line while the lease is revoked. During the wait another message may have
        # ended this lease, and the next one may have begun.
        if self._holders.get(message.graph_id, (0, b""))[0] == message.lease:
            self._refuse_holder(message.graph_id)
        if noted is not None:
            # The scheduler must have the notes before it forgets the lease.
            await asyncio.wrap_future(noted)
        return end

    def leave(self, graph_id: str) -> None:
        """End the leases of a gang that this worker leaves."""
        follower, token = self._followers.pop(graph_id, (None, b""))
        leader = self._leaders.pop(graph_id, None)
        for served in (follower, leader):
            if served is not None:
                served.close()
        self._door.refuse(token)
        self._refuse_holder(graph_id)

    def close(self) -> None:
        """End all leases."""
        for graph_id in [*self._followers, *self._leaders]:
            self.leave(graph_id)

    def _parts_of(self, member: Member, graph_id: str) -> tuple[MakeRun, MakeUpdate]:
        """Return what makes a rank's parts in runs, and in updates."""
        updates, partition = self._updates, self._worker.data[member.partition_key]

        def rows() -> Partition:
            return member.latest or partition

        def make_run(part: PartOfRun, stops: Callable[[], bool] = never, /) -> Generator[RankReport, None, None]:
            with member.in_use:
                yield from member.make_part(
                    rows(),
                    part.number,
                    part.client,
                    part.specs,
                    part.deadline,
                    part.dropped,
                    part.first,
                    part.following,
                    stops,
                )

        def make_update(part: PartOfUpdate | EndOfUpdate) -> object:
            if isinstance(part, PartOfUpdate):
                return member.alone(updates.prepare, member, graph_id, part.run_id, rows(), part.spec)
            updates.finish(member, graph_id, part.run_id, part.totals)
            return None

        return make_run, make_update

    def _refuse_holder(self, graph_id: str) -> None:
        self._door.refuse(self._holders.pop(graph_id, (0, b""))[1])


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

    def decide(self, update: DecideUpdate) -> Decision:
        """See ``GangCalls``."""
        asking = asyncio.run_coroutine_threadsafe(self._ask(update), self._loop)
        return self._member.wait_for(asking)

    async def _ask(self, update: DecideUpdate) -> Decision:
        address = self._worker.scheduler.address
        for tried in range(1, _TRIES + 1):
            try:
                return rpc.unpack(address, update, await rpc.send(self._worker.scheduler, update))
            except OSError as error:
                if tried == _TRIES:
                    raise WorkerLostError(f"run {update.run_id}: rank 0 lost the scheduler: {error}") from error
            await asyncio.sleep(_TRY_AGAIN_AFTER)
        raise AssertionError

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
            await rpc.send(server, message)


def _serve_awake(member: Member, serve: Callable[[Line], None], line: Line) -> None:
    line.awake_seconds = member.awake_seconds
    serve(line)


def _end_run(member: Member, number: int, message: EndLease) -> None:
    if message.cause is Cause.LOST:
        member.peer_lost(number, message.lost)
    elif message.cause is not None:
        member.abort(number, message.cause, message.message)


def _open_lines(
    open_line: Callable[[Address, bytes, float], Line], doors: tuple[Address, ...], token: bytes
) -> list[Line]:
    lines: list[Line] = []
    try:
        for address in doors:
            lines.append(open_line(address, token, _OPEN_SECONDS))
            lines[-1].notice_silence()
    except BaseException as error:
        for line in lines:
            line.close()
        if isinstance(error, LineClosedError):
            raise ExchangeUnavailableError(str(error)) from error
        raise
    return lines

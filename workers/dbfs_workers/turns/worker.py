"""The turns of all gangs that a worker has a rank of."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

import distributed

from dbfs_workers.errors import ExchangeUnavailableError, LateError, StaleRunError
from dbfs_workers.lines.line import Address, Line, LineClosedError
from dbfs_workers.lines.worker_door import WorkerDoor
from dbfs_workers.members.member import Member
from dbfs_workers.turns.calls import NOTE_SECONDS, GangCalls
from dbfs_workers.turns.leader import Leader
from dbfs_workers.turns.messages import BeginTurn, Begun, Doors, EndTurn, OpenDoor, TurnEnd
from dbfs_workers.turns.ranks import Follower, Peer
from dbfs_workers.turns.requests import (
    Answers,
    BeginUpdate,
    Burst,
    Make,
    RankRequest,
    Request,
    answer_well,
    answers_of_run,
)
from dbfs_workers.updates.worker import Updates


class WorkerTurns:
    """The turns on one worker. The event loop's thread calls all methods.

    Args:
        worker: the worker.
        door: the worker's door.
        updates: the updates of the worker's ranks.
        member: returns the worker's part in the gang of a graph, or raises ``StaleRunError``.
    """

    def __init__(
        self, worker: distributed.Worker, door: WorkerDoor, updates: Updates, member: Callable[[str], Member]
    ) -> None:
        self._worker = worker
        self._door = door
        self._updates = updates
        self._member = member
        # By graph id, with the token of rank 0's line, and the epoch of the lines.
        self._followers: dict[str, tuple[Follower, bytes, int]] = {}
        self._leaders: dict[str, tuple[Leader, int]] = {}
        # By graph id, the serial number of the latest turn that began or was ended at once, and its holder's token.
        self._latest: dict[str, tuple[int, bytes]] = {}

    @OpenDoor.handler
    async def open_door(self, message: OpenDoor) -> Address:
        """See ``OpenDoor``."""
        member = self._member(message.graph_id)
        epoch = self._followers[message.graph_id][2] if message.graph_id in self._followers else 0
        if message.epoch < epoch:
            raise StaleRunError(f"rank {member.rank}: lines of epoch {message.epoch}, and of {epoch} there are some")
        self.leave(message.graph_id)
        follower = Follower(member.rank, self._maker(member, message.graph_id))
        self._followers[message.graph_id] = follower, message.token, message.epoch
        return self._door.admit(message.token, partial(_serve_awake, member, follower.serve))

    @BeginTurn.handler
    async def begin_turn(self, message: BeginTurn) -> Begun:
        """See ``BeginTurn``."""
        member, graph_id = self._member(message.graph_id), message.graph_id
        end = time.monotonic() + message.seconds
        self._require_later(message)
        if self._leaders.get(graph_id, (None, 0))[1] != message.doors.epoch:
            self._drop_leader(graph_id)
            self._leaders[graph_id] = await self._new_leader(message, member), message.doors.epoch
            # Meanwhile the scheduler may have ended the turn.
            self._require_later(message)
        leader = self._leaders[graph_id][0]
        # In a thread, since a run that was ended without an answer may be under way yet.
        listed = "" if message.work else message.run_id
        await asyncio.to_thread(leader.grant, message.turn, message.client, message.number, listed)
        self._require_later(message)
        self._refuse_holder(graph_id)
        self._latest[graph_id] = message.turn, message.token
        address = None
        if message.token:
            address = self._door.admit(message.token, partial(_serve_awake, member, leader.serve))
        if message.work is None:
            return Begun(address, None)
        request = Request(message.turn, message.run_id, max(1e-3, end - time.monotonic()), message.work.value())
        return Begun(address, await asyncio.to_thread(leader.lead, request))

    async def _new_leader(self, message: BeginTurn, member: Member) -> Leader:
        """Open rank 0's lines to the other ranks. Errors as for ``BeginTurn``."""
        graph_id = message.graph_id
        order = None if message.order_key is None else self._worker.data.get(message.order_key)
        if order is None and message.order_key is not None:
            raise ExchangeUnavailableError(f"{self._worker.address} has lost the order by degree; load the graph again")
        lines = await asyncio.to_thread(_open_lines, self._door.opener(), message.doors, message.seconds)
        if member.closed:
            # The graph was unloaded meanwhile.
            for line in lines:
                line.close()
            raise StaleRunError(f"{self._worker.address} is not a rank of the graph {graph_id} any more")
        for line in lines:
            line.awake_seconds = member.awake_seconds
        peers = [Peer(rank, line) for rank, line in enumerate(lines, 1)]
        calls = GangCalls(self._worker, graph_id, member, message.addresses)
        make = self._maker(member, graph_id)
        return Leader(graph_id, peers, make, calls, member.burst_seconds, member.answer_seconds, order)

    @EndTurn.handler
    async def end_turn(self, message: EndTurn) -> TurnEnd:
        """See ``EndTurn``."""
        member, graph_id, turn = self._member(message.graph_id), message.graph_id, message.turn

        def end_run(number: int) -> None:
            if message.cause is not None:
                member.abort(number, message.cause, message.message, message.rank)

        if graph_id in self._followers and message.cause is not None:
            self._followers[graph_id][0].stop(turn, end_run)
        latest, token = self._latest.get(graph_id, (0, b""))
        if latest < turn and message.cause is not None:
            # The turn may begin late: the message that begins it is refused.
            self._refuse_holder(graph_id)
            self._latest[graph_id] = turn, b""
        leader = self._leaders.get(graph_id, (None, 0))[0]
        if leader is None or latest < turn:
            return TurnEnd(0, failed=False)
        if message.cause is None:
            await asyncio.to_thread(leader.revoke, turn)
        else:
            leader.stop(turn, end_run)
        end, sending = await asyncio.to_thread(leader.wait_until_idle)
        # Not before: the holder may open its line while the turn is revoked. During the wait another message may have
        # ended this turn, and the next one may have begun.
        if self._latest.get(graph_id) == (turn, token):
            self._refuse_holder(graph_id)
            if end.failed:
                # A line may be broken, or have an answer of the failed run under way.
                self._drop_leader(graph_id)
        if sending:
            # The scheduler must have the notes and the updates before it forgets the turn.
            await asyncio.wait([*map(asyncio.wrap_future, sending)], timeout=NOTE_SECONDS)
        return end

    def leave(self, graph_id: str) -> None:
        """End the turns of a gang that this worker leaves."""
        follower, token, _ = self._followers.pop(graph_id, (None, b"", 0))
        if follower is not None:
            follower.close()
        self._door.refuse(token)
        self._drop_leader(graph_id)
        self._refuse_holder(graph_id)
        self._latest.pop(graph_id, None)

    def close(self) -> None:
        """End all turns."""
        for graph_id in [*self._followers, *self._leaders]:
            self.leave(graph_id)

    def _require_later(self, message: BeginTurn) -> None:
        """Check that a turn is later than all that began or were ended.

        Raises:
            StaleRunError: it is not.
        """
        latest = self._latest.get(message.graph_id, (0, b""))[0]
        if message.turn <= latest:
            raise StaleRunError(f"rank 0: turn {message.turn} comes late, after turn {latest}")

    def _drop_leader(self, graph_id: str) -> None:
        """Close rank 0's lines to the other ranks; the next turn opens new ones."""
        leader, _ = self._leaders.pop(graph_id, (None, 0))
        if leader is not None:
            leader.close()

    def _refuse_holder(self, graph_id: str) -> None:
        """Admit the holder's line no more; the serial number stays, for turns that begin late."""
        turn, token = self._latest.get(graph_id, (0, b""))
        self._door.refuse(token)
        self._latest[graph_id] = turn, b""

    def _maker(self, member: Member, graph_id: str) -> Make:
        """Return what takes this rank's part in requests."""
        updates, first = self._updates, self._worker.data[member.partition_key]

        def make(part: RankRequest, stops: Callable[[], bool]) -> Answers:
            rows = member.latest or first
            if isinstance(part, Burst):
                with member.in_use:
                    reports = member.make_burst(
                        *(rows, part.number, part.client, part.specs, part.deadline, part.dropped),
                        *(part.first, part.following, stops),
                    )
                    yield from answers_of_run(part, reports)
            elif isinstance(part, BeginUpdate):
                key = part.collections[member.rank] if part.collections else None
                prepared = member.alone(updates.prepare, member, graph_id, part.run_id, rows, part.spec, key)
                yield answer_well(prepared), 0
            else:
                updates.finish(member, graph_id, part.run_id, part.totals)
                yield answer_well(None), 0

        return make


def _serve_awake(member: Member, serve: Callable[[Line], None], line: Line) -> None:
    line.awake_seconds = member.awake_seconds
    serve(line)


def _open_lines(open_line: Callable[[Address, bytes, float], Line], doors: Doors, seconds: float) -> list[Line]:
    lines: list[Line] = []
    end = time.monotonic() + seconds
    try:
        for address in doors.addresses:
            lines.append(open_line(address, doors.token, max(1e-3, end - time.monotonic())))
            lines[-1].notice_silence()
    except BaseException as error:
        for line in lines:
            line.close()
        if isinstance(error, ExchangeUnavailableError) and time.monotonic() >= end:
            raise LateError(f"no line to rank {len(lines) + 1} in time: {error}") from error
        if isinstance(error, LineClosedError):
            raise ExchangeUnavailableError(str(error)) from error
        raise
    return lines

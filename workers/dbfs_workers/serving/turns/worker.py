"""The turns of all gangs that a worker has a rank of."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import distributed

from dbfs_workers.base.errors import ExchangeUnavailableError, LateError, StaleRunError
from dbfs_workers.base.lines.line import Address, Line, LineClosedError, new_token
from dbfs_workers.base.lines.worker_door import WorkerDoor
from dbfs_workers.search.members.burst import Burst
from dbfs_workers.search.members.member import Member
from dbfs_workers.serving import rpc
from dbfs_workers.serving.answers import answer_well
from dbfs_workers.serving.turns.calls import NOTE_SECONDS, GangCalls
from dbfs_workers.serving.turns.changes import RankChanges, VersionLog
from dbfs_workers.serving.turns.leader import Leader
from dbfs_workers.serving.turns.messages import BeginTurn, BegunTurn, EndTurn, OpenDoor, TurnEnd
from dbfs_workers.serving.turns.notes import EnterUpdate
from dbfs_workers.serving.turns.ranks import Follower, Peer
from dbfs_workers.serving.turns.requests import Answers, BeginUpdate, Make, RankRequest, Request, answers_of_run


@dataclass
class _Gang:
    """A gang that this worker has a rank of.

    Attributes:
        end: this rank's end of the lines; None before they are made.
        epoch: the epoch of the lines.
        token: what opens a line to this rank: of rank 0, or on rank 0 of the turn's holder.
        latest: on rank 0, the serial number of the latest turn that began or was ended at once.
        decided: on rank 0, see ``Leader``.
    """

    end: Leader | Follower | None = None
    epoch: int = 0
    token: bytes = b""
    latest: int = 0
    decided: dict[str, EnterUpdate] = field(default_factory=dict)

    def require_later(self, turn: int) -> None:
        """Check that a turn is later than all that began or were ended.

        Raises:
            StaleRunError: it is not.
        """
        if turn <= self.latest:
            raise StaleRunError(f"rank 0: turn {turn} comes late, after turn {self.latest}")

    def close_lines(self) -> None:
        """Close the lines; the next turn opens new ones."""
        if self.end is not None:
            self.end.close()
            self.end = None


class WorkerTurns:
    """The turns on one worker. The event loop's thread calls all methods.

    Args:
        changes: changes the graphs of the worker's ranks; None if no feature does.
        log: keeps their versions on a disk; None if no feature does.
        member: returns the worker's part in the gang of a graph, or raises ``StaleRunError``.
    """

    def __init__(
        self,
        worker: distributed.Worker,
        door: WorkerDoor,
        changes: RankChanges | None,
        log: VersionLog | None,
        member: Callable[[str], Member],
    ) -> None:
        self._worker = worker
        self._door = door
        self._changes = changes
        self._log = log
        self._member = member
        # By graph id.
        self._gangs: defaultdict[str, _Gang] = defaultdict(_Gang)

    @OpenDoor.handler
    async def open_door(self, message: OpenDoor) -> Address:
        member, graph_id = self._member(message.graph_id), message.graph_id
        epoch = self._gangs[graph_id].epoch
        if message.epoch < epoch:
            raise StaleRunError(f"rank {member.rank}: lines of epoch {message.epoch}, and of {epoch} there are some")
        self.leave(graph_id)
        follower = Follower(member.rank, self._maker(member, graph_id))
        self._gangs[graph_id] = _Gang(follower, message.epoch, message.token)
        return self._door.admit(message.token, partial(_serve_awake, member, follower.serve))

    @BeginTurn.handler
    async def begin_turn(self, message: BeginTurn) -> BegunTurn:
        member, gang = self._member(message.graph_id), self._gangs[message.graph_id]
        end = time.monotonic() + message.seconds
        gang.require_later(message.turn)
        if gang.end is None or gang.epoch != message.epoch:
            gang.close_lines()
            made = await self._new_leader(message, member, end)
            # Meanwhile a later turn may have opened its lines: a worker that was stopped has several messages at once.
            if gang.epoch > message.epoch:
                made.close()
                raise StaleRunError(f"rank 0: turn {message.turn} comes late, after lines of epoch {gang.epoch}")
            gang.close_lines()
            gang.end, gang.epoch = made, message.epoch
            # Or the scheduler may have ended the turn.
            gang.require_later(message.turn)
        leader = gang.end
        assert isinstance(leader, Leader)
        # In a thread, since a run that was ended without an answer may be under way yet.
        listed = "" if message.work else message.run_id
        await asyncio.to_thread(leader.grant, message.turn, message.client, message.number, listed)
        gang.require_later(message.turn)
        self._door.refuse(gang.token)
        gang.latest, gang.token = message.turn, message.token
        address = None
        if message.token:
            address = self._door.admit(message.token, partial(_serve_awake, member, leader.serve))
        if message.work is None:
            return BegunTurn(address, None)
        request = Request(message.turn, message.run_id, max(1e-3, end - time.monotonic()), message.work.value())
        return BegunTurn(address, await asyncio.to_thread(leader.lead, request))

    async def _new_leader(self, message: BeginTurn, member: Member, end: float) -> Leader:
        """Open rank 0's lines to the other ranks. Errors as for ``BeginTurn``."""
        graph_id = message.graph_id
        order = None if message.order_key is None else self._worker.data.get(message.order_key)
        if order is None and message.order_key is not None:
            raise ExchangeUnavailableError(f"{self._worker.address} has lost the order by degree; load the graph again")
        opening = OpenDoor(graph_id, new_token(), message.epoch)

        async def door_of(rank: int, address: str) -> Address:
            try:
                answer = await rpc.send(self._worker.rpc(address), opening, max(1e-3, end - time.monotonic()))
            except TimeoutError as error:
                raise LateError(f"run {message.run_id}: no answer from rank {rank}, {address}") from error
            except OSError as error:
                raise ExchangeUnavailableError(f"rank 0 does not reach rank {rank}, {address}: {error}") from error
            return rpc.unpack(address, opening, answer)

        doors = await asyncio.gather(*(door_of(rank, address) for rank, address in enumerate(message.addresses, 1)))
        lines = await asyncio.to_thread(_open_lines, self._door.opener(), doors, opening.token, end)
        if member.closed:
            # The graph was unloaded meanwhile.
            for line in lines:
                line.close()
            raise StaleRunError(f"{self._worker.address} is not a rank of the graph {graph_id} any more")
        for line in lines:
            line.awake_seconds = member.runner.awake_seconds
        peers = [Peer(rank, line) for rank, line in enumerate(lines, 1)]
        calls = GangCalls(self._worker, graph_id, member, message.addresses)
        make = self._maker(member, graph_id)
        runner, decided = member.runner, self._gangs[graph_id].decided
        seconds = runner.burst_seconds, runner.answer_seconds
        return Leader(graph_id, peers, make, calls, *seconds, order, decided, self._log)

    @EndTurn.handler
    async def end_turn(self, message: EndTurn) -> TurnEnd:
        member, gang, turn = self._member(message.graph_id), self._gangs[message.graph_id], message.turn

        def end_run(number: int) -> None:
            if message.cause is not None:
                member.runner.abort(number, message.cause, message.message, message.rank)

        if gang.end is not None and message.cause is not None:
            gang.end.stop(turn, end_run)
        token, leader = gang.token, gang.end
        if not isinstance(leader, Leader) or gang.latest < turn:
            if message.cause is not None and member.rank == 0:
                # The turn may begin late: the message that begins it is refused.
                self._door.refuse(token)
                gang.latest = max(gang.latest, turn)
            return TurnEnd(0, failed=False)
        if message.cause is None:
            await asyncio.to_thread(leader.revoke, turn)
        end, sending = await asyncio.to_thread(leader.wait_until_idle)
        # Not before: the holder may open its line while the turn is revoked. During the wait another message may have
        # ended this turn, and the next one may have begun.
        if (gang.latest, gang.token) == (turn, token):
            self._door.refuse(token)
            if end.failed:
                # A line may be broken, or have an answer of the failed run under way.
                gang.close_lines()
        if sending:
            # The scheduler must have the notes and the updates before it forgets the turn.
            await asyncio.wait([*map(asyncio.wrap_future, sending)], timeout=NOTE_SECONDS)
        return end

    def leave(self, graph_id: str) -> None:
        """End the turns of a gang that this worker leaves."""
        gang = self._gangs.pop(graph_id, _Gang())
        self._door.refuse(gang.token)
        gang.close_lines()

    def close(self) -> None:
        """End all turns."""
        for graph_id in list(self._gangs):
            self.leave(graph_id)

    def _maker(self, member: Member, graph_id: str) -> Make:
        """Return what takes this rank's part in requests."""
        changes, log, first = self._changes, self._log, self._worker.data[member.partition_key]

        def make(part: RankRequest, stops: Callable[[], bool]) -> Answers:
            rows = member.latest or first
            if isinstance(part, Burst):
                with member.in_use:
                    yield from answers_of_run(part, member.make_burst(rows, part, stops))
                return
            # A change's class is of the feature that makes it.
            assert changes is not None
            if isinstance(part, BeginUpdate):
                prepared = member.alone(changes.prepare, member, graph_id, part.run_id, rows, part.change)
                redo = changes.redo(graph_id, part.run_id) if log is not None and log.keeps(graph_id) else None
                if log is not None and redo is not None:
                    log.keep(graph_id, part.run_id, redo)
                yield answer_well(prepared), 0
            else:
                changes.finish(member, graph_id, part.run_id, part.totals)
                yield answer_well(None), 0

        return make


def _serve_awake(member: Member, serve: Callable[[Line], None], line: Line) -> None:
    line.awake_seconds = member.runner.awake_seconds
    serve(line)


def _open_lines(
    open_line: Callable[[Address, bytes, float], Line], doors: Sequence[Address], token: bytes, end: float
) -> list[Line]:
    lines: list[Line] = []
    try:
        for address in doors:
            lines.append(open_line(address, token, max(1e-3, end - time.monotonic())))
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

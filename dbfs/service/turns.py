"""Turns on the scheduler: who has which gang, and when that ends.

A run whose turn has come goes to rank 0, which leads it (``serving.turns``). A client holds the turn after that if
its run has several traversals, or if it made the graph's last run: its runs then go to rank 0 without the scheduler.
Such a turn lasts until another run wants one of the gang's workers, or until the client, a worker or the graph leaves
the cluster. Rank 0 ends a turn.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Final

from dbfs.errors import (
    DbfsError,
    ExchangeUnavailableError,
    LateError,
    StaleRunError,
    UnreachableError,
)
from dbfs.service import forming
from dbfs.service.entries import GraphEntry, RunEntry
from dbfs.service.history import History
from dbfs.service.messages import RunReply, TurnGrant
from dbfs.service.worker_calls import GRACE_SECONDS, WorkerCalls
from dbfs_workers.base.lines.line import new_token
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.serving.rpc import LATE_SECONDS, PickledValue
from dbfs_workers.serving.turns.messages import BeginTurn, BegunTurn, EndTurn, TurnEnd
from dbfs_workers.serving.turns.notes import NoteRuns
from dbfs_workers.serving.turns.requests import Work

# Seconds after a revocation in which single traversals leave their client no turn. Several clients, or threads of one,
# then traverse in turn, and each would revoke the turn of the one before: a turn that is held costs more than it saves.
_NOT_HELD_SECONDS: Final = 0.5
# A run with less time left ends.
_LEAST_SECONDS: Final = 1e-3
# Added to the serial numbers of a gang whose rank 0 did not say which numbers the turn has used.
_SKIPPED_NUMBERS: Final = 1 << 20


class Turn:
    """A run's, or a client's, hold on a gang.

    Attributes:
        graph: the graph of the gang.
        serial: serial number of the turn.
        first_number: the gang's serial number of the turn's first run.
        held: whether the client holds the turn; else a run that the scheduler waits for has it.
        ending: the task that ends the turn on rank 0; None until the turn is to end.
        over: done when the turn is over.
        run: the run under way that a client sent, once it is seen.
    """

    def __init__(self, graph: GraphEntry, client: str, serial: int, first_number: int) -> None:
        self.graph = graph
        self.client = client
        self.serial = serial
        self.first_number = first_number
        self.held = False
        self.ending: asyncio.Task[None] | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.run: RunEntry | None = None

    def message(self, cause: Cause | None = None, message: str = "", rank: int | None = None) -> EndTurn:
        """Return the message that ends the turn."""
        return EndTurn(self.graph.record.graph_id, self.serial, cause, message, rank)


class Turns:
    """The turns on all gangs.

    Args:
        runs: the service's runs, among them those of clients' turns that are seen under way.
        history: takes the runs that ended.
        start_runs: starts the runs that waited for a turn's end.
    """

    def __init__(
        self, workers: WorkerCalls, runs: list[RunEntry], history: History, start_runs: Callable[[], None]
    ) -> None:
        self._workers = workers
        self._runs = runs
        self._history = history
        self._start_runs = start_runs
        self._serials = itertools.count(1)
        self._held: dict[str, Turn] = {}

    async def lead(self, run: RunEntry, work: PickledValue[Work], *, holds: bool) -> RunReply:
        """Have rank 0 lead a run whose turn has come, or grant the turn to its client.

        Args:
            work: what to make.
            holds: whether the client can hold the turn.

        Raises:
            LateError: rank 0 did not answer in time.
            RunCancelledError, WorkerLostError: the run must end early.
            Exception: rank 0 could not begin. What went wrong in the run is in the answer.
        """
        graph, now = run.graph, time.monotonic()
        streak, graph.last_client = graph.last_client == run.client, run.client
        held = holds and (run.traversals > 1 or (streak and now - graph.revoked > _NOT_HELD_SECONDS))
        await self._recover(run)
        run.require_going_on()
        # Not the number of the turn before: whatever ended that turn late must not end this one's run.
        turn = self._held[graph.record.graph_id] = Turn(graph, run.client, next(self._serials), next(graph.numbers))
        run.number = turn.first_number
        token = new_token() if held else b""
        begun = None
        try:
            begun = await self._unless_over(turn, run, self._begin(turn, run, work, token))
        finally:
            answer = None if begun is None else begun.answer
            turn.held = held and begun is not None and turn.ending is None and not (answer and answer.over)
            if not turn.held and turn.ending is None:
                turn.ending = asyncio.ensure_future(self._end(turn, turn.message()))
        if answer is not None and not answer.ranks:
            # A line between two ranks has broken since the turn before. The next turn has new lines.
            await asyncio.wait([turn.over], timeout=run.remaining)
            graph.require_whole(f"run {run.run_id}")
            if not turn.over.done() or run.remaining <= _LEAST_SECONDS:
                raise LateError(f"run {run.run_id}: not done after {run.deadline:g} s; the lines of its ranks broke")
            return await self.lead(run, work, holds=holds)
        graph.runs += answer is not None and run.traversals > 0
        if not turn.held or begun.address is None:
            if answer is None:
                run.require_going_on()
                raise StaleRunError(f"run {run.run_id}: its turn was over before it began")
            return RunReply(answer, None)
        if answer is None:
            # Listed on: the client sends this run to rank 0 next.
            listed = RunEntry.of_note(graph, run.client, run.run_id, run.traversals, run.queued)
            listed.number = run.number
            self._show(turn, listed)
        return RunReply(answer, TurnGrant(turn.serial, begun.address, token), run.waited())

    def revoke(self, run: RunEntry) -> bool:
        """Begin to end the turns that hold any of a run's workers; return whether there are any.

        The turn of another graph that waits for a late rank holds none.
        """
        held = [
            turn
            for turn in self._held.values()
            if run.workers & set(turn.graph.record.addresses) and (turn.graph is run.graph or not turn.graph.stuck)
        ]
        for turn in held:
            turn.graph.revoked = time.monotonic() if turn.held else turn.graph.revoked
            if turn.ending is None:
                turn.ending = asyncio.ensure_future(self._end(turn, turn.message()))
        return bool(held)

    async def stop(self, graph_id: str, cause: Cause, message: str, rank: int | None = None) -> None:
        """End the turn on a gang, if there is one, and its run under way at once; arguments as of ``EndTurn``."""
        turn = self._held.get(graph_id)
        if turn is None:
            return
        ending = turn.message(cause, message, rank)
        # A rank that is stopped does not answer, and must not delay the message to rank 0.
        others = asyncio.ensure_future(self._workers.call_all(turn.graph.record.addresses[1:], ending))
        stopping = asyncio.ensure_future(self._end(turn, ending))
        # A revocation that waits for the run's end goes on.
        turn.ending = turn.ending or stopping
        await asyncio.wait([others, stopping])

    def held_by(self, client: str) -> list[str]:
        """Return the ids of the graphs on whose gangs a client holds the turn."""
        return [graph_id for graph_id, turn in self._held.items() if turn.held and turn.client == client]

    @NoteRuns.handler
    async def note_runs(self, message: NoteRuns) -> None:
        """See ``NoteRuns``: the runs go into the history and onto the list of runs."""
        turn = self._held.get(message.graph_id)
        if turn is None or turn.serial != message.turn:
            return
        for noted in message.runs:
            run = turn.run
            if run is None or run.run_id != noted.run_id:
                run = RunEntry.of_note(turn.graph, turn.client, noted.run_id, noted.traversals, noted.began)
                if not noted.ended:
                    self._show(turn, run)
            run.number, run.before = noted.number, noted.finished
            if not noted.ended:
                continue
            turn.graph.runs += not noted.update
            if run is turn.run:
                self._show(turn, None)
            run.traversals, run.update = noted.traversals, noted.update
            if noted.error is not None:
                self._history.fail(run, noted.error)
            elif noted.summary is not None:
                self._history.add(run, noted.summary.value())

    async def _recover(self, run: RunEntry) -> None:
        """Clear the state that the run before this one left on the ranks, if it failed.

        Raises:
            ExchangeUnavailableError: a host can't be reached.
            LateError: a rank did not answer before the run's deadline.
        """
        graph = run.graph
        if graph.must_recover:
            try:
                await forming.connect(graph.record, self._workers.until(run.ends))
            except LateError as error:
                late = "some ranks did not recover from the previous failed run within its deadline"
                raise LateError(f"run {run.run_id}: {late}: {error}") from error
            graph.must_recover = False

    async def _begin(self, turn: Turn, run: RunEntry, work: PickledValue[Work], token: bytes) -> BegunTurn:
        """Begin a turn on rank 0, which makes the work unless the client is to send it. Errors as for ``lead``."""
        graph, record = run.graph, run.graph.record
        graph.lines = graph.lines or turn.serial
        beginning = BeginTurn(
            graph_id=record.graph_id,
            turn=turn.serial,
            client=run.client,
            number=turn.first_number,
            run_id=run.run_id,
            work=None if token and run.traversals > 1 else work,
            token=token,
            addresses=record.addresses[1:],
            epoch=graph.lines,
            seconds=run.remaining,
            order_key=record.order_key,
        )
        # ``_unless_over`` ends before: a late rank is one that has not answered by then.
        begin = self._workers.until(run.ends + GRACE_SECONDS)
        try:
            return await begin(record.addresses[0], beginning)
        except UnreachableError as error:
            raise UnreachableError(f"run {run.run_id}: lost rank 0; {error}") from error

    async def _unless_over(self, turn: Turn, run: RunEntry, beginning: Awaitable[BegunTurn]) -> BegunTurn:
        """Wait for rank 0's answer, unless the turn is over before, or the deadline passes. Errors as for ``lead``.

        Rank 0 notices the deadline itself. ``LATE_SECONDS`` is for a rank that is stopped or out of reach.
        """
        answer = asyncio.ensure_future(beginning)
        try:
            waiting = (answer, turn.over)
            await asyncio.wait(waiting, timeout=run.remaining + LATE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if turn.over.done():
                # The answer says more about the end than the message that caused it.
                await asyncio.wait([answer], timeout=LATE_SECONDS)
            # Rank 0 may meet what a lost rank broke, or the end itself, before the scheduler hears why.
            unclear = answer.done() and isinstance(answer.exception(), ExchangeUnavailableError | StaleRunError)
            if unclear:
                await asyncio.wait([turn.over], timeout=LATE_SECONDS)
            if answer.done() and not (unclear and run.stopped.done()):
                return answer.result()
            run.require_going_on()
            why = f"not done after {run.deadline:g} s"
            turn.ending = asyncio.ensure_future(self.stop(run.graph.record.graph_id, Cause.DEADLINE, why))
            raise LateError(f"run {run.run_id}: {why}; no answer from rank 0")
        finally:
            answer.cancel()

    async def _end(self, turn: Turn, ending: EndTurn) -> None:
        """End a turn on rank 0, and note the state of its gang."""
        graph, graph_id = turn.graph, turn.graph.record.graph_id
        unknown = TurnEnd(turn.first_number + _SKIPPED_NUMBERS, failed=True)
        end = None
        while end is None and self._held.get(graph_id) is turn:
            try:
                end = await self._workers.call(graph.record.addresses[0], ending, GRACE_SECONDS)
            except LateError:
                # A run may go on to the end of its current burst, but a run that is stopped ends at once.
                end = None if ending.cause is None else unknown
            except DbfsError:
                # Rank 0 is lost, or is no rank any more.
                end = unknown
        if end is not None and self._held.get(graph_id) is turn:
            del self._held[graph_id]
            # An answer came already, and was late itself: rank 0 has forgotten the turn.
            end = end if end.number else unknown
            graph.numbers = itertools.count(end.number)
            graph.must_recover = graph.recovers and end.failed
            if end.failed:
                graph.lines = 0
            self._show(turn, None)
            turn.over.set_result(None)
            self._start_runs()

    def _show(self, turn: Turn, run: RunEntry | None) -> None:
        """Have the list of runs, which is in the order of arrival, show a turn's run in place of the one before."""
        if turn.run is not None:
            self._runs.remove(turn.run)
        turn.run = run
        if run is not None:
            later = (at for at, other in enumerate(self._runs) if other.queued > run.queued)
            self._runs.insert(next(later, len(self._runs)), run)

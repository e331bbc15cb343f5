"""The client's way to send runs and updates: to rank 0, in a turn that this client holds, else through the queue."""

import pickle
import ssl
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import distributed

from dbfs.base.records import RunProgress
from dbfs.cluster.awaiting import check_cancelled, scheduler_of
from dbfs.cluster.deadline import GRACE_SECONDS, Deadline, of_call
from dbfs.cluster.own_process import require_own
from dbfs.errors import (
    DeadlineExceededError,
    ExchangeUnavailableError,
    LateError,
    OutcomeUnknownError,
    WorkerLostError,
)
from dbfs.service.client import ServiceClient, with_times
from dbfs.service.entries import values_of
from dbfs.service.messages import ChangeReport, Enqueue, EnqueueUpdate, TurnGrant
from dbfs_workers.base.lines.line import GPU_AWAKE_SECONDS, Line, LineClosedError
from dbfs_workers.base.spec import RunSpec, TraversalPlace
from dbfs_workers.search.reports import RankReport
from dbfs_workers.serving.rpc import PickledValue
from dbfs_workers.serving.turns.changes import Change
from dbfs_workers.serving.turns.requests import Answer, Request, Run, Work

Progress = Callable[[RunProgress], None]

Reports = list[list[RankReport]]
"""By rank, a report of each traversal."""


@dataclass(frozen=True)
class FinishedTraversals:
    """Consecutive traversals of a run, as they finished.

    Attributes:
        reports: by rank, a report of each traversal.
        seconds: time from the traversals' beginning on rank 0 to their end there.
        rank_seconds: how much of that time rank 0 spent on its own rows.
    """

    reports: Reports
    seconds: float
    rank_seconds: float

    @classmethod
    def of(cls, answer: Answer) -> "FinishedTraversals":
        """Return the traversals of an answer; errors as of ``values_of``."""
        return cls(values_of(answer.ranks), answer.seconds, answer.rank_seconds)


# Seconds that opening a line to rank 0 may take, and that rank 0 may take to read a run.
_OPEN_SECONDS = 2.0
# Seconds after which rank 0 is tried again if no line to it could be opened. A firewall stays, a busy moment passes.
_AVOID_SECONDS = 60.0

_senders: weakref.WeakKeyDictionary[distributed.Client, "RunSender"] = weakref.WeakKeyDictionary()


class RunSender:
    """Sends the runs of one Dask client.

    Args:
        service: the client's half of the service.
    """

    def __init__(self, service: ServiceClient) -> None:
        self._service = service
        # By graph id. A turn is in this dictionary while no thread uses it.
        self._free: dict[str, _HeldTurn] = {}
        self._lock = threading.Lock()
        # By graph id, until when rank 0 is not tried, in seconds of ``time.monotonic()``.
        self._unreachable: dict[str, float] = {}

    @classmethod
    def of(cls, client: distributed.Client) -> "RunSender":
        """Return the sender of a Dask client.

        Raises:
            VersionMismatchError: see ``dbfs.install``.
            ClientError: the client is another process's, whose lines must not be touched.
        """
        require_own(client)
        sender = _senders.get(client)
        return sender if sender is not None else _senders.setdefault(client, cls(ServiceClient.of(client)))

    def send(
        self, graph_id: str, specs: RunSpec, deadline: Deadline, progress: Progress | None
    ) -> Iterator[FinishedTraversals]:
        """Send a run; yield its traversals as they finish.

        Args:
            specs: the traversals, in vertices.
            progress: called again and again while the run lasts.

        Errors as for ``Enqueue``.
        """
        holds = self._unreachable.get(graph_id, 0.0) <= time.monotonic()
        sending = _Sending(self._service, graph_id, specs, deadline, progress, holds)
        turn = None
        try:
            while sending.done < len(specs):
                held, turn = turn or self._take(graph_id), None
                if held is None:
                    turn = yield from self._through_scheduler(sending)
                else:
                    yield from self._in_turn(sending, held)
        finally:
            # Dropping labels twice is harmless.
            for place in sending.dropped:
                self._service.drop(graph_id, *place)
            if turn is not None:
                self._give_back(graph_id, turn)

    def _through_scheduler(self, sending: "_Sending") -> "Generator[FinishedTraversals, None, _HeldTurn | None]":
        """Have the scheduler make a run, or grant the turn; return it if its line opens. Errors as of ``send``."""
        service, run, run_id = self._service, sending.rest(), sending.specs.options.run_id
        work: PickledValue[Work] = PickledValue.of(run)
        left, count = sending.deadline.remaining, len(run.specs)
        message = Enqueue(sending.graph_id, service.client.id, run_id, work, count, left, sending.holds)
        with service.cancelling(run_id):
            reply = service.call_run(message, run_id, sending.progress)
        if reply.answer is not None:
            yield sending.finished(reply.answer)
        if reply.grant is None:
            return None
        seconds = min(_OPEN_SECONDS, sending.deadline.last)
        try:
            return _HeldTurn(reply.grant, reply.waited, _context(service.client), seconds)
        except LineClosedError:
            # The turn ended meanwhile.
            return None
        except ExchangeUnavailableError:
            # A firewall may keep this client from the workers' doors, or rank 0 is late.
            self._unreachable[sending.graph_id] = time.monotonic() + _AVOID_SECONDS
            sending.holds = False
            return None

    def _in_turn(self, sending: "_Sending", turn: "_HeldTurn") -> Iterator[FinishedTraversals]:
        """Send a run to rank 0; if the turn ends or the line breaks, some of it is left. Errors as of ``send``."""
        deadline, options, waited = sending.deadline, sending.specs.options, turn.waited
        request = Request(turn.serial, options.run_id, deadline.remaining, sending.rest())
        if options.backend == "cuda":
            turn.line.awake_seconds = GPU_AWAKE_SECONDS
        try:
            with closing(self._answers(turn, sending.graph_id, request, deadline, sending.progress)) as answers:
                for answer in answers:
                    yield sending.finished(answer)
        except DeadlineExceededError as error:
            if not waited:
                raise
            raise with_times(error, waited, turn.granted) from error
        sending.holds = sending.holds and not turn.broken

    def update(self, graph_id: str, change: Change, deadline: Deadline, of_tasks: str = "") -> ChangeReport:
        """Change a graph: in a turn that this client holds on the gang, else through the scheduler's queue.

        Args:
            change: the update. The scheduler knows the ids under which batches are sent again, so that a batch with an
                id goes through the queue.
            of_tasks: the run of tasks that has its turn and makes this update; empty for a run of the update's own.

        Raises:
            OutcomeUnknownError: the update was sent, and no answer came.
            DbfsError: see ``EnqueueUpdate``.
        """
        service, run_id = self._service, of_tasks or uuid.uuid4().hex
        turn = None if change.batch_id or of_tasks else self._take(graph_id)
        change = replace(change, batch_id=change.batch_id or run_id)
        if turn is not None:
            request = Request(turn.serial, run_id, deadline.remaining, change)
            with closing(self._answers(turn, graph_id, request, deadline, None)) as answers:
                for answer in answers:
                    return _report_of(answer)
        # Also if the turn was over, or the line broke: the scheduler knows the run if rank 0 has decided.
        work: PickledValue[Work] = PickledValue.of(change)
        kind, left = change.kind, deadline.remaining
        message = EnqueueUpdate(graph_id, service.client.id, run_id, work, left, kind, change.batch_id)
        with service.cancelling(run_id):
            try:
                return _report_of(service.call_update(message, change.batch_id))
            except WorkerLostError as error:
                # The update may have been decided before.
                vars(error)["batch_id"] = change.batch_id
                raise

    def _answers(
        self, turn: "_HeldTurn", graph_id: str, request: Request, deadline: Deadline, progress: Progress | None
    ) -> Generator[Answer, None, None]:
        """Send rank 0 a request; yield its answers, until the run or the turn is over or the line breaks.

        Raises:
            LateError, OutcomeUnknownError: no answer came.
        """
        end, over = time.monotonic() + request.deadline + GRACE_SECONDS, False
        answer = None
        try:
            turn.line.send(pickle.dumps(request, protocol=5), min(_OPEN_SECONDS, deadline.last))
            while answer is None or not answer.last:
                answer = self._receive(turn, graph_id, request, end, progress)
                over = answer.over
                if answer.ranks:
                    yield answer
        except LineClosedError:
            # Rank 0 is lost, or the line broke: the scheduler finds out which.
            turn.broken = True
        finally:
            if answer is not None and answer.last and not over:
                self._give_back(graph_id, turn)
            else:
                # Rank 0 ends a run whose line is closed.
                turn.line.close()

    def _receive(
        self, turn: "_HeldTurn", graph_id: str, request: Request, end: float, progress: Progress | None
    ) -> Answer:
        """Return rank 0's next answer; ``end`` is when to give up, in seconds of ``time.monotonic()``.

        Raises:
            LateError, OutcomeUnknownError: no answer came.
            LineClosedError: the line broke.
        """

        def look() -> None:
            check_cancelled()
            lookout.look(self._service.client)
            if progress is not None:
                self._service.look(request.run_id, progress)

        lookout = of_call().lookout
        try:
            with lookout.over(graph_id):
                frame = turn.line.receive(end, look)
        except TimeoutError:
            late = f"run {request.run_id}: not done after {request.deadline:g} s; no answer from rank 0"
            if isinstance(request.work, Change):
                raise OutcomeUnknownError(f"{late}; graph.version shows whether the update was made") from None
            raise LateError(late) from None
        answer: Answer = pickle.loads(frame)
        return answer

    def _take(self, graph_id: str) -> "_HeldTurn | None":
        """Take the turn on a gang for a run; None if there is none, or if another thread uses it."""
        with self._lock:
            turn = self._free.pop(graph_id, None)
        if turn is not None and turn.line.hung_up:
            turn.line.close()
            return None
        return turn

    def _give_back(self, graph_id: str, turn: "_HeldTurn") -> None:
        turn.waited = ""
        with self._lock:
            over = [other for other, held in self._free.items() if other == graph_id or held.line.hung_up]
            lines = [self._free.pop(other).line for other in over]
            self._free[graph_id] = turn
        for line in lines:
            line.close()


@dataclass
class _Sending:
    """A run while it is sent.

    Attributes:
        service: the client's half of the service.
        graph_id, specs, deadline, progress: as of ``RunSender.send``.
        holds: whether the client takes the turn: not after a line to rank 0 did not open, or broke.
        done: number of traversals whose reports have come.
        dropped: labels that rank 0 is to drop, and has not said that it did.
    """

    service: ServiceClient
    graph_id: str
    specs: RunSpec
    deadline: Deadline
    progress: Progress | None
    holds: bool
    done: int = 0
    dropped: tuple[TraversalPlace, ...] = ()

    def rest(self) -> Run:
        """Return what is left to make, with the labels to drop."""
        self.dropped += self.service.take_dropped(self.graph_id)
        return Run(self.specs[self.done :], self.done, self.dropped)

    def finished(self, answer: Answer) -> FinishedTraversals:
        """Take an answer; errors as of ``values_of``."""
        found = FinishedTraversals.of(answer)
        self.done += len(found.reports[0])
        self.dropped = ()
        return found


class _HeldTurn:
    """A turn that this client holds, with the line to rank 0.

    Attributes:
        serial: serial number of the turn.
        broken: whether the line broke during a run.
        waited: where the time went before the turn's first run, in words; empty after that run.
        granted: when the turn was granted, in seconds of ``time.monotonic()``.
    """

    def __init__(self, grant: TurnGrant, waited: str, context: ssl.SSLContext | None, seconds: float) -> None:
        self.serial = grant.turn
        self.line = Line.open(grant.address, grant.token, context, seconds)
        self.broken = False
        self.waited = waited
        self.granted = time.monotonic()


def _report_of(answer: Answer) -> ChangeReport:
    """Return the report of an update; errors as of ``values_of``."""
    report: PickledValue[ChangeReport] = values_of(answer.ranks)[0]
    return report.value()


def _context(client: distributed.Client) -> ssl.SSLContext | None:
    if not scheduler_of(client).address.startswith("tls://"):
        return None
    context: ssl.SSLContext | None = client.security.get_connection_args("client").get("ssl_context")
    return context

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
from dbfs.errors import DeadlineExceededError, ExchangeUnavailableError, LateError, OutcomeUnknownError
from dbfs.service.client import ServiceClient, with_times
from dbfs.service.entries import values_of
from dbfs.service.messages import ChangeReport, Enqueue, TurnGrant
from dbfs_workers.base.lines.line import GPU_AWAKE_SECONDS, Line, LineClosedError
from dbfs_workers.base.spec import RunSpec
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
        done, service, run_id = 0, self._service, specs.options.run_id
        broken = self._unreachable.get(graph_id, 0.0) > time.monotonic()
        while done < len(specs):
            run = Run(specs[done:], done, service.take_dropped(graph_id))
            turn, taken = self._take(graph_id), False
            try:
                if turn is None:
                    count, holds = len(run.specs), not broken
                    work: PickledValue[Work] = PickledValue.of(run)
                    message = Enqueue(graph_id, service.client.id, run_id, work, count, deadline.remaining, holds)
                    with service.cancelling(run_id):
                        led = service.call_run(message, run_id, progress)
                    if led.answer is not None:
                        taken, done = True, done + count
                        yield FinishedTraversals.of(led.answer)
                    if led.grant is None:
                        continue
                    try:
                        seconds = min(_OPEN_SECONDS, deadline.last)
                        turn = _HeldTurn(led.grant, led.waited, _context(service.client), seconds)
                    except LineClosedError:
                        # The turn ended meanwhile.
                        continue
                    except ExchangeUnavailableError:
                        # A firewall may keep this client from the workers' doors, or rank 0 is late.
                        self._unreachable[graph_id] = time.monotonic() + _AVOID_SECONDS
                        broken = True
                        continue
                    if led.answer is not None:
                        self._give_back(graph_id, turn)
                        continue
                request = Request(turn.serial, run_id, deadline.remaining, run)
                if specs.options.backend == "cuda":
                    turn.line.awake_seconds = GPU_AWAKE_SECONDS
                with closing(self._answers(turn, graph_id, request, deadline, progress)) as answers:
                    for answer in answers:
                        finished = FinishedTraversals.of(answer)
                        taken, done = True, done + len(finished.reports[0])
                        yield finished
                broken = broken or turn.broken
            except DeadlineExceededError as error:
                if turn is None or not turn.waited:
                    raise
                raise with_times(error, turn.waited, turn.granted) from error
            finally:
                if not taken:
                    # Dropping labels twice is harmless.
                    for place in run.dropped:
                        service.drop(graph_id, *place)

    def update(self, graph_id: str, change: Change, deadline: Deadline, of_tasks: str = "") -> ChangeReport:
        """Change a graph: in a turn that this client holds on the gang, else through the scheduler's queue.

        Args:
            change: the update. The scheduler knows the ids under which batches are sent again, so that a batch with an
                id goes through the queue.
            of_tasks: the run of tasks that has its turn and makes this update; empty for a run of the update's own.

        Raises:
            OutcomeUnknownError: the update was sent, and no answer came.
            DbfsError: see ``Enqueue``.
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
        message = Enqueue(
            graph_id=graph_id,
            client=service.client.id,
            run_id=run_id,
            work=PickledValue.of(change),
            traversals=0,
            deadline=deadline.remaining,
            holds=False,
            update=change.kind,
            batch_id=change.batch_id,
        )
        with service.cancelling(run_id):
            led = service.call_update(message, change.batch_id)
        assert led.answer is not None
        return _report_of(led.answer)

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

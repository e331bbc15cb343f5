"""The client's way to send runs: to rank 0, under a lease that this client has, else through the scheduler's queue."""

import pickle
import ssl
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import distributed

from dbfs.cluster.awaiting import can_be_cancelled, check_cancelled, scheduler_of
from dbfs.cluster.deadline import GRACE_SECONDS, Deadline
from dbfs.cluster.own_process import require_own
from dbfs.errors import DeadlineExceededError, ExchangeUnavailableError, LateError, OutcomeUnknownError
from dbfs.records import RunProgress
from dbfs.service.client import PROGRESS_SECONDS, ServiceClient, with_times
from dbfs.service.entries import first_cause
from dbfs.service.messages import Enqueue, LeaseGrant, UpdateEdges, UpdateReport
from dbfs_workers.leases.requests import (
    LeasedRun,
    LeasedUpdate,
    RanksReports,
    Refusal,
    UpdateAnswer,
    failed,
    read_answer,
)
from dbfs_workers.lines.line import GPU_AWAKE_SECONDS, Line, LineClosedError
from dbfs_workers.messages import TraversalPlace
from dbfs_workers.reports import RankReport
from dbfs_workers.rpc import Pickled
from dbfs_workers.spec import RunSpec
from dbfs_workers.storage.update_spec import UpdateSpec

Progress = Callable[[RunProgress], None]

Reports = list[list[RankReport]]
"""By rank, a report of each traversal."""


@dataclass(frozen=True)
class Finished:
    """Consecutive traversals of a run, as they finished.

    Attributes:
        reports: by rank, a report of each traversal.
        seconds: time from the traversals' beginning on rank 0 to their end there; 0 without a lease.
        rank_seconds: how much of that time rank 0 spent on its own rows; 0 without a lease.
    """

    reports: Reports
    seconds: float = 0.0
    rank_seconds: float = 0.0


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
        # By graph id. A lease is in this dictionary while no thread uses it.
        self._free: dict[str, _HeldLease] = {}
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
        self,
        graph_id: str,
        specs: RunSpec,
        deadline: Deadline,
        progress: Progress | None,
        in_positions: Callable[[RunSpec], RunSpec],
    ) -> Iterator[Finished]:
        """Send a run; yield its traversals as they finish.

        Args:
            graph_id: the graph.
            specs: the traversals, in vertices.
            deadline: the run's deadline.
            progress: called again and again while the run lasts.
            in_positions: returns specs in the numbering of the ranks. Under a lease rank 0 does that.

        Errors as for ``Enqueue``.
        """
        done = 0
        broken = self._unreachable.get(graph_id, 0.0) > time.monotonic()
        while done < len(specs):
            rest = specs[done:]
            lease = self._take(graph_id)
            if lease is None:
                ranks_specs = in_positions(rest)
                answer = self._enqueue(graph_id, ranks_specs, done, deadline, progress, leases=not broken)
                if not isinstance(answer, LeaseGrant):
                    yield Finished(answer)
                    return
                try:
                    lease = _HeldLease(answer, _context(self._service.client), min(_OPEN_SECONDS, deadline.last))
                except LineClosedError:
                    # The lease ended meanwhile.
                    continue
                except ExchangeUnavailableError:
                    # A firewall may keep this client from the workers' doors, or rank 0 is late.
                    self._unreachable[graph_id] = time.monotonic() + _AVOID_SECONDS
                    broken = True
                    continue
            for finished in self._under_lease(lease, graph_id, rest, done, deadline, progress):
                done += len(finished.reports[0])
                yield finished
            broken = broken or lease.broken

    def update(
        self, graph_id: str, spec: UpdateSpec, deadline: Deadline, *, strict: bool, batch_id: str | None
    ) -> UpdateReport:
        """Change a graph by a few edges: under this client's lease on the gang, else through the scheduler's queue.

        Args:
            graph_id: the graph.
            spec: the update, with its edges.
            deadline: the run's deadline.
            strict: whether one duplicate or missing edge refuses the whole batch.
            batch_id: id under which the caller may send the batch again. The scheduler knows these ids, so that such a
                batch goes through the queue.

        Raises:
            OutcomeUnknownError: the update was sent, and no answer came.
            DbfsError: see ``UpdateEdges``.
        """
        service, run_id = self._service, uuid.uuid4().hex
        lease = self._take(graph_id) if batch_id is None else None
        if lease is not None:
            update = LeasedUpdate(lease.serial, run_id, spec, strict, deadline.remaining)
            report = self._update_under_lease(lease, graph_id, update, deadline)
            if report is not None:
                return report
        client, pickled = service.client.id, Pickled.of(spec)
        seconds = deadline.remaining
        message = UpdateEdges(graph_id, client, run_id, seconds, spec.kind, pickled, strict, batch_id or run_id)
        with service.cancelling(run_id):
            return service.call_update(message, batch_id or run_id)

    def _update_under_lease(
        self, lease: "_HeldLease", graph_id: str, update: LeasedUpdate, deadline: Deadline
    ) -> UpdateReport | None:
        """Send an update to rank 0; None if the lease is over or the line broke: then the scheduler finds out more."""
        end, over = time.monotonic() + update.deadline + GRACE_SECONDS, True
        try:
            lease.line.send(pickle.dumps(update, protocol=5), min(_OPEN_SECONDS, deadline.last))
            answer = self._receive(lease, update, end, None)
            if not isinstance(answer, UpdateAnswer):
                return None
            over = answer.over
            (report,) = _values(answer.answers)
            found: UpdateReport = report.value()
            return found
        except LineClosedError:
            return None
        finally:
            if over:
                # Rank 0 carries the update out, or the scheduler finds that the ranks could not.
                lease.line.close()
            else:
                self._give_back(graph_id, lease)

    def _enqueue(
        self,
        graph_id: str,
        specs: RunSpec,
        first: int,
        deadline: Deadline,
        progress: Progress | None,
        *,
        leases: bool,
    ) -> LeaseGrant | Reports:
        service, run_id = self._service, specs.options.run_id
        dropped = service.take_dropped(graph_id)
        message = Enqueue(
            graph_id=graph_id,
            client=service.client.id,
            run_id=run_id,
            specs=Pickled.of(specs),
            traversals=len(specs),
            first=first,
            deadline=deadline.remaining,
            dropped=dropped,
            leases=leases,
        )
        try:
            with service.cancelling(run_id):
                answer = service.call_run(message, run_id, progress)
        except BaseException:
            self._drop_again(graph_id, dropped)
            raise
        if isinstance(answer, LeaseGrant):
            self._drop_again(graph_id, dropped)
        return answer

    def _under_lease(
        self,
        lease: "_HeldLease",
        graph_id: str,
        specs: RunSpec,
        first: int,
        deadline: Deadline,
        progress: Progress | None,
    ) -> Iterator[Finished]:
        """Send a run to rank 0; yield its traversals until the run or the lease is over."""
        run_id = specs.options.run_id
        if specs.options.backend == "cuda":
            lease.line.awake_seconds = GPU_AWAKE_SECONDS
        dropped = self._service.take_dropped(graph_id)
        run = LeasedRun(lease.serial, run_id, specs, first, deadline.remaining, dropped)
        end = time.monotonic() + run.deadline + GRACE_SECONDS
        over = False
        try:
            lease.line.send(pickle.dumps(run, protocol=5), min(_OPEN_SECONDS, deadline.last))
            while not over:
                answer = self._receive(lease, run, end, progress)
                if not isinstance(answer, RanksReports):
                    break
                finished = Finished(_values(answer.ranks), answer.seconds, answer.rank_seconds)
                over = answer.last
                yield finished
        except LineClosedError:
            # Rank 0 is lost, or the line broke: the scheduler finds out which.
            lease.broken = True
        except DeadlineExceededError as error:
            if not lease.waited:
                raise
            raise with_times(error, lease.waited, lease.granted) from error
        finally:
            lease.waited = ""
            if over:
                self._give_back(graph_id, lease)
            else:
                # Rank 0 ends a run whose line is closed.
                lease.line.close()
                self._drop_again(graph_id, dropped)

    def _receive(
        self, lease: "_HeldLease", run: LeasedRun | LeasedUpdate, end: float, progress: Progress | None
    ) -> RanksReports | UpdateAnswer | Refusal:
        """Return rank 0's next answer; ``end`` is when to give up, in seconds of ``time.monotonic()``.

        Raises:
            LateError, OutcomeUnknownError: no answer came.
            LineClosedError: the line broke.
        """
        if progress is not None or can_be_cancelled():
            while not lease.line.readable(PROGRESS_SECONDS) and time.monotonic() < end:
                check_cancelled()
                if progress is not None:
                    self._service.look(run.run_id, progress)
        try:
            frame = lease.line.receive(end)
        except TimeoutError:
            late = f"run {run.run_id}: not done after {run.deadline:g} s; no answer from rank 0"
            if isinstance(run, LeasedUpdate):
                raise OutcomeUnknownError(f"{late}; graph.version shows whether the update was made") from None
            raise LateError(late) from None
        answer: RanksReports | UpdateAnswer | Refusal = pickle.loads(frame)
        return answer

    def _take(self, graph_id: str) -> "_HeldLease | None":
        """Take the lease on a gang for a run; None if there is none, or if another thread uses it."""
        with self._lock:
            lease = self._free.pop(graph_id, None)
        if lease is not None and lease.line.hung_up:
            lease.line.close()
            return None
        return lease

    def _give_back(self, graph_id: str, lease: "_HeldLease") -> None:
        with self._lock:
            closed = [other for other, held in self._free.items() if held.line.hung_up]
            closed_lines = [self._free.pop(other).line for other in closed]
            before = self._free.get(graph_id)
            self._free[graph_id] = lease
        for line in (*closed_lines, *(() if before is None else (before.line,))):
            line.close()

    def _drop_again(self, graph_id: str, dropped: Sequence[TraversalPlace]) -> None:
        """Have labels released by a later run. Dropping labels twice is harmless."""
        for run_id, index in dropped:
            self._service.drop(graph_id, run_id, index)


class _HeldLease:
    """A lease that this client has, with the line to rank 0.

    Attributes:
        serial: serial number of the lease.
        line: the line to rank 0.
        broken: whether the line broke during a run.
        waited: where the time went before the lease's first run, in words; empty after that run.
        granted: when the lease was granted, in seconds of ``time.monotonic()``.
    """

    def __init__(self, grant: LeaseGrant, context: ssl.SSLContext | None, seconds: float) -> None:
        self.serial = grant.lease
        self.line = Line.open(grant.address, grant.token, context, seconds)
        self.broken = False
        self.waited = grant.waited
        self.granted = time.monotonic()


def _values(answers: Sequence[bytes]) -> list[Any]:
    """Return the values of ranks' answers.

    Raises:
        DbfsError: a rank failed; of several errors, the one that says most about the cause.
    """
    if any(map(failed, answers)):
        errors: list[BaseException] = []
        for answer in answers:
            try:
                read_answer(answer)
            except Exception as error:
                errors.append(error)
        raise first_cause(errors)
    return [read_answer(answer) for answer in answers]


def _context(client: distributed.Client) -> ssl.SSLContext | None:
    if not scheduler_of(client).address.startswith("tls://"):
        return None
    context: ssl.SSLContext | None = client.security.get_connection_args("client").get("ssl_context")
    return context

"""The leases of a gang on rank 0, which takes runs from the lease's holder and makes them with the other ranks.

A run is made in bursts: consecutive traversals that all ranks make without a message in between. A burst takes about
``burst_seconds``, or one traversal. Between two bursts rank 0 looks whether the lease was revoked: then the holder gets
the reports so far, and queues the rest of the run on the scheduler. Members on CPU cores look between two traversals
as well, and end the burst there. Members on GPUs answer a burst several times, after ``answer_seconds`` each: while the
next traversals run, the holder makes results. ``LeasedUpdates`` makes updates of a few edges.

The threads: each line is served by a thread of the worker's door, which also makes rank 0's part. A watch looks every
``WATCH_SECONDS``, while runs come, whether the holder has left or a peer has failed. The scheduler's calls arrive in
the event loop's thread.
"""

import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from typing import Any, Final, Protocol

from dbfs_workers.errors import RunCancelledError, WorkerLostError
from dbfs_workers.exchange.protocol import Cause
from dbfs_workers.leases.follower import MakeRun, MakeUpdate
from dbfs_workers.leases.leased_updates import LeasedUpdates
from dbfs_workers.leases.messages import LeaseEnd
from dbfs_workers.leases.notes import EnterUpdate, NoteRuns, RunNote, ended_run, run_under_way
from dbfs_workers.leases.peer import SEND_SECONDS, Peer, ask_all
from dbfs_workers.leases.requests import (
    Burst,
    LeasedRun,
    LeasedUpdate,
    RanksReports,
    Refusal,
    UpdateAnswer,
    answer_error,
    answers_of_run,
    failed,
    more_follow,
)
from dbfs_workers.lines.line import Line, LineClosedError
from dbfs_workers.rpc import LATE_SECONDS, Pickled
from dbfs_workers.spec import RunSpec
from dbfs_workers.storage.ordering import DegreeOrder

WATCH_SECONDS: Final = 0.05

# Seconds without a run after which the watch sleeps until the next one.
_IDLE_SECONDS: Final = 1.0
# Seconds that the run which a lease was granted to may take to arrive.
_FIRST_RUN_SECONDS: Final = 0.5
# Seconds after which a run is noted while it is under way. The answer of such a run waits for its last note, 3 ms.
_NOTED_AFTER_SECONDS: Final = 0.5


class GangCalls(Protocol):
    """The calls of rank 0 to its gang and to the scheduler. Any thread may make them; all return at once."""

    def abort(self, number: int, cause: Cause, message: str) -> None:
        """Abort a run on all ranks."""
        ...

    def peer_lost(self, number: int, rank: int) -> None:
        """End a run on all ranks, because the worker of ``rank`` is lost."""
        ...

    def note(self, notes: NoteRuns) -> Future[None]:
        """Send notes to the scheduler, after all earlier ones. The future is done when the scheduler has the notes."""
        ...

    def enter(self, update: EnterUpdate) -> Future[Pickled[Any]]:
        """Have the scheduler enter an update, after all earlier notes; the future has the report, pickled."""
        ...


class Leader:
    """The leases of one gang on rank 0.

    Args:
        graph_id: the graph.
        peers: lines to the other ranks, by rank.
        make_run: makes rank 0's part in a run.
        make_update: makes rank 0's part in an update.
        calls: what to call when a run has to end, with notes, and for decisions.
        burst_seconds: about how long a burst takes, unless one traversal takes longer.
        answer_seconds: about how long the traversals of one answer take; 0 if a burst has one answer.
        order: the graph's order by degree; None if it has none.
    """

    def __init__(
        self,
        graph_id: str,
        peers: Sequence[Peer],
        make_run: MakeRun,
        make_update: MakeUpdate,
        calls: GangCalls,
        burst_seconds: float,
        answer_seconds: float,
        order: DegreeOrder | None = None,
    ) -> None:
        self._graph_id = graph_id
        self._peers = peers
        self._make_run = make_run
        self._calls = calls
        self._updates = LeasedUpdates(graph_id, peers, make_update, calls.enter)
        self._burst_seconds = burst_seconds
        self._answer_seconds = answer_seconds
        self._order = order
        self._lease = 0
        self._client = ""
        self._listed = ""
        self._number = 0
        self._revoked = True
        self._failed = False
        self._closed = False
        # Held while a run is under way.
        self._busy = threading.Lock()
        # The line of the lease's last run.
        self._holder: Line | None = None
        # Ends a run, given by its number. Set before the number of the run under way is read, and read after that
        # number is set: so a stop that comes between two bursts of a run is not lost.
        self._end_run: Callable[[int], None] | None = None
        self._under_way: RunNote | None = None
        self._ended: deque[RunNote] = deque()
        # Held while notes are sent, so that they keep their order.
        self._noting = threading.Lock()
        self._noted: Future[None] | None = None
        self._last = 0.0
        # Time of rank 0's own part in the latest burst.
        self._rank_seconds = 0.0
        # Time of a traversal in the latest burst; 0 before the lease's first.
        self._each_seconds = 0.0
        self._awake = threading.Event()
        # Set once the run that the lease was granted to has begun.
        self._begun = threading.Event()
        self._begun.set()
        threading.Thread(target=self._watch, name="dbfs-lease-watch", daemon=True).start()

    def grant(self, lease: int, client: str, number: int, run_id: str = "") -> None:
        """Begin a lease. The lease before it has ended.

        Args:
            lease: its serial number.
            client: id of the holder.
            number: the gang's serial number of the next burst.
            run_id: a run that the scheduler lists already; empty for none.
        """
        with self._busy:
            self._lease, self._client, self._number, self._listed = lease, client, number, run_id
            self._holder = self._end_run = None
            self._each_seconds = 0.0
            if run_id:
                self._begun.clear()
            self._revoked = self._failed = False

    def revoke(self, lease: int) -> None:
        """Take no more runs of a lease, and end the run under way after its current burst.

        Waits at most ``_FIRST_RUN_SECONDS`` until the run that the lease was granted to has begun: it had its turn,
        and would have to queue again behind those that came later. Not called in the event loop.
        """
        if lease == self._lease:
            self._begun.wait(_FIRST_RUN_SECONDS)
            self._revoked = True

    def stop(self, lease: int, end_run: Callable[[int], None]) -> None:
        """Revoke a lease, and end its run under way by ``end_run``, which takes the run's number. Returns at once."""
        if lease == self._lease:
            self._end_run = end_run
            self._revoked = True
            self._begun.set()
            note = self._under_way
            if note is not None:
                end_run(note.number)

    def wait_until_idle(self) -> tuple[LeaseEnd, list[Future[Any]]]:
        """Wait until no run is under way, and send the notes of all runs. Called after ``revoke``.

        Returns:
            The state of the gang; and futures that are done when the scheduler has the notes and the updates.
        """
        with self._busy:
            sending = (self._send_notes(None), self._updates.entering)
            return LeaseEnd(self._number, self._failed), [future for future in sending if future is not None]

    def serve(self, line: Line) -> None:
        """Make the runs that come over the holder's line, until the line closes."""
        try:
            while True:
                run: LeasedRun | LeasedUpdate = pickle.loads(line.receive(None))
                with self._busy:
                    if self._revoked or run.lease != self._lease or self._lines_broke():
                        line.send(pickle.dumps(Refusal()), SEND_SECONDS)
                    elif isinstance(run, LeasedUpdate):
                        self._update(line, run)
                    else:
                        self._answer(line, run)
        except LineClosedError:
            # The holder left, or it gave up the lease.
            if line is self._holder:
                self._revoked = True

    def close(self) -> None:
        """End the lease and close the lines."""
        self._revoked = self._closed = True
        self._begun.set()
        self._awake.set()
        for line in (*(peer.line for peer in self._peers), self._holder):
            if line is not None:
                line.close()

    def _lines_broke(self) -> bool:
        """Return whether a line to another rank is closed: then the lease is over, and the scheduler has lines remade.

        Each rank of a run would wait for the one that gets no part.
        """
        if any(peer.line.hung_up for peer in self._peers):
            self._revoked = self._failed = True
        return self._failed

    def _update(self, line: Line, update: LeasedUpdate) -> None:
        """Change the graph by a few edges, and send the holder the answer. Not ended early: the holder may leave."""
        note = RunNote(update.run_id, time.time(), 0, update=update.spec.kind)
        self._holder = line
        self._begun.set()
        outcome = self._updates.make(update, self._client, note.began, lambda: line.hung_up)
        if outcome.over:
            self._revoked = self._failed = True
        if not outcome.decided:
            note.answers.append(list(outcome.answers))
            note.ended = time.time()
            self._ended.append(note)
        self._last = time.monotonic()
        self._awake.set()
        line.send(pickle.dumps(UpdateAnswer(outcome.answers, outcome.over), protocol=5), SEND_SECONDS)

    def _answer(self, line: Line, run: LeasedRun) -> None:
        """Make a run in bursts, and send the holder the answers of each burst."""
        end = time.monotonic() + run.deadline
        note = RunNote(run.run_id, time.time(), len(run.specs), shown=run.run_id == self._listed)
        self._holder, self._under_way = line, note
        self._begun.set()
        if not self._awake.is_set():
            self._awake.set()
        length = self._traversals_in(self._burst_seconds)
        try:
            while True:
                specs = run.specs[note.finished : note.finished + length]
                finished = note.finished
                began = answered = time.perf_counter()
                with closing(self._make(run, note, specs, end)) as made:
                    for answers in made:
                        if more_follow(answers[0]) and not self._failed:
                            self._send_reports(line, answers, answered, last=False)
                            answered = time.perf_counter()
                if not self._failed:
                    self._each_seconds = max(time.perf_counter() - began, 1e-6) / (note.finished - finished)
                if self._revoked or note.finished == len(run.specs):
                    break
                self._send_reports(line, answers, answered, last=False)
                length = min(2 * length, self._traversals_in(self._burst_seconds))
        finally:
            note.ended = time.time()
            self._last = time.monotonic()
            self._under_way = None
            self._ended.append(note)
        if note.shown:
            # The scheduler lists the run. A holder that has the answer may look at that list.
            noted = self._send_notes(None)
            if noted is not None:
                wait([noted], timeout=max(0.0, end + LATE_SECONDS - time.monotonic()))
        self._send_reports(line, answers, answered, last=True)

    def _traversals_in(self, seconds: float) -> int:
        """Return how many traversals take about so long, at least 1."""
        return max(1, int(seconds / self._each_seconds)) if self._each_seconds else 1

    def _send_reports(self, line: Line, answers: list[bytes], began: float, *, last: bool) -> None:
        reports = RanksReports(answers, last, time.perf_counter() - began, self._rank_seconds)
        line.send(pickle.dumps(reports, protocol=5), SEND_SECONDS)

    def _make(self, run: LeasedRun, note: RunNote, specs: RunSpec, end: float) -> Generator[list[bytes], None, None]:
        """Make a burst on all ranks; yield their answers. If one of them is an error, the lease is over."""
        burst = Burst(
            lease=run.lease,
            number=self._number,
            client=self._client,
            specs=specs if self._order is None else specs.renumbered(self._order.positions_of),
            first=run.first + note.finished,
            following=len(run.specs) - note.finished - len(specs),
            deadline=max(1e-3, end - time.monotonic()),
            dropped=() if note.finished else run.dropped,
            each=self._traversals_in(self._answer_seconds) if self._answer_seconds else 0,
        )
        note.number = self._number
        self._number += 1
        if self._end_run is not None:
            self._end_run(note.number)
        ranks: list[bytes] = []
        lost = ask_all(self._peers, run.run_id, burst)
        try:
            with closing(self._own_answers(run, burst, lost)) as own_answers:
                began = time.perf_counter()
                for own, made in own_answers:
                    self._rank_seconds = time.perf_counter() - began
                    ranks = [own, *(lost.get(peer.rank) or self._answer_of(peer, run, end) for peer in self._peers)]
                    note.answers.append(ranks)
                    if any(map(failed, ranks)):
                        self._revoked = self._failed = True
                        if more_follow(own):
                            self._calls.abort(burst.number, Cause.FAILED, "another rank failed first")
                    else:
                        note.finished += made
                    yield ranks
                    if self._failed:
                        break
                    began = time.perf_counter()
        except GeneratorExit:
            # The holder left before its last answer.
            self._revoked = self._failed = True
            note.answers.append([answer_error(RunCancelledError(f"run {run.run_id}: its client left"))])
            self._calls.abort(burst.number, Cause.CANCELLED, "its client left")
            raise
        finally:
            # A late answer would be taken for the answer to the next burst.
            for peer, answer in zip(self._peers, ranks[1:], strict=False):
                while more_follow(answer):
                    answer = self._answer_of(peer, run, end)

    def _answer_of(self, peer: Peer, run: LeasedRun, end: float) -> bytes:
        return peer.answer_or_error(run.run_id, run.deadline, end + LATE_SECONDS)

    def _own_answers(
        self, run: LeasedRun, burst: Burst, lost: Mapping[int, bytes]
    ) -> Generator[tuple[bytes, int], None, None]:
        """Make rank 0's part, unless ranks are lost; yield the answers, each with its number of traversals."""
        if lost:
            self._calls.peer_lost(burst.number, min(lost))
            yield answer_error(WorkerLostError(f"run {run.run_id}: lost rank {min(lost)}; load the graph again")), 0
            return
        try:
            yield from answers_of_run(burst, self._make_run(burst, lambda: self._revoked))
        except Exception as error:  # the holder raises it
            self._calls.abort(burst.number, Cause.FAILED, f"rank 0 failed first: {error}")
            yield answer_error(error), 0

    def _watch(self) -> None:
        """Look after the run under way, and send the notes, until the gang ends."""
        seen = ("", 0)
        while not self._closed:
            self._awake.wait()
            time.sleep(WATCH_SECONDS)
            note = self._under_way
            if note is None:
                if time.monotonic() - self._last > _IDLE_SECONDS:
                    self._awake.clear()
                    # A run that began just before would not be watched.
                    if self._under_way is not None or self._closed:
                        self._awake.set()
            else:
                self._look_after(note)
            if note is None or time.time() - note.began <= _NOTED_AFTER_SECONDS or seen == (note.run_id, note.number):
                self._send_notes(None)
            else:
                seen = (note.run_id, note.number)
                note.shown = True
                self._send_notes(note)

    def _send_notes(self, show: RunNote | None) -> Future[None] | None:
        """Send notes of the runs that ended, and of the run to show as under way; return the latest sending."""
        with self._noting:
            ended = tuple(ended_run(self._ended.popleft()) for _ in range(len(self._ended)))
            # A run that ended since would be shown for ever.
            under_way = run_under_way(show) if show is not None and show is self._under_way else None
            if ended or under_way:
                self._noted = self._calls.note(NoteRuns(self._graph_id, self._lease, ended, under_way))
            return self._noted

    def _look_after(self, note: RunNote) -> None:
        """End the run if its holder has left, or if a rank has failed that the others wait for."""
        if self._holder is not None and self._holder.hung_up:
            self.stop(self._lease, lambda number: self._calls.abort(number, Cause.CANCELLED, "its client left"))
        for peer in self._peers:
            error = peer.early_error()
            if error is None:
                continue
            self._revoked = True
            if isinstance(error, LineClosedError):
                self._calls.peer_lost(note.number, peer.rank)
            else:
                self._calls.abort(note.number, Cause.FAILED, f"rank {peer.rank} failed first: {error}")

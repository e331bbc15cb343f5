"""The turns of a gang on rank 0, which makes runs and updates with the other ranks.

A run is made in bursts: consecutive traversals that all ranks make without a message in between. A burst takes about
``burst_seconds``, or one traversal. Between two bursts rank 0 looks whether the turn was revoked: then the client gets
the reports so far, and queues the rest of the run on the scheduler. Members on CPU cores look between two traversals
as well, and end the burst there. Members on GPUs answer a burst several times, after ``answer_seconds`` each: while the
next traversals run, the client makes results. An update has two rounds (``rounds``). A run that the scheduler leads is
one burst with one answer.

The threads: each line is served by a thread of the worker's door, which also makes rank 0's part; so does a thread of
the worker for the scheduler. A watch looks every ``WATCH_SECONDS``, while runs come, whether the client has left or a
peer has failed. The scheduler's calls arrive in the event loop's thread.
"""

import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from typing import Any, Final

from dbfs_workers.base.errors import LateError, OutcomeUnknownError, RunCancelledError, WorkerLostError
from dbfs_workers.base.lines.line import Line, LineClosedError
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.levels.traversals import never
from dbfs_workers.search.members.burst import Burst
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.serving.answers import answer_error, answer_well, failed, more_follow
from dbfs_workers.serving.rpc import LATE_SECONDS, PickledValue
from dbfs_workers.serving.turns.calls import GangCalls
from dbfs_workers.serving.turns.changes import Change, RankVersion, VersionLog
from dbfs_workers.serving.turns.messages import TurnEnd
from dbfs_workers.serving.turns.notes import EnterUpdate, NoteRuns, RunNote
from dbfs_workers.serving.turns.ranks import SEND_SECONDS, Peer
from dbfs_workers.serving.turns.requests import (
    REFUSAL,
    Answer,
    Answers,
    BeginUpdate,
    EndUpdate,
    Make,
    RankRequest,
    Request,
    Run,
)
from dbfs_workers.serving.turns.rounds import make_update

WATCH_SECONDS: Final = 0.05

# Seconds without a run after which the watch sleeps until the next one.
_IDLE_SECONDS: Final = 1.0
# Seconds that the run which a client's turn was granted to may take to arrive.
_FIRST_RUN_SECONDS: Final = 0.5
# Seconds after which a run is noted while it is under way. The answer of such a run waits for its last note, 3 ms.
_NOTED_AFTER_SECONDS: Final = 0.5
# Seconds that another rank may take to end a burst which rank 0 could not make, and rank 0 to end a turn's run.
_END_SECONDS: Final = 2.0
# Decided updates that rank 0 keeps. The scheduler, which keeps more, gets them in their order.
_DECIDED_KEPT: Final = 16


class Leader:
    """The turns of one gang on rank 0.

    Args:
        peers: lines to the other ranks, by rank.
        make: takes rank 0's part.
        calls: what to call when a run has to end, with notes, and for decisions.
        burst_seconds: about how long a burst takes, unless one traversal takes longer.
        answer_seconds: about how long the traversals of one answer take; 0 if a burst has one answer.
        order: the graph's order by degree; None if it has none.
        decided: by batch id, the latest updates that rank 0 has decided, kept from one leader of the gang to the next.
            The scheduler may send an update once more before it hears of the decision.
        log: keeps decisions; None if nothing does.
    """

    def __init__(
        self,
        graph_id: str,
        peers: Sequence[Peer],
        make: Make,
        calls: GangCalls,
        burst_seconds: float,
        answer_seconds: float,
        order: DegreeOrder | None = None,
        decided: dict[str, EnterUpdate] | None = None,
        log: VersionLog | None = None,
    ) -> None:
        self._graph_id = graph_id
        self._peers = peers
        self._make = make
        self._calls = calls
        self._burst_seconds = burst_seconds
        self._answer_seconds = answer_seconds
        self._order = order
        self._decided = {} if decided is None else decided
        self._log = log
        self._turn = 0
        self._client = ""
        self._listed = ""
        self._number = 0
        self._revoked = True
        self._failed = False
        self._closed = False
        # Held while a run is under way.
        self._busy = threading.Lock()
        # The line of the turn's last run.
        self._holder: Line | None = None
        # Lines of clients that did not leave yet.
        self._served: set[Line] = set()
        # Ends a run, given by its number. Set before the number of the run under way is read, and read after that
        # number is set: so a stop that comes between two bursts of a run is not lost.
        self._end_run: Callable[[int], None] | None = None
        self._under_way: RunNote | None = None
        self._ended: deque[RunNote] = deque()
        # Held while notes are sent, so that they keep their order.
        self._noting = threading.Lock()
        self._noted: Future[None] | None = None
        # The latest update that the scheduler is to enter.
        self._entering: Future[PickledValue[Any]] | None = None
        self._last = 0.0
        # When the burst under way began, or was answered last.
        self._answered = 0.0
        # Time of rank 0's own part in the latest burst.
        self._rank_seconds = 0.0
        # Time of a traversal in the latest burst; 0 before the turn's first.
        self._each_seconds = 0.0
        self._awake = threading.Event()
        # Set once the run that a client's turn was granted to has begun.
        self._begun = threading.Event()
        self._begun.set()
        threading.Thread(target=self._watch, name="dbfs-turn-watch", daemon=True).start()

    def grant(self, turn: int, client: str, number: int, run_id: str = "") -> None:
        """Begin a turn. The turn before it has ended.

        Args:
            number: the gang's serial number of the next burst.
            run_id: a run that the scheduler lists already, and that the client sends; empty for none.
        """
        with self._busy:
            self._turn, self._client, self._number, self._listed = turn, client, number, run_id
            self._holder = self._end_run = None
            self._each_seconds = 0.0
            if run_id:
                self._begun.clear()
            self._revoked = self._failed = False

    def revoke(self, turn: int) -> None:
        """Take no more runs of a turn, and end the run under way after its current burst.

        Waits at most ``_FIRST_RUN_SECONDS`` until the run that the turn was granted to has begun: it had its turn,
        and would have to queue again behind those that came later. Not called in the event loop.
        """
        if turn == self._turn:
            self._begun.wait(_FIRST_RUN_SECONDS)
            self._revoked = True

    def stop(self, turn: int, end_run: Callable[[int], None]) -> None:
        """Revoke a turn, and end its run under way by ``end_run``, which takes the run's number. Returns at once."""
        if turn == self._turn:
            self._end_run = end_run
            self._revoked = True
            self._begun.set()
            note = self._under_way
            if note is not None:
                end_run(note.number)

    def wait_until_idle(self) -> tuple[TurnEnd, list[Future[Any]]]:
        """Wait until no run is under way, and send the notes of all runs. Called after ``revoke``.

        Returns:
            The state of the gang; and futures that are done when the scheduler has the notes and the updates.

        Raises:
            LateError: a run is under way yet. The scheduler asks again, and no thread waits meanwhile.
        """
        if not self._busy.acquire(timeout=_END_SECONDS):
            raise LateError(f"rank 0: a run of turn {self._turn} is under way yet")
        try:
            sending = (self._send_notes(None), self._entering)
            return TurnEnd(self._number, self._failed), [future for future in sending if future is not None]
        finally:
            self._busy.release()

    def serve(self, line: Line) -> None:
        """Make the runs that come over the client's line, until the line closes."""
        self._served.add(line)
        if self._closed:
            line.close()
        try:
            while True:
                request: Request = pickle.loads(line.receive(None))
                with self._busy:
                    _send(line, self._answer(request, line))
        except LineClosedError:
            # The client left, or it gave up the turn.
            if line is self._holder:
                self._revoked = True
        finally:
            self._served.discard(line)

    def lead(self, request: Request) -> Answer:
        """Make a run for the scheduler, and return the one answer. Not called in the event loop."""
        with self._busy:
            return self._answer(request, None)

    def close(self) -> None:
        """End the turn and close the lines."""
        self._revoked = self._closed = True
        self._begun.set()
        self._awake.set()
        for line in (*(peer.line for peer in self._peers), *list(self._served)):
            line.close()

    def _lines_broke(self) -> bool:
        """Return whether a line to another rank is closed: then the turn is over, and the scheduler has lines remade.

        Each rank of a run would wait for the one that gets no part.
        """
        if any(peer.line.hung_up for peer in self._peers):
            self._revoked = self._failed = True
        return self._failed

    def _answer(self, request: Request, line: Line | None) -> Answer:
        """Make a run or an update for the client at the end of ``line``, or for the scheduler; return the last answer.

        The earlier ones are sent over the line.
        """
        if self._revoked or request.turn != self._turn or self._lines_broke():
            return REFUSAL
        work, led = request.work, line is None
        self._holder = line
        if isinstance(work, Run):
            note = RunNote(request.run_id, time.time(), len(work.specs), shown=request.run_id == self._listed, led=led)
            self._under_way = note
        else:
            note = RunNote(request.run_id, time.time(), 0, update=work.kind, led=led)
        self._begun.set()
        self._awake.set()
        try:
            if isinstance(work, Run):
                answer = self._run(request, work, note, line)
            else:
                answer = self._change(request, work, note, line)
        finally:
            note.ended = time.time()
            self._last = time.monotonic()
            self._under_way = None
            if not note.led:
                self._ended.append(note)
        if note.shown:
            # The scheduler lists the run. A client that has the answer may look at that list.
            noted = self._send_notes(None)
            if noted is not None:
                wait([noted], timeout=max(0.0, note.began + request.deadline + LATE_SECONDS - time.time()))
        return answer

    def _change(self, request: Request, change: Change, note: RunNote, line: Line | None) -> Answer:
        """Change the graph by an update. Not ended early: the client may leave."""
        end = time.monotonic() + request.deadline
        decided = self._decided.get(change.batch_id)
        if decided is not None:
            note.led = True
            return Answer((self._entered(decided, end),), last=True, over=self._revoked)

        def ask(half: BeginUpdate | EndUpdate, until: float) -> list[bytes]:
            ((ranks, _),) = self._of_all(request, half, until)
            return ranks

        outcome = make_update(
            request,
            change,
            self._graph_id,
            self._client,
            note.began,
            ask,
            time.monotonic,
            gave_up=lambda: self._end_run is not None or (line is not None and line.hung_up),
            decide=lambda ranks: self._keep(request.run_id, change, ranks),
        )
        answers = outcome.errors
        if outcome.entry is None:
            note.answers.append(list(answers))
        else:
            # The scheduler has the update in its history, and needs no note.
            note.led = True
            self._decided[change.batch_id] = outcome.entry
            if len(self._decided) > _DECIDED_KEPT:
                del self._decided[next(iter(self._decided))]
            report = self._entered(outcome.entry, end)
            answers = answers if answers and not failed(report) else (report,)
        if outcome.over:
            self._revoked = self._failed = True
        return Answer(answers, last=True, over=self._revoked)

    def _keep(self, run_id: str, change: Change, ranks: Sequence[RankVersion]) -> None:
        if self._log is not None and self._log.keeps(self._graph_id):
            self._log.decide(self._graph_id, run_id, change, ranks)

    def _entered(self, entry: EnterUpdate, end: float) -> bytes:
        """Have the scheduler enter an update; return what the client gets."""
        self._entering = self._calls.enter(entry)
        try:
            return answer_well(self._entering.result(max(1e-3, end + LATE_SECONDS - time.monotonic())))
        except TimeoutError as error:
            if self._entering.done():
                return answer_error(error)
            what = "made" if entry.applied else "refused"
            return answer_error(
                OutcomeUnknownError(
                    f"run {entry.run_id}: the ranks {what} the version, but the scheduler has not confirmed that "
                    "in time; graph.version shows the outcome"
                )
            )
        except Exception as error:  # the client raises it
            return answer_error(error)

    def _run(self, request: Request, run: Run, note: RunNote, line: Line | None) -> Answer:
        """Make a run in bursts; send all answers but the last."""
        end = time.monotonic() + request.deadline
        length = len(run.specs) if line is None else self._traversals_in(self._burst_seconds)
        while True:
            specs = run.specs[note.finished : note.finished + length]
            finished = note.finished
            began = self._answered = time.perf_counter()
            burst = Burst(
                turn=request.turn,
                number=self._number,
                client=self._client,
                specs=specs if self._order is None else specs.renumbered(self._order.positions_of),
                first=run.first + finished,
                following=len(run.specs) - finished - len(specs),
                deadline=max(1e-3, end - time.monotonic()),
                dropped=() if finished else run.dropped,
                each=self._traversals_in(self._answer_seconds) if self._answer_seconds and line is not None else 0,
            )
            ranks = self._burst(request, burst, note, end, line)
            if not self._failed:
                self._each_seconds = max(time.perf_counter() - began, 1e-6) / (note.finished - finished)
            # What the scheduler leads is one burst.
            if self._revoked or note.finished == len(run.specs) or line is None:
                return self._reports(ranks, last=True)
            _send(line, self._reports(ranks, last=False))
            length = min(2 * length, self._traversals_in(self._burst_seconds))

    def _traversals_in(self, seconds: float) -> int:
        """Return how many traversals take about so long, at least 1."""
        return max(1, int(seconds / self._each_seconds)) if self._each_seconds else 1

    def _reports(self, ranks: list[bytes], *, last: bool) -> Answer:
        return Answer(tuple(ranks), last, self._revoked, time.perf_counter() - self._answered, self._rank_seconds)

    def _burst(self, request: Request, burst: Burst, note: RunNote, end: float, line: Line | None) -> list[bytes]:
        """Make a burst on all ranks; send all answers but the last. If one of them is an error, the turn is over."""
        note.number = self._number
        self._number += 1
        if self._end_run is not None:
            self._end_run(note.number)
        with closing(self._of_all(request, burst, end + LATE_SECONDS)) as made:
            for ranks, count in made:
                note.answers.append(ranks)
                if any(map(failed, ranks)):
                    self._revoked = self._failed = True
                    if more_follow(ranks[0]):
                        self._calls.abort(burst.number, Cause.FAILED, "another rank failed first")
                    break
                note.finished += count
                if more_follow(ranks[0]) and line is not None:
                    try:
                        _send(line, self._reports(ranks, last=False))
                    except LineClosedError:
                        self._revoked = self._failed = True
                        left = RunCancelledError(f"run {request.run_id}: its client left")
                        note.answers.append([answer_error(left)])
                        self._calls.abort(burst.number, Cause.CANCELLED, "its client left")
                        raise
                    self._answered = time.perf_counter()
        return ranks

    def _of_all(
        self, request: Request, part: RankRequest, end: float
    ) -> Generator[tuple[list[bytes], int], None, None]:
        """Have all ranks take their part in a request; yield their answers, and how many traversals these are of.

        Rank 0 waits for them until ``end``.
        """
        ranks: list[bytes] = []
        frame = pickle.dumps(part, protocol=5) if self._peers else b""
        lost = [peer.rank for peer in self._peers if not peer.ask(request.run_id, frame)]
        try:
            with closing(self._own_answers(request, part, lost)) as own_answers:
                began = time.perf_counter()
                for own, made in own_answers:
                    self._rank_seconds = time.perf_counter() - began
                    if isinstance(part, Burst) and failed(own):
                        end = min(end, time.monotonic() + _END_SECONDS)
                    ranks = [own, *(peer.answer(request, end) for peer in self._peers)]
                    yield ranks, made
                    began = time.perf_counter()
        finally:
            # A late answer would be taken for the answer to the next request.
            for peer, answer in zip(self._peers, ranks[1:], strict=False):
                while more_follow(answer):
                    answer = peer.answer(request, end)

    def _own_answers(self, request: Request, part: RankRequest, lost: list[int]) -> Answers:
        """Take rank 0's part. A burst is not made if ranks are lost."""
        burst = part if isinstance(part, Burst) else None
        if burst is not None and lost:
            self._calls.abort(burst.number, Cause.LOST, f"lost rank {lost[0]}", lost[0])
            yield answer_error(WorkerLostError(f"run {request.run_id}: lost rank {lost[0]}; load the graph again")), 0
            return
        try:
            yield from self._make(part, (lambda: self._revoked) if burst is not None else never)
        except Exception as error:  # the client raises it
            if burst is not None:
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
            new = note is not None and not note.led and time.time() - note.began > _NOTED_AFTER_SECONDS
            if note is None or not new or seen == (note.run_id, note.number):
                self._send_notes(None)
            else:
                seen = (note.run_id, note.number)
                note.shown = True
                self._send_notes(note)

    def _send_notes(self, show: RunNote | None) -> Future[None] | None:
        """Send notes of the runs that ended, and of the run to show as under way; return the latest sending."""
        with self._noting:
            runs = [self._ended.popleft() for _ in range(len(self._ended))]
            # A run that ended since would be shown for ever.
            if show is not None and show is self._under_way:
                runs.append(show)
            if runs:
                noted = NoteRuns(self._graph_id, self._turn, tuple(run.noted() for run in runs))
                self._noted = self._calls.note(noted)
            return self._noted

    def _look_after(self, note: RunNote) -> None:
        """End the run if its client has left, or if a rank has failed that the others wait for."""
        if self._holder is not None and self._holder.hung_up:
            self.stop(self._turn, lambda number: self._calls.abort(number, Cause.CANCELLED, "its client left"))
        for peer in self._peers:
            error = peer.early_error()
            if error is None:
                continue
            self._revoked = True
            if isinstance(error, LineClosedError):
                self._calls.abort(note.number, Cause.LOST, f"lost rank {peer.rank}", peer.rank)
            else:
                self._calls.abort(note.number, Cause.FAILED, f"rank {peer.rank} failed first: {error}")


def _send(line: Line, answer: Answer) -> None:
    line.send(pickle.dumps(answer, protocol=5), SEND_SECONDS)

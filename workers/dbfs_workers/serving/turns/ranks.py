"""The ends of a line between rank 0 and another rank: ``Peer`` on rank 0, and ``Follower`` on the other rank."""

import contextlib
import pickle
import threading
import time
from collections.abc import Callable
from typing import Final

from dbfs_workers.base.errors import LateError, StaleRunError, WorkerLostError
from dbfs_workers.base.lines.line import Line, LineClosedError
from dbfs_workers.search.levels.traversals import never
from dbfs_workers.search.members.burst import Burst
from dbfs_workers.serving.answers import answer_error, error_of, more_follow
from dbfs_workers.serving.turns.requests import Answers, BeginUpdate, EndUpdate, Make, RankRequest, Request

SEND_SECONDS: Final = 2.0
"""Seconds that the other end of a line may take to read a frame."""


class Peer:
    """A line to another rank. An answer to a request may be read by a watch before the run waits for it."""

    def __init__(self, rank: int, line: Line) -> None:
        self.rank = rank
        self.line = line
        self._lock = threading.Lock()
        self._answer: bytes | None = None
        self._asked = False

    def ask(self, run_id: str, frame: bytes) -> bool:
        """Send a request of a run; return False if the line is broken: then the answer is that the rank is lost."""
        try:
            self.line.send(frame, SEND_SECONDS)
        except LineClosedError as error:
            self._answer = self._lost(run_id, error)
            return False
        self._asked = True
        return True

    def answer(self, request: Request, end: float) -> bytes:
        """Wait until ``end``, in seconds of ``time.monotonic()``; return the next answer, or why none came."""
        try:
            with self._lock:
                answer = self._answer
                if answer is None:
                    answer = self.line.receive(end)
                self._answer, self._asked = None, more_follow(answer)
                return answer
        except TimeoutError:
            # A late answer would be taken for the answer to the next request.
            self.line.close()
            late = f"run {request.run_id}: not done after {request.deadline:g} s; no answer from rank {self.rank}"
            return answer_error(LateError(late))
        except LineClosedError as error:
            return self._lost(request.run_id, error)

    def _lost(self, run_id: str, error: BaseException) -> bytes:
        return answer_error(WorkerLostError(f"run {run_id}: lost rank {self.rank}: {error}; load the graph again"))

    def early_error(self) -> BaseException | None:
        """Return why the rank does not make the burst any more; None if it does, or has made the burst."""
        if not self._asked or not self._lock.acquire(blocking=False):
            return None
        try:
            if self._answer is None and self.line.readable(0):
                self._answer = self.line.receive(time.monotonic() + SEND_SECONDS)
            # An error, whatever it is: this rank does not arrive at the next barrier.
            return None if self._answer is None else error_of(self._answer)
        except OSError as error:
            return LineClosedError(str(error))
        finally:
            self._lock.release()


class Follower:
    """The turns of one gang on a rank other than 0: it answers what rank 0 requests.

    Args:
        make: takes this rank's part.
    """

    def __init__(self, rank: int, make: Make) -> None:
        self._rank = rank
        self._make = make
        self._ended = 0
        self._burst: Burst | None = None
        self._line: Line | None = None
        self._closed = False

    def serve(self, line: Line) -> None:
        """Answer the requests that come over rank 0's line, until the line closes."""
        # Set before ``_closed`` is read: ``close`` does the reverse, so that one of the two sees the other.
        self._line = line
        prepared = ""
        try:
            while not self._closed:
                request: RankRequest = pickle.loads(line.receive(None))
                prepared = request.run_id if isinstance(request, BeginUpdate) else ""
                with contextlib.closing(self._answers(request)) as answers:
                    for answer, _ in answers:
                        line.send(answer, SEND_SECONDS)
        except LineClosedError:
            if prepared:
                # A rank that leaves the gang forgets the version anyway.
                with contextlib.suppress(StaleRunError):
                    list(self._make(EndUpdate(prepared, None), never))

    def _answers(self, request: RankRequest) -> Answers:
        # Set before ``_ended`` is read: ``stop`` does the reverse, so that one of the two sees the other.
        self._burst = request if isinstance(request, Burst) else None
        try:
            # An update that is decided is carried out, whatever becomes of its turn.
            if not isinstance(request, EndUpdate) and request.turn <= self._ended:
                what = f"run {request.number if isinstance(request, Burst) else request.run_id}"
                raise StaleRunError(f"rank {self._rank}: {what} is of turn {request.turn}, which is over")
            yield from self._make(request, never)
        except Exception as error:  # rank 0 passes it on
            yield answer_error(error), 0
        finally:
            self._burst = None

    def stop(self, turn: int, end_run: Callable[[int], None]) -> None:
        """Refuse all requests of a turn, and end the one under way by ``end_run``, which takes the run's number."""
        self._ended = max(self._ended, turn)
        burst = self._burst
        if burst is not None and burst.turn <= turn:
            end_run(burst.number)

    def close(self) -> None:
        """Close rank 0's line, also if its thread has yet to begin."""
        self._closed = True
        if self._line is not None:
            self._line.close()

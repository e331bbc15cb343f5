"""Rank 0's line to another rank of the gang."""

import pickle
import threading
import time
from collections.abc import Sequence
from typing import Final

from dbfs_workers.errors import LateError, WorkerLostError
from dbfs_workers.leases.requests import RankRequest, answer_error, failed, more_follow, read_answer
from dbfs_workers.lines.line import Line, LineClosedError

SEND_SECONDS: Final = 2.0
"""Seconds that the other end of a line may take to read a frame."""


class Peer:
    """A line to another rank. An answer to a burst may be read by a watch before the run waits for it."""

    def __init__(self, rank: int, line: Line) -> None:
        self.rank = rank
        self.line = line
        self._lock = threading.Lock()
        self._answer: bytes | None = None
        self._asked = False

    def ask(self, frame: bytes) -> None:
        """Send a request.

        Raises:
            LineClosedError: the line broke.
        """
        self._asked = True
        self.line.send(frame, SEND_SECONDS)

    def answer(self, end: float) -> bytes:
        """Wait until ``end``, in seconds of ``time.monotonic()``, and return the next answer to the burst.

        Errors as for ``Line.receive``.
        """
        with self._lock:
            answer = self._answer
            if answer is None:
                answer = self.line.receive(end)
            self._answer, self._asked = None, more_follow(answer)
            return answer

    def answer_or_error(self, run_id: str, deadline: float, end: float) -> bytes:
        """Wait until ``end``; return the next answer to a burst of ``deadline`` seconds, or why none came."""
        try:
            return self.answer(end)
        except TimeoutError:
            # A late answer would be taken for the answer to the next burst.
            self.line.close()
            late = f"run {run_id}: not done after {deadline:g} s; no answer from rank {self.rank}"
            return answer_error(LateError(late))
        except LineClosedError as error:
            return self.lost(run_id, error)

    def lost(self, run_id: str, error: BaseException) -> bytes:
        """Return the answer that stands for this rank in a run during which the line broke."""
        return answer_error(WorkerLostError(f"run {run_id}: lost rank {self.rank}: {error}; load the graph again"))

    def early_error(self) -> BaseException | None:
        """Return why the rank does not make the burst any more; None if it does, or has made the burst."""
        if not self._asked or not self._lock.acquire(blocking=False):
            return None
        try:
            if self._answer is None and self.line.readable(0):
                self._answer = self.line.receive(time.monotonic() + SEND_SECONDS)
            answer = self._answer
        except OSError as error:
            return LineClosedError(str(error))
        finally:
            self._lock.release()
        if answer is not None and failed(answer):
            try:
                read_answer(answer)
            except Exception as error:  # whatever it is: this rank does not arrive at the next barrier
                return error
        return None


def ask_all(peers: Sequence[Peer], run_id: str, request: RankRequest) -> dict[int, bytes]:
    """Send the other ranks a request of a run; return the answers that stand for the ranks whose line broke."""
    lost = {}
    frame = pickle.dumps(request, protocol=5) if peers else b""
    for peer in peers:
        try:
            peer.ask(frame)
        except LineClosedError as error:
            lost[peer.rank] = peer.lost(run_id, error)
    return lost

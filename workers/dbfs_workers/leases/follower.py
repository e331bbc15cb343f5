"""The leases of a gang on a rank other than 0: it answers what rank 0 requests over a line."""

import contextlib
import pickle
from collections.abc import Callable, Generator
from typing import Protocol

from dbfs_workers.errors import StaleRunError
from dbfs_workers.leases.peer import SEND_SECONDS
from dbfs_workers.leases.requests import (
    BeginUpdate,
    Burst,
    EndUpdate,
    RankRequest,
    answer_error,
    answer_well,
    answers_of_run,
)
from dbfs_workers.lines.line import Line, LineClosedError
from dbfs_workers.reports import RankReport


class MakeRun(Protocol):
    """Takes this rank's part in a run, in the thread that takes the reports."""

    def __call__(self, burst: Burst, stops: Callable[[], bool] = lambda: False, /) -> Generator[RankReport, None, None]:
        """Args: the burst; and, on rank 0, whether the run is to stop before the next traversal."""
        ...


MakeUpdate = Callable[[BeginUpdate | EndUpdate], object]
"""Takes this rank's part in an update, in the calling thread, and returns the value of its answer."""


class Follower:
    """The leases of one gang on a rank other than 0.

    Args:
        rank: the rank.
        make_run: makes this rank's part in a run.
        make_update: makes this rank's part in an update.
    """

    def __init__(self, rank: int, make_run: MakeRun, make_update: MakeUpdate) -> None:
        self._rank = rank
        self._make_run = make_run
        self._make_update = make_update
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
                    for answer in answers:
                        line.send(answer, SEND_SECONDS)
        except LineClosedError:
            if prepared:
                # A rank that leaves the gang forgets the version anyway.
                with contextlib.suppress(StaleRunError):
                    self._make_update(EndUpdate(prepared, None))

    def _answers(self, request: RankRequest) -> Generator[bytes, None, None]:
        # Set before ``_ended`` is read: ``stop`` does the reverse, so that one of the two sees the other.
        self._burst = request if isinstance(request, Burst) else None
        try:
            # An update that is decided is carried out, whatever becomes of its lease.
            if not isinstance(request, EndUpdate) and request.lease <= self._ended:
                what = f"run {request.number if isinstance(request, Burst) else request.run_id}"
                raise StaleRunError(f"rank {self._rank}: {what} is of lease {request.lease}, which is over")
            if isinstance(request, Burst):
                yield from (answer for answer, _ in answers_of_run(request, self._make_run(request)))
            else:
                yield answer_well(self._make_update(request))
        except Exception as error:  # rank 0 sends it to the holder, who raises it
            yield answer_error(error)
        finally:
            self._burst = None

    def stop(self, lease: int, end_run: Callable[[int], None]) -> None:
        """Refuse all requests of a lease, and end the one under way by ``end_run``, which takes the run's number."""
        self._ended = max(self._ended, lease)
        burst = self._burst
        if burst is not None and burst.lease <= lease:
            end_run(burst.number)

    def close(self) -> None:
        """Close rank 0's line, also if its thread has yet to begin."""
        self._closed = True
        if self._line is not None:
            self._line.close()

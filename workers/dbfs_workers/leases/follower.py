"""The leases of a gang on a rank other than 0: it makes the parts of runs that rank 0 sends over a line."""

import pickle
from collections.abc import Callable

from dbfs_workers.errors import StaleRunError
from dbfs_workers.leases.peer import SEND_SECONDS
from dbfs_workers.leases.requests import PartOfRun, answer_error, answer_reports
from dbfs_workers.lines.line import Line, LineClosedError
from dbfs_workers.reports import RankReport

RunPart = Callable[[PartOfRun], list[RankReport]]
"""Takes this rank's part in a part of a run, in the calling thread."""


class Follower:
    """The leases of one gang on a rank other than 0.

    Args:
        rank: the rank.
        run_part: makes this rank's part in a run.
    """

    def __init__(self, rank: int, run_part: RunPart) -> None:
        self._rank = rank
        self._run_part = run_part
        self._ended = 0
        self._part: PartOfRun | None = None
        self._line: Line | None = None
        self._closed = False

    def serve(self, line: Line) -> None:
        """Make the parts that come over rank 0's line, until the line closes."""
        # Set before ``_closed`` is read: ``close`` does the reverse, so that one of the two sees the other.
        self._line = line
        try:
            while not self._closed:
                part: PartOfRun = pickle.loads(line.receive(None))
                # Set before ``_ended`` is read: ``stop`` does the reverse, so that one of the two sees the other.
                self._part = part
                try:
                    if part.lease <= self._ended:
                        stale = f"run {part.number} is of lease {part.lease}, which is over"
                        raise StaleRunError(f"rank {self._rank}: {stale}")
                    answer = answer_reports(self._run_part(part))
                except Exception as error:  # rank 0 sends it to the holder, who raises it
                    answer = answer_error(error)
                finally:
                    self._part = None
                line.send(answer, SEND_SECONDS)
        except LineClosedError:
            return

    def stop(self, lease: int, end_run: Callable[[int], None]) -> None:
        """Refuse all parts of a lease, and end the one under way by ``end_run``, which takes the run's number."""
        self._ended = max(self._ended, lease)
        part = self._part
        if part is not None and part.lease <= lease:
            end_run(part.number)

    def close(self) -> None:
        """Close rank 0's line, also if its thread has yet to begin."""
        self._closed = True
        if self._line is not None:
            self._line.close()

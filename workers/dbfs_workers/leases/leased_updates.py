"""An update of a few edges under a lease, on rank 0: all ranks prepare the version, rank 0 decides, all commit.

Preparing changes nothing that a traversal reads, so until the decision an error leaves the graph as it was. Rank 0
decides, because the graph is lost with rank 0 in any case. It decides for the version only before the deadline, and
while the holder is there: a holder that gave up is told that the graph has no new version. From the decision on the
version is the graph's. A rank that is late then commits the version when it goes on, and the next run waits for that.
The scheduler enters the version into its record afterwards.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from dbfs_workers.errors import DeadlineExceededError, LateError, OutcomeUnknownError, WorkerLostError
from dbfs_workers.leases.follower import MakeUpdate
from dbfs_workers.leases.notes import EnterUpdate
from dbfs_workers.leases.peer import Peer, ask_all
from dbfs_workers.leases.requests import (
    BeginUpdate,
    EndUpdate,
    LeasedUpdate,
    answer_error,
    answer_well,
    failed,
    read_answer,
)
from dbfs_workers.rpc import LATE_SECONDS, Pickled
from dbfs_workers.updates.messages import RankUpdate, refused_of, totals_of


@dataclass(frozen=True)
class Outcome:
    """The end of an update.

    Attributes:
        answers: what its client gets: see ``UpdateAnswer``.
        decided: whether rank 0 has decided, so that the scheduler has, or will have, the update in its history.
        over: whether the lease is over, since a rank is lost, late or without the version.
    """

    answers: tuple[bytes, ...]
    decided: bool = False
    over: bool = False


class LeasedUpdates:
    """The updates under a gang's leases, on rank 0.

    Args:
        graph_id: the graph.
        peers: lines to the other ranks, by rank.
        make_update: makes rank 0's part.
        enter: has the scheduler enter an update, after all earlier messages of rank 0; the future has the report.

    Attributes:
        entering: the latest update that the scheduler is to enter; None before the first.
    """

    def __init__(
        self,
        graph_id: str,
        peers: Sequence[Peer],
        make_update: MakeUpdate,
        enter: Callable[[EnterUpdate], Future[Pickled[Any]]],
    ) -> None:
        self._graph_id = graph_id
        self._peers = peers
        self._make_update = make_update
        self._enter = enter
        self.entering: Future[Pickled[Any]] | None = None

    def make(self, update: LeasedUpdate, client: str, began: float, left: Callable[[], bool]) -> Outcome:
        """Change the graph on all ranks or on none.

        Args:
            update: the update.
            client: id of the holder.
            began: when the update came, in seconds since the epoch.
            left: returns whether the holder has left, or given up.
        """
        end = time.monotonic() + update.deadline
        answers = self._on_all(update, BeginUpdate(update.lease, update.run_id, update.spec), end)
        if any(map(failed, answers)):
            return self._forgotten(update, tuple(filter(failed, answers)))
        ranks: tuple[RankUpdate, ...] = tuple(map(read_answer, answers))
        if time.monotonic() > end or left():
            late = f"run {update.run_id}: not done after {update.deadline:g} s; the graph has no new version"
            return self._forgotten(update, (answer_error(DeadlineExceededError(late)),))
        kind = update.spec.kind
        applied = not (update.strict and (refused_of(kind, ranks) or ranks[0].absent))
        totals = totals_of(ranks) if applied else None
        # The commit has its time from now on, though the deadline may be near.
        ended = self._on_all(update, EndUpdate(update.run_id, totals), max(end, time.monotonic()) + LATE_SECONDS)
        errors = [_error_of(answer) for answer in ended if failed(answer)]
        late_ranks = [error for error in errors if isinstance(error, LateError | WorkerLostError)]
        torn = "" if len(late_ranks) == len(errors) or not applied else str(errors[0])
        entry = EnterUpdate(
            graph_id=self._graph_id,
            client=client,
            run_id=update.run_id,
            kind=kind,
            began=began,
            ranks=Pickled.of(ranks),
            applied=applied,
            settled=not late_ranks,
            torn=torn,
        )
        report = self._entered(entry, end)
        lost = next((error for error in late_ranks if isinstance(error, WorkerLostError)), None)
        answer = report if lost is None or failed(report) else answer_error(lost)
        return Outcome((answer,), decided=True, over=bool(errors))

    def _entered(self, entry: EnterUpdate, end: float) -> bytes:
        """Have the scheduler enter an update; return what the client gets."""
        self.entering = self._enter(entry)
        try:
            return answer_well(self.entering.result(max(1e-3, end + LATE_SECONDS - time.monotonic())))
        except TimeoutError as error:
            if self.entering.done():
                return answer_error(error)
            what = "made" if entry.applied else "refused"
            return answer_error(
                OutcomeUnknownError(
                    f"run {entry.run_id}: the ranks {what} the version, but the scheduler has not confirmed that "
                    "in time; graph.version shows the outcome"
                )
            )
        except Exception as error:  # the holder raises it
            return answer_error(error)

    def _forgotten(self, update: LeasedUpdate, answers: tuple[bytes, ...]) -> Outcome:
        """Have all ranks forget the version."""
        forgot = self._on_all(update, EndUpdate(update.run_id, None), time.monotonic() + LATE_SECONDS)
        over = any(isinstance(_error_of(answer), LateError | WorkerLostError) for answer in (*answers, *forgot))
        return Outcome(answers, over=over)

    def _on_all(self, update: LeasedUpdate, half: BeginUpdate | EndUpdate, end: float) -> list[bytes]:
        """Have all ranks make a half of the update; return their answers, for which rank 0 waits until ``end``."""
        broken = ask_all(self._peers, update.run_id, half)
        try:
            own = answer_well(self._make_update(half))
        except Exception as error:  # the holder raises it
            own = answer_error(error)
        others = (
            broken.get(peer.rank) or peer.answer_or_error(update.run_id, update.deadline, end) for peer in self._peers
        )
        return [own, *others]


def _error_of(answer: bytes) -> Exception | None:
    """Return the error of an answer; None if the rank did its half."""
    if failed(answer):
        try:
            read_answer(answer)
        except Exception as error:  # of any kind
            return error
    return None

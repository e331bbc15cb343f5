"""An update on rank 0, without I/O: all ranks prepare the version, rank 0 decides, all commit.

Preparing changes nothing that a traversal reads, so until the decision an error leaves the graph as it was. Rank 0
decides, because the graph is lost with rank 0 in any case. It decides for the version only before the deadline, and
while the client is there: a client that gave up is told that the graph has no new version. From the decision on the
version is the graph's. A rank that is late then commits the version when it goes on, and the next run waits for that.
The scheduler enters the version into its record afterwards.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dbfs_workers.base.errors import DbfsError, DeadlineExceededError, LateError, WorkerLostError
from dbfs_workers.serving.answers import answer_error, error_of, failed, read_answer
from dbfs_workers.serving.rpc import LATE_SECONDS, PickledValue
from dbfs_workers.serving.turns.changes import Change, RankVersion, totals_of
from dbfs_workers.serving.turns.notes import EnterUpdate
from dbfs_workers.serving.turns.requests import BeginUpdate, EndUpdate, Request


@dataclass(frozen=True)
class Outcome:
    """The end of an update's rounds.

    Attributes:
        errors: what its client gets instead of the scheduler's report: ranks' answers.
        entry: what the scheduler enters; None if the ranks have forgotten the version before a decision.
        over: whether the turn is over, since a rank is lost, late or without the version.
    """

    errors: tuple[bytes, ...]
    entry: EnterUpdate | None
    over: bool


Ask = Callable[[BeginUpdate | EndUpdate, float], list[bytes]]
"""Sends a request to all ranks, and waits for the answers until a time in seconds of ``now``; returns them by rank."""


def make_update(
    request: Request,
    change: Change,
    graph_id: str,
    client: str,
    began: float,
    ask: Ask,
    now: Callable[[], float],
    gave_up: Callable[[], bool],
    decide: Callable[[Sequence[RankVersion]], None],
) -> Outcome:
    """Make the rounds of an update, after which the graph is changed on all ranks or on none.

    Args:
        request, change: the update.
        began: when the update came, in seconds since the epoch.
        ask: asks all ranks.
        now: returns the time in seconds.
        gave_up: returns whether the client has left or given up, or the turn was stopped.
        decide: takes the version that all ranks are about to commit; if it raises, they forget it.
    """
    run_id, end = request.run_id, now() + request.deadline
    answers = ask(BeginUpdate(request.turn, run_id, change), end)
    wrong = tuple(filter(failed, answers))
    if not wrong and (now() > end or gave_up()):
        late = f"run {run_id}: not done after {request.deadline:g} s; the graph has no new version"
        wrong = (answer_error(DeadlineExceededError(late)),)
    ranks: tuple[RankVersion, ...] = () if wrong else tuple(map(read_answer, answers))
    applied = not any(rank.refuses for rank in ranks)
    if not wrong and applied:
        try:
            decide(ranks)
        except DbfsError as error:
            wrong = (answer_error(error),)
    if wrong:
        forgot = ask(EndUpdate(run_id, None), now() + LATE_SECONDS)
        return Outcome(wrong, None, over=any(map(_is_away, map(error_of, (*wrong, *forgot)))))
    # The commit has some time, though the deadline may be near; and the scheduler has its own after that.
    ended = ask(EndUpdate(run_id, totals_of(ranks) if applied else None), max(end, now() + LATE_SECONDS))
    errors = [error_of(answer) for answer in ended if failed(answer)]
    torn = "" if all(map(_is_away, errors)) or not applied else str(errors[0])
    entry = EnterUpdate(
        graph_id=graph_id,
        client=client,
        run_id=run_id,
        batch_id=change.batch_id,
        kind=change.kind,
        began=began,
        ranks=PickledValue.of(ranks),
        applied=applied,
        settled=not (applied and errors),
        torn=torn,
    )
    lost = tuple(answer for answer in ended if isinstance(error_of(answer), WorkerLostError))
    return Outcome(lost[:1], entry, over=bool(errors))


def _is_away(error: Exception | None) -> bool:
    """Return whether a rank's answer did not come: the rank is late or lost, or the line to it broke."""
    return isinstance(error, LateError | WorkerLostError)

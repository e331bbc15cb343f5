"""What rank 0 makes in a turn, what it requests of the other ranks for that, and the answers.

All of it is pickled. Over lines only holders of a token send it: see ``dbfs_workers.base.lines``.
"""

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Final

from dbfs_workers.base.spec import RunSpec, TraversalPlace
from dbfs_workers.search.members.burst import Burst
from dbfs_workers.search.partition.partition import GraphTotals
from dbfs_workers.search.reports import RankReport
from dbfs_workers.serving.answers import answer_well
from dbfs_workers.serving.turns.changes import Change

# The largest answers have this many times the traversals of the smallest, which take about as long as an answer.
_LARGEST_BY_SMALLEST: Final = 8


@dataclass(frozen=True)
class Run:
    """Traversals to make.

    Attributes:
        specs: the traversals that are left to do, of vertices.
        first: index of the first of them in the run.
        dropped: traversals whose labels are released first.
    """

    specs: RunSpec
    first: int
    dropped: tuple[TraversalPlace, ...]


Work = Run | Change


@dataclass(frozen=True)
class Request:
    """Work in a turn, for rank 0.

    Attributes:
        deadline: seconds until the run's deadline.
        work: what to make.
    """

    turn: int
    run_id: str
    deadline: float
    work: Work


@dataclass(frozen=True)
class Answer:
    """Rank 0's answer to a ``Request``. For traversals others may follow, in the order of the traversals.

    Attributes:
        ranks: of traversals, each rank's answer; of an update, the scheduler's report, pickled, or the errors of ranks.
            Empty if the turn was over: nothing was made.
        last: whether no further answer follows: the run is over, or its turn was revoked.
        over: whether the turn is over.
        seconds: time from the burst's beginning on rank 0, or from the burst's answer before, to this answer.
        rank_seconds: how much of that time rank 0 spent on its own rows.
    """

    ranks: tuple[bytes, ...]
    last: bool
    over: bool = False
    seconds: float = 0.0
    rank_seconds: float = 0.0


REFUSAL: Final = Answer((), last=True, over=True)


@dataclass(frozen=True)
class BeginUpdate:
    """The first half of an update: the rank prepares its next version. From rank 0; the answer is a ``RankVersion``.

    Attributes:
        change: the update.
    """

    turn: int
    run_id: str
    change: Change


@dataclass(frozen=True)
class EndUpdate:
    """The second half: the rank commits the version that it has prepared, or forgets that version. From rank 0.

    Attributes:
        totals: counts of the version; None to forget it.
    """

    run_id: str
    totals: GraphTotals | None


RankRequest = Burst | BeginUpdate | EndUpdate
"""What rank 0 requests of all ranks."""

Answers = Generator[tuple[bytes, int], None, None]
"""A rank's answers to a request, each as soon as it is there, with its number of traversals."""

Make = Callable[[RankRequest, Callable[[], bool]], Answers]
"""Takes a rank's part in a request, in the thread that takes the answers; the second argument tells whether a run is to
stop before its next traversal. Raises what the rank raises."""


def answers_of_run(burst: Burst, reports: Generator[RankReport, None, None]) -> Answers:
    """Yield a rank's answers to a burst, each as soon as its traversals are made.

    Args:
        reports: makes the traversals as their reports are taken, and may stop early. Closed at the end.
    """
    with closing(reports):
        left, more = len(burst.specs), True
        while more:
            size = _answer_size(burst.each, left)
            taken = list(islice(reports, size) if left > size else reports)
            left -= len(taken)
            more = len(taken) == size and left > 0
            yield answer_well(taken, more=more), len(taken)


def _answer_size(each: int, left: int) -> int:
    """Return the number of traversals of the next answer, of ``left`` traversals; ``each`` as of ``Burst``."""
    if not each:
        return left
    return min(each, max(1, left // 2, each // _LARGEST_BY_SMALLEST))

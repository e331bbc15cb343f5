"""The messages over a gang's lines: a run or a batch from the holder to rank 0, and rank 0's requests to other ranks.

All of it is pickled. Only holders of a token send it: see ``dbfs_workers.lines``.
"""

import os
import pickle
import platform
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from dbfs_workers.errors import DbfsError, resource_error
from dbfs_workers.messages import TraversalPlace
from dbfs_workers.reports import RankReport
from dbfs_workers.spec import RunSpec
from dbfs_workers.storage.partition import GraphTotals
from dbfs_workers.storage.update_spec import UpdateSpec
from dbfs_workers.text import printable

# The largest answers have this many times the traversals of the smallest, which take about as long as an answer.
_LARGEST_BY_SMALLEST: Final = 8
# The first byte of a rank's answer.
_WELL, _FAILED, _MORE = b"\0", b"\1", b"\2"


@dataclass(frozen=True)
class LeasedRun:
    """A run that a lease's holder sends to rank 0.

    Attributes:
        lease: serial number of the lease.
        run_id: the run's id.
        specs: the traversals that are left to do, of vertices.
        first: index of the first of them in the run.
        deadline: seconds until the run's deadline.
        dropped: traversals whose labels are released first.
    """

    lease: int
    run_id: str
    specs: RunSpec
    first: int
    deadline: float
    dropped: tuple[TraversalPlace, ...]


@dataclass(frozen=True)
class Burst:
    """Consecutive traversals of a run, which every rank makes without a message in between. From rank 0.

    Attributes:
        lease: serial number of the lease.
        number: the gang's serial number of this burst.
        client: id of the client that the labels belong to.
        specs: the traversals, of positions if the graph is ordered by degree.
        first: index of the first of them in the run.
        following: number of traversals of the run in later bursts.
        deadline: seconds until the run's deadline.
        dropped: traversals whose labels are released first.
        each: most traversals of an answer; 0 for one answer at the end. The last answers have fewer and fewer, since
            the holder makes the results of the very last one while no traversal runs.
    """

    lease: int
    number: int
    client: str
    specs: RunSpec
    first: int
    following: int
    deadline: float
    dropped: tuple[TraversalPlace, ...]
    each: int


@dataclass(frozen=True)
class LeasedUpdate:
    """A batch of a few edges that a lease's holder sends to rank 0.

    Attributes:
        lease: serial number of the lease.
        run_id: the update's run.
        spec: the update, with its edges.
        strict: whether one duplicate or missing edge refuses the whole batch.
        deadline: seconds until the run's deadline.
    """

    lease: int
    run_id: str
    spec: UpdateSpec
    strict: bool
    deadline: float


@dataclass(frozen=True)
class BeginUpdate:
    """The first half of an update: the rank prepares its next version. From rank 0; the answer is a ``RankUpdate``.

    Attributes:
        lease: serial number of the lease.
        run_id: the update's run.
        spec: the update, with its edges.
    """

    lease: int
    run_id: str
    spec: UpdateSpec


@dataclass(frozen=True)
class EndUpdate:
    """The second half: the rank commits the version that it has prepared, or forgets that version. From rank 0.

    Attributes:
        run_id: the update's run.
        totals: counts of the version; None to forget it.
    """

    run_id: str
    totals: GraphTotals | None


@dataclass(frozen=True)
class RanksReports:
    """Answer to a ``LeasedRun``: the reports of some of its traversals. Others follow, in the order of the traversals.

    Attributes:
        ranks: by rank, the answer of ``answer_well``.
        last: whether no further answer follows: the run is over, or its lease was revoked.
        seconds: time from the burst's beginning on rank 0, or from the burst's answer before, to this answer.
        rank_seconds: how much of that time rank 0 spent on its own rows.
    """

    ranks: list[bytes]
    last: bool
    seconds: float
    rank_seconds: float


@dataclass(frozen=True)
class UpdateAnswer:
    """Answer to a ``LeasedUpdate``.

    Attributes:
        answers: one of ``answer_well``, with the scheduler's report, pickled; or ranks' answers of ``answer_error``.
        over: whether the lease is over.
    """

    answers: tuple[bytes, ...]
    over: bool


@dataclass(frozen=True)
class Refusal:
    """Answer to a ``LeasedRun`` or a ``LeasedUpdate`` whose lease is over. Nothing of it was made."""


RankRequest = Burst | BeginUpdate | EndUpdate
"""What rank 0 requests of the other ranks."""


def answer_well(value: object, *, more: bool = False) -> bytes:
    """Return a rank's answer to a request that went well: reports of a burst, or the value of an update's half.

    Args:
        value: the reports, or the value of the half.
        more: whether the burst goes on, and further answers follow.
    """
    return (_MORE if more else _WELL) + pickle.dumps(value, protocol=5)


def answers_of_run(
    burst: Burst, reports: Generator[RankReport, None, None]
) -> Generator[tuple[bytes, int], None, None]:
    """Yield a rank's answers to a burst, each as soon as its traversals are made, with their number.

    Args:
        burst: the burst.
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


def answer_error(error: BaseException) -> bytes:
    """Return a rank's answer to a request that failed. Only errors of dbfs keep their type."""
    if not isinstance(error, DbfsError):
        unknown = RuntimeError(printable(f"{type(error).__name__}: {error}"))
        error = resource_error(error, f"the process {os.getpid()} on {platform.node()}") or unknown
    return _FAILED + pickle.dumps(error)


def failed(answer: bytes) -> bool:
    """Return whether a rank's answer is an error."""
    return answer.startswith(_FAILED)


def more_follow(answer: bytes) -> bool:
    """Return whether the burst goes on after a rank's answer."""
    return answer.startswith(_MORE)


def read_answer(answer: bytes) -> Any:
    """Return the value of a rank's answer: a list of ``RankReport``, or what an update's half returned.

    Raises:
        Exception: the request failed with it.
    """
    value: Any = pickle.loads(memoryview(answer)[1:])
    if failed(answer):
        raise value
    return value

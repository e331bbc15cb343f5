"""The messages over the lines of a gang: a run or a batch from the holder to rank 0, its parts to the other ranks.

All of it is pickled. Only holders of a token send it: see ``dbfs_workers.lines``.
"""

import pickle
from dataclasses import dataclass
from typing import Any

from dbfs_workers.errors import DbfsError
from dbfs_workers.messages import TraversalPlace
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.partition import GraphTotals
from dbfs_workers.storage.update_spec import UpdateSpec
from dbfs_workers.text import printable

# The first byte of a rank's answer.
_WELL, _FAILED = b"\0", b"\1"


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
    specs: list[TraversalSpec]
    first: int
    deadline: float
    dropped: tuple[TraversalPlace, ...]


@dataclass(frozen=True)
class PartOfRun:
    """Consecutive traversals of a run, which every rank makes without a message in between. From rank 0.

    Attributes:
        lease: serial number of the lease.
        number: the gang's serial number of this part.
        client: id of the client that the labels belong to.
        specs: the traversals, of positions if the graph is ordered by degree.
        first: index of the first of them in the run.
        following: number of traversals of the run in later parts.
        deadline: seconds until the run's deadline.
        dropped: traversals whose labels are released first.
    """

    lease: int
    number: int
    client: str
    specs: list[TraversalSpec]
    first: int
    following: int
    deadline: float
    dropped: tuple[TraversalPlace, ...]


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
class PartOfUpdate:
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
class EndOfUpdate:
    """The second half: the rank commits the version that it has prepared, or forgets that version. From rank 0.

    Attributes:
        run_id: the update's run.
        totals: counts of the version; None to forget it.
    """

    run_id: str
    totals: GraphTotals | None


@dataclass(frozen=True)
class RanksReports:
    """Answer to a ``LeasedRun``: the reports of a part of the run. One answer follows for each part.

    Attributes:
        ranks: by rank, the answer of ``answer_well``.
        last: whether no further part follows: the run is over, or its lease was revoked.
        seconds: time from the part's beginning on rank 0 to this answer.
        rank_seconds: the part of that time in which rank 0 made its own part of the run.
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


RankPart = PartOfRun | PartOfUpdate | EndOfUpdate
"""What rank 0 sends to the other ranks."""


def answer_well(value: object) -> bytes:
    """Return a rank's answer to a part that went well: its reports of a run, or its half of an update."""
    return _WELL + pickle.dumps(value, protocol=5)


def answer_error(error: BaseException) -> bytes:
    """Return a rank's answer to a part that failed. Only errors of dbfs keep their type."""
    typed = error if isinstance(error, DbfsError) else RuntimeError(printable(f"{type(error).__name__}: {error}"))
    return _FAILED + pickle.dumps(typed)


def failed(answer: bytes) -> bool:
    """Return whether a rank's answer is an error."""
    return answer.startswith(_FAILED)


def read_answer(answer: bytes) -> Any:
    """Return the value of a rank's answer: a list of ``RankReport``, or what an update's half returned.

    Raises:
        Exception: the rank's part failed with it.
    """
    value: Any = pickle.loads(memoryview(answer)[1:])
    if failed(answer):
        raise value
    return value

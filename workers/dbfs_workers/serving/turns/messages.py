"""The messages of a turn, which the scheduler sends to the ranks of a gang. ``worker.WorkerTurns`` handles them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from dbfs_workers.base.lines.line import Address
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.serving.messages import WorkerMessage
from dbfs_workers.serving.rpc import PickledValue
from dbfs_workers.serving.turns.requests import Answer, Work


@dataclass(frozen=True)
class TurnEnd:
    """State of a gang after a turn.

    Attributes:
        number: the gang's serial number of the next run; 0 from ranks other than 0.
        failed: whether the turn's last run failed.
    """

    number: int
    failed: bool


@dataclass(frozen=True)
class OpenDoor(WorkerMessage[Address]):
    """Admit rank 0's line to this rank, in place of the one before; return the address of the worker's door.

    From rank 0.

    Attributes:
        token: what rank 0 will show.
        epoch: see ``BeginTurn``; a later one replaces an earlier one.

    Raises:
        StaleRunError: the worker is not a rank of that gang, or a later attempt has begun.
        ExchangeUnavailableError: the worker can't listen.
    """

    graph_id: str
    token: bytes
    epoch: int


@dataclass(frozen=True)
class BegunTurn:
    """A turn that has begun.

    Attributes:
        address: the worker's door, where rank 0 takes the holder's line; None if no client holds the turn.
        answer: rank 0's answer to the work that came with the turn; None if none came.
    """

    address: Address | None
    answer: Answer | None


@dataclass(frozen=True)
class BeginTurn(WorkerMessage[BegunTurn]):
    """Begin a turn on rank 0, and make the work that comes with it.

    Attributes:
        client: id of the client whose turn it is.
        number: the gang's serial number of the next run.
        run_id: the run whose turn has come, which the scheduler lists.
        work: what to make at once; None if the client sends it over its line.
        token: the token that the client will show, to hold the turn after that; empty if it gets no line.
        addresses: workers of the other ranks.
        epoch: the turn in which the gang's lines were opened, or are to be: rank 0 keeps lines of the same epoch.
        seconds: time until the run's deadline.
        order_key: Dask key of the graph's order by degree, which this worker has; None if the graph has none.

    Raises:
        StaleRunError: the worker is not a rank of that gang, or the turn is over, or a later one began.
        ExchangeUnavailableError: the worker can't listen, or can't open a line to another rank.
        LateError: another rank did not answer in time.
    """

    graph_id: str
    turn: int
    client: str
    number: int
    run_id: str
    work: PickledValue[Work] | None
    token: bytes
    addresses: tuple[str, ...]
    epoch: int
    seconds: float
    order_key: Hashable | None


@dataclass(frozen=True)
class EndTurn(WorkerMessage[TurnEnd]):
    """End a turn on a rank. Rank 0 answers once no run of the turn is under way.

    Attributes:
        cause: why the run under way is ended at once; None to end it after its current burst.
        message, rank: see ``Exchange.abort``.

    Raises:
        StaleRunError: the worker is not a rank of that gang.
    """

    graph_id: str
    turn: int
    cause: Cause | None = None
    message: str = ""
    rank: int | None = None

"""The messages of a lease, which the scheduler sends to the ranks of a gang. ``worker.WorkerLeases`` handles them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from dbfs_workers.exchange.protocol import Cause
from dbfs_workers.lines.line import Address
from dbfs_workers.messages import WorkerMessage


@dataclass(frozen=True)
class LeaseEnd:
    """State of a gang after a lease.

    Attributes:
        number: the gang's serial number of the next run; 0 from ranks other than 0.
        failed: whether the lease's last run failed.
    """

    number: int
    failed: bool


@dataclass(frozen=True)
class OpenDoor(WorkerMessage[Address]):
    """Admit rank 0's line to this rank, in place of the one before; return the address of the worker's door.

    Attributes:
        graph_id: the graph.
        token: what rank 0 will show.
        epoch: number of the attempt to open the gang's lines; a later one replaces an earlier one.

    Raises:
        StaleRunError: the worker is not a rank of that gang, or a later attempt has begun.
        ExchangeUnavailableError: the worker can't listen.
    """

    graph_id: str
    token: bytes
    epoch: int


@dataclass(frozen=True)
class GrantLease(WorkerMessage[Address]):
    """Begin a lease on rank 0; return the address of the worker's door.

    Attributes:
        graph_id: the graph.
        lease: serial number of the lease.
        client: id of the holder.
        number: the gang's serial number of the next run.
        run_id: the run that the lease was granted to, which the scheduler lists from now on.
        token: the token that the holder will show.
        addresses: workers of the other ranks.
        doors: answers to ``OpenDoor`` of the other ranks.
        doors_token: the token of those doors.
        epoch: the attempt of those doors. Rank 0 keeps lines of the same epoch, and opens new ones under a later one.
        seconds: time that opening the lines may take.
        order_key: Dask key of the graph's order by degree, which this worker has; None if the graph has none.

    Raises:
        StaleRunError: the worker is not a rank of that gang, or a later lease was granted.
        ExchangeUnavailableError: the worker can't listen, or can't open a line to another rank.
    """

    graph_id: str
    lease: int
    client: str
    number: int
    run_id: str
    token: bytes
    addresses: tuple[str, ...]
    doors: tuple[Address, ...]
    doors_token: bytes
    epoch: int
    seconds: float
    order_key: Hashable | None


@dataclass(frozen=True)
class EndLease(WorkerMessage[LeaseEnd]):
    """End a lease on a rank. Rank 0 answers once no run of the lease is under way.

    Attributes:
        graph_id: the graph.
        lease: serial number of the lease.
        cause: why the run under way is ended at once; None to end it after its current burst.
        message: the same in words.
        lost: the rank whose worker is lost, if the cause is ``LOST``.

    Raises:
        StaleRunError: the worker is not a rank of that gang.
    """

    graph_id: str
    lease: int
    cause: Cause | None = None
    message: str = ""
    lost: int = 0

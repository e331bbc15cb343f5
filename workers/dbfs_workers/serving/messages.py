"""Every message that a worker answers, as a frozen dataclass. ``serving.plugin.WorkerService`` handles them.

The messages of turns, reads and updates are in the modules ``messages`` of these rooms. The scheduler's messages are
in ``dbfs.service.messages``, because their fields and answers are records of ``dbfs``, which workers do not import.

Ranks of one gang also send each other the messages of ``exchange.transport``. Those bypass this module: they are not
answered.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from dbfs_workers.base.spec import TraversalPlace
from dbfs_workers.building.layout import Layout
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import RankProgress
from dbfs_workers.serving.rpc import A_co, Message, PickledValue


class WorkerMessage(Message[A_co]):
    """Base of the messages to a worker."""


# Forming a gang.


@dataclass(frozen=True)
class GetGpu(WorkerMessage[str | None]):
    """Return the GPU that the worker would compute on, as its machine names it; None without one."""


@dataclass(frozen=True)
class GetHost(WorkerMessage[str]):
    """Return the identity of the worker's host: workers with the same identity can share memory."""


@dataclass(frozen=True)
class ReachPeer(WorkerMessage[str]):
    """Connect to another worker at its address in Dask, as the tasks of a build do; return why not, or an empty string.

    Attributes:
        address: the other worker's.
    """

    address: str


@dataclass(frozen=True)
class JoinGang(WorkerMessage[None]):
    """Become a rank of a gang: make the rank's end of the exchange and, on a GPU, upload the partition.

    Attributes:
        rank: the worker's rank.
        partition_key: Dask key of the rank's partition.
        addresses: workers of the gang, by rank.
        backend: name of the backend that runs the phases, one of ``backends.BACKENDS``.
        exchange: ``cuda_ipc``, ``nccl``, or ``host``: shared memory on each host, with streams between hosts if there
            are several.
        layout: how the edges lie on the ranks; None in ``1d``.
        hosts: the host of each rank, as in ``exchange.hosts.Hosts``.
        epoch: the attempt to form or connect the gang; a message of an earlier attempt is stale.
        mutable: whether updates may change the graph.
        log: path of the folder that keeps its versions; empty if none does.

    Raises:
        OutputError: the log can't be written.
        ExchangeUnavailableError: the worker has no NCCL, or there are more ranks than the exchange serves.
        BackendUnavailableError: CuPy can't be imported.
        GraphTooLargeError: the rank's part does not fit in the GPU's free memory.
    """

    graph_id: str
    rank: int
    partition_key: Hashable
    stripe: Stripe
    addresses: tuple[str, ...]
    backend: str
    exchange: str
    layout: Layout | None
    hosts: tuple[int, ...]
    epoch: int
    mutable: bool = False
    log: str = ""


@dataclass(frozen=True)
class OfferExchange(WorkerMessage[PickledValue[Any]]):
    """Once the run before has ended, return what the peers need in order to connect to the rank.

    Attributes:
        epoch: the attempt to form or connect the gang; a message of an earlier attempt is stale.

    Raises:
        ExchangeUnavailableError: the worker can't share memory, export GPU memory, listen, or name a communicator.
        GraphTooLargeError: the exchange does not fit in the GPU's free memory.
        StaleRunError: the worker is not a rank of that gang; so in the next two messages.
    """

    graph_id: str
    epoch: int


@dataclass(frozen=True)
class ConnectExchange(WorkerMessage[None]):
    """Connect the rank to its peers. After a failed run, make what that run broke anew.

    Attributes:
        offers: answers to ``OfferExchange``, by rank.
        epoch: the attempt to form or connect the gang; a message of an earlier attempt is stale.

    Raises:
        ExchangeUnavailableError: a peer can't be reached or did not come in time, or its memory can't be mapped.
    """

    graph_id: str
    offers: tuple[PickledValue[Any], ...]
    epoch: int


@dataclass(frozen=True)
class DisconnectExchange(WorkerMessage[None]):
    """Unmap the peers' GPU memory. Every rank does so before any rank leaves."""

    graph_id: str


@dataclass(frozen=True)
class LeaveGang(WorkerMessage[None]):
    """Stop being a rank of a gang, and free its memory. Ignored if the worker is not one.

    The answer comes once the memory is free, but after a second at the latest.

    Attributes:
        epoch: the attempt to form or connect the gang; a message of an earlier attempt is stale.
    """

    graph_id: str
    epoch: int


# Runs.


@dataclass(frozen=True)
class GetRankProgress(WorkerMessage[RankProgress | None]):
    """Return how far the rank is in a run; None if that run is not in progress there, or before its first level."""

    graph_id: str
    number: int


@dataclass(frozen=True)
class AbortRun(WorkerMessage[None]):
    """Stop a run on the worker's rank. Ignored if that run is over.

    Attributes:
        cause, message, rank: see ``Exchange.abort``.
    """

    graph_id: str
    number: int
    cause: Cause
    message: str
    rank: int | None = None


@dataclass(frozen=True)
class ForgetRun(WorkerMessage[None]):
    """Forget what the rank's features keep for a run of tasks, which ended early."""

    run_id: str


# Labels that ranks keep.


@dataclass(frozen=True)
class PublishRankLabels(WorkerMessage[dict[Any, int]]):
    """Put a traversal's labels among the worker's Dask data; return the bytes of each key.

    Attributes:
        run_id: the run that made the traversal.
        index: the traversal's index in the run.

    Raises:
        ResultReleasedError: the labels were released.
        StaleRunError: the worker is not a rank of that gang.
    """

    graph_id: str
    run_id: str
    index: int


@dataclass(frozen=True)
class DropRankLabels(WorkerMessage[None]):
    """Release the labels of traversals."""

    graph_id: str
    dropped: tuple[TraversalPlace, ...]


@dataclass(frozen=True)
class ForgetClient(WorkerMessage[None]):
    """Release the labels of a client that has left."""

    graph_id: str
    client: str

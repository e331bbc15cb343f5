"""Every message that a worker answers, as a frozen dataclass. ``dbfs_workers.plugin.WorkerService`` handles them.

The messages of leases, reads and updates are in the modules ``messages`` of these rooms. The scheduler's messages are
in ``dbfs.service.messages``, because their fields and answers are records of ``dbfs``, which workers do not import.

Ranks of one gang also send each other the messages of ``exchange.transport``. Those bypass this module: they are not
answered.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from dbfs_workers.cuda.run import OfferedMessages
from dbfs_workers.exchange.protocol import Cause
from dbfs_workers.exchange.segment import SegmentHandle
from dbfs_workers.lines.line import Address
from dbfs_workers.members.on_gpu import Infos
from dbfs_workers.reports import RankReport, RunPosition
from dbfs_workers.rpc import A_co, Message, Pickled
from dbfs_workers.spec import RunSpec
from dbfs_workers.storage.stripe import Stripe

TraversalPlace = tuple[str, int]
"""Run id of a traversal, and its index in the run."""


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
class JoinHostGang(WorkerMessage[SegmentHandle | None]):
    """Become a rank of a gang that exchanges through the host; return the handle of the memory that the rank made.

    Attributes:
        graph_id: the graph.
        rank: the worker's rank.
        partition_key: Dask key of the rank's partition.
        stripe: the graph's stripe.
        addresses: workers of the gang, by rank.
        backend: name of the backend that runs the phases, one of ``backends.BACKENDS``.
        exchange: ``nccl``, or ``shared_memory`` on each host, with streams between hosts if there are several.
        layout: ``1d`` or ``2d``; the latter only with ``shared_memory``.
        hosts: the host of each rank, as in ``exchange.hosts.Hosts``.
        handle: the shared memory to attach to; None for the lowest rank of a host, which makes it, and for
            ``nccl``.
        epoch: the attempt to form or connect the gang; a message of an earlier attempt is stale.
        mutable: whether updates may change the graph.

    Raises:
        ExchangeUnavailableError: the worker can't share memory with the lowest rank of its host, or has no NCCL.
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
    layout: str
    hosts: tuple[int, ...]
    handle: SegmentHandle | None
    epoch: int
    mutable: bool = False


@dataclass(frozen=True)
class OpenToHosts(WorkerMessage[Address]):
    """Close the streams to other hosts, once the run before has ended, and admit new ones; return the door's address.

    Attributes:
        graph_id: the graph.
        token: the token that the other hosts will show.
        epoch: the attempt to form or connect the gang; a message of an earlier attempt is stale.

    Raises:
        ExchangeUnavailableError: the worker can't listen.
        StaleRunError: the worker is not the lowest rank of a host in that gang; so in the next message.
    """

    graph_id: str
    token: bytes
    epoch: int


@dataclass(frozen=True)
class ConnectHosts(WorkerMessage[None]):
    """Make the streams to the other hosts.

    Attributes:
        graph_id: the graph.
        doors: answers to ``OpenToHosts``, by host.
        token: the token of those doors.
        epoch: the attempt to form or connect the gang; a message of an earlier attempt is stale.

    Raises:
        ExchangeUnavailableError: another host can't be reached.
    """

    graph_id: str
    doors: tuple[Address, ...]
    token: bytes
    epoch: int


@dataclass(frozen=True)
class NameCommunicator(WorkerMessage[bytes]):
    """Once the run before has ended, end NCCL's communicator of a gang; return the id of the next one.

    Attributes:
        graph_id: the graph.
        epoch: the attempt to form or connect the gang; a message of an earlier attempt is stale.

    Raises:
        ExchangeUnavailableError: NCCL can't make one.
        StaleRunError: the worker exchanges by NCCL with no other; so in the next message.
    """

    graph_id: str
    epoch: int


@dataclass(frozen=True)
class ConnectByNccl(WorkerMessage[None]):
    """Become a rank of a communicator, in place of the one before.

    Attributes:
        graph_id: the graph.
        unique_id: rank 0's answer to ``NameCommunicator``.
        epoch: the attempt to form or connect the gang; a message of an earlier attempt is stale.

    Raises:
        ExchangeUnavailableError: NCCL failed, or not all ranks came in time.
    """

    graph_id: str
    unique_id: bytes
    epoch: int


@dataclass(frozen=True)
class JoinGpuGang(WorkerMessage[Pickled[Infos]]):
    """Become a rank of a gang on GPUs: upload the partition, make the engines, return what peers need to map them.

    Attributes:
        graph_id: the graph.
        rank: the worker's rank.
        partition_key: Dask key of the rank's partition.
        epoch: the attempt to form or connect the gang; a message of an earlier attempt is stale.

    Raises:
        BackendUnavailableError: CuPy can't be imported.
        ExchangeUnavailableError, GraphTooLargeError: see ``CudaMember.make``.
    """

    graph_id: str
    rank: int
    partition_key: Hashable
    epoch: int


@dataclass(frozen=True)
class OfferGpuMemory(WorkerMessage[Pickled[OfferedMessages]]):
    """Return what the peers of a rank of a 2-D partition need in order to map its messages.

    Attributes:
        graph_id: the graph.

    Raises:
        ExchangeUnavailableError: the system does not allow GPU memory to be exported.
        GraphTooLargeError: the messages do not fit in the GPU's free memory.
        StaleRunError: the worker is not a rank of a 2-D partition on a GPU of that gang.
    """

    graph_id: str


@dataclass(frozen=True)
class ConnectGpus(WorkerMessage[None]):
    """Map the GPU memory of the whole gang.

    Attributes:
        graph_id: the graph.
        infos: answers to ``JoinGpuGang``, or to ``OfferGpuMemory``, by rank.

    Raises:
        ExchangeUnavailableError: a peer's memory can't be mapped.
        StaleRunError: the worker is not a rank on a GPU of that gang; so in the next two messages.
    """

    graph_id: str
    infos: tuple[Pickled[Any], ...]


@dataclass(frozen=True)
class RecoverGpu(WorkerMessage[None]):
    """After a failed run: wait until the rank's kernel has ended; then, if ``clear``, clear the state of the run.

    Attributes:
        graph_id: the graph.
        clear: whether the kernels of all ranks have ended, so that the state can be cleared.
    """

    graph_id: str
    clear: bool


@dataclass(frozen=True)
class DetachGpus(WorkerMessage[None]):
    """Unmap the peers' GPU memory. Every rank does so before any rank leaves.

    Attributes:
        graph_id: the graph.
    """

    graph_id: str


@dataclass(frozen=True)
class LeaveGang(WorkerMessage[None]):
    """Stop being a rank of a gang, and free its memory. Ignored if the worker is not one.

    Attributes:
        graph_id: the graph.
        epoch: the attempt to form or connect the gang; a message of an earlier attempt is stale.
    """

    graph_id: str
    epoch: int


# Runs.


@dataclass(frozen=True)
class StartRank(WorkerMessage[list[RankReport]]):
    """Take part in a run; keep the labels, and return a report of each traversal.

    Attributes:
        graph_id: the graph.
        number: the gang's serial number of the run, from 1.
        client: id of the client that the labels belong to.
        specs: the traversals.
        first: index of the first traversal in the run.
        deadline: seconds that the run may take.
        dropped: traversals whose labels are released first.

    Raises:
        StaleRunError: the worker is not a rank of that gang, or the run is out of order.
        DbfsError: see ``Member.traverse``.
    """

    graph_id: str
    number: int
    client: str
    specs: Pickled[RunSpec]
    first: int
    deadline: float
    dropped: tuple[TraversalPlace, ...]


@dataclass(frozen=True)
class GetPosition(WorkerMessage[RunPosition | None]):
    """Return how far the rank is in a run; None if that run is not in progress there, or before its first level.

    Attributes:
        graph_id: the graph.
        number: serial number of the run.
    """

    graph_id: str
    number: int


@dataclass(frozen=True)
class AbortRun(WorkerMessage[None]):
    """Stop a run on the worker's rank. Ignored if that run is over.

    Attributes:
        graph_id: the graph.
        number: serial number of the run.
        cause: why the run ends.
        message: why the run ends, in words.
    """

    graph_id: str
    number: int
    cause: Cause
    message: str


@dataclass(frozen=True)
class ReportLostPeer(WorkerMessage[None]):
    """End a run on the worker's rank, because the worker of another rank is lost.

    Attributes:
        graph_id: the graph.
        number: serial number of the run.
        rank: the lost rank.
    """

    graph_id: str
    number: int
    rank: int


@dataclass(frozen=True)
class ForgetBatch(WorkerMessage[None]):
    """Forget the batch that the rank has taken for an update, which ended early.

    Attributes:
        run_id: the run.
    """

    run_id: str


# Labels that ranks keep.


@dataclass(frozen=True)
class PublishRankLabels(WorkerMessage[dict[Any, int]]):
    """Put a traversal's labels among the worker's Dask data; return the bytes of each key.

    Attributes:
        graph_id: the graph.
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
    """Release the labels of traversals.

    Attributes:
        graph_id: the graph.
        dropped: the traversals.
    """

    graph_id: str
    dropped: tuple[TraversalPlace, ...]


@dataclass(frozen=True)
class ForgetClient(WorkerMessage[None]):
    """Release the labels of a client that has left.

    Attributes:
        graph_id: the graph.
        client: the client's id.
    """

    graph_id: str
    client: str

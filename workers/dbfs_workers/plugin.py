"""The worker plugin: a worker's part in each graph's gang, and the handlers by which the scheduler starts runs.

A gang is formed once for a graph: rank 0 makes the exchange and the others attach to it; on GPUs that can map each
other's memory all make their engines, and then all map each other's. A run is one call of ``run`` on every worker of
the gang; the levels are looped in a thread of the member's own, so that the worker's event loop goes on answering. The
member keeps what a run found until it is dropped, or published: put among the worker's Dask data, where it is fetched,
counted and freed like any task's result.

Handlers answer ``{"ok": bytes}`` or ``{"error": bytes}``, pickled: an exception that left a handler would be logged
here and lose its type on the way through the scheduler.
"""

import logging
import pickle
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import distributed
from distributed.diagnostics.plugin import WorkerPlugin

from dbfs_workers.errors import BackendUnavailableError, ResultReleasedError, StaleRunError
from dbfs_workers.exchange.comm import CommExchange
from dbfs_workers.exchange.protocol import Cause, Exchange
from dbfs_workers.exchange.transport import DaskTransport
from dbfs_workers.gpus import own_gpu
from dbfs_workers.members.member import Member, OwnedLabels
from dbfs_workers.members.on_cpu import LoopMember
from dbfs_workers.reports import RankReport, RunPosition
from dbfs_workers.rpc import NAME, answering
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.labels import RankLabels, label_key
from dbfs_workers.storage.partition import Partition
from dbfs_workers.storage.stripe import Stripe

if TYPE_CHECKING:
    from dbfs_workers.members.on_gpu import CudaMember

logger = logging.getLogger(__name__)


T = TypeVar("T")


class WorkerService(WorkerPlugin):  # type: ignore[misc]  # distributed is untyped
    """One for each worker. Handlers are named ``dbfs_...``."""

    name = NAME

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}

    def setup(self, worker: distributed.Worker) -> None:
        """Called by Dask when the worker joins, or the plugin is installed."""
        self.worker = worker
        worker.handlers.update(
            {
                "dbfs_gpu": answering(self.gpu),
                "dbfs_join": answering(self.join),
                "dbfs_join_cuda": answering(self.join_cuda),
                "dbfs_connect": answering(self.connect),
                "dbfs_recover": answering(self.recover),
                "dbfs_detach": answering(self.detach),
                "dbfs_leave": answering(self.leave),
                "dbfs_start_rank": answering(self.start_rank),
                "dbfs_position": answering(self.position),
                "dbfs_publish_rank": answering(self.publish),
                "dbfs_drop": answering(self.drop),
                "dbfs_forget_client": answering(self.forget_client),
                "dbfs_abort": answering(self.abort),
                "dbfs_peer_lost": answering(self.peer_lost),
                "dbfs_deliver": self.deliver,
            }
        )

    def teardown(self, worker: distributed.Worker) -> None:  # noqa: ARG002
        """Called by Dask when the worker closes."""
        for member in self.members.values():
            member.close()
        self.members = {}

    async def join(
        self,
        graph_id: str,
        rank: int,
        partition_key: Any,
        stripe: bytes,
        addresses: Sequence[str],
        handle: bytes | None,
        backend: str,
    ) -> bytes | None:
        """Become a rank of a gang that exchanges through the host.

        Args:
            graph_id: the graph's.
            rank: this worker's rank.
            partition_key: Dask key of its partition.
            stripe: pickled ``Stripe``.
            addresses: the gang's workers, by rank.
            handle: what rank 0 returned; None for rank 0, and empty for an exchange over comms.
            backend: name of the backend that runs the phases.

        Returns:
            Rank 0's handle, for the others; None on those.

        Raises:
            ExchangeUnavailableError: this worker can't share memory with rank 0.
            BackendUnavailableError: CuPy can't be imported.
            GraphTooLargeError: the GPU's free memory does not hold its part.
        """
        striped: Stripe = pickle.loads(stripe)
        exchange: Exchange
        answer = None
        if handle == b"":
            transport = DaskTransport(self.worker, graph_id, addresses)
            exchange = transport.exchange = CommExchange(striped, rank, transport)
        else:
            # Imported here: it compiles kernels, which takes the event loop's time once.
            from dbfs_workers.exchange.shared_memory import SharedMemoryExchange

            if handle is None:
                exchange = SharedMemoryExchange.create(striped)
                answer = pickle.dumps(exchange.handle)
            else:
                exchange = SharedMemoryExchange.attach(pickle.loads(handle), rank)
        if backend == "cpu":
            self._enter(graph_id, LoopMember(rank, _key(partition_key), exchange))
            return answer
        from dbfs_workers.members.staged import StagedMember

        member = StagedMember(rank, _key(partition_key), exchange)
        await self._make(graph_id, member, member.make)
        return answer

    async def gpu(self) -> str | None:
        """The GPU that this worker would compute on, as its machine names it; None without one."""
        return own_gpu()

    async def join_cuda(self, graph_id: str, rank: int, partition_key: Any) -> bytes:
        """Become a rank of a gang on GPUs: upload the partition and make the engines.

        Returns:
            What every rank passes to ``connect``, pickled.

        Raises:
            BackendUnavailableError: CuPy can't be imported.
            ExchangeUnavailableError, GraphTooLargeError: see ``CudaMember.make``.
        """
        from dbfs_workers.members.on_gpu import CudaMember

        member = CudaMember(rank, _key(partition_key))
        return pickle.dumps(await self._make(graph_id, member, member.make))

    async def connect(self, graph_id: str, infos: Sequence[bytes]) -> None:
        """Map the GPU memory of the whole gang, given by rank.

        Raises:
            ExchangeUnavailableError: a peer's can't be mapped.
        """
        member = self._cuda_member(graph_id)
        await member.in_thread(member.connect, [pickle.loads(info) for info in infos])

    async def recover(self, graph_id: str, clear: bool) -> None:
        """After a failed run on GPUs: wait until this rank's kernel has left, and forget the run if ``clear``."""
        member = self._cuda_member(graph_id)
        await member.in_thread(member.recover if clear else _nothing)

    async def detach(self, graph_id: str) -> None:
        """Unmap the GPU memory of the gang; every rank does before any leaves."""
        member = self._cuda_member(graph_id)
        await member.in_thread(member.detach)

    async def leave(self, graph_id: str) -> None:
        """Stop being a rank of a gang, if this worker is one."""
        member = self.members.pop(graph_id, None)
        if member is not None:
            member.close()

    async def start_rank(
        self, graph_id: str, number: int, client: str, specs: bytes, deadline: float, dropped: list[Sequence[Any]]
    ) -> list[RankReport]:
        """Take part in traversals; the labels are kept here.

        Args:
            graph_id: the graph's.
            number: the gang's running number of this run.
            client: id of the client that the labels belong to.
            specs: pickled ``list[TraversalSpec]``.
            deadline: seconds the run may take.
            dropped: traversals whose labels to forget first.

        Returns:
            A report of each traversal.

        Raises:
            StaleRunError: this worker is no rank of that gang.
            DbfsError: see ``levels.loop.traverse``.
        """
        member = self._member(graph_id)
        member.number = number
        member.drop(dropped)
        partition: Partition = self.worker.data[member.partition_key]
        wanted: list[TraversalSpec] = pickle.loads(specs)
        done = await member.in_thread(member.traverse, partition, number, wanted, time.monotonic() + deadline)
        for index, (spec, rank) in enumerate(zip(wanted, done, strict=True)):
            member.kept[spec.run_id, index] = OwnedLabels(client, rank.labels)
        return [RankReport.of(rank) for rank in done]

    async def position(self, graph_id: str, number: int) -> RunPosition | None:
        """Where this rank is in a run; None where it is in none of that number, or before its first level."""
        member = self.members.get(graph_id)
        return None if member is None else member.position(number)

    async def publish(self, graph_id: str, run_id: str, index: int) -> dict[Any, int]:
        """Put kept labels among the worker's data; returns the size of each key.

        Raises:
            ResultReleasedError: they were dropped.
            StaleRunError: this worker is no rank of that gang.
        """
        member = self._member(graph_id)
        labels = member.fetch(self.kept_labels(graph_id, run_id, index))
        del member.kept[run_id, index]
        distances, parents = labels.of_rows(self.worker.data[member.partition_key].stripe, member.rank)
        data: dict[Any, Any] = {label_key("distances", run_id, index, member.rank): distances}
        if parents is not None:
            data[label_key("predecessors", run_id, index, member.rank)] = parents
        sizes: dict[Any, int] = self.worker.update_data(data)["nbytes"]
        return sizes

    def kept_labels(self, graph_id: str, run_id: str, index: int) -> RankLabels:
        """Labels that were neither dropped nor published, where they are; tasks on this worker may ask for them, too.

        Raises:
            ResultReleasedError: they were dropped.
            StaleRunError: this worker is no rank of that gang.
        """
        member = self._member(graph_id)
        kept = member.kept.get((run_id, index))
        if kept is None:
            raise ResultReleasedError(f"rank {member.rank} has no labels of traversal {index} of run {run_id} any more")
        return kept.labels

    async def drop(self, graph_id: str, dropped: list[Sequence[Any]]) -> None:
        """Forget kept labels, given by run id and index."""
        member = self.members.get(graph_id)
        if member is not None:
            member.drop(dropped)

    async def forget_client(self, graph_id: str, client: str) -> None:
        """Forget the labels of a client that has left."""
        member = self.members.get(graph_id)
        if member is not None:
            member.kept = {place: kept for place, kept in member.kept.items() if kept.client != client}

    async def abort(self, graph_id: str, number: int, cause: int, message: str) -> None:
        """Stop a run on all ranks."""
        member = self.members.get(graph_id)
        if member is not None:
            member.abort(number, Cause(cause), message)

    async def peer_lost(self, graph_id: str, number: int, rank: int) -> None:
        """A rank's worker is gone."""
        member = self.members.get(graph_id)
        if member is not None:
            member.peer_lost(number, rank)

    def deliver(self, graph_id: str, message: Any) -> None:
        """Take a peer's message (``exchange.comm``)."""
        member = self.members.get(graph_id)
        # A peer's last words may come after this rank has left.
        if isinstance(member, LoopMember) and isinstance(member.exchange, CommExchange):
            member.exchange.receive(DaskTransport.unwrap(message))

    def _enter(self, graph_id: str, member: Member) -> None:
        if graph_id in self.members:
            self.members.pop(graph_id).close()
        self.members[graph_id] = member

    async def _make(self, graph_id: str, member: Member, make: Callable[[Partition], T]) -> T:
        """Become that member, on this worker's GPU."""
        self._enter(graph_id, member)
        try:
            return await member.in_thread(make, self.worker.data[member.partition_key])
        except ImportError as error:
            where = f"rank {member.rank} ({self.worker.address})"
            raise BackendUnavailableError(f"{where}: CuPy fails: {error}") from error

    def _cuda_member(self, graph_id: str) -> "CudaMember":
        from dbfs_workers.members.on_gpu import CudaMember

        member = self._member(graph_id)
        if not isinstance(member, CudaMember):
            raise StaleRunError(f"{self.worker.address} is no rank on a GPU of the graph {graph_id}")
        return member

    def _member(self, graph_id: str) -> Member:
        member = self.members.get(graph_id)
        if member is None:
            raise StaleRunError(f"{self.worker.address} is no rank of the graph {graph_id}")
        return member


def _nothing() -> None:
    """Done once the thread has come to it."""


def _key(sent: Any) -> Any:
    """A Dask key as it was before the comm made its tuples lists."""
    return tuple(_key(part) for part in sent) if isinstance(sent, list) else sent

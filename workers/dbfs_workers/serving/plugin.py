"""The workers' half of the service: a worker's ranks in the gangs of all graphs, and the handlers of its messages.

A graph's gang forms once: every worker joins, offers its end of the exchange, and then connects to those of all ranks.
Rank 0 leads a run (``turns``). Its levels run in threads of their own, so that the worker's event loop can still answer
messages. The member keeps the labels until they are dropped or published. Published labels
are Dask data of the worker: clients fetch, count and free them like any task's result.
"""

import asyncio
import concurrent.futures
import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import dask
import distributed
import numpy as np
from dask.system import CPU_COUNT
from distributed.diagnostics.plugin import WorkerPlugin
from numpy.typing import NDArray

from dbfs_workers.base.errors import BackendUnavailableError, ResultReleasedError, StaleRunError
from dbfs_workers.base.gpus import own_gpu
from dbfs_workers.base.lines.worker_door import WorkerDoor
from dbfs_workers.base.memory_room import start_returning, stop_returning
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.building import delivering
from dbfs_workers.search.exchange.hosts import Hosts, identity
from dbfs_workers.search.exchange.kernels import ACROSS_HOSTS, ON_ONE_HOST
from dbfs_workers.search.exchange.transport import DaskTransport
from dbfs_workers.search.members import compiled
from dbfs_workers.search.members.label_room import LabelRoom
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.search.members.member import Member, OwnedLabels, Runner
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.partition.labels import RankLabels, label_key
from dbfs_workers.search.partition.partition import on_host
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import RankProgress
from dbfs_workers.serving.feature import WorkerFeature, WorkerView
from dbfs_workers.serving.messages import (
    AbortRun,
    ConnectExchange,
    DisconnectExchange,
    DropRankLabels,
    ForgetClient,
    ForgetRun,
    GetGpu,
    GetHost,
    GetRankProgress,
    JoinGang,
    LeaveGang,
    OfferExchange,
    PublishRankLabels,
    ReachPeer,
)
from dbfs_workers.serving.reads.server import Reads
from dbfs_workers.serving.rpc import NAME, PickledValue, handlers, no_way
from dbfs_workers.serving.turns.changes import RankChanges, VersionLog
from dbfs_workers.serving.turns.worker import WorkerTurns

if TYPE_CHECKING:
    from dbfs_workers.search.exchange.nccl import NcclExchange
    from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange
    from dbfs_workers.search.members.resident import ResidentRunner

# Graphs of which a worker remembers the epoch; a message is late by some minutes at most.
_EPOCHS_KEPT: Final = 1024

# Edges and rows of a rank from which on its runs wait for the kernels that make them faster.
_LARGE: Final = 1 << 22

# A rank frees its memory in the thread that a run occupies until its next level.
_FREE_SECONDS: Final = 1.0


class WorkerService(WorkerPlugin):  # type: ignore[misc]  # distributed is untyped
    """The workers' half of the service, one on each worker. ``serving.messages`` documents what a handler does.

    Args:
        memory_share: largest share of the worker's memory limit, or of its GPU's memory, that labels may fill.
        features: what features add to the worker.
        loop_parts, resident_parts: return what features keep in a member, by its runner.

    Attributes:
        features: the same, once the plugin is set up.
        changes: the one of them that changes graphs; None if none does.
        members: this worker's part in the gang of each graph, by graph id.
        host: ``dbfs.host`` of the worker's configuration: workers with other names count as on other hosts.
    """

    name = NAME

    def __init__(
        self,
        memory_share: float,
        features: Sequence[type[WorkerFeature]],
        loop_parts: Callable[[LoopRunner], list[MemberPart]],
        resident_parts: "Callable[[ResidentRunner], list[MemberPart]]",
    ) -> None:
        self._memory_share = memory_share
        self._feature_types = features
        self._loop_parts, self._resident_parts = loop_parts, resident_parts
        self.features: tuple[WorkerFeature, ...] = ()
        self.members: dict[str, Member] = {}
        # By graph id, of the ranks whose aborts travel as messages.
        self._transports: dict[str, DaskTransport] = {}
        # By graph id, the latest of the most recent graphs.
        self._epochs: dict[str, int] = {}

    def setup(self, worker: distributed.Worker) -> None:
        """Register the handlers. Dask calls this when the worker joins, or when the plugin is installed."""
        self.worker = worker
        self.host: str = dask.config.get("dbfs.host", "auto")
        self.door = WorkerDoor(worker)
        view = WorkerView(worker, self._member, self.kept_labels)
        self.features = tuple(feature(view) for feature in self._feature_types)
        self.changes = next((feature for feature in self.features if isinstance(feature, RankChanges)), None)
        self._log = next((feature for feature in self.features if isinstance(feature, VersionLog)), None)
        self.turns = WorkerTurns(worker, self.door, self.changes, self._log, self._member)
        self.reads = Reads(worker.data, self.kept_labels, self.changed_rows)
        for service in (self, self.turns, self.reads, *self.features):
            worker.handlers.update(handlers(service))
        worker.handlers[DaskTransport.OPERATION] = self.deliver
        worker.handlers[delivering.OPERATION] = delivering.take_edges
        start_returning(worker, self._memory_share)

    def teardown(self, worker: distributed.Worker) -> None:
        """Leave all gangs. Dask calls this when the worker closes."""
        stop_returning(worker)
        self.turns.close()
        for graph_id, member in self.members.items():
            member.close()
            for feature in self.features:
                feature.leave(graph_id)
        self.members = {}
        self.door.close()
        delivering.forget(worker.state.tasks)

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:  # noqa: ARG002
        """Free what a dropped result has kept in memory. Dask calls this when a task's state changes."""
        if finish in ("released", "forgotten"):
            delivering.forget([key])

    @GetGpu.handler
    async def get_gpu(self, message: GetGpu) -> str | None:  # noqa: ARG002
        return own_gpu()

    @GetHost.handler
    async def get_host(self, message: GetHost) -> str:  # noqa: ARG002
        return identity(self.host)

    @ReachPeer.handler
    async def reach_peer(self, message: ReachPeer) -> str:
        try:
            self.worker.rpc.reuse(message.address, await self.worker.rpc.connect(message.address))
        except OSError as error:
            return str(error) if no_way(error) else ""
        return ""

    @JoinGang.handler
    async def join_gang(self, message: JoinGang) -> None:
        threads = min(self.worker.state.nthreads, CPU_COUNT) if message.backend == "cpu" else 1
        # A message of an earlier attempt may come after its partition is gone.
        changing = () if self.changes is None else self.changes.kernels
        partition = self.worker.data.get(message.partition_key)
        await asyncio.to_thread(_prepare_kernels, message, threads, partition, changing)
        self._take_epoch(message.graph_id, message.epoch)
        member = Member(message.rank, message.partition_key, *self._runner(message, threads))
        self._enter(message.graph_id, member)
        if message.log and self._log is not None:
            version = 0 if partition is None else partition.version
            await asyncio.to_thread(self._log.open, message.graph_id, message.rank, message.log, version)
            if self.members.get(message.graph_id) is not member:
                # The rank has left the gang meanwhile.
                self._log.leave(message.graph_id)
                return
        if message.backend == "cpu":
            return
        try:
            await member.in_thread(member.make, self.worker.data[message.partition_key])
        except ImportError as error:
            where = f"rank {member.rank} ({self.worker.address})"
            raise BackendUnavailableError(f"{where}: CuPy can't be imported: {error}") from error

    def _runner(self, message: JoinGang, threads: int) -> tuple[Runner, list[MemberPart]]:
        """Return what makes the runs of a rank: its runner, and the parts of features."""
        graph_id, layout = message.graph_id, message.layout
        self._transports.pop(graph_id, None)
        if layout is None and message.exchange == "cuda_ipc":
            from dbfs_workers.search.members.led_traversals import LedTraversals
            from dbfs_workers.search.members.resident import ResidentRunner

            resident = ResidentRunner(graph_id)
            return resident, [LedTraversals(resident), *self._resident_parts(resident)]
        exchange = self._exchange(message)
        if layout is None:
            loop = LoopRunner(exchange, message.backend, threads)
        else:
            loop = layout.runner(exchange, message.backend, threads, message.exchange, graph_id)
        return loop, self._loop_parts(loop)

    def _exchange(self, message: JoinGang) -> "SharedMemoryExchange | NcclExchange":
        """Return a rank's end of the exchange. Modules that GPUs or CPUs alone need are imported here."""
        graph_id, rank, stripe, layout = message.graph_id, message.rank, message.stripe, message.layout
        entries = layout.bin_entries(stripe) if layout else None
        if message.exchange == "nccl":
            from dbfs_workers.search.cuda.nccl import stay_on_loopback
            from dbfs_workers.search.exchange.nccl import NcclExchange

            stay_on_loopback(self.worker.address)
            transport = self._transports[graph_id] = DaskTransport(self.worker, graph_id, message.addresses)
            by_nccl = transport.exchange = NcclExchange.installed(stripe, rank, transport.send, entries)
            return by_nccl
        from dbfs_workers.search.exchange.across_hosts import end_of

        if message.backend == "cuda" and layout is None:
            # A level on GPUs has one crossing, so their bins hold all rows.
            entries = stripe.n_local
        return end_of(stripe, rank, graph_id, Hosts(message.hosts), self.door, entries)

    @OfferExchange.handler
    async def offer_exchange(self, message: OfferExchange) -> PickledValue[Any]:
        self._take_epoch(message.graph_id, message.epoch)
        member = self._member(message.graph_id)
        return PickledValue.of(await member.in_thread(member.offer))

    @ConnectExchange.handler
    async def connect_exchange(self, message: ConnectExchange) -> None:
        self._take_epoch(message.graph_id, message.epoch)
        member = self._member(message.graph_id)
        await member.in_thread(member.connect, [offer.value() for offer in message.offers])

    @DisconnectExchange.handler
    async def disconnect_exchange(self, message: DisconnectExchange) -> None:
        member = self._member(message.graph_id)
        await member.in_thread(member.disconnect)

    @LeaveGang.handler
    async def leave_gang(self, message: LeaveGang) -> None:
        self._take_epoch(message.graph_id, message.epoch)
        self.turns.leave(message.graph_id)
        for feature in self.features:
            feature.leave(message.graph_id)
        self._transports.pop(message.graph_id, None)
        member = self.members.pop(message.graph_id, None)
        if member is not None:
            await asyncio.to_thread(concurrent.futures.wait, [member.close()], _FREE_SECONDS)

    @GetRankProgress.handler
    async def get_rank_progress(self, message: GetRankProgress) -> RankProgress | None:
        member = self.members.get(message.graph_id)
        return None if member is None else member.progress(message.number)

    @AbortRun.handler
    async def abort_run(self, message: AbortRun) -> None:
        member = self.members.get(message.graph_id)
        if member is not None:
            member.runner.abort(message.number, message.cause, message.message, message.rank)

    @ForgetRun.handler
    async def forget_run(self, message: ForgetRun) -> None:
        for feature in self.features:
            feature.forget(message.run_id)

    @PublishRankLabels.handler
    async def publish_rank_labels(self, message: PublishRankLabels) -> dict[Any, int]:
        run_id, index = message.run_id, message.index
        member = self._member(message.graph_id)
        labels = member.runner.fetch(self.kept_labels(message.graph_id, run_id, index))
        del member.kept[run_id, index]
        named = labels.by_name(self.worker.data[member.partition_key].stripe, member.rank)
        data = {label_key(name, run_id, index, member.rank): label for name, label in named.items()}
        sizes: dict[Any, int] = self.worker.update_data(data)["nbytes"]
        return sizes

    @DropRankLabels.handler
    async def drop_rank_labels(self, message: DropRankLabels) -> None:
        member = self.members.get(message.graph_id)
        if member is not None:
            member.drop(message.dropped)

    @ForgetClient.handler
    async def forget_client(self, message: ForgetClient) -> None:
        member = self.members.get(message.graph_id)
        if member is not None:
            member.forget(message.client)

    def deliver(self, graph_id: str, message: bytes) -> None:
        """Take a message of a peer; see ``exchange.transport``."""
        transport = self._transports.get(graph_id)
        # The last message of a peer may arrive after this rank has left the gang.
        if transport is not None:
            transport.exchange.receive(pickle.loads(message))

    def kept_labels(self, graph_id: str, run_id: str, index: int) -> RankLabels:
        """Return labels that are neither dropped nor published, on the member's device. Tasks on this worker call this.

        Raises:
            ResultReleasedError: the labels were released.
            StaleRunError: this worker is not a rank of that gang.
        """
        return self._kept(graph_id, run_id, index).labels

    def changed_rows(self, graph_id: str, run_id: str, index: int) -> NDArray[np.uint32]:
        """Return the rows whose distance the repair of labels has changed: uint32, ascending. Errors as above."""
        changed = self._kept(graph_id, run_id, index).changed
        return np.empty(0, np.uint32) if changed is None else on_host(changed)

    def _kept(self, graph_id: str, run_id: str, index: int) -> OwnedLabels:
        member = self._member(graph_id)
        kept = member.kept.get((run_id, index))
        if kept is None:
            raise ResultReleasedError(
                f"rank {member.rank}: the labels of traversal {index} of run {run_id} were released; traverse again"
            )
        return kept

    def require_room(self, graph_id: str, stripe: Stripe, specs: RunSpec) -> None:
        """Check that the labels of traversals will fit beside those that this worker keeps. Tasks call this.

        Raises:
            NoRoomForLabelsError: see ``label_room.require``.
            StaleRunError: this worker is not a rank of that gang.
        """
        self._member(graph_id).require_room(stripe, specs)

    def _take_epoch(self, graph_id: str, epoch: int) -> None:
        """Note the attempt to form or connect a gang that a message belongs to.

        Raises:
            StaleRunError: a later attempt has begun, or the worker has left the gang.
        """
        latest = self._epochs.pop(graph_id, 0)
        self._epochs[graph_id] = max(epoch, latest)
        if len(self._epochs) > _EPOCHS_KEPT:
            del self._epochs[next(iter(self._epochs))]
        if epoch < latest:
            raise StaleRunError(f"{self.worker.address}: a message of epoch {epoch}, in a gang of epoch {latest}")

    def _enter(self, graph_id: str, member: Member) -> None:
        """Become a member of a gang, in place of an earlier member of the same gang."""
        self.turns.leave(graph_id)
        if graph_id in self.members:
            self.members.pop(graph_id).close()
        member.room = LabelRoom.of(self.worker, self._memory_share)
        self.members[graph_id] = member

    def _member(self, graph_id: str) -> Member:
        member = self.members.get(graph_id)
        if member is None:
            raise StaleRunError(f"{self.worker.address} is not a rank of the graph {graph_id}; load it again")
        return member


def _prepare_kernels(message: JoinGang, threads: int, partition: Any, changing: Sequence[str]) -> None:
    """Compile or load the CPU kernels of a rank's runs, which have a deadline; ``changing`` are those of changes."""
    # Imported here, because workers on GPUs need no Numba.
    from dbfs_workers.base import compiling
    from dbfs_workers.base.jit import SMALL

    hosts, p = len(set(message.hosts)), message.stripe.p
    if message.backend == "cpu":
        size = message.stripe.n_local + (0 if partition is None else partition.m_local)
        layout, mutable = message.layout, message.mutable
        if size <= SMALL and p == 1 and layout is None and not mutable:
            # Python runs the kernels of the first traversals.
            return
        needed = [*compiled.needed(p, hosts=hosts), *(layout.kernels(threads) if layout else ())]
        needed += changing if mutable else ()
        optional = () if layout else compiled.faster(p, threads)
        later = [name for names in optional if not compiling.loaded(names) for name in names]
        compiling.prepare((*needed, *later) if size > _LARGE else needed)
        if later and size <= _LARGE:
            compiling.begin(later)
    elif message.exchange == "host" or message.layout:
        compiling.prepare((*ON_ONE_HOST, *(ACROSS_HOSTS if hosts > 1 else ())))

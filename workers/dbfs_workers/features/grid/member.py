"""A rank of a 2-D partition: the members that run the grid's level loop, on the CPU and on a GPU.

On a GPU the host launches each level's operators. Messages pass between GPUs whose ranks map each other's memory, or by
NCCL; else they cross the bus twice, once at either end. A level costs several launches and copies. No kernel waits for
a peer, so that several ranks may share a GPU, except by NCCL.
"""

from typing import TYPE_CHECKING, Any

from dbfs_workers.base.spec import RunSpec
from dbfs_workers.base.team import Tasks
from dbfs_workers.features.grid.exchange import Carrier, GridExchange
from dbfs_workers.features.grid.exchange_on_gpus import MappedGridExchange, NcclGridExchange
from dbfs_workers.features.grid.grid import GridPartition
from dbfs_workers.features.grid.kernels.team_tasks import TASKS
from dbfs_workers.features.grid.levels import FoldOf, GridLevels, engine_fold
from dbfs_workers.features.grid.operators import operators_of
from dbfs_workers.features.grid.scratch import GridScratch
from dbfs_workers.features.grid.sizes import run_on_gpu
from dbfs_workers.search import backends
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.cuda import device_memory, failures
from dbfs_workers.search.cuda.messages import CudaMessages
from dbfs_workers.search.exchange.nccl import NcclExchange
from dbfs_workers.search.levels.rank_levels import RankLevels
from dbfs_workers.search.members.gpu import MemberOnGpu
from dbfs_workers.search.members.on_cpu import LoopMember
from dbfs_workers.search.partition.labels import LabelPool, label_bytes
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import RankRun

if TYPE_CHECKING:
    from collections.abc import Sequence


class GridMember(LoopMember):
    """A member that runs the levels of a 2-D partition. See ``Member``.

    Args:
        rank, partition_key: see ``Member``.
        carrier: this rank's end of an exchange with bins of ``Grid.bin_entries`` entries.
        threads: see ``LoopMember``.
    """

    def __init__(self, rank: int, partition_key: Any, carrier: "Carrier", threads: int = 1) -> None:
        super().__init__(rank, partition_key, carrier, threads)
        self._carrier = carrier
        self._messages: GridExchange | None = None

    def _make_scratch(self, partition: Any, pool: LabelPool | None) -> Any:
        backend = backends.get(self.backend)
        self._messages = self._make_messages(partition.stripe, backend)
        return GridScratch(partition, pool, backend.xp)

    def _make_messages(self, stripe: Stripe, backend: Backend) -> "GridExchange":
        return GridExchange(self._carrier, stripe, backend, operators_of(backend))

    def _team_tasks(self) -> Tasks:
        """See ``LoopMember``. The gang formed with the kernels compiled."""
        return TASKS

    def levels(self, partition: Partition) -> "RankLevels[GridScratch]":
        return self.levels_with(partition, engine_fold)

    def levels_with(self, partition: Partition, fold_of: "FoldOf") -> "RankLevels[GridScratch]":
        """Return what runs the levels of the rank; arguments as of ``GridLevels``."""
        scratch = self.scratch_of(partition)
        assert self._messages is not None
        return GridLevels(scratch, self._messages, fold_of)

    def _free(self) -> None:
        super()._free()
        self._messages = None


class GridMemberOnGpu(MemberOnGpu, GridMember):
    """A rank of a 2-D partition on a GPU. See ``Member``.

    Args:
        rank, partition_key, carrier: see ``GridMember``.
        graph_id: the graph, if the ranks map each other's messages; None if messages go as the carrier's bins do.
    """

    backend = "cuda"

    def __init__(self, rank: int, partition_key: Any, carrier: "Carrier", graph_id: str | None) -> None:
        super().__init__(rank, partition_key, carrier)
        self._graph_id = graph_id
        self._mapped: MappedGridExchange | None = None

    def make(self, partition: GridPartition) -> None:  # type: ignore[override]
        """Upload the partition and allocate the state on the GPU. Compiles the kernels that the cache lacks."""
        where = f"rank {self.rank}"
        device_memory.require(nbytes_on_gpu(partition), where)
        with failures.typed_errors(where):
            self._scratch = self._make_scratch(partition, None)

    def offer(self) -> Any:
        if self._mapped is None:
            return super().offer()
        with failures.typed_errors(f"rank {self.rank}, its messages"):
            return super().offer(), self._mapped.offer()

    def connect(self, offers: "Sequence[Any]") -> None:
        """See ``Member``. A failed run leaves no state on a GPU that the next one would read."""
        if self._mapped is None:
            super().connect(offers)
            return
        super().connect([of_host for of_host, _ in offers])
        self._mapped.connect([messages for _, messages in offers])

    def disconnect(self) -> None:
        if self._mapped is not None:
            self._mapped.disconnect()

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:
        import cupy

        with failures.typed_errors(f"rank {self.rank}"):
            try:
                return super().traverse(partition, number, specs, deadline)
            finally:
                # The peers may write their next messages in place of those that this rank has read.
                cupy.cuda.get_current_stream().synchronize()

    def _make_messages(self, stripe: Stripe, backend: Backend) -> "GridExchange":
        carrier: Any = self._carrier
        if isinstance(carrier, NcclExchange):
            carrier.allocate(CudaMessages(stripe, self.rank, carrier.pinned))
            return NcclGridExchange(carrier, stripe, backend, operators_of(backend))
        if self._graph_id is None:
            return super()._make_messages(stripe, backend)
        self._mapped = MappedGridExchange(carrier, stripe, backend, operators_of(backend), self._graph_id)
        return self._mapped

    def _free(self) -> None:
        import cupy

        if self._mapped is not None:
            self._mapped.close()
        super()._free()
        cupy.get_default_memory_pool().free_all_blocks()


def nbytes_on_gpu(partition: GridPartition) -> int:
    """Return the bytes that a rank takes on its GPU, with the labels of one traversal."""
    stripe, grid, bottom_up = partition.stripe, partition.grid, partition.blocks.into is not None
    kept = sum(grid.partition_bytes(stripe, partition.m_local, bottom_up=bottom_up).values())
    kept += sum(run_on_gpu(stripe, grid, bottom_up=bottom_up).values())
    return kept + label_bytes(stripe, predecessors=True)

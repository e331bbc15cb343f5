"""The runner of a rank of a 2-D partition, on the CPU and on a GPU: it runs the grid's level loop.

On a GPU the host launches each level's operators. Messages pass between GPUs whose ranks map each other's memory, or by
NCCL; else they cross the bus twice, once at either end. A level costs several launches and copies. No kernel waits for
a peer, so that several ranks may share a GPU, except by NCCL.
"""

from typing import TYPE_CHECKING, Any

from dbfs_workers.base.spec import RunSpec
from dbfs_workers.base.team import Tasks
from dbfs_workers.features.grid.grid import GridPartition
from dbfs_workers.features.grid.sizes import run_on_gpu
from dbfs_workers.search import backends
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.cuda import failures
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.search.partition.labels import label_bytes
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import RankRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dbfs_workers.features.grid.exchange import GridExchange
    from dbfs_workers.features.grid.exchange_on_gpus import MappedGridExchange
    from dbfs_workers.features.grid.levels import FoldOf
    from dbfs_workers.features.grid.scratch import GridScratch
    from dbfs_workers.search.levels.rank_levels import RankLevels


class GridRunner(LoopRunner):
    """A runner of the levels of a 2-D partition. See ``Runner``.

    Args:
        exchange: this rank's end of an exchange with bins of ``Grid.bin_entries`` entries, a ``Carrier``.
        backend, threads: see ``LoopRunner``.
        between: how messages pass between GPUs: ``cuda_ipc``, ``nccl``, or ``host`` as the exchange's bins do.
        graph_id: the graph.
    """

    def __init__(self, exchange: Any, backend: str, threads: int, between: str, graph_id: str) -> None:
        super().__init__(exchange, backend, threads)
        self._between, self._graph_id = between, graph_id
        self._messages: GridExchange | None = None
        self._mapped: MappedGridExchange | None = None

    def offer(self) -> Any:
        """See ``GangExchange.offer``."""
        if self._mapped is None:
            return super().offer()
        with failures.typed_errors(f"rank {self.member.rank}, its messages"):
            return super().offer(), self._mapped.offer()

    def connect(self, offers: "Sequence[Any]") -> None:
        """See ``GangExchange.connect``. A failed run leaves no state on a GPU that the next one would read."""
        if self._mapped is None:
            super().connect(offers)
            return
        super().connect([of_host for of_host, _ in offers])
        self._mapped.connect([messages for _, messages in offers])

    def disconnect(self) -> None:
        """See ``MemberPart``."""
        if self._mapped is not None:
            self._mapped.disconnect()

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:
        """See ``Runner``."""
        if self.backend == "cpu":
            return super().traverse(partition, number, specs, deadline)
        import cupy

        with failures.typed_errors(f"rank {self.member.rank}"):
            try:
                return super().traverse(partition, number, specs, deadline)
            finally:
                # The peers may write their next messages in place of those that this rank has read.
                cupy.cuda.get_current_stream().synchronize()

    def gpu_bytes(self, partition: GridPartition) -> int:
        """See ``LoopRunner``. The partition is included."""
        stripe, grid, bottom_up = partition.stripe, partition.grid, partition.blocks.into is not None
        kept = sum(grid.partition_bytes(stripe, partition.m_local, bottom_up=bottom_up).values())
        kept += sum(run_on_gpu(stripe, grid, bottom_up=bottom_up).values())
        return kept + label_bytes(stripe, predecessors=True)

    def levels(self, partition: Partition) -> "RankLevels[GridScratch]":
        """See ``LoopRunner``."""
        from dbfs_workers.features.grid.levels import engine_fold

        return self.levels_with(partition, engine_fold)

    def levels_with(self, partition: Partition, fold_of: "FoldOf") -> "RankLevels[GridScratch]":
        """Return what runs the levels of the rank; arguments as of ``GridLevels``."""
        from dbfs_workers.features.grid.levels import GridLevels

        scratch = self.scratch_of(partition)
        assert self._messages is not None
        return GridLevels(scratch, self._messages, fold_of)

    def free(self) -> None:
        """See ``MemberPart``."""
        if self._mapped is not None:
            self._mapped.close()
        self._messages = self._mapped = None
        super().free()

    def _make_scratch(self, partition: Any) -> Any:
        from dbfs_workers.features.grid.scratch import GridScratch

        backend = backends.get(self.backend)
        self._messages = self._make_messages(partition.stripe, backend)
        return GridScratch(partition, self._pool, backend.xp)

    def _make_messages(self, stripe: Stripe, backend: Backend) -> "GridExchange":
        from dbfs_workers.features.grid.exchange import GridExchange
        from dbfs_workers.features.grid.operators import operators_of

        carrier: Any = self.exchange
        if self._between == "host":
            return GridExchange(carrier, stripe, backend, operators_of(backend))
        from dbfs_workers.features.grid.exchange_on_gpus import MappedGridExchange, NcclGridExchange

        if self._between == "nccl":
            return NcclGridExchange(carrier.on_gpu(backend, stripe), stripe, backend, operators_of(backend))
        self._mapped = MappedGridExchange(carrier, stripe, backend, operators_of(backend), self._graph_id)
        return self._mapped

    def require_team(self, partition: Partition) -> None:
        """See ``LoopRunner``. The gang formed with the kernels compiled."""

    def _team_tasks(self) -> Tasks:
        """See ``LoopRunner``. The gang formed with the kernels compiled."""
        from dbfs_workers.features.grid.kernels.team_tasks import TASKS

        return TASKS

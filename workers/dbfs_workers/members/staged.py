"""A worker's part in a gang on GPUs that can't map each other's memory: the level loop over the CUDA backend.

A level costs some launches and copies where the resident kernel's costs a barrier, and its bins cross the bus twice. No
kernel waits for a peer, so several ranks may share a GPU.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from dbfs_workers import backends
from dbfs_workers.cuda import device_memory, failures
from dbfs_workers.exchange import staged
from dbfs_workers.exchange.staged import StagedExchange
from dbfs_workers.levels import scratch
from dbfs_workers.levels.scratch import Scratch
from dbfs_workers.members.on_cpu import LoopMember
from dbfs_workers.reports import RankRun
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.partition import Partition

if TYPE_CHECKING:
    pass

# Bytes a row that a level takes for a while: the frontier's offsets, degrees and their sums, a bin that came.
_LEVEL_BYTES = 3 * 8 + 8


class StagedMember(LoopMember):
    """See ``Member``. ``make`` comes before the first run."""

    backend = "cuda"

    def make(self, partition: Partition) -> None:
        """Take the GPU's memory; compiles the kernels where the cache has none.

        Raises:
            ImportError: CuPy can't be imported.
            GraphTooLargeError: the GPU's free memory does not hold it.
        """
        who = f"rank {self.rank}"
        device_memory.require(nbytes(partition), who)
        with failures.typed_errors(who):
            self._scratch = Scratch(partition, self.backend)
            self._end = StagedExchange(self.exchange, partition.stripe, backends.get(self.backend))

    def traverse(self, partition: Partition, number: int, specs: list[TraversalSpec], deadline: float) -> list[RankRun]:
        """See ``Member``."""
        with failures.typed_errors(f"rank {self.rank}"):
            return super().traverse(partition, number, specs, deadline)

    def fetch(self, labels: RankLabels) -> RankLabels:
        """Copy them from the GPU."""
        to_host, parents = backends.get(self.backend).to_host, labels.predecessors
        return RankLabels(to_host(labels.distances), None if parents is None else to_host(parents))

    def _free(self) -> None:
        import cupy

        super()._free()
        cupy.get_default_memory_pool().free_all_blocks()


def nbytes(partition: Partition) -> int:
    """Bytes that a member takes of its GPU, one run's labels included; those of a partition that is there are not."""
    stripe = partition.stripe
    kept: Any = partition.nbytes if isinstance(partition.columns, np.ndarray) else 0
    kept += scratch.nbytes(stripe, bottom_up=partition.parents is not None) + staged.nbytes(stripe)
    return int(kept) + stripe.n_local * (2 * 4 + _LEVEL_BYTES)

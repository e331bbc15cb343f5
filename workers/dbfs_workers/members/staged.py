"""A rank on a GPU that can't map its peers' memory: the member that runs the level loop with the CUDA backend.

A level costs several kernel launches and copies; a level of the resident kernel costs one barrier. Bins cross the bus
twice, once at the sender and once at the receiver. No kernel waits for a peer, so several ranks may share a GPU.
"""

from typing import Any

import numpy as np

from dbfs_workers import backends
from dbfs_workers.cuda import device_memory, failures
from dbfs_workers.exchange import staged
from dbfs_workers.exchange.staged import StagedExchange
from dbfs_workers.members.on_cpu import LoopMember
from dbfs_workers.reports import RankRun
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage import scratch
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.partition import Partition
from dbfs_workers.storage.scratch import Scratch

# Temporary bytes of a level for each row: the frontier's offsets, degrees and their sums (8 bytes each), and a received
# bin with its parents.
_LEVEL_BYTES = 3 * 8 + 8


class StagedMember(LoopMember):
    """A member that stages the exchange through the host. See ``Member``. ``make`` must precede the first run."""

    backend = "cuda"

    def make(self, partition: Partition) -> None:
        """Upload the partition and allocate the state on the GPU. Compiles the kernels that the cache lacks.

        Raises:
            ImportError: CuPy can't be imported.
            GraphTooLargeError: the GPU has too little free memory.
            DeviceFailedError: CUDA failed.
        """
        where = f"rank {self.rank}"
        device_memory.require(nbytes(partition), where)
        with failures.typed_errors(where):
            self._scratch = Scratch(partition, backends.get(self.backend).xp)
            self._loop_exchange = StagedExchange(self.exchange, partition.stripe, backends.get(self.backend))

    def traverse(self, partition: Partition, number: int, specs: list[TraversalSpec], deadline: float) -> list[RankRun]:
        """See ``Member``."""
        with failures.typed_errors(f"rank {self.rank}"):
            return super().traverse(partition, number, specs, deadline)

    def fetch(self, labels: RankLabels) -> RankLabels:
        """Copy labels from the GPU."""
        to_host, parents = backends.get(self.backend).to_host, labels.predecessors
        return RankLabels(to_host(labels.distances), None if parents is None else to_host(parents))

    def free_bytes(self) -> int:
        """See ``Member``."""
        return device_memory.free_for_labels(self.room.share)

    def _free(self) -> None:
        import cupy

        super()._free()
        cupy.get_default_memory_pool().free_all_blocks()


def nbytes(partition: Partition) -> int:
    """Return the bytes that a member allocates on its GPU, with one traversal's labels.

    The partition is included unless it is on the GPU already.
    """
    stripe = partition.stripe
    kept: Any = partition.nbytes if isinstance(partition.columns, np.ndarray) else 0
    kept += scratch.nbytes(stripe, bottom_up=partition.parents is not None) + staged.nbytes(stripe)
    return int(kept) + stripe.n_local * (2 * 4 + _LEVEL_BYTES)

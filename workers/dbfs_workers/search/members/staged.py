"""A rank on a GPU that can't map its peers' memory: the member that runs the level loop with the CUDA backend.

A level costs several kernel launches; a level of the resident kernel costs one barrier. Staged through the host, bins
cross the bus twice, once at the sender and once at the receiver, and no kernel waits for a peer, so that several ranks
may share a GPU. NCCL moves bins between GPUs, each of which has one rank only.
"""

from typing import Any

import numpy as np

from dbfs_workers.base.spec import RunSpec
from dbfs_workers.search import backends
from dbfs_workers.search.cuda import device_memory, failures
from dbfs_workers.search.cuda.messages import CudaMessages
from dbfs_workers.search.exchange import nccl, staged
from dbfs_workers.search.exchange.nccl import NcclExchange
from dbfs_workers.search.exchange.protocol import Exchange
from dbfs_workers.search.exchange.staged import StagedExchange
from dbfs_workers.search.members.gpu import MemberOnGpu
from dbfs_workers.search.members.on_cpu import LoopMember
from dbfs_workers.search.partition import scratch
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import RankRun

# Temporary bytes of a level for each row: the frontier's offsets, degrees and their sums (8 bytes each), and a received
# bin with its parents.
_LEVEL_BYTES = 3 * 8 + 8


class StagedMember(MemberOnGpu, LoopMember):
    """A member that stages the exchange through the host. See ``Member``."""

    backend = "cuda"

    def make(self, partition: Partition) -> None:
        """Upload the partition and allocate the state on the GPU. Compiles the kernels that the cache lacks."""
        where = f"rank {self.rank}"
        device_memory.require(nbytes(partition, self._exchange_bytes(partition.stripe)), where)
        with failures.typed_errors(where):
            self._scratch = Scratch(partition, backends.get(self.backend).xp)
            self.loop_exchange = self._allocate_exchange(partition.stripe)

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:
        """See ``Member``."""
        with failures.typed_errors(f"rank {self.rank}"):
            return super().traverse(partition, number, specs, deadline)

    def _exchange_bytes(self, stripe: Stripe) -> int:
        """Return the bytes of the exchange's arrays on the GPU."""
        return staged.nbytes(stripe)

    def _allocate_exchange(self, stripe: Stripe) -> Exchange:
        """Return the exchange that the level loop crosses, with its arrays on the GPU."""
        return StagedExchange(self.exchange, stripe, backends.get(self.backend))

    def _free(self) -> None:
        import cupy

        super()._free()
        cupy.get_default_memory_pool().free_all_blocks()


class NcclMember(StagedMember):
    """A member that exchanges by NCCL."""

    exchange: NcclExchange

    def _exchange_bytes(self, stripe: Stripe) -> int:
        return nccl.nbytes(stripe)

    def _allocate_exchange(self, stripe: Stripe) -> Exchange:
        self.exchange.allocate(CudaMessages(stripe, self.rank, self.exchange.pinned))
        return self.exchange


def nbytes(partition: Partition, exchange_bytes: int) -> int:
    """Return the bytes that a member allocates on its GPU, with one traversal's labels and ``exchange_bytes``.

    The partition is included unless it is on the GPU already.
    """
    stripe = partition.stripe
    kept: Any = partition.nbytes if isinstance(partition.columns, np.ndarray) else 0
    kept += scratch.nbytes(stripe, bottom_up=partition.parents is not None) + exchange_bytes
    return int(kept) + stripe.n_local * (2 * 4 + _LEVEL_BYTES)

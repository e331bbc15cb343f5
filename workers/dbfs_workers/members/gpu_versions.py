"""What members on GPUs do alike about versions of a living graph: updates, and repairs by new traversals."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.cuda import device_memory, failures
from dbfs_workers.members.member import Member
from dbfs_workers.reports import RankRun
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.partition import Partition
from dbfs_workers.storage.update_spec import UpdateSpec

if TYPE_CHECKING:
    from dbfs_workers.storage.living import Updated


class MemberOnGpu(Member):
    """A member whose partition is on a GPU."""

    def free_bytes(self) -> int:
        """See ``Member``."""
        return device_memory.free_for_labels(self.room.share)

    def updated(
        self, partition: Partition, spec: UpdateSpec, edges: Any | None = None, in_edges: Any | None = None
    ) -> "Updated":
        """See ``Member``."""
        import cupy

        from dbfs_workers.cuda.living import updated

        with failures.typed_errors(f"rank {self.rank}, changing its edges"):
            following = updated(partition, spec, edges, in_edges)
            # Runs use streams of their own.
            cupy.cuda.get_current_stream().synchronize()
            return following

    def batch_keys(
        self, partition: Partition, src: NDArray[np.uint32], dst: NDArray[np.uint32], symmetrise: bool
    ) -> tuple[Any, Any | None]:
        """See ``Member``."""
        from dbfs_workers.cuda.living import batch_keys

        with failures.typed_errors(f"rank {self.rank}, binning a batch"):
            return batch_keys(partition, src, dst, symmetrise=symmetrise)

    def _of_version(self, run: RankRun, spec: TraversalSpec, partition: Partition) -> RankRun:
        """Return a new traversal with its version and, if labels were to be repaired, the rows whose distance changed.

        GPUs repair no labels: a new traversal takes the place of a repair.
        """
        run = replace(run, version=partition.version)
        if spec.repairs is None:
            return run
        import cupy

        kept, now = self.kept.get(spec.repairs), run.labels.distances
        differ = now >= 0 if kept is None else now != kept.labels.distances
        return replace(run, changed=cupy.asnumpy(cupy.flatnonzero(differ)).astype(np.uint32))

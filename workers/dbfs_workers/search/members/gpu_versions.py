"""Versions of a living graph, for all members on GPUs: updates, repairs, and new traversals instead of repairs."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.living.update_spec import UpdateSpec
from dbfs_workers.search.cuda import device_memory, failures
from dbfs_workers.search.members.member import Member, OwnedLabels
from dbfs_workers.search.partition.labels import ChangedRows, RankLabels
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import COUNT_FIELDS, TIME_FIELDS, CountedLevels, RankRun

if TYPE_CHECKING:
    from dbfs_workers.features.living.versions import Updated
    from dbfs_workers.search.cuda.device_graph import DeviceGraph


class MemberOnGpu(Member):
    """A member whose partition is on a GPU."""

    burst_seconds = 0.02

    def free_bytes(self) -> int:
        """See ``Member``."""
        return device_memory.free_for_labels(self.room.share)

    def pooled_bytes(self) -> int:
        """See ``Member``."""
        return device_memory.pooled_bytes()

    def fetch(self, labels: RankLabels) -> RankLabels:
        """Copy labels from the GPU."""
        return labels.to_host()

    def updated(
        self, partition: Partition, spec: UpdateSpec, edges: Any | None = None, in_edges: Any | None = None
    ) -> "Updated":
        """See ``Member``."""
        import cupy

        from dbfs_workers.features.living.cuda_versions import updated

        with failures.typed_errors(f"rank {self.rank}, changing its edges"):
            following = updated(partition, spec, edges, in_edges)
            # Runs use streams of their own.
            cupy.cuda.get_current_stream().synchronize()
            return following

    def batch_keys(
        self, partition: Partition, src: NDArray[np.uint32], dst: NDArray[np.uint32], symmetrise: bool
    ) -> tuple[Any, Any | None]:
        """See ``Member``."""
        from dbfs_workers.features.living.cuda_versions import batch_keys

        with failures.typed_errors(f"rank {self.rank}, binning a batch"):
            return batch_keys(partition, src, dst, symmetrise=symmetrise)

    def _of_version(
        self, run: RankRun, spec: TraversalSpec, partition: Partition, kept: OwnedLabels | None = None
    ) -> RankRun:
        """Return a new traversal with its version and, if labels were to be repaired, the rows whose distance changed.

        Args:
            run: the traversal.
            spec: its spec.
            partition: this rank's edges.
            kept: the labels that were to be repaired; None if they are among ``self.kept``, or lost.
        """
        run = replace(run, version=partition.version)
        if spec.repairs is None:
            return run
        import cupy

        kept, now = kept or self.kept.get(spec.repairs), run.labels.distances
        differs = now >= 0 if kept is None else now != kept.labels.distances
        run = replace(run, changed=ChangedRows.where(differs))
        # Runs use streams of their own, and one of them may get the memory of the labels before.
        cupy.cuda.get_current_stream().synchronize()
        return run

    def _repaired(
        self, graph: "DeviceGraph", partition: Partition, spec: TraversalSpec, kept: OwnedLabels | None
    ) -> RankRun | None:
        """Repair labels; None if a new traversal has to take the place of the repair.

        Args:
            graph: the rank's slice of the version to repair to.
            partition: the same edges.
            spec: the traversal whose labels are repaired.
            kept: the labels; None if the rank has none.
        """
        from dbfs_workers.features.living import cuda_repair as repair

        whole = spec.max_depth is None and not spec.targets
        if kept is None or kept.labels.predecessors is None or not whole or not repair.can_repair(graph, kept.seconds):
            return None
        changes = self.log.between(kept.version, partition.version)
        if changes is None:
            return None
        began = time.perf_counter()
        # Predecessors are of no version until the repair ends.
        self.kept.pop(spec.repairs or ("", 0))
        done = repair.repair(graph, kept.labels, changes, kept.seconds)
        if done is None:
            return None
        return RankRun(
            labels=done.labels,
            levels=CountedLevels.of(np.empty((0, len(COUNT_FIELDS)), np.int64), np.empty((0, len(TIME_FIELDS)))),
            reached=done.reached,
            edges=done.edges,
            depth=done.depth,
            elapsed=done.seconds,
            setup=time.perf_counter() - began - done.seconds,
            version=partition.version,
            changed=done.changed,
            traversal_seconds=kept.seconds,
        )

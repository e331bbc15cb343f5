"""What all members on GPUs have in common: where labels lie, and how much room is left for them."""

from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.partition.labels import RankLabels


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

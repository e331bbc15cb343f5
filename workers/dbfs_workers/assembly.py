"""The workers' features, put together: a feature is taken away with its lines here.

Importing needs no Numba and no GPU.
"""

from typing import Final

from dbfs_workers.features.living.worker import Updates
from dbfs_workers.features.subgraphs.reads import EdgeReads
from dbfs_workers.features.validation.verdicts import Verdicts
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.members.on_cpu import LoopMember
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.serving.feature import WorkerFeature
from dbfs_workers.serving.plugin import WorkerService

FEATURES: Final[tuple[type[WorkerFeature], ...]] = (
    Updates,
    EdgeReads,
    Verdicts,
)
"""What features add to a worker."""


def member_parts(member: Member) -> list[MemberPart]:
    """Return what features keep in a member, for ``Member.take_parts``. Those of GPUs alone are imported here."""
    if isinstance(member, LoopMember):
        from dbfs_workers.features.batches.part import LoopBatches
        from dbfs_workers.features.lab.part import LoopStrategies

        return [LoopBatches(member), _loop_living(member), LoopStrategies(member)]
    from dbfs_workers.features.batches.resident_part import ResidentBatches
    from dbfs_workers.features.lab.resident_part import ResidentStrategies
    from dbfs_workers.features.living.gpu_parts import ResidentLiving
    from dbfs_workers.search.members.on_gpu import CudaMember

    assert isinstance(member, CudaMember)
    living = ResidentLiving(member)
    return [ResidentBatches(member), living, ResidentStrategies(member, living)]


def _loop_living(member: LoopMember) -> MemberPart:
    if member.backend == "cpu":
        from dbfs_workers.features.living.part import LoopLiving

        return LoopLiving(member)
    from dbfs_workers.features.living.gpu_parts import LoopLivingOnGpu

    return LoopLivingOnGpu(member)


def worker_service(memory_share: float) -> WorkerService:
    """Return a worker's half of the service, with its features; ``memory_share`` as of ``WorkerService``."""
    return WorkerService(memory_share, FEATURES, member_parts)

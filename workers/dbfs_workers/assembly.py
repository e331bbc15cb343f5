"""The workers' features, put together: a feature is taken away with its lines here.

Importing needs no Numba and no GPU.
"""

from typing import TYPE_CHECKING, Final

from dbfs_workers.features.living.worker import Updates
from dbfs_workers.features.rebuild.worker import VersionLogs
from dbfs_workers.features.subgraphs.reads import EdgeReads
from dbfs_workers.features.validation.verdicts import Verdicts
from dbfs_workers.features.weights.worker import WeightReads
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.serving.feature import WorkerFeature
from dbfs_workers.serving.plugin import WorkerService

if TYPE_CHECKING:
    from dbfs_workers.search.members.resident import ResidentRunner

FEATURES: Final[tuple[type[WorkerFeature], ...]] = (
    Updates,
    EdgeReads,
    Verdicts,
    WeightReads,
    VersionLogs,
)
"""What features add to a worker."""


def loop_parts(runner: LoopRunner) -> list[MemberPart]:
    """Return what features keep in a member that runs the level loop."""
    from dbfs_workers.features.batches.part import LoopBatches
    from dbfs_workers.features.lab.part import LoopStrategies
    from dbfs_workers.features.paths.part import LoopPaths
    from dbfs_workers.features.weights.part import LoopWeights

    return [
        LoopBatches(runner),
        _loop_living(runner),
        LoopStrategies(runner),
        LoopPaths(runner),
        LoopWeights(runner),
    ]


def _loop_living(runner: LoopRunner) -> MemberPart:
    if runner.backend == "cpu":
        from dbfs_workers.features.living.part import LoopLiving

        return LoopLiving(runner)
    from dbfs_workers.features.living.gpu_parts import LoopLivingOnGpu

    return LoopLivingOnGpu(runner)


def resident_parts(runner: "ResidentRunner") -> list[MemberPart]:
    """Return what features keep in a member whose GPU runs all levels in one kernel."""
    from dbfs_workers.features.batches.resident_part import ResidentBatches
    from dbfs_workers.features.lab.resident_part import ResidentStrategies
    from dbfs_workers.features.living.gpu_parts import ResidentLiving
    from dbfs_workers.features.paths.resident_part import ResidentPaths
    from dbfs_workers.features.weights.resident_part import ResidentWeights

    living = ResidentLiving(runner)
    return [
        ResidentBatches(runner),
        living,
        ResidentStrategies(runner, living),
        ResidentPaths(runner),
        ResidentWeights(runner),
    ]


def worker_service(memory_share: float) -> WorkerService:
    """Return a worker's half of the service, with its features; ``memory_share`` as of ``WorkerService``."""
    return WorkerService(memory_share, FEATURES, loop_parts, resident_parts)

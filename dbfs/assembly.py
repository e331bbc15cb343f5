"""The house, put together: the core with its features. A feature is taken away with its lines here.

Importing this module needs no Numba and no GPU: what features import is imported where it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dbfs.engines import Engines
from dbfs.engines.resident import ResidentEngine
from dbfs.features.taskgraph.engine import TaskGraphEngine

if TYPE_CHECKING:
    from dbfs.service.scheduler import SchedulerService

ENGINES: Final[Engines] = {
    "resident": ResidentEngine,
    "taskgraph": TaskGraphEngine,
}
"""The engines by name."""


def scheduler_service() -> SchedulerService:
    """Return the scheduler's half of the service, with what features add to it and to the workers."""
    from dbfs.dashboard import Dashboard
    from dbfs.features.living.updates import Updates
    from dbfs.service.scheduler import SchedulerService
    from dbfs_workers.assembly import FEATURES

    return SchedulerService((Updates, Dashboard), FEATURES)

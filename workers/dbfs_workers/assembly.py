"""The workers' features, put together: a feature is taken away with its lines here.

Importing needs no Numba and no GPU.
"""

from typing import Final

from dbfs_workers.features.living.worker import Updates
from dbfs_workers.features.subgraphs.reads import EdgeReads
from dbfs_workers.features.validation.verdicts import Verdicts
from dbfs_workers.serving.feature import WorkerFeature

FEATURES: Final[tuple[type[WorkerFeature], ...]] = (
    Updates,
    EdgeReads,
    Verdicts,
)
"""What features add to a worker."""

"""The CUDA sources of living graphs."""

from typing import Final

from dbfs_workers.search.cuda.kernels.sources import with_types
from dbfs_workers.search.cuda.source import Source

MERGING: Final = Source("features/living/kernels/merging.cu")
REPAIR: Final = with_types("features/living/kernels/repair.cu")
SOURCES: Final = (MERGING, REPAIR)

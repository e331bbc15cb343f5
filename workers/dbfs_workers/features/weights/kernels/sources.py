"""The CUDA source of shortest paths by weight."""

from typing import Final

from dbfs_workers.search.cuda.kernels.sources import with_types
from dbfs_workers.search.cuda.source import Source

NEAR_FAR: Final = with_types("features/weights/kernels/near_far.cu")
SOURCES: Final[tuple[Source, ...]] = (NEAR_FAR,)

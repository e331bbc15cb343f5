"""The CUDA source of shortest paths by weight."""

from typing import Final

from dbfs_workers.search.cuda.kernels.sources import with_types
from dbfs_workers.search.cuda.source import Source

_NEAR_FAR: Final = "features/weights/kernels/near_far.cu"
ALONE: Final = with_types(_NEAR_FAR, gang=False)
"""Of one rank."""

GANG: Final = with_types(_NEAR_FAR)
"""Of several ranks."""

SOURCES: Final[tuple[Source, ...]] = (ALONE, GANG)

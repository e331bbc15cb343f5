"""The CUDA sources of the 2-D partition."""

from typing import Final

from dbfs_workers.search.cuda.kernels.sources import with_types

GRID: Final = with_types("features/grid/kernels/grid.cu")
SOURCES: Final = (GRID,)

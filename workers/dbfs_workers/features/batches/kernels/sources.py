"""The CUDA sources of batches and of sweeps."""

from typing import Final

from dbfs_workers.search.cuda.kernels.sources import with_types

BATCH: Final = with_types("features/batches/kernels/batch.cu")
PATH_SUMS: Final = with_types("features/batches/kernels/path_sums.cu")
SOURCES: Final = (BATCH, PATH_SUMS)

"""The CUDA sources of batches and of sweeps."""

from typing import Final

from dbfs_workers.search.cuda.kernels.sources import with_types

BATCH: Final = with_types("features/batches/kernels/batch.cu")
SWEEPS: Final = with_types("features/batches/kernels/sweeps.cu")
SOURCES: Final = (BATCH, SWEEPS)

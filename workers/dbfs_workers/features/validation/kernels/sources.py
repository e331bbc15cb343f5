"""The CUDA sources that check labels."""

from typing import Final

from dbfs_workers.search.cuda.source import Source

AHEAD: Final = ("dbfs_workers.features.validation.ahead",)

VALIDATION: Final = Source("features/validation/kernels/validation.cu", first=True)
SOURCES: Final = (VALIDATION,)

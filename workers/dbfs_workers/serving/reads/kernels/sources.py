"""The CUDA sources that put labels into the order of vertices."""

from typing import Final

from dbfs_workers.search.cuda.source import Source

BY_VERTEX: Final = Source("serving/reads/kernels/by_vertex.cu", first=True)
SOURCES: Final = (BY_VERTEX,)

"""The CUDA source of the distances of many pairs."""

from dataclasses import replace
from typing import Final

from dbfs_workers.search.cuda.kernels.sources import Variant
from dbfs_workers.search.cuda.source import Source

# Half of the threads of a multiprocessor: more pairs at once would take more memory, larger blocks wait for few edges.
SHAPE: Final = Variant(gang=False, predecessors=False, threads=512, blocks_per_sm=2)
PAIRS: Final = replace(SHAPE.source, path="features/paths/kernels/pairs.cu")
SOURCES: Final[tuple[Source, ...]] = (PAIRS,)

"""The CUDA sources of a build."""

from typing import Final

from dbfs_workers.search.cuda.source import Source

BINNING: Final = Source("building/kernels/binning.cu", first=True)
CSR: Final = Source("building/kernels/csr.cu", first=True)
DEGREE_ORDER: Final = Source("building/kernels/degree_order.cu", first=True)
KRONECKER: Final = Source("building/kernels/kronecker.cu", first=True)
SOURCES: Final = (BINNING, CSR, DEGREE_ORDER, KRONECKER)

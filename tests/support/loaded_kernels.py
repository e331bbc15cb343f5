"""All CPU kernels, loaded by the import of this module: in the process that the tests' workers are forked from."""

from dbfs.cluster.kernels import every_kernel
from dbfs_workers.base.compiling import prepare

prepare(every_kernel())

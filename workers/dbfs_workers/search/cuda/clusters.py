"""Thread-block clusters: how many of them a GPU runs at once. CuPy does not offer these calls of CUDA's driver."""

import ctypes
from typing import Any, Final

ARCHITECTURE: Final = 90
"""The first compute capability with clusters, times ten."""

LEAST_SHARE: Final = 0.9
"""Least share of the multiprocessors that blocks in clusters fill. On an H200 it is 128 of 132, by 8 as by 16."""

# CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION.
_DIMENSION: Final = 4
# CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, for clusters of more than 8 blocks.
_NON_PORTABLE: Final = 14


_COUNTS: Final = ("blocks_x", "blocks_y", "blocks_z", "threads_x", "threads_y", "threads_z", "shared")


class _Launch(ctypes.Structure):
    """``CUlaunchConfig`` of CUDA's driver."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in _COUNTS),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


def most_blocks(kernel: Any, cluster: int, threads: int) -> int:
    """Return the blocks of all clusters of a kernel that the current GPU runs at once; 0 if it runs none.

    Args:
        kernel: from ``cupy.RawModule.get_function``, compiled for clusters of that many blocks.
        cluster: blocks of a cluster.
        threads: threads of a block.
    """
    driver, function, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(kernel.kernel.ptr), ctypes.c_int()
    # One ``CUlaunchAttribute``: its id, four bytes, a value of 64.
    attribute = (ctypes.c_uint * 18)(_DIMENSION, 0, cluster, 1, 1)
    shape = _Launch(cluster, 1, 1, threads, 1, 1, 0, None, ctypes.addressof(attribute), 1)
    if driver.cuFuncSetAttribute(function, _NON_PORTABLE, 1):
        return 0
    # Drivers need not take the size from the launch where the kernel has it already.
    for shape.attribute_count in (1, 0):
        failed = driver.cuOccupancyMaxActiveClusters(ctypes.byref(count), function, ctypes.byref(shape))
        if not failed and count.value:
            return cluster * count.value
    return 0

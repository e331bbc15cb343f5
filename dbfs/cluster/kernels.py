"""The modules of the CPU kernels, and a way to compile them ahead of work."""

import importlib
import logging
import time

from dbfs.cluster import interrupts

logger = logging.getLogger(__name__)

# Importing such a module compiles its kernels, or loads them from Numba's cache.
KERNELS = (
    "dbfs_workers.storage.building_kernels",
    "dbfs_workers.storage.sorting_kernels",
    "dbfs_workers.storage.symmetry_kernels",
    "dbfs_workers.storage.id_kernels",
    "dbfs_workers.storage.integer_kernels",
    "dbfs_workers.storage.string_kernels",
    "dbfs_workers.storage.pages_kernels",
    "dbfs_workers.storage.label_kernels",
    "dbfs_workers.backends.cpu_kernels",
    "dbfs_workers.backends.cpu_resident_kernels",
    "dbfs_workers.backends.cpu_team_kernels",
    "dbfs_workers.backends.cpu_team_task_kernels",
    "dbfs_workers.backends.grid_kernels",
    "dbfs_workers.backends.grid_team_kernels",
    "dbfs_workers.checks.components_kernels",
    "dbfs_workers.exchange.barrier_kernels",
    "dbfs_workers.exchange.stream_kernels",
    "dbfs_workers.exchange.envoy_kernels",
    "dbfs_workers.lab.sequential_kernels",
    "dbfs_workers.levels.level_kernels",
    "dbfs_workers.levels.repair_kernels",
    "dbfs_workers.levels.repair_limits",
    "dbfs_workers.levels.repair_search_kernels",
    "dbfs_workers.levels.repair_round_kernels",
    "dbfs_workers.levels.led_kernels",
    "dbfs_workers.reads.kernels",
    "dbfs_workers.intrinsics",
    "dbfs_workers.storage.saved.check_kernels",
    "dbfs_workers.checks.validation_kernels",
    "dbfs.edges.generate._kronecker_kernel",
    "dbfs.edges.readers._pairs_kernel",
)


def warm_up() -> None:
    """Compile the CPU kernels into Numba's cache on disk, from which workers load them."""
    start = time.perf_counter()
    for module in KERNELS:
        # A KeyboardInterrupt within a callback of LLVM crashes the process.
        with interrupts.held():
            importlib.import_module(module)
    logger.info("CPU kernels ready in %.1f s", time.perf_counter() - start)

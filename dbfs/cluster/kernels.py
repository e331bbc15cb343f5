"""All CPU kernels, and ways to compile them ahead of work. Numba is imported where they are compiled."""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from dbfs.progress import bar

if TYPE_CHECKING:
    from dbfs_workers.jit import Kernel

READING: Final = ("dbfs_workers.storage.pairs_kernels",)
"""Kernels that read text, as ``compiling.found`` takes them."""

KERNELS: Final = (
    *READING,
    "dbfs.edges.generate._kronecker_kernel",
    "dbfs_workers.storage.building_kernels",
    "dbfs_workers.storage.sorting_kernels",
    "dbfs_workers.storage.row_kernels",
    "dbfs_workers.storage.id_kernels",
    "dbfs_workers.storage.integer_kernels",
    "dbfs_workers.storage.string_kernels",
    "dbfs_workers.storage.pages_kernels",
    "dbfs_workers.storage.label_kernels",
    "dbfs_workers.backends.batch_kernels",
    "dbfs_workers.backends.cpu_kernels",
    "dbfs_workers.backends.cpu_resident_kernels",
    "dbfs_workers.backends.cpu_team_kernels",
    "dbfs_workers.backends.cpu_team_task_kernels",
    "dbfs_workers.backends.grid_kernels",
    "dbfs_workers.backends.grid_team_kernels",
    "dbfs_workers.backends.sweep_kernels",
    "dbfs_workers.checks.components_kernels",
    "dbfs_workers.checks.validation_kernels",
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
)
"""All kernels."""


# Seconds between two looks at the kernels that others compile.
_LOOK_SECONDS: Final = 0.1


def warm_up() -> "tuple[list[Kernel], int]":
    """Compile all CPU kernels into Numba's cache on disk, with a bar, and load them.

    Returns:
        The kernels, and the number of those that were compiled now.
    """
    from dbfs_workers import compiling

    with _shown(KERNELS) as missing:
        kernels = compiling.found(KERNELS)
    for kernel in kernels:
        kernel.ready()
    return kernels, missing


@contextlib.contextmanager
def compiled(threads: int) -> Iterator[None]:
    """Compile what a graph on a local cluster needs while the block runs; wait for the end of that, with a bar.

    Args:
        threads: threads of a worker.
    """
    from dbfs_workers import compiling

    with _shown((*READING, *compiling.BUILDING, *compiling.traversing(threads))):
        yield


@contextlib.contextmanager
def _shown(wanted: Iterable[str]) -> Iterator[int]:
    """Compile kernels while the block runs, and show a bar after it; yield the number of those that are missing."""
    from dbfs_workers import compiling

    missing = [kernel for kernel in compiling.found(wanted) if not kernel.kept]
    # A daemon, so that Ctrl-C ends the program at once.
    work = threading.Thread(target=compiling.compile_missing, args=(missing,), daemon=True)
    work.start()
    yield len(missing)
    if work.is_alive():
        with bar("compiling kernels (once per machine)", len(missing)) as shown:
            while work.is_alive():
                work.join(_LOOK_SECONDS)
                done = sum(kernel.kept for kernel in missing)
                shown.set(done, f"{done} of {len(missing)}")

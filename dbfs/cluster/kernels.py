"""All CPU kernels, and ways to compile them ahead of work. Numba is imported where they are compiled."""

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from dbfs.edges.edge_list import EdgeList
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

    missing = compile_now(KERNELS)
    kernels = compiling.found(KERNELS)
    for kernel in kernels:
        kernel.ready()
    return kernels, missing


def kept_kernels() -> tuple[int, int]:
    """Return how many CPU kernels are compiled on disk, and how many there are."""
    from dbfs_workers import compiling

    kernels = compiling.found(KERNELS)
    return sum(kernel.kept for kernel in kernels), len(kernels)


def begin(workers: int, threads: int, *, every: bool = False) -> None:
    """Have what first graphs on a cluster need compiled, beside other work.

    Args:
        workers: workers of the cluster.
        threads: threads of a worker.
        every: whether to compile all other kernels after that.
    """

    def start() -> None:
        from dbfs_workers import compiling

        optional = (name for kernels in compiling.faster(workers, threads) for name in kernels.wanted)
        needed = compiling.needed(workers)
        ids = (name for wanted in compiling.NUMBERING.values() for name in wanted)
        first = (*compiling.BUILDING, *needed, *READING, *compiling.ANSWERING, *ids, *optional)
        compiling.begin((*first, *KERNELS) if every else first)

    # The import of Numba takes half a second.
    threading.Thread(target=start, daemon=True).start()


def begin_on_gpus(workers: int) -> None:
    """Have what graphs on a local cluster of GPUs need compiled, beside other work."""
    from dbfs_workers import gpus
    from dbfs_workers.cuda import module

    for arch in gpus.archs():
        module.begin(arch, gang=workers > 1)


def of_build(edges: EdgeList, p: int) -> tuple[str, ...]:
    """Return the kernels by which ``p`` ranks read, build and traverse edges, as ``compiling.found`` takes them."""
    from dbfs_workers import compiling

    kind = "integer" if edges.id_kinds == ("integer",) else "string"
    ids = compiling.NUMBERING[kind] if edges.n is None else ()
    return *edges.kernels, *ids, *compiling.BUILDING, *compiling.needed(p)


def compile_now(wanted: Iterable[str]) -> int:
    """Compile kernels, with a bar; return the number of those that were missing."""
    from dbfs_workers import compiling

    missing = [kernel for kernel in compiling.found(wanted) if not kernel.kept]
    # A daemon, so that Ctrl-C ends the program at once.
    work = threading.Thread(target=compiling.compile_missing, args=(missing,), daemon=True)
    work.start()
    work.join(_LOOK_SECONDS)
    if work.is_alive():
        with bar("compiling kernels (once per machine)", len(missing)) as shown:
            while work.is_alive():
                work.join(_LOOK_SECONDS)
                done = sum(kernel.kept for kernel in missing)
                shown.set(done, f"{done} of {len(missing)}")
    return len(missing)

"""All CPU kernels, and ways to compile them ahead of work. Numba is imported where they are compiled."""

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from dbfs.base.progress import bar
from dbfs.edges.edge_list import EdgeList

if TYPE_CHECKING:
    from dbfs_workers.base.jit import Kernel

READING: Final = ("dbfs_workers.building.kernels.pairs",)
"""Kernels that read text, as ``compiling.found`` takes them."""

KERNELS: Final = (
    *READING,
    "dbfs.edges.generate._kronecker_kernel",
    "dbfs_workers.building.kernels.building",
    "dbfs_workers.building.kernels.sorting",
    "dbfs_workers.search.partition.kernels.rows",
    "dbfs_workers.ids.kernels.ids",
    "dbfs_workers.ids.kernels.integers",
    "dbfs_workers.ids.kernels.strings",
    "dbfs_workers.features.living.kernels.pages",
    "dbfs_workers.search.partition.kernels.labels",
    "dbfs_workers.features.batches.kernels.batch",
    "dbfs_workers.search.cpu.kernels.phases",
    "dbfs_workers.search.cpu.kernels.resident",
    "dbfs_workers.search.cpu.kernels.team",
    "dbfs_workers.search.cpu.kernels.team_tasks",
    "dbfs_workers.features.grid.kernels.grid",
    "dbfs_workers.features.grid.kernels.team",
    "dbfs_workers.features.grid.kernels.team_tasks",
    "dbfs_workers.features.batches.kernels.sweeps",
    "dbfs_workers.features.components.kernels.components",
    "dbfs_workers.features.validation.kernels.validation",
    "dbfs_workers.search.exchange.kernels.barrier",
    "dbfs_workers.search.exchange.kernels.stream",
    "dbfs_workers.search.exchange.kernels.envoy",
    "dbfs_workers.features.lab.kernels.sequential",
    "dbfs_workers.search.levels.kernels.top_down",
    "dbfs_workers.features.living.kernels.repair",
    "dbfs_workers.features.living.kernels.repair_limits",
    "dbfs_workers.features.living.kernels.repair_search",
    "dbfs_workers.features.living.kernels.repair_round",
    "dbfs_workers.search.levels.kernels.led",
    "dbfs_workers.serving.reads.kernels.labels",
    "dbfs_workers.base.intrinsics",
)
"""All kernels."""


# Seconds between two looks at the kernels that others compile.
_LOOK_SECONDS: Final = 0.1


def warm_up() -> "tuple[list[Kernel], int]":
    """Compile all CPU kernels into Numba's cache on disk, with a bar, and load them.

    Returns:
        The kernels, and the number of those that were compiled now.
    """
    from dbfs_workers.base import compiling

    missing = compile_now(KERNELS)
    kernels = compiling.found(KERNELS)
    for kernel in kernels:
        kernel.ready()
    return kernels, missing


def kept_kernels() -> tuple[int, int]:
    """Return how many CPU kernels are compiled on disk, and how many there are."""
    from dbfs_workers.base import compiling

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
        from dbfs_workers.base import compiling

        optional = (name for kernels in compiling.faster(workers, threads) for name in kernels.wanted)
        needed = compiling.needed(workers)
        ids = (name for wanted in compiling.NUMBERING.values() for name in wanted)
        first = (*compiling.BUILDING, *needed, *READING, *compiling.ANSWERING, *ids, *optional)
        compiling.begin((*first, *KERNELS) if every else first)

    # The import of Numba takes half a second.
    threading.Thread(target=start, daemon=True).start()


def begin_on_gpus(workers: int) -> None:
    """Have what graphs on a local cluster of GPUs need compiled, beside other work."""
    from dbfs_workers.base import gpus
    from dbfs_workers.search.cuda import module

    for arch in gpus.archs():
        module.begin(arch, gang=workers > 1)


def of_build(edges: EdgeList, p: int) -> tuple[str, ...]:
    """Return the kernels by which ``p`` ranks read, build and traverse edges, as ``compiling.found`` takes them."""
    from dbfs_workers.base import compiling

    kind = "integer" if edges.id_kinds == ("integer",) else "string"
    ids = compiling.NUMBERING[kind] if edges.n is None else ()
    return *edges.kernels, *ids, *compiling.BUILDING, *compiling.needed(p)


def compile_now(wanted: Iterable[str]) -> int:
    """Compile kernels, with a bar; return the number of those that were missing."""
    from dbfs_workers.base import compiling

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

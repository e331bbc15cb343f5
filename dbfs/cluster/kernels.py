"""All CPU kernels, and ways to compile them ahead of work. Numba is imported where they are compiled."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dbfs.base.progress import bar
from dbfs.edges.edge_list import EdgeList
from dbfs_workers.base.kernel_packages import PACKAGE, declared, kernel_modules
from dbfs_workers.building.kernels import BUILDING
from dbfs_workers.ids.kernels import NUMBERING
from dbfs_workers.search.members import compiled

if TYPE_CHECKING:
    from dbfs_workers.base.jit import Kernel

# Seconds between two looks at the kernels that others compile.
_LOOK_SECONDS: Final = 0.1


def every_kernel() -> list[str]:
    """Return the modules of all CPU kernels, as ``compiling.found`` takes them."""
    return [*kernel_modules(Path(__file__).parents[1]), *kernel_modules(PACKAGE)]


def first_kernels(workers: int, threads: int) -> tuple[str, ...]:
    """Return the CPU kernels of first graphs, as ``compiling.found`` takes them: what builds and traverses comes first.

    Args:
        workers: workers of the cluster.
        threads: threads of a worker.
    """
    optional = (name for names in compiled.faster(workers, threads) for name in names)
    return *BUILDING, *compiled.needed(workers), *declared("FIRST"), *optional


def warm_up() -> "tuple[list[Kernel], int]":
    """Compile all CPU kernels into Numba's cache on disk, with a bar, and load them.

    Returns:
        The kernels, and the number of those that were compiled now.
    """
    from dbfs_workers.base import compiling

    missing = compile_now(every_kernel())
    kernels = compiling.found(every_kernel())
    for kernel in kernels:
        kernel.ready()
    return kernels, missing


def kept_kernels() -> tuple[int, int]:
    """Return how many CPU kernels are compiled on disk, and how many there are."""
    from dbfs_workers.base import compiling

    kernels = compiling.found(every_kernel())
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

        first = first_kernels(workers, threads)
        compiling.begin((*first, *every_kernel()) if every else first)

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
    kind = "integer" if edges.id_kinds == ("integer",) else "string"
    ids = NUMBERING[kind] if edges.n is None else ()
    return *edges.kernels, *ids, *BUILDING, *compiled.needed(p)


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

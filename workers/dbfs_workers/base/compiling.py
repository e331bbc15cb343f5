"""CPU kernels compiled ahead of work: once per machine, by several processes.

Numba keeps what it has compiled on disk. Python runs one thread of the compiler at a time, so that processes share the
work. A kernel that another process is compiling is awaited: see ``Kernel.ready``. Which kernels a rank needs is
declared by the packages ``kernels``: see ``kernel_packages``.
"""

import contextlib
import importlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from dask.system import CPU_COUNT

from dbfs_workers.base import file_lock, intrinsics
from dbfs_workers.base.jit import Kernel

logger = logging.getLogger(__name__)

# Seconds between two looks at kernels that are still being compiled.
_LOOK_SECONDS: Final = 0.1
# Fewer kernels than this are compiled by the process that needs them: another process takes half a second to start.
_FEW: Final = 4
# Work that a user waits for goes before kernels that are compiled beside it.
_NICE: Final = 10
# Processes of one crew. The longest chain of kernels that call each other takes as long as all others by so many.
_MOST: Final = 8
# What a process of a crew runs: for each line of its input, one kernel.
_WORK: Final = "from dbfs_workers.base.compiling import work; work()"


class Optional:
    """Kernels that make runs faster, and are used once they are compiled.

    Args:
        wanted: as of ``found``.

    Attributes:
        wanted: see above.
    """

    def __init__(self, *wanted: str) -> None:
        self.wanted = wanted
        self._ready, self._looked = False, 0.0

    def ready(self) -> bool:
        """Return whether all are compiled; load them if they are kept on disk."""
        now = time.monotonic()
        if not self._ready and now - self._looked > _LOOK_SECONDS:
            self._looked, self._ready = now, loaded(self.wanted)
        return self._ready

    def require(self) -> None:
        """Compile those that are not compiled."""
        if not self.ready():
            prepare(self.wanted)
            self._ready = True


def found(wanted: Iterable[str]) -> list[Kernel]:
    """Return kernels in an order in which each comes after those that it calls.

    Args:
        wanted: modules, whose kernels are all meant, or ``module:kernel``.
    """
    kernels: dict[str, Kernel] = {}

    def add(kernel: Kernel) -> None:
        if kernel.name not in kernels:
            for callee in kernel.called:
                add(callee)
            kernels[kernel.name] = kernel

    for place in wanted:
        name, _, one = place.partition(":")
        module = importlib.import_module(name)
        for value in [getattr(module, one)] if one else list(vars(module).values()):
            if isinstance(value, Kernel):
                add(value)
    return list(kernels.values())


def loaded(wanted: Iterable[str]) -> bool:
    """Return whether all kernels are compiled; load them if they are kept on disk; ``wanted`` as of ``found``."""
    kernels = found(wanted)
    if not all(kernel.signatures or kernel.kept for kernel in kernels):
        return False
    for kernel in kernels:
        kernel.ready()
    return True


def prepare(wanted: Iterable[str]) -> None:
    """Compile or load kernels, so that no call of them takes longer than the next; ``wanted`` as of ``found``."""
    kernels = found(wanted)
    compile_missing(kernels)
    for kernel in kernels:
        kernel.ready()


def begin(wanted: Iterable[str]) -> None:
    """Have kernels compiled beside other work, by processes that end with this one; ``wanted`` as of ``found``.

    The log says so.
    """

    def compile_all() -> None:
        kernels, start = found(wanted), time.perf_counter()
        missing = sum(not kernel.kept for kernel in kernels)
        if missing:
            logger.info("compiling kernels beside other work: %d of %d are missing here", missing, len(kernels))
        lock = Path(intrinsics.monotonic_ns.stats.cache_path, "dbfs-compiling.lock")
        # A process that was killed left the lock.
        if missing or lock.exists():
            # Each process imports Numba first, which takes half a second of a core: so one crew a machine.
            with file_lock.held(lock):
                compile_missing(kernels, niceness=_NICE)
        if missing:
            logger.info("kernels compiled in %.1f s", time.perf_counter() - start)

    # A daemon: Python does not wait for the thread, and the processes end when their input does.
    threading.Thread(target=compile_all, daemon=True).start()


def compile_missing(kernels: Iterable[Kernel], *, niceness: int = 0) -> None:
    """Compile the kernels that this machine lacks, in the order of ``found``.

    Another process may be compiling some: their end is awaited.
    """
    missing = [kernel for kernel in kernels if not kernel.signatures and not kernel.kept]
    if len(missing) >= _FEW:
        _Crew(missing, niceness).compile()


class _Crew:
    """Processes that compile kernels.

    Args:
        kernels: the kernels, each after those that it calls.
        niceness: of the processes.
    """

    def __init__(self, kernels: list[Kernel], niceness: int) -> None:
        self._left, self._niceness = kernels, niceness
        self._compiling: set[str] = set()
        self._changed = threading.Condition()

    def compile(self) -> None:
        """Compile all kernels."""
        count = min(CPU_COUNT, _MOST, len(self._left))
        threads = [threading.Thread(target=self._employ, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _employ(self) -> None:
        """Have one process compile kernels while there are any."""
        # In a session of its own, which Ctrl-C in a terminal does not reach. The end of its input ends the process.
        with subprocess.Popen(
            [sys.executable, "-c", _WORK, str(self._niceness)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            while (kernel := self._take()) is not None:
                with contextlib.suppress(OSError):
                    process.stdin.write(f"{kernel.name}\n")
                    process.stdin.flush()
                # The end of the stream, if the process died: then the kernel is compiled where it is called.
                process.stdout.readline()
                with self._changed:
                    self._compiling.discard(kernel.name)
                    self._changed.notify_all()
            process.stdin.close()

    def _take(self) -> Kernel | None:
        """Take a kernel whose callees are compiled; wait for one if there is none; None if none is left."""
        with self._changed:
            while self._left:
                undone = {kernel.name for kernel in self._left} | self._compiling
                for kernel in self._left:
                    if not any(callee.name in undone for callee in kernel.called):
                        self._left.remove(kernel)
                        self._compiling.add(kernel.name)
                        return kernel
                self._changed.wait()
            return None


def work() -> None:
    """Compile the kernels whose names come over standard input, and answer each with a line."""
    os.nice(int(sys.argv[1]))
    for line in sys.stdin:
        module, _, name = line.strip().partition(":")
        getattr(importlib.import_module(module), name).ready()
        print(flush=True)

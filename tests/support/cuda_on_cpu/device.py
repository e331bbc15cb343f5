"""The laboratory's kernels, compiled for this CPU, behind the laboratory's launch interface."""

import ctypes
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.lab import layout as lab_layout
from dbfs_workers.features.lab.device import CHAIN
from dbfs_workers.features.lab.kernels.sources import SOURCES
from tests.support.cuda_on_cpu.compiler import compiled, for_cpu

THREADS: Final = 64
"""Threads of a block: two warps, so that blocks have more than one, and tests take little time."""

_RUN: Final = """
extern "C" const char* run_grid(void* kernel, const dbfs::LabArguments* arguments, unsigned blocks, unsigned threads,
                                unsigned long long seed, unsigned accesses_a_turn, unsigned most_launches) {
  static std::string answer;
  const auto function = reinterpret_cast<void (*)(const dbfs::LabArguments)>(kernel);
  cuda_on_cpu::accesses_a_turn = accesses_a_turn;
  cuda_on_cpu::most_launches = most_launches;
  answer = cuda_on_cpu::run_with_children(blocks, threads, seed, [=] { function(*arguments); });
  return answer.c_str();
}
"""


class EmulatedError(RuntimeError):
    """Raised if a grid can't go on: threads wait at a barrier that others do not reach."""


@cache
def library() -> ctypes.CDLL:
    """Return the laboratory's kernels, and those of ``faulty.cu``, compiled for this CPU."""
    built = compiled(
        "cuda_on_cpu.h",
        *(source.path for source in SOURCES),
        "faulty.cu",
        "run_grid.h",
        made={lab_layout.HEADER_NAME: for_cpu(lab_layout.HEADER), "run_grid.h": _RUN},
        options=(f"-DDBFS_LAB_THREADS={THREADS}",),
    )
    loaded = ctypes.CDLL(str(built))
    loaded.run_grid.restype = ctypes.c_char_p
    return loaded


class EmulatedGpu:
    """See ``dbfs_workers.features.lab.device.Device``.

    Args:
        seed: orders the threads.
        accesses_a_turn: a thread lets others go first at one of so many accesses to memory that others may see; at 1
            threads go side by side, as the lanes of a warp do on a GPU.
        most_launches: kernels that one launch and its children may launch; the others are refused.
    """

    def __init__(self, seed: int = 0, accesses_a_turn: int = 8, most_launches: int = 1000) -> None:
        self.xp: ModuleType = np
        self.threads = THREADS
        self.multiprocessors = 3
        self.resident_threads = 4 * THREADS
        self.arguments: NDArray[np.void] = np.zeros(CHAIN, lab_layout.ARGUMENTS)
        self._library = library()
        self._seed = seed
        self._accesses_a_turn = accesses_a_turn
        self._most_launches = most_launches
        self.launches = 0
        self._chains: dict[Hashable, NDArray[np.void]] = {}

    def address(self, array: Any) -> int:
        """See ``Device``."""
        return int(array.ctypes.data)

    def launch(self, source: str, kernel: str, blocks: int, *, element: int = 0, cooperative: bool = False) -> None:
        """See ``Device``."""
        self.launches += 1
        function = ctypes.cast(getattr(self._library, kernel), ctypes.c_void_p)
        seed = ctypes.c_ulonglong(self._seed * 1_000_003 + self.launches)
        place = ctypes.c_void_p(self.arguments.ctypes.data + element * self.arguments.strides[0])
        turns = self._accesses_a_turn, self._most_launches
        answer = self._library.run_grid(function, place, blocks, self.threads, seed, *turns)
        if answer:
            raise EmulatedError(f"{source}, {kernel}: {answer.decode()}")

    def chain(self, same: Hashable, launches: Sequence[tuple[str, str, int]], prepare: Callable[[], None]) -> None:
        """See ``Device``: a chain that came before keeps its arguments, as a recorded one does."""
        if same in self._chains:
            self.arguments[:] = self._chains[same]
        else:
            prepare()
            self._chains[same] = self.arguments.copy()
        for element, (source, kernel, blocks) in enumerate(launches):
            self.launch(source, kernel, blocks, element=element)

    def write(self, array: Any, values: NDArray[Any]) -> None:
        """See ``Device``."""
        array[:] = values

    def read(self, array: Any) -> NDArray[Any]:
        """See ``Device``."""
        copied: NDArray[Any] = array.copy()
        return copied

"""The laboratory's kernels, compiled for this CPU, behind the laboratory's launch interface."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.cuda import lab_layout
from dbfs_workers.cuda.module import KERNEL_FOLDER
from dbfs_workers.lab.device import CHAIN

_HERE: Final = Path(__file__).parent
COMPILER: Final = shutil.which("g++") or ""
THREADS: Final = 64
"""Threads of a block: two warps, so that blocks have more than one, and tests take little time."""
# NVRTC's front end has an intrinsic for the address of a field; a C++ compiler has ``offsetof``.
_NVRTC_OFFSET: Final = "((u64)__INTADDR__(&((type*)0)->field))"
# Fibers jump between stacks. Some systems' compilers add checks that end the process at such a jump.
OPTIONS: Final = (
    *("-std=c++17", "-O1", "-shared", "-fPIC", "-w"),
    *("-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=0", "-fno-stack-protector"),
)
"""The compiler's options for a program of kernels and the emulator."""

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
    """Compile the laboratory's kernels for this CPU, into a folder of the system's temporary files; load them."""
    chosen = (*sorted((KERNEL_FOLDER / "lab").glob("*.cu")), _HERE / "faulty.cu")
    assert _NVRTC_OFFSET in lab_layout.HEADER
    layout = lab_layout.HEADER.replace(_NVRTC_OFFSET, "offsetof(type, field)")
    texts = [path.read_text() for path in (*sorted(KERNEL_FOLDER.rglob("*.cuh")), *chosen, _HERE / "cuda_on_cpu.h")]
    program = "\n".join([f'#include "{path}"' for path in (_HERE / "cuda_on_cpu.h", *chosen)] + [_RUN])
    options = [*OPTIONS, f"-DDBFS_LAB_THREADS={THREADS}"]
    key = hashlib.sha256("\0".join([layout, program, *texts, *options]).encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"dbfs-cuda-on-cpu-{os.getuid()}"
    built = folder / f"{key}.so"
    if not built.exists():
        with tempfile.TemporaryDirectory() as work:
            generated = Path(work) / "generated" / "lab.cuh"
            generated.parent.mkdir()
            generated.write_text(layout)
            text, made = Path(work) / "program.cpp", Path(work) / "made.so"
            text.write_text(program)
            includes = [f"-I{work}", f"-I{KERNEL_FOLDER}"]
            subprocess.run([COMPILER, *options, *includes, str(text), "-o", str(made)], check=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            partial = built.with_suffix(f".{os.getpid()}")
            shutil.copyfile(made, partial)
            partial.replace(built)
    loaded = ctypes.CDLL(str(built))
    loaded.run_grid.restype = ctypes.c_char_p
    return loaded


class EmulatedGpu:
    """See ``dbfs_workers.lab.device.Device``.

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

"""The launch interface of the laboratory: what an enactor needs of a device, and the GPU that implements it."""

from types import ModuleType
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.cuda.lab_layout import ARGUMENTS

# The argument of every kernel: one struct, by value.
_ARGUMENT: Final = np.dtype([("arguments", ARGUMENTS)])
CHAIN: Final = 128
"""The most launches whose arguments are written together."""


class Device(Protocol):
    """A place where kernels run, one after another.

    Attributes:
        xp: the module of its arrays: NumPy or CuPy.
        threads: threads of a block.
        multiprocessors: how many blocks run at once in any case.
        resident_threads: how many threads run at once at most.
        arguments: ``ARGUMENTS[CHAIN]``, the arguments of the next launches; the caller changes them in place.
    """

    xp: ModuleType
    threads: int
    multiprocessors: int
    resident_threads: int
    arguments: NDArray[np.void]

    def address(self, array: Any) -> int:
        """Return the address of an array's first element, for a kernel's arguments."""
        ...

    def launch(self, source: str, kernel: str, blocks: int, *, element: int = 0, cooperative: bool = False) -> None:
        """Launch a kernel with the arguments as they are now.

        Args:
            source: its file in ``cuda/kernels``.
            kernel: its name.
            blocks: blocks of the grid.
            element: which of the arguments the kernel gets.
            cooperative: whether all blocks must run at once, because they wait for each other.
        """
        ...

    def read(self, array: Any) -> NDArray[Any]:
        """Return a copy in host memory, after the launches so far."""
        ...


class Gpu:
    """The current GPU. See ``Device``.

    Args:
        threads: threads of a block.
        policy: the policy's numbers, which become constants of the kernels.
    """

    def __init__(self, threads: int, policy: "dict[str, int]") -> None:
        import cupy

        self.xp: ModuleType = cupy
        self.threads = threads
        about = cupy.cuda.Device().attributes
        self.multiprocessors = int(about["MultiProcessorCount"])
        self.resident_threads = self.multiprocessors * int(about["MaxThreadsPerMultiProcessor"])
        self._defines = defines(threads, policy)
        self._argument = np.zeros(CHAIN, _ARGUMENT)
        self.arguments: NDArray[np.void] = self._argument["arguments"]
        self._stream: int = cupy.cuda.get_current_stream().ptr
        self._launches: dict[tuple[str, str], Any] = {}

    def address(self, array: Any) -> int:
        """See ``Device``."""
        return int(array.data.ptr)

    def launch(self, source: str, kernel: str, blocks: int, *, element: int = 0, cooperative: bool = False) -> None:
        """See ``Device``."""
        from dbfs_workers.cuda.launch import Launch
        from dbfs_workers.cuda.module import load

        if (source, kernel) not in self._launches:
            function = load(source, self._defines, cooperative=cooperative).get_function(kernel)
            self._launches[source, kernel] = Launch(function, self._argument, cooperative=cooperative)
        self._launches[source, kernel](blocks, self.threads, 0, self._stream, element)

    def read(self, array: Any) -> NDArray[Any]:
        """See ``Device``."""
        copied: NDArray[Any] = array.get()
        return copied


def defines(threads: int, policy: "dict[str, int]") -> tuple[str, ...]:
    """Return the compiler's options that make a policy constant in a kernel."""
    numbers = {"threads": threads, **policy}
    return tuple(f"-DDBFS_LAB_{name.upper()}={number}" for name, number in numbers.items())

"""The launch interface of the laboratory: what an enactor needs of a device, and the GPU that implements it."""

from collections.abc import Callable, Hashable, Sequence
from types import ModuleType
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.lab.kernels.sources import lab_source
from dbfs_workers.features.lab.layout import ARGUMENTS
from dbfs_workers.search.cuda.module import Launch, load

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

    def launch(self, source: str, kernel: str, blocks: int, *, element: int = 0, cooperative: bool = False) -> None:
        """Launch a kernel with the arguments as they are now.

        Args:
            source: the name of its file in ``kernels``.
            blocks: blocks of the grid.
            element: which of the arguments the kernel gets.
            cooperative: whether all blocks must run at once, because they wait for each other.
        """

    def chain(self, same: Hashable, launches: Sequence[tuple[str, str, int]], prepare: Callable[[], None]) -> None:
        """Launch kernels one behind another, each with an element of the arguments, in their order.

        Args:
            same: equal for chains whose launches and arguments are equal; such chains may be recorded.
            launches: each kernel's file, name and blocks.
            prepare: sets the arguments; a recorded chain needs none.
        """

    def write(self, array: Any, values: NDArray[Any]) -> None:
        """Copy values from host memory to an array, before the next launch."""

    def read(self, array: Any) -> NDArray[Any]:
        """Return a copy in host memory, after the launches so far."""


class Gpu:
    """The current GPU. See ``Device``.

    A chain that comes a second time is recorded as a CUDA graph. On an H100 a launch of a small level takes 7 us of the
    GPU's time, and 10 to 20 us of the host's without the record.

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
        self._current: Any = cupy.cuda.get_current_stream()
        self._stream: int = self._current.ptr
        self._launches: dict[tuple[str, str], Any] = {}
        # The graph of each chain; None if the chain came once.
        self._chains: dict[Hashable, Any] = {}

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def launch(self, source: str, kernel: str, blocks: int, *, element: int = 0, cooperative: bool = False) -> None:
        if (source, kernel) not in self._launches:
            function = load(lab_source(source, self._defines), cooperative=cooperative).get_function(kernel)
            self._launches[source, kernel] = Launch(function, self._argument, cooperative=cooperative)
        self._launches[source, kernel](blocks, self.threads, 0, self._stream, element)

    def chain(self, same: Hashable, launches: Sequence[tuple[str, str, int]], prepare: Callable[[], None]) -> None:
        if self._chains.get(same) is None:
            prepare()
            if same not in self._chains:
                self._chains[same] = None
                self._launch_all(launches)
                return
            self._chains[same] = self._recorded(launches)
        self._chains[same].launch(self._current)

    def _recorded(self, launches: Sequence[tuple[str, str, int]]) -> Any:
        import cupy

        recording = cupy.cuda.Stream(non_blocking=True)
        self._stream = recording.ptr
        recording.begin_capture()
        try:
            self._launch_all(launches)
        finally:
            self._stream = self._current.ptr
            graph = recording.end_capture()
        return graph

    def _launch_all(self, launches: Sequence[tuple[str, str, int]]) -> None:
        for element, (source, kernel, blocks) in enumerate(launches):
            self.launch(source, kernel, blocks, element=element)

    def write(self, array: Any, values: NDArray[Any]) -> None:
        array.set(values)

    def read(self, array: Any) -> NDArray[Any]:
        copied: NDArray[Any] = array.get()
        return copied


def defines(threads: int, policy: "dict[str, int]") -> tuple[str, ...]:
    """Return the compiler's options that make a policy constant in a kernel."""
    numbers = {"threads": threads, **policy}
    return tuple(f"-DDBFS_LAB_{name.upper()}={number}" for name, number in numbers.items())

"""Results of the build tasks that stay in the memory of the worker's GPU, and the offers by which peers copy them.

A task frees another task's result early by emptying the lists in it: Dask holds the key, and so the object, for longer
than the arrays are needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
from dask.sizeof import sizeof
from numpy.typing import NDArray

Held = TypeVar("Held")

# Bytes of host memory that Dask counts for a result whose arrays are on the GPU.
_HOST_BYTES = 256


class GpuResident:
    """Base of results in GPU memory. Dask must not send or spill them, nor count their arrays as host memory."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is in GPU memory: it can't be pickled and stays on its worker")

    def __sizeof__(self) -> int:
        return _HOST_BYTES


class DeviceEdges(tuple[Any, Any]):
    """``InputEdges`` on the GPU: sources and targets, uint32."""


# Dask adds up the items of a tuple, arrays on the GPU among them, and ignores the tuple's own ``__sizeof__``.
sizeof.register(DeviceEdges, lambda _: _HOST_BYTES)


@dataclass
class DegreeCounts(GpuResident):
    """Degrees of a rank's edges.

    Attributes:
        degrees: one array, uint64[n]; empty once the degrees are freed.
    """

    degrees: list[Any]


@dataclass(frozen=True)
class GpuDegreeOrder(GpuResident):
    """A degree order on the GPU.

    Attributes:
        position, vertex: uint32[n] each, as in ``ordering.DegreeOrder``.
        rows: for each band, the first row that it takes and the one after the last.
    """

    position: Any
    vertex: Any
    rows: list[tuple[int, int]]


@dataclass
class BandEdges(GpuResident, Generic[Held]):
    """Directed edges of one band of rows: bins by owner (``BinnedKeys``), an owner's keys, or its rows (``CsrBand``).

    Attributes:
        read: input edges that the rank read; for an owner's keys and rows, those that all ranks read.
        rows: the owners' rows of this band: the first, and the one after the last.
        out: one item, the edges; empty once the next step has taken them.
        into: one item, the reversed edges, for in-edges; empty without in-edges or once the next step has taken them.
    """

    read: int
    rows: tuple[int, int]
    out: list[Held] = field(default_factory=list)
    into: list[Held] = field(default_factory=list)


@dataclass(frozen=True)
class Offer:
    """An array that peers copy parts of: mapped by CUDA IPC, or sent through the host.

    Attributes:
        memory: the IPC handle of the whole array, or one peer's part as a NumPy array.
        starts: int64, where each owner's part starts in ``memory``, and the end of the last part.
    """

    memory: bytes | NDArray[np.uint64]
    starts: NDArray[np.int64]

    @classmethod
    def make(cls, array: Any, starts: NDArray[np.int64], peer: int | None) -> Offer:
        """Offer ``array`` (uint64 on the GPU, in its own allocation) to one peer through the host, or to all (None).

        Errors as for ``device_memory.export_allocation``.
        """
        from dbfs_workers.search.cuda import device_memory

        if peer is None:
            return cls(device_memory.export_allocation(array), starts)
        part = array[starts[peer] : starts[peer + 1]].get()
        return cls(part, np.where(np.arange(starts.size) > peer, part.size, 0))

    def part(self, owner: int) -> slice:
        """Return the range of an owner's part in ``memory``, in items."""
        return slice(int(self.starts[owner]), int(self.starts[owner + 1]))

    def size(self, owner: int) -> int:
        """Return the number of items in an owner's part."""
        return int(self.starts[owner + 1] - self.starts[owner])

    def copy_part(self, owner: int, to: Any) -> None:
        """Fill ``to``, an array on the GPU, with an owner's part. Errors as for ``device_memory.mapped``."""
        from dbfs_workers.search.cuda import device_memory

        part = self.part(owner)
        if isinstance(self.memory, bytes):
            with device_memory.mapped(self.memory) as address:
                device_memory.copy_from(address + part.start * to.itemsize, to)
        else:
            to.set(self.memory[part])


@dataclass(frozen=True)
class BinOffer:
    """Offers of one rank's bins; attributes as there, ``into`` None without in-edges."""

    read: int
    out: Offer
    into: Offer | None

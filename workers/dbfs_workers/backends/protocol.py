"""What a backend provides: the phases of one level over plain arrays. Two files beside this one implement it."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.storage.partition import Csr, host_bytes
from dbfs_workers.storage.stripe import Stripe


@dataclass(frozen=True)
class EdgeFrontier:
    """The neighbours of a vertex frontier (Merrill 2012, section 4), duplicates and visited vertices included.

    Attributes:
        neighbours: uint32 internal ids.
        parents: uint32 internal ids of the frontier vertices they were reached from, as long as ``neighbours``; None
            where no predecessors are wanted.
    """

    neighbours: NDArray[np.uint32]
    parents: NDArray[np.uint32] | None

    def __sizeof__(self) -> int:
        return 64 + host_bytes(self.neighbours, self.parents)


@dataclass(frozen=True)
class OwnerBins:
    """Newly visited vertices by owner: owner ``o`` has ``rows[offsets[o]:offsets[o + 1]]``.

    Attributes:
        offsets: int64[p + 1].
        rows: uint32 local ids on the owner.
        parents: uint32 internal ids, as long as ``rows``; None where no predecessors are wanted.
    """

    offsets: NDArray[np.int64]
    rows: NDArray[np.uint32]
    parents: NDArray[np.uint32] | None


class OutgoingBins(Protocol):
    """Bins that are appended to, level by level (``dbfs_workers.exchange.protocol.Exchange``)."""

    bin_rows: NDArray[np.uint32]
    bin_parents: NDArray[np.uint32]
    bin_ends: NDArray[np.int64]


class Backend(Protocol):
    """The phases on one kind of device.

    Arrays are of the device's module (``xp``: NumPy, CuPy), which the annotations can't name; ``OwnerBins.offsets`` and
    ``OutgoingBins.bin_ends`` are NumPy's.
    """

    name: str
    xp: Any

    def expand(
        self,
        row_offsets: NDArray[np.int64],
        columns: NDArray[np.uint32],
        frontier: NDArray[np.uint32],
        first_id: int,
        with_parents: bool,
    ) -> EdgeFrontier:
        """Gather the neighbours of a frontier of local ids; ``first_id`` is the internal id of row 0."""
        ...

    def filter_partition(self, edges: EdgeFrontier, visited: NDArray[np.uint32], stripe: Stripe) -> OwnerBins:
        """Drop visited vertices and duplicates, mark the rest visited, and sort them into owner bins.

        ``visited`` is the rank's bitmap over all internal ids, uint32[stripe.words]; it is updated.
        """
        ...

    def contract(
        self,
        rows: NDArray[np.uint32],
        parents: NDArray[np.uint32] | None,
        own_visited: NDArray[np.uint32] | None,
        distance: int,
        distances: NDArray[np.int32],
        predecessors: NDArray[np.uint32] | None,
        discovered: NDArray[np.uint32],
    ) -> int:
        """Label a bin's vertices and put those that were new into ``discovered``; returns how many.

        ``own_visited`` is the rank's own slice of its bitmap, which drops what another rank (or this one) found first
        and is updated; None for the rank's own bin, whose vertices it has already tested and marked.
        """
        ...

    def top_down(
        self,
        edges: Csr,
        frontier: NDArray[np.uint32],
        first_id: int,
        visited: NDArray[np.uint32],
        bins: OutgoingBins,
        distance: int,
        distances: NDArray[np.int32],
        predecessors: NDArray[np.uint32] | None,
        discovered: NDArray[np.uint32],
    ) -> tuple[int, int, int]:
        """``expand``, ``filter_partition`` and the contraction of the own bin at once.

        The vertices discovered for others are appended to ``bins``; the own ones are labelled and put into
        ``discovered``.

        Returns:
            Edges inspected, own vertices discovered, vertices binned for others.
        """
        ...

    def bottom_up(
        self,
        parents: Csr,
        out_offsets: NDArray[np.int64],
        frontier_bits: NDArray[np.uint32],
        own_visited: NDArray[np.uint32],
        found_bits: NDArray[np.uint32],
        distance: int,
        distances: NDArray[np.int32],
        predecessors: NDArray[np.uint32] | None,
        discovered: NDArray[np.uint32],
    ) -> tuple[int, int, int]:
        """Label every unvisited row that has a parent in the frontier (Beamer 2012), and put it into ``discovered``.

        Every word of ``found_bits``, the rank's slice of the next frontier, is written.

        Returns:
            Edges inspected, vertices discovered, the sum of their out-degrees.
        """
        ...

    def mark(self, rows: NDArray[np.uint32], bits: NDArray[np.uint32]) -> None:
        """Make a bitmap of a queue, writing every word."""
        ...

    def absorb(
        self, slice_bits: NDArray[np.uint32], frontier_bits: NDArray[np.uint32], visited: NDArray[np.uint32]
    ) -> None:
        """Take a rank's slice of the frontier into one's own bitmaps of it and of what is visited."""
        ...

    def mark_unreachable(self, parents: Csr, bits: NDArray[np.uint32]) -> None:
        """Set the bits of the rows that no edge leads to."""
        ...

    def edge_count(self, row_offsets: NDArray[np.int64], frontier: NDArray[np.uint32]) -> int:
        """Sum of the degrees of local ids."""
        ...

    def typed_errors(self, who: str) -> AbstractContextManager[None]:
        """Raises the device's errors as dbfs's, beginning with ``who``: see ``cuda.failures``."""
        ...

    def to_device(self, array: NDArray[Any]) -> Any:
        """A NumPy array as the device's."""
        ...

    def to_host(self, array: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """An array as NumPy's: copied into ``out`` where that is given (of the same shape and dtype)."""
        ...

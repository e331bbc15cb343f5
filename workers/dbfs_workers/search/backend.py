"""The interface of a backend: the phases of one level on one rank. ``cpu`` and ``cuda`` implement it."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.team import Team
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import Csr, Partition, host_bytes
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import Stripe


@dataclass(frozen=True)
class EdgeFrontier:
    """The neighbours of a vertex frontier (Merrill 2012, section 4), duplicates and visited vertices included.

    Attributes:
        neighbours: uint32 internal ids.
        parents: uint32 internal ids of the frontier vertices whose neighbours they are, as long as ``neighbours``;
            None if the run records no predecessors.
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
        parents: uint32 internal ids, as long as ``rows``; None if the run records no predecessors.
    """

    offsets: NDArray[np.int64]
    rows: NDArray[np.uint32]
    parents: NDArray[np.uint32] | None


class OutgoingBins(Protocol):
    """The bins that a rank fills level by level for the other ranks; an ``Exchange`` sends them at the next crossing.

    Attributes:
        bin_rows: uint32[p * entries], local ids on the owner; the bin of owner ``o`` starts at ``o * entries``. On GPUs
            ``entries`` is ``n_local``.
        bin_parents: uint32[p * entries], the parents' internal ids; may be empty if the run records no predecessors.
        bin_ends: int64[p], number of entries of each bin, a NumPy array on every backend.
    """

    bin_rows: NDArray[np.uint32]
    bin_parents: NDArray[np.uint32]
    bin_ends: NDArray[np.int64]


class Backend(Protocol):
    """The phases of a level on one kind of device.

    ``expand``, ``filter_partition`` and ``contract`` serve the taskgraph engine, a task each. The resident loop runs
    the three as one, ``top_down``, and contracts the peers' bins. All arrays are of the device's module, except
    ``OwnerBins.offsets`` and ``OutgoingBins.bin_ends``.

    Attributes:
        name: the name that ``backends.get`` takes.
        xp: the device's array module, NumPy or CuPy.
    """

    name: str
    xp: Any

    def expand(self, edges: Csr, frontier: NDArray[np.uint32], first_id: int, with_parents: bool) -> EdgeFrontier:
        """Gather the neighbours of a frontier of local ids; ``first_id`` is the internal id of row 0."""

    def filter_partition(self, edges: EdgeFrontier, visited: NDArray[np.uint32], stripe: Stripe) -> OwnerBins:
        """Drop visited vertices and duplicates, mark the rest visited, and sort them into owner bins.

        ``visited`` is the rank's bitmap over all internal ids, uint32[stripe.words]; it is updated. On a GPU nothing
        claims a vertex (Merrill 2012, section 4.2): a mark may be lost, and a vertex be in a bin more than once.
        """

    def contract(
        self,
        rows: NDArray[np.uint32],
        parents: NDArray[np.uint32] | None,
        own_visited: NDArray[np.uint32],
        distance: int,
        labels: RankLabels,
        discovered: NDArray[np.uint32],
        *,
        own: bool = False,
        team: Team | None = None,
    ) -> int:
        """Label the new vertices of a bin and write each of them into ``discovered`` once; return their number.

        Args:
            rows: local ids on this rank.
            parents: their parents' internal ids; None if the run records no predecessors.
            own_visited: this rank's slice of its bitmap. It drops vertices found before, and is updated.
            distance: the label of the new vertices.
            labels: this rank's labels; updated.
            discovered: has room for all new vertices.
            own: whether this is the rank's own bin, whose vertices ``filter_partition`` has tested and marked.
            team: threads that share the work on a large bin, on the CPU.
        """

    def top_down(
        self, scratch: Scratch, labels: RankLabels, distance: int, bins: OutgoingBins
    ) -> tuple[int, int, int, bool]:
        """Run ``expand``, ``filter_partition`` and the contraction of the own bin in one pass over the frontier.

        The rank's own discoveries are labelled with ``distance`` and written into ``scratch.next_queue``. Vertices of
        other ranks are appended to ``bins``. The pass stops before a bin that is full; the next call goes on there
        (``scratch.resume``).

        Returns:
            Edges inspected, own vertices discovered, vertices binned for other ranks, whether a bin was full.
        """

    def bottom_up(
        self, scratch: Scratch, labels: RankLabels, distance: int, found_bits: NDArray[np.uint32]
    ) -> tuple[int, int, int]:
        """Label every unvisited row that has a parent in ``scratch.frontier_bits`` (Beamer 2012, section 3).

        The rows are labelled with ``distance``, marked visited and written into ``scratch.next_queue``. Every word of
        ``found_bits``, uint32[words_local], is written: the rank's slice of the next frontier.

        Returns:
            Edges inspected, vertices discovered, the sum of their out-degrees.
        """

    def mark(self, rows: NDArray[np.uint32], bits: NDArray[np.uint32]) -> None:
        """Write the bitmap of a queue of local ids into ``bits``, uint32[words_local], every word of it."""

    def absorb(
        self, slice_bits: NDArray[np.uint32], frontier_bits: NDArray[np.uint32], visited: NDArray[np.uint32]
    ) -> None:
        """Copy a rank's slice of the frontier to ``frontier_bits`` and add it to ``visited``, slices of one size."""

    def edge_count(self, partition: Partition, frontier: NDArray[np.uint32]) -> int:
        """Return the sum of the out-degrees of local ids."""

    def typed_errors(self, where: str) -> AbstractContextManager[None]:
        """Return a context that raises a device's errors as dbfs's, beginning with ``where``: see ``cuda.failures``."""

    def to_device(self, array: NDArray[Any]) -> Any:
        """Return a NumPy array as the device's."""

    def to_host(self, array: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the device's array as NumPy's; copied into ``out`` (same shape and dtype) if given."""

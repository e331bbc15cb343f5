"""The interface of the operators of a level of a 2-D partition on one rank, and those of a device.

``on_cpu`` and ``on_gpu`` implement the interface, and ``levels`` calls it. Unless said otherwise, arrays are of the
device's module.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.grid.scratch import GridScratch
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.partition.labels import RankLabels


class GridOperators(Protocol):
    """The operators of a level of a 2-D partition on one kind of device."""

    def top_down(self, scratch: GridScratch, frontiers: Iterable[NDArray[np.uint32]], *, predecessors: bool) -> int:
        """Visit the neighbours of the column's frontier, and list the new ones by owner; return the edges inspected.

        Args:
            scratch: the rank's working memory. ``visited``, ``found`` and ``found_ends`` are written, and ``parents``.
            frontiers: by rank of the column, its part of the frontier: local ids there. Each is read before the next.
            predecessors: whether parents are recorded.
        """

    def enlist(self, scratch: GridScratch, frontier: NDArray[np.uint32], *, predecessors: bool) -> int:
        """Do as ``top_down``, with the column's frontier as uint32[rows * words_local], a bit for each vertex."""

    def bottom_up(self, scratch: GridScratch, *, predecessors: bool) -> int:
        """Search the row's unvisited vertices for parents in ``scratch.frontier_bits``; return the edges inspected.

        See ``top_down`` for the arguments and the arrays written.
        """

    def contract(
        self, scratch: GridScratch, labels: RankLabels, distance: int, found: Iterable[tuple[int, NDArray[np.uint32]]]
    ) -> tuple[int, int]:
        """Label the rank's new rows among those that the ranks of its grid row found; write them into ``next_queue``.

        Args:
            scratch: the rank's working memory.
            labels: the rank's labels; the distances are updated.
            distance: the label of the new vertices.
            found: columns of the finders, and local ids. The first entry has this rank's own finds, all of them new.
                Each entry is read before the next.

        Returns:
            The number of new vertices, and the sum of their out-degrees.
        """

    def rows_by_finder(self, scratch: GridScratch, labels: RankLabels) -> list[NDArray[np.uint32]]:
        """Return the rows with a distance above 0, by the columns of their finders; each list ascends."""

    def unpack(self, bits: NDArray[np.uint32], rows: NDArray[np.uint32]) -> int:
        """Write the numbers of the set bits into ``rows``, ascending; return their number."""


def operators_of(backend: Backend) -> GridOperators:
    """Return the operators of a backend's device."""
    if backend.name == "cpu":
        from dbfs_workers.features.grid.on_cpu import CpuGrid

        return CpuGrid()
    from dbfs_workers.features.grid.on_gpu import CudaGrid
    from dbfs_workers.search.cuda.backend import CudaBackend

    assert isinstance(backend, CudaBackend)
    return CudaGrid(backend.xp, backend.frontier_edges)

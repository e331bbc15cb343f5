"""The operators of the 2-D partition as Numba kernels over NumPy arrays: see ``grid_kernels``."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.backends import cpu_resident_kernels as resident_kernels
from dbfs_workers.backends import grid_kernels as kernels
from dbfs_workers.storage.grid_scratch import GridScratch
from dbfs_workers.storage.labels import RankLabels

_NONE = np.empty(0, np.uint32)


class CpuGrid:
    """The ``GridBackend`` on one CPU core."""

    xp: Any = np

    def top_down(self, scratch: GridScratch, frontiers: Iterable[NDArray[np.uint32]], *, predecessors: bool) -> int:
        """Reads 4 bytes of columns and probes one bit an edge, reads 16 bytes of offsets a vertex."""
        stripe, rank, edges = scratch.stripe, scratch.partition.rank, 0
        row_first = (rank - scratch.column) * stripe.n_local
        peers = scratch.grid.column_of(rank)
        for peer, csr, frontier in zip(peers, scratch.blocks.out, frontiers, strict=True):
            edges += kernels.top_down(
                csr.row_offsets,
                csr.columns,
                frontier,
                peer * stripe.n_local,
                row_first,
                scratch.visited,
                scratch.parents if predecessors else _NONE,
                scratch.found,
                scratch.found_ends,
            )
        return edges

    def bottom_up(self, scratch: GridScratch, *, predecessors: bool) -> int:
        """Reads 16 bytes of offsets a row, and 4 bytes and one bit an edge up to the row's first parent."""
        words, edges = scratch.stripe.words_local, 0
        assert scratch.blocks.into is not None
        assert scratch.empty is not None
        for c, csr in enumerate(scratch.blocks.into):
            own = slice(c * words, (c + 1) * words)
            edges += kernels.bottom_up(
                csr.row_offsets,
                csr.columns,
                scratch.frontier_bits,
                scratch.empty[own],
                scratch.visited[own],
                c,
                scratch.column,
                scratch.grid.columns,
                scratch.parents if predecessors else _NONE,
                scratch.found,
                scratch.found_ends,
            )
        return edges

    def contract(
        self, scratch: GridScratch, labels: RankLabels, distance: int, found: Iterable[tuple[int, NDArray[np.uint32]]]
    ) -> tuple[int, int]:
        """Reads 4 bytes and probes one bit a vertex found; writes 10 bytes a new one."""
        queue, size = scratch.next_queue, 0
        for finder, rows in found:
            size += kernels.contract(
                rows,
                scratch.own_visited,
                finder == scratch.column,
                finder,
                distance,
                labels.distances,
                scratch.finders,
                queue[size:],
            )
        return size, int(scratch.degrees[queue[:size]].sum())

    def rows_by_finder(self, scratch: GridScratch, labels: RankLabels) -> list[NDArray[np.uint32]]:
        """Reads 6 bytes a row, twice."""
        columns = scratch.grid.columns
        rows, starts = np.empty(scratch.stripe.n_local, np.uint32), np.zeros(columns + 1, np.int64)
        kernels.sort_by_finder(labels.distances, scratch.finders, rows, starts)
        return [rows[starts[c] : starts[c + 1]] for c in range(columns)]

    def mark(self, rows: NDArray[np.uint32], bits: NDArray[np.uint32]) -> None:
        """Reads 4 bytes a vertex, writes one bit a row of the rank."""
        resident_kernels.mark(rows, bits)

    def unpack(self, bits: NDArray[np.uint32], rows: NDArray[np.uint32]) -> int:
        """Reads one bit a row, writes 4 bytes a vertex."""
        return int(kernels.unpack(bits, rows))

    def to_device(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the array itself."""
        return array

    def to_host(self, array: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
        """Return ``out``, with the array's copy."""
        np.copyto(out, array)
        return out

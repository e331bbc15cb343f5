"""The operators of the 2-D partition as the CUDA kernels of ``features/grid/kernels/grid.cu``, over CuPy arrays.

All launches go to the default stream. A search or a contraction returns when its counts are on the host. The order of
the vertices in a list or a queue differs from run to run, and so does the valid parent that a vertex gets.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.grid.kernels.sources import GRID
from dbfs_workers.features.grid.scratch import GridScratch
from dbfs_workers.search.cuda.launch_sizes import LINE_WORDS, MOST_BLOCKS, SEARCH_WORDS, THREADS, WARP, blocks_for
from dbfs_workers.search.cuda.module import load
from dbfs_workers.search.partition.labels import RankLabels

KERNELS: Final = ("top_down", "enlist", "bottom_up", "contract", "count_bits", "unpack")
_NULL: Final = np.uint64(0)


class CudaGrid:
    """The ``GridOperators`` on one GPU.

    Args:
        xp: CuPy.
        frontier_edges: see ``CudaBackend``.
    """

    def __init__(self, xp: Any, frontier_edges: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self.xp = xp
        self._frontier_edges = frontier_edges
        self._kernels = self._load()

    def top_down(self, scratch: GridScratch, frontiers: Iterable[NDArray[np.uint32]], *, predecessors: bool) -> int:
        """Reads 4 bytes and probes one bit an edge, reads 64 bytes a vertex and writes 28; writes only discoveries."""
        (edges,) = scratch.blocks.out
        places = places_of(scratch, frontiers)
        size = places.size
        starts, ends = self._frontier_edges(edges.row_offsets, places)
        sums = self.xp.zeros((1 + scratch.grid.columns, LINE_WORDS), np.uint64)
        self._launch(
            "top_down",
            # All blocks for any frontier: see ``CudaBackend.top_down``.
            MOST_BLOCKS * THREADS if size else 0,
            places,
            starts,
            ends,
            np.int64(size),
            edges.columns,
            _row_first(scratch),
            *self._column(scratch),
            scratch.visited,
            scratch.parents if predecessors else _NULL,
            scratch.found,
            sums,
        )
        return self._take_sums(scratch, sums)

    def enlist(self, scratch: GridScratch, frontier: NDArray[np.uint32], *, predecessors: bool) -> int:
        """Reads a bit a vertex of the column, 16 bytes a list, and 4 bytes and one bit an edge."""
        (edges,) = scratch.blocks.out
        sums = self.xp.zeros((1 + scratch.grid.columns, LINE_WORDS), np.uint64)
        self._launch(
            "enlist",
            frontier.size * WARP,
            edges.row_offsets,
            edges.columns,
            frontier,
            np.uint32(frontier.size),
            _row_first(scratch),
            *self._column(scratch),
            scratch.visited,
            scratch.parents if predecessors else _NULL,
            scratch.found,
            sums,
        )
        return self._take_sums(scratch, sums)

    def bottom_up(self, scratch: GridScratch, *, predecessors: bool) -> int:
        """Reads 16 bytes of offsets a row, and 4 bytes and one bit an edge up to the row's first parent."""
        assert scratch.blocks.into is not None
        (edges,) = scratch.blocks.into
        words = scratch.visited.size
        sums = self.xp.zeros((1 + scratch.grid.columns, LINE_WORDS), np.uint64)
        self._launch(
            "bottom_up",
            -(-words // SEARCH_WORDS) * WARP,
            edges.row_offsets,
            edges.columns,
            scratch.frontier_bits,
            scratch.empty,
            np.uint32(words),
            *self._column(scratch),
            scratch.visited,
            scratch.parents if predecessors else _NULL,
            scratch.found,
            sums,
        )
        return self._take_sums(scratch, sums)

    def contract(
        self, scratch: GridScratch, labels: RankLabels, distance: int, found: Iterable[tuple[int, NDArray[np.uint32]]]
    ) -> tuple[int, int]:
        """Reads 4 bytes and probes one bit a vertex found; reads 8 bytes a new one, and writes 10."""
        sums = self.xp.zeros((2, LINE_WORDS), np.uint64)
        for finder, rows in found:
            self._launch(
                "contract",
                rows.size,
                rows,
                np.int64(rows.size),
                _NULL if finder == scratch.column else scratch.own_visited,
                np.uint32(finder),
                np.int32(distance),
                labels.distances,
                scratch.finders,
                scratch.next_queue,
                scratch.degrees,
                sums,
            )
        size, degrees = sums.get()[:, 0].tolist()
        return size, degrees

    def rows_by_finder(self, scratch: GridScratch, labels: RankLabels) -> list[NDArray[np.uint32]]:
        """Reads 6 bytes a row for each column of the grid."""
        visited = labels.distances > 0
        return [
            self.xp.flatnonzero(visited & (scratch.finders == column)).astype(np.uint32)
            for column in range(scratch.grid.columns)
        ]

    def unpack(self, bits: Any, rows: Any) -> int:
        """Reads 16 bytes a word and writes 8, and 4 bytes a vertex."""
        counts = self.xp.empty(bits.size, np.int64)
        self._launch("count_bits", bits.size, bits, np.int64(bits.size), counts)
        ends = self.xp.cumsum(counts)
        self._launch("unpack", bits.size, bits, np.int64(bits.size), ends, rows)
        return int(ends[-1])

    def _load(self) -> dict[str, Any]:
        """Return the kernels by name; looked up once, since a look-up at every launch costs time."""
        module = load(GRID)
        return {name: module.get_function(f"dbfs_grid_{name}") for name in KERNELS}

    def _column(self, scratch: GridScratch) -> tuple[np.uint32, np.uint32, np.uint32]:
        """Return a kernel's arguments about the rank's column of the grid."""
        return np.uint32(scratch.column), np.uint32(scratch.grid.columns), np.uint32(scratch.stripe.n_local)

    def _take_sums(self, scratch: GridScratch, sums: Any) -> int:
        """Write the lengths of the lists of found vertices; return the edges inspected."""
        inspected, *ends = sums.get()[:, 0].tolist()
        scratch.found_ends[:] = ends
        return int(inspected)

    def _launch(self, kernel: str, threads: int, *arguments: Any) -> None:
        if threads:
            self._kernels[kernel]((blocks_for(threads),), (THREADS,), arguments)


def _row_first(scratch: GridScratch) -> np.uint32:
    """Return the internal id of the first place of the rank's row of the grid."""
    return np.uint32((scratch.partition.rank - scratch.column) * scratch.stripe.n_local)


def places_of(scratch: GridScratch, frontiers: Iterable[NDArray[np.uint32]]) -> Any:
    """Return the places of the column's frontier among its vertices, given local ids by rank of the column."""
    n_local = scratch.stripe.n_local
    places, size = scratch.xp.empty(scratch.grid.rows * n_local, np.uint32), 0
    for row, frontier in enumerate(frontiers):
        end = size + frontier.size
        places[size:end] = frontier
        places[size:end] += np.uint32(row * n_local)
        size = end
    return places[:size]

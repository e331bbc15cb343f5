"""The operators of the 2-D partition as Numba kernels over NumPy arrays: see ``grid_kernels``."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.grid import team as grid_team
from dbfs_workers.features.grid.kernels import grid as kernels
from dbfs_workers.features.grid.scratch import GridScratch
from dbfs_workers.search.cpu import team_calls as calls
from dbfs_workers.search.partition.labels import RankLabels

_NONE = np.empty(0, np.uint32)


class CpuGrid:
    """The ``GridOperators`` on CPU cores: one, or for large levels the threads of the scratch's team."""

    def top_down(self, scratch: GridScratch, frontiers: Iterable[NDArray[np.uint32]], *, predecessors: bool) -> int:
        """Reads 4 bytes of columns and probes one bit an edge, reads 16 bytes of offsets a vertex."""
        stripe, rank, edges = scratch.stripe, scratch.partition.rank, 0
        parents = scratch.parents if predecessors else _NONE
        peers = scratch.grid.column_of(rank)
        for peer, csr, frontier in zip(peers, scratch.blocks.out, frontiers, strict=True):
            firsts = peer * stripe.n_local, (rank - scratch.column) * stripe.n_local
            if scratch.team is not None and grid_team.takes_top_down(csr, frontier):
                edges += grid_team.top_down(scratch.team, scratch, csr, frontier, firsts, parents)
                continue
            lists = scratch.visited, parents, scratch.found, scratch.found_ends
            edges += kernels.top_down(csr.row_offsets, csr.columns, frontier, *firsts, *lists)
        return edges

    def enlist(self, scratch: GridScratch, frontier: NDArray[np.uint32], *, predecessors: bool) -> int:
        """Lists the bits of one rank after another, 4 bytes a vertex; else reads as ``top_down`` does."""
        words, rows = scratch.stripe.words_local, np.empty(scratch.stripe.n_local, np.uint32)
        slices = (frontier[first : first + words] for first in range(0, frontier.size, words))
        listed = (rows[: self.unpack(bits, rows)] for bits in slices)
        return self.top_down(scratch, listed, predecessors=predecessors)

    def bottom_up(self, scratch: GridScratch, *, predecessors: bool) -> int:
        """Reads 16 bytes of offsets a row, and 4 bytes and one bit an edge up to the row's first parent."""
        words, n_local, edges = scratch.stripe.words_local, scratch.stripe.n_local, 0
        assert scratch.blocks.into is not None
        assert scratch.empty is not None
        for c, csr in enumerate(scratch.blocks.into):
            empty, visited = (bits[c * words : (c + 1) * words] for bits in (scratch.empty, scratch.visited))
            parents, found = (ids[c * n_local : (c + 1) * n_local] for ids in (scratch.parents, scratch.found))
            parents = parents if predecessors else _NONE
            if scratch.team is not None and calls.takes_search(visited, empty):
                inspected, count = grid_team.bottom_up(scratch.team, scratch, csr, empty, visited, parents, found)
            else:
                bits = scratch.frontier_bits, empty, visited
                place = scratch.column, scratch.grid.columns
                inspected, count = kernels.bottom_up(csr.row_offsets, csr.columns, *bits, *place, parents, found)
            scratch.found_ends[c] = count
            edges += inspected
        return edges

    def contract(
        self, scratch: GridScratch, labels: RankLabels, distance: int, found: Iterable[tuple[int, NDArray[np.uint32]]]
    ) -> tuple[int, int]:
        """Reads 4 bytes and probes one bit a vertex found; reads 8 bytes a new one, and writes 10."""
        queue, size, degrees = scratch.next_queue, 0, 0
        for finder, rows in found:
            if scratch.team is not None and rows.size >= calls.LEAST_ENTRIES:
                new, of_new = grid_team.contract(scratch.team, scratch, labels, rows, finder, distance, queue[size:])
            else:
                new, of_new = kernels.contract(
                    rows,
                    grid_team.to_look_at(scratch, finder),
                    finder,
                    distance,
                    labels.distances,
                    scratch.finders,
                    scratch.degrees,
                    queue[size:],
                )
            size, degrees = size + new, degrees + of_new
        return size, degrees

    def rows_by_finder(self, scratch: GridScratch, labels: RankLabels) -> list[NDArray[np.uint32]]:
        """Reads 6 bytes a row, twice."""
        columns = scratch.grid.columns
        rows, starts = np.empty(scratch.stripe.n_local, np.uint32), np.zeros(columns + 1, np.int64)
        kernels.sort_by_finder(labels.distances, scratch.finders, rows, starts)
        return [rows[starts[c] : starts[c + 1]] for c in range(columns)]

    def unpack(self, bits: NDArray[np.uint32], rows: NDArray[np.uint32]) -> int:
        """Reads one bit a row, writes 4 bytes a vertex."""
        return int(kernels.unpack(bits, rows))

"""The sweeps over the shortest paths from a block of sources, as the Numba kernels of ``kernels.path_sums``."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.team import Team
from dbfs_workers.features.batches.kernels import path_sums as kernels
from dbfs_workers.features.batches.storage import SWEPT_SOURCES
from dbfs_workers.search.cpu import team_calls
from dbfs_workers.search.partition.labels import in_type
from dbfs_workers.search.partition.partition import Csr


class CpuPathSums:
    """The ``PathSums`` on CPU cores.

    Args:
        out, into: the out-edges and in-edges of all rows.
        team: threads that share the rows of a level; None for one.
        of_edges: whether the sums of edges are wanted.
    """

    lanes = SWEPT_SOURCES

    def __init__(self, out: Csr, into: Csr, team: Team | None, *, of_edges: bool) -> None:
        rows = out.row_offsets.size - 1
        self._out, self._into, self._team, self._of_edges = out, into, team, of_edges
        self._live = np.zeros(-(-rows // 32), np.uint32)
        self._front, self._values = np.zeros(rows * self.lanes), np.zeros(rows * self.lanes)
        self.sums = np.zeros(rows * 3)
        self.edge_sums = np.zeros(2 * out.columns.size * of_edges)

    def sweep(self, distances: NDArray[Any]) -> bool:
        of_all = np.full((len(distances), self.lanes), -1, np.int32)
        of_all[:, : distances.shape[1]] = in_type(distances, np.dtype(np.int32))
        flat = of_all.reshape(-1)
        levels = _lists(flat, int(of_all.max()))
        self._values[flat == 0] = 1.0
        self._show(levels[0], 0, flat)
        for level, rows in enumerate(levels[1:], 1):
            if any(self._each(self._into, rows, level, flat, kernels.count_paths)):
                return True
            self._show(rows, level, flat)
        self._live[:] = 0
        # The sources themselves lie on no path from them, but the first edge of each path begins there.
        for level in range(len(levels) - 1, -1, -1):
            around = self._out, levels[level], level, flat
            if self._of_edges:
                self._each(*around, kernels.add_edge_dependencies, self.edge_sums)
            if level:
                self._each(*around, kernels.add_dependencies, self.sums)
                self._show(levels[level], level, flat)
        return False

    def _each(
        self,
        edges: Csr,
        rows: NDArray[np.uint32],
        level: int,
        distances: NDArray[np.int32],
        kernel: Callable[..., Any],
        *sums: NDArray[np.float64],
    ) -> list[Any]:
        """Call a kernel for parts of the rows of a level."""

        def part(begin: int, end: int) -> Any:
            around = level, distances, self._live, self._front, self._values, np.empty(self.lanes)
            return kernel(*edges.rows, rows[begin:end], *around, *sums)

        return team_calls.each(self._team, team_calls.even_bounds(self._team, rows.size), part)

    def _show(self, rows: NDArray[np.uint32], level: int, distances: NDArray[np.int32]) -> None:
        """Make the rows of a level the front."""
        self._live[:] = 0
        kernels.show(rows, level, distances, self._values, self._live, self._front)


def _lists(distances: NDArray[np.int32], depth: int) -> list[NDArray[np.uint32]]:
    """Return for each distance up to ``depth`` the rows that have it from some source."""
    ends = np.zeros(depth + 1, np.int64)
    kernels.list_rows(distances, np.full_like(ends, -1), ends, np.empty(0, np.uint32))
    bounds: Any = np.cumsum([0, *ends])
    rows = np.empty(bounds[-1], np.uint32)
    kernels.list_rows(distances, np.full_like(ends, -1), bounds[:-1].copy(), rows)
    return np.split(rows, bounds[1:-1])

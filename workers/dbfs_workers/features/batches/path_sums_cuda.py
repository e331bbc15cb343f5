"""The sweeps over the shortest paths from a block of sources, as the CUDA kernels of ``kernels/path_sums.cu``.

All launches go to the default stream.
"""

import itertools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from dbfs_workers.features.batches.kernels.sources import PATH_SUMS
from dbfs_workers.search.cuda.launch_sizes import THREADS, blocks_for
from dbfs_workers.search.cuda.module import placed_launches
from dbfs_workers.search.partition.labels import unreached_of
from dbfs_workers.search.partition.partition import Csr

KERNELS: Final = ("list_rows", "add_up", "finish")
_WARP: Final = 32
# Edges that a warp takes at a time, ``kWarpEdges`` of ``search/cuda/kernels/phases/edges.cuh``, by its lanes.
_EDGES_A_LANE: Final = 16


class CudaPathSums:
    """The ``PathSums`` on one GPU.

    Args:
        xp: CuPy.
        frontier_edges: see ``CudaBackend``.
        out, into: the out-edges and in-edges of all rows.
        of_edges: whether the sums of edges are wanted.
    """

    lanes = _WARP

    def __init__(
        self, xp: Any, frontier_edges: Callable[[Any, Any], tuple[Any, Any]], out: Csr, into: Csr, *, of_edges: bool
    ) -> None:
        self.xp, self._frontier_edges, self._out, self._into = xp, frontier_edges, out, into
        self._launches = self._load()
        rows = out.row_offsets.size - 1
        self._numbers, self._totals = xp.zeros(rows * self.lanes), xp.zeros(rows * self.lanes)
        self.sums = xp.zeros(rows * 3)
        self.edge_sums = xp.zeros(2 * out.columns.size * of_edges)

    def sweep(self, distances: Any) -> bool:
        xp, rows = self.xp, len(distances)
        of_all = xp.full((rows, self.lanes), unreached_of(distances.dtype), distances.dtype)
        of_all[:, : distances.shape[1]] = distances
        levels = self._levels(of_all)
        self._numbers[:] = (of_all == 0).reshape(-1)
        given = of_all, of_all.itemsize
        for level, (listed, size) in enumerate(levels[1:], 1):
            self._add_up(self._into, listed, size, given, level, -1, self._numbers, 0)
        if not bool(xp.isfinite(self._numbers).all()):
            return True
        for level in range(len(levels) - 1, -1, -1):
            listed, size = levels[level]
            # The sources themselves lie on no path from them, but the first edge of each path begins there.
            if level or self.edge_sums.size:
                edge_sums = self.edge_sums if self.edge_sums.size else 0
                self._add_up(self._out, listed, size, given, level, 1, self._totals, edge_sums)
            if level:
                self._launch(
                    "finish", _WARP * size, listed, size, *given, level, self._numbers, self._totals, self.sums
                )
        self._totals[:] = 0
        return False

    def _levels(self, distances: Any) -> list[tuple[Any, int]]:
        """Return for each distance the rows that have it from some source, and their number."""
        xp, rows = self.xp, len(distances)
        end = xp.zeros(1, np.uint64)
        self._launch("list_rows", _WARP * rows, distances, distances.itemsize, rows, 0, end)
        keys = xp.empty(int(end.item()), np.uint64)
        end[:] = 0
        self._launch("list_rows", _WARP * rows, distances, distances.itemsize, rows, keys, end)
        keys = xp.sort(keys)
        depth = int(keys[-1]) >> 32
        bounds = xp.searchsorted(keys, xp.arange(depth + 2, dtype=np.uint64) << np.uint64(32)).tolist()
        listed = keys.astype(np.uint32)
        return [(listed[first:last], last - first) for first, last in itertools.pairwise(bounds)]

    def _add_up(
        self,
        edges: Csr,
        rows: Any,
        size: int,
        given: tuple[Any, int],
        level: int,
        step: int,
        totals: Any,
        edge_sums: Any,
    ) -> None:
        starts, ends = self._frontier_edges(edges.row_offsets, rows)
        total = int(ends[-1]) if size else 0
        self._launch(
            "add_up",
            -(-total // _EDGES_A_LANE),
            rows,
            starts,
            ends,
            size,
            edges.columns,
            *given,
            level,
            step,
            self._numbers,
            totals,
            edge_sums,
        )

    def _load(self) -> Callable[..., None]:
        """Return what launches the kernels."""
        return placed_launches(PATH_SUMS, "dbfs_path_sums_", KERNELS)

    def _launch(self, kernel: str, threads: int, *arguments: Any) -> None:
        if threads:
            self._launches(kernel, blocks_for(threads), THREADS, *arguments)

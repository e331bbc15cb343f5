"""The phases of a level on CuPy arrays, one launch or two each: the CUDA side of ``backends/protocol.py``."""

from typing import Any, Final

import numpy as np

from dbfs_workers.backends.protocol import EdgeFrontier, OwnerBins
from dbfs_workers.cuda.module import PHASE_DEFINES, load
from dbfs_workers.errors import GraphTooLargeError
from dbfs_workers.stripe import Stripe

THREADS: Final = 256
# Blocks enough to fill any GPU; threads then stride.
MOST_BLOCKS: Final = 132 * 16
# Owners are bytes, and 255 means "dropped".
MOST_RANKS: Final = 255


class CudaPhases:
    """A backend (``Backend`` of ``backends/protocol.py``) on the current GPU. Orders within a bin are not fixed."""

    name = "cuda"

    def __init__(self) -> None:
        import cupy

        self.xp: Any = cupy
        module = load("phases.cu", PHASE_DEFINES)
        self._expand = module.get_function("dbfs_expand")
        self._filter = module.get_function("dbfs_filter")
        self._partition = module.get_function("dbfs_partition")
        self._contract = module.get_function("dbfs_contract")

    @staticmethod
    def _launch(kernel: Any, items: int, *arguments: Any) -> None:
        kernel((min(MOST_BLOCKS, -(-items // THREADS)),), (THREADS,), arguments)

    def expand(self, row_offsets: Any, columns: Any, frontier: Any, first_id: int, with_parents: bool) -> EdgeFrontier:
        """Gather the neighbours of a frontier of local ids."""
        xp = self.xp
        if frontier.size == 0:
            empty = xp.empty(0, np.uint32)
            return EdgeFrontier(empty, empty if with_parents else None)
        starts = row_offsets[frontier]
        ends = xp.cumsum(row_offsets[frontier.astype(np.int64) + 1] - starts)
        edges = int(ends[-1])
        neighbours = xp.empty(edges, np.uint32)
        parents = xp.empty(edges, np.uint32) if with_parents else None
        if edges:
            self._launch(
                self._expand,
                edges,
                *(frontier, starts, ends, np.int64(frontier.size), columns, np.uint32(first_id)),
                *(neighbours, np.uint64(0) if parents is None else parents, np.int64(edges)),
            )
        return EdgeFrontier(neighbours, parents)

    def filter_partition(self, edges: EdgeFrontier, visited: Any, stripe: Stripe) -> OwnerBins:
        """Drop visited vertices and duplicates, mark the rest visited, and sort them into owner bins.

        Raises:
            GraphTooLargeError: more ranks than an owner's byte can name.
        """
        xp = self.xp
        if stripe.p > MOST_RANKS:
            raise GraphTooLargeError(f"the CUDA backend bins for up to {MOST_RANKS} ranks, not {stripe.p}")
        size = edges.neighbours.size
        offsets = np.zeros(stripe.p + 1, np.int64)
        if size == 0:
            return OwnerBins(offsets, xp.empty(0, np.uint32), None if edges.parents is None else edges.parents[:0])
        owners = xp.empty(size, np.uint8)
        counts = xp.zeros(stripe.p, np.uint64)
        n_local = np.uint32(stripe.n_local)
        self._launch(
            self._filter,
            size,
            *(edges.neighbours, np.int64(size), visited, n_local, np.uint32(stripe.p), owners, counts),
        )
        offsets[1:] = np.cumsum(xp.asnumpy(counts))
        kept = int(offsets[-1])
        rows = xp.empty(kept, np.uint32)
        parents = None if edges.parents is None else xp.empty(kept, np.uint32)
        if kept:
            cursors = xp.asarray(offsets[:-1].astype(np.uint64))
            none = np.uint64(0)
            self._launch(
                self._partition,
                size,
                *(edges.neighbours, none if edges.parents is None else edges.parents, owners, np.int64(size)),
                *(n_local, cursors, rows, none if parents is None else parents),
            )
        return OwnerBins(offsets, rows, parents)

    def contract(
        self, rows: Any, parents: Any | None, own_visited: Any | None, distance: int, distances: Any, predecessors: Any
    ) -> Any:
        """Label a bin's vertices and return those that were new, in order."""
        if rows.size == 0:
            return self.xp.empty(0, np.uint32)
        kept = self.xp.empty(rows.size, np.bool_)
        none = np.uint64(0)
        self._launch(
            self._contract,
            rows.size,
            *(rows, none if parents is None else parents, np.int64(rows.size)),
            *(none if own_visited is None else own_visited, np.int32(distance), distances),
            *(none if predecessors is None or parents is None else predecessors, kept),
        )
        return rows if own_visited is None else rows[kept]

    def edge_count(self, row_offsets: Any, frontier: Any) -> int:
        """Sum of the degrees of local ids."""
        if frontier.size == 0:
            return 0
        return int((row_offsets[frontier.astype(np.int64) + 1] - row_offsets[frontier]).sum())

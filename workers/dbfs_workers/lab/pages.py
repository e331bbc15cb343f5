"""A graph of one rank on linked pages, in the device's memory: made, and changed in place by batches of edges.

Tödling 2019 (section 7) runs breadth-first search on the pages of faimGraph, which a row links into a list. Our own
pages (``storage.pages``) lie one after another in a row, and a batch writes changed rows anew.
"""

from typing import Any, Final

import numpy as np

from dbfs_workers.cuda.lab_layout import COUNTERS, PAGE_COLUMNS, LabCounter
from dbfs_workers.errors import GraphTooLargeError, InvalidVertexError
from dbfs_workers.lab.device import Device

_PAGE_BYTES: Final = 4 * (PAGE_COLUMNS + 1)
_NO_PAGE: Final = (1 << 32) - 1
_LANES: Final = 32
# Blocks of a launch: warps beyond them take several rows each.
_MOST_BLOCKS: Final = 1 << 14


class LinkedPages:
    """Rows on pages of one pool, which does not grow.

    Args:
        device: where the pool is.
        offsets: int64[rows + 1], in the device's memory.
        columns: uint32, rows of the neighbours, there too.
        spare: free pages for insertions.

    Attributes:
        lists: uint64[rows]: first page << 32 | neighbours.
        pool: uint32[pages, 32]: 31 neighbours, and the number of the next page.
        free: number of free pages.
    """

    def __init__(self, device: Device, offsets: Any, columns: Any, spare: int = 0) -> None:
        xp: Any = device.xp
        self._device = device
        self._rows = int(offsets.size) - 1
        degrees = offsets[1:] - offsets[:-1]
        needed = int((-(-degrees // PAGE_COLUMNS)).sum())
        self.lists = xp.full(self._rows, np.uint64(_NO_PAGE << 32), np.uint64)
        # A warp reads the pages behind one before it knows the next page's number.
        self.pool = xp.empty((needed + spare + _LANES, PAGE_COLUMNS + 1), np.uint32)[:-_LANES]
        self.free = needed + spare
        # How many there are, and the stack: the first pages lie on top.
        self._free_pages = xp.empty(1 + self.free, np.uint32)
        self._free_pages[0] = self.free
        self._free_pages[1:] = xp.arange(self.free, dtype=np.uint32)[::-1]
        self._launch("fill_pages", self._rows, offsets=offsets, columns=columns)
        self.free = spare

    @property
    def nbytes(self) -> int:
        """Bytes of the lists, the pool and the stack of free pages."""
        return int(self.lists.nbytes + self.pool.nbytes + self._free_pages.nbytes)

    def degrees(self) -> Any:
        """Return int64[rows], the neighbours of each row."""
        return (self.lists & np.uint64(_NO_PAGE)).astype(np.int64)

    def insert(self, keys: Any) -> int:
        """Insert edges in place; return how many: those that are not there yet, each once.

        Args:
            keys: uint64, row << 32 | neighbour, in the device's memory, in any order.

        Raises:
            InvalidVertexError: a row or a neighbour is not in the graph. Nothing changed.
            GraphTooLargeError: the pool has too few free pages. Nothing changed.
        """
        if not keys.size:
            return 0
        groups, batch = self._batch(keys)
        pages, edges = self._launch("plan_insertion", groups, **batch)
        if pages > self.free:
            raise GraphTooLargeError(
                f"{edges:,} new edges need {pages * _PAGE_BYTES:,} bytes of pages, {self.free * _PAGE_BYTES:,} bytes "
                "are free in the pool; delete edges, or make the pages with more to spare"
            )
        self._launch("insert", groups, **batch)
        self.free -= pages
        return edges

    def delete(self, keys: Any) -> int:
        """Delete edges in place, and all duplicates of each; return the number of neighbours deleted.

        A row's last neighbours move into the gaps, and its empty pages become free.

        Args:
            keys: see ``insert``; an edge that is not there is left out.

        Raises:
            InvalidVertexError: see ``insert``.
        """
        if not keys.size:
            return 0
        groups, batch = self._batch(keys)
        pages, edges = self._launch("delete", groups, **batch)
        self.free += pages
        return edges

    def _batch(self, keys: Any) -> tuple[int, dict[str, Any]]:
        """Return the number of rows with edges in a batch, and the arrays that the kernels read and write."""
        xp: Any = self._device.xp
        batch = xp.sort(keys)
        rows = (batch >> np.uint64(32)).astype(np.uint32)
        if max(int(rows[-1]), int(batch.astype(np.uint32).max())) >= self._rows:
            raise InvalidVertexError(f"an edge of the batch has an end that is not one of the {self._rows:,} rows")
        starts = xp.flatnonzero(rows[1:] != rows[:-1]) + 1
        groups = int(starts.size) + 1
        firsts = xp.zeros(groups + 1, np.uint32)
        firsts[1:-1], firsts[-1] = starts, batch.size
        arrays = {"batch": batch, "in_ids": firsts, "flags": xp.empty(batch.size, np.uint8)}
        return groups, {**arrays, "out_ids": xp.empty(groups, np.uint32), "out_parents": xp.empty(groups, np.uint32)}

    def _launch(self, kernel: str, warps: int, **arrays: Any) -> tuple[int, int]:
        """Launch a kernel that gives each row or group a warp; return the pages and the edges that it counted."""
        device = self._device
        counters = device.xp.zeros(COUNTERS, np.uint64)
        arrays |= {"lists": self.lists, "pages": self.pool, "free_pages": self._free_pages, "counters": counters}
        given = device.arguments[:1]
        for name, array in arrays.items():
            given[name] = device.address(array)
        given["rows"], given["in_size"] = self._rows, warps
        blocks = max(1, min(_MOST_BLOCKS, -(-warps * _LANES // device.threads)))
        device.launch("lab/pages.cu", f"dbfs_lab_{kernel}", blocks)
        # A strategy does not set the arguments that its kernels do without.
        given[...] = 0
        counts = device.read(counters)
        return int(counts[LabCounter.QUEUED]), int(counts[LabCounter.LABELLED])

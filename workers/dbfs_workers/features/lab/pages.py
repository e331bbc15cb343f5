"""A graph of one rank on linked pages, in the device's memory: made, and changed in place by updates.

Tödling 2019 (section 7) runs breadth-first search on the pages of faimGraph, which a row links into a list. Our own
pages (``living.pages``) lie one after another in a row, and an update writes changed rows anew.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dbfs_workers.base.errors import GraphTooLargeError, InvalidVertexError
from dbfs_workers.features.lab.device import Device
from dbfs_workers.features.lab.layout import COUNTERS, PAGE_COLUMNS, LabCounter
from dbfs_workers.features.living.row_versions import SPARE

PAGE_BYTES: Final = 4 * (PAGE_COLUMNS + 1)
_NO_PAGE: Final = (1 << 32) - 1
_LANES: Final = 32
# Blocks of a launch: warps beyond them take several rows each.
_MOST_BLOCKS: Final = 1 << 14


@dataclass(frozen=True)
class PlannedUpdate:
    """An update that was compared with the pages, and has changed nothing yet.

    Attributes:
        groups: rows with edges in the update.
        arrays: what the kernels read and wrote, on the device: ``keys``, the keys, ascending; ``in_ids``, where the
            edges of each row begin; ``tile_sums``, how often the pages have an edge, at the first of equal ones.
        pages: pages that an insertion takes.
        edges: edges that an insertion inserts.
    """

    groups: int
    arrays: dict[str, Any]
    pages: int
    edges: int


class LinkedPages:
    """Rows on pages of one pool.

    Args:
        device: where the pool is.
        offsets: int64[rows + 1], in the device's memory.
        columns: uint32, rows of the neighbours, there too.
        spare: free pages for insertions.

    Attributes:
        device: where the kernels run; may be another object for the same device.
        edges: neighbours of all rows.
        lists: uint64[rows]: first page << 32 | neighbours.
        pool: uint32[pages, 32]: 31 neighbours, and the number of the next page.
        free: number of free pages.
    """

    def __init__(self, device: Device, offsets: Any, columns: Any, spare: int = 0) -> None:
        xp: Any = device.xp
        self.device = device
        self.rows, self.edges = int(offsets.size) - 1, int(columns.size)
        needed = pages_of(offsets[1:] - offsets[:-1])
        self.lists = xp.full(self.rows, np.uint64(_NO_PAGE << 32), np.uint64)
        self.pool = xp.empty((0, PAGE_COLUMNS + 1), np.uint32)
        self.free = 0
        # How many there are, and the stack: the first pages lie on top.
        self._free_pages = xp.zeros(1, np.uint32)
        self._grow(needed + spare)
        self._launch("fill_pages", self.rows, offsets=offsets, columns=columns)
        self.free = spare

    @property
    def nbytes(self) -> int:
        """Bytes of the lists, the pool and the stack of free pages."""
        return int(self.lists.nbytes + self.pool.nbytes + self._free_pages.nbytes)

    def degrees(self) -> Any:
        """Return int64[rows], the neighbours of each row."""
        return (self.lists & np.uint64(_NO_PAGE)).astype(np.int64)

    def csr(self) -> tuple[Any, Any]:
        """Return offsets (int64) and columns (uint32, ascending within a row) of the rows, in the device's memory."""
        xp: Any = self.device.xp
        offsets, keys = xp.zeros(self.rows + 1, np.int64), xp.empty(self.edges, np.uint64)
        offsets[1:] = xp.cumsum(self.degrees())
        self._launch("read_pages", self.rows, offsets=offsets, tile_sums=keys)
        keys.sort()
        return offsets, keys.astype(np.uint32)

    def reserve(self, pages: int) -> int:
        """Return the bytes of memory that ``grow`` needs until so many pages are free; 0 if they are."""
        if pages <= self.free:
            return 0
        return (self._larger(pages) + _LANES) * (PAGE_BYTES + 4)

    def grow(self, pages: int) -> None:
        """Make the pool larger until so many pages are free: by half, or by more if they are still too few."""
        if pages > self.free:
            self._grow(self._larger(pages))

    def plan(self, keys: Any) -> PlannedUpdate:
        """Compare an update with the pages; arguments and errors as for ``delete``, one edge at least."""
        groups, arrays = self._sorted(keys)
        return PlannedUpdate(groups, arrays, *self._launch("plan_update", groups, **arrays))

    def change(self, update: PlannedUpdate, *, delete: bool) -> int:
        """Insert or delete the edges of an update in place, which was planned since the last change.

        Returns and errors as of ``insert`` and ``delete``.
        """
        if delete:
            pages, edges = self._launch("delete", update.groups, **update.arrays)
            self.free += pages
            self.edges -= edges
            return edges
        if update.pages > self.free:
            raise GraphTooLargeError(
                f"{update.edges:,} new edges need {update.pages * PAGE_BYTES:,} bytes of pages, "
                f"{self.free * PAGE_BYTES:,} bytes are free in the pool; delete edges, or make the pages with more to "
                "spare"
            )
        self._launch("insert", update.groups, **update.arrays)
        self.free -= update.pages
        self.edges += update.edges
        return update.edges

    def insert(self, keys: Any) -> int:
        """Insert edges in place; return how many: those that are not there yet, each once.

        Args:
            keys: see ``delete``.

        Raises:
            InvalidVertexError: see ``delete``.
            GraphTooLargeError: the pool has too few free pages. Nothing changed.
        """
        return self.change(self.plan(keys), delete=False) if keys.size else 0

    def delete(self, keys: Any) -> int:
        """Delete edges in place, and all duplicates of each; return the number of neighbours deleted.

        A row's last neighbours move into the gaps, and its empty pages become free.

        Args:
            keys: uint64, row << 32 | neighbour, in the device's memory, in any order; an edge that is not there is left
                out.

        Raises:
            InvalidVertexError: a row or a neighbour is not in the graph. Nothing changed.
        """
        return self.change(PlannedUpdate(*self._sorted(keys), 0, 0), delete=True) if keys.size else 0

    def _sorted(self, keys: Any) -> tuple[int, dict[str, Any]]:
        """Return the number of rows with edges in an update, and the arrays that the kernels read and write."""
        xp: Any = self.device.xp
        ascending = xp.sort(keys)
        rows = (ascending >> np.uint64(32)).astype(np.uint32)
        if max(int(rows[-1]), int(ascending.astype(np.uint32).max())) >= self.rows:
            raise InvalidVertexError(f"an edge of the batch has an end that is not one of the {self.rows:,} rows")
        starts = xp.flatnonzero(rows[1:] != rows[:-1]) + 1
        groups = int(starts.size) + 1
        firsts = xp.zeros(groups + 1, np.uint32)
        firsts[1:-1], firsts[-1] = starts, ascending.size
        arrays = {"keys": ascending, "in_ids": firsts, "flags": xp.empty(ascending.size, np.uint8)}
        arrays |= {name: xp.empty(groups, np.uint32) for name in ("out_ids", "out_parents")}
        return groups, {**arrays, "tile_sums": xp.zeros(ascending.size, np.uint64)}

    def _larger(self, pages: int) -> int:
        return int(self.pool.shape[0]) + max(pages - self.free, int(self.pool.shape[0]) // 2)

    def _grow(self, pages: int) -> None:
        """Give the pool so many pages. The new ones lie at the bottom of the stack."""
        xp: Any = self.device.xp
        before = int(self.pool.shape[0])
        # A warp reads the pages behind one before it knows the next page's number.
        pool, free_pages = xp.empty((pages + _LANES, PAGE_COLUMNS + 1), np.uint32), xp.empty(1 + pages, np.uint32)
        pool[:before] = self.pool
        free_pages[1 : 1 + pages - before] = xp.arange(before, pages, dtype=np.uint32)[::-1]
        free_pages[1 + pages - before :][: self.free] = self._free_pages[1 : 1 + self.free]
        self.free += pages - before
        free_pages[0] = self.free
        self.pool, self._free_pages = pool[:-_LANES], free_pages

    def _launch(self, kernel: str, warps: int, **arrays: Any) -> tuple[int, int]:
        """Launch a kernel that gives each row or group a warp; return the pages and the edges that it counted."""
        device = self.device
        counters = device.xp.zeros(COUNTERS, np.uint64)
        arrays |= {"lists": self.lists, "pages": self.pool, "free_pages": self._free_pages, "counters": counters}
        given = device.arguments[:1]
        for name, array in arrays.items():
            given[name] = device.address(array)
        given["rows"], given["in_size"] = self.rows, warps
        blocks = max(1, min(_MOST_BLOCKS, -(-warps * _LANES // device.threads)))
        device.launch("pages", f"dbfs_lab_{kernel}", blocks)
        # A strategy does not set the arguments that its kernels do without.
        given[...] = 0
        counts = device.read(counters)
        return int(counts[LabCounter.QUEUED]), int(counts[LabCounter.LABELLED])


def copy_bytes(rows: int, columns: int) -> int:
    """Return the bytes that ``LinkedPages.csr`` takes: offsets with their sums; keys, the sort's buffer, columns."""
    return 16 * rows + 20 * columns


def most_bytes(rows: int, columns: int) -> dict[str, int]:
    """Return the most bytes that a graph takes beside its CSR, by part: the pool with its spare pages, and a copy."""
    # Each row may leave its last page nearly empty.
    pages = min(columns, rows + columns // PAGE_COLUMNS)
    pool = (PAGE_BYTES + 4) * (pages + int(SPARE * pages) + _LANES)
    return {"pages": pool + 8 * rows, "copy": copy_bytes(rows, columns)}


def pages_of(degrees: Any) -> int:
    """Return the pages of rows of given degrees."""
    return int((-(-degrees // PAGE_COLUMNS)).sum())

"""The table of the levels of one rank: counts and times, of all traversals that are made together.

A traversal may have millions of levels. While it runs, its rows are summed up as often as there are twice as many as
the reports may have (``dbfs_workers.reports.packing``).
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.reports import COUNT_FIELDS, MOST_ROWS, TIME_FIELDS, CountedLevels, LevelRecords, PackedTables
from dbfs_workers.reports.packing import levels_a_row

# Rows at first. A traversal of a graph with a small diameter has about ten levels.
_ROWS: Final = 1024
# A traversal of more rows is packed when it ends, and its rows serve the next one.
_MOST_KEPT: Final = 256
_DISCOVERED, _BYTES_SENT = map(COUNT_FIELDS.index, ("discovered", "bytes_sent"))
_ROW_BYTES: Final = 8 * (len(COUNT_FIELDS) + len(TIME_FIELDS) + 2)


def nbytes(n: int) -> int:
    """Return the most bytes of the table in a traversal of a graph with ``n`` vertices, and while the table grows."""
    rows = max(_ROWS, min(n, 2 * MOST_ROWS))
    return (rows + rows // 2) * _ROW_BYTES


class TableRows(NamedTuple):
    """Rows of one traversal.

    Attributes:
        levels: int64[rows], the number of levels of each.
        led: int64[rows], how many of these were led.
        counts: int64[rows, len(COUNT_FIELDS)].
        seconds: float64[rows, len(TIME_FIELDS)].
    """

    levels: NDArray[np.int64]
    led: NDArray[np.int64]
    counts: NDArray[np.int64]
    seconds: NDArray[np.float64]


class LevelTable:
    """Rows of levels, which are added one after another, of one traversal after another.

    Attributes:
        levels: number of levels of the traversal so far.
    """

    def __init__(self) -> None:
        self.levels = 0
        # The rows of the traversal, and the largest distance when these were summed up last.
        self._first = self._end = self._depth = 0
        self._counts = np.empty((_ROWS, len(COUNT_FIELDS)), np.int64)
        self._seconds = np.empty((_ROWS, len(TIME_FIELDS)), np.float64)
        # Levels of each row, and how many of these were led.
        self._levels = np.empty((_ROWS, 2), np.int64)

    def begin(self) -> None:
        """Begin a traversal."""
        self._first, self._depth, self.levels = self._end, 0, 0

    def add(self, counts: tuple[int, ...], seconds: tuple[float, ...]) -> None:
        """Add a level.

        Args:
            counts: in the order of ``COUNT_FIELDS``.
            seconds: in the order of ``TIME_FIELDS``.
        """
        row = self._new_rows(1).start
        self._counts[row] = counts
        self._seconds[row] = seconds

    def extend(self, counts: NDArray[np.int64], seconds: NDArray[np.float64], *, led: bool = False) -> None:
        """Add at most ``MOST_ROWS`` consecutive levels, copied.

        Args:
            counts: int64[levels, len(COUNT_FIELDS)].
            seconds: float64[levels, len(TIME_FIELDS)].
            led: whether they were led.
        """
        rows = self._new_rows(len(counts), led)
        self._counts[rows] = counts
        self._seconds[rows] = seconds

    def skip(self, levels: int) -> None:
        """Add consecutive levels that another rank has counted."""
        for first in range(0, levels, MOST_ROWS):
            rows = self._new_rows(min(MOST_ROWS, levels - first))
            self._counts[rows] = 0
            self._seconds[rows] = 0

    def add_bytes(self, bytes_sent: int) -> None:
        """Count bytes sent with the last level, if there was one."""
        if self.levels:
            self._counts[self._end - 1, _BYTES_SENT] += bytes_sent

    def rows(self) -> TableRows:
        """Return the rows of the traversal so far, as views."""
        rows = slice(self._first, self._end)
        return TableRows(self._levels[rows, 0], self._levels[rows, 1], self._counts[rows], self._seconds[rows])

    def end(self) -> tuple[LevelRecords, int]:
        """End the traversal; return its records, and the largest distance of the rank's vertices, 0 without any."""
        if self._end - self._first <= _MOST_KEPT:
            rows, depth = slice(self._first, self._end), self.levels
            while depth and not self._counts[self._first + depth - 1, _DISCOVERED]:
                depth -= 1
            return CountedLevels(self._counts[rows], self._seconds[rows], self.levels), depth
        self._sum_up()
        _, _, counts, seconds = self.rows()
        self._end = self._first
        return PackedTables.pack(counts, seconds, self.levels), self._depth

    def _new_rows(self, count: int, led: bool = False) -> slice:
        if self._end - self._first + count > 2 * MOST_ROWS:
            self._sum_up()
        first = self._end
        self._end += count
        self.levels += count
        if self._end > len(self._counts):
            # Earlier views keep the memory before.
            more = ((0, max(count, len(self._counts))), (0, 0))
            self._counts, self._seconds = np.pad(self._counts, more), np.pad(self._seconds, more)
            self._levels = np.pad(self._levels, more)
        rows = slice(first, self._end)
        self._levels[rows] = 1, led
        return rows

    def _sum_up(self) -> None:
        """Sum up rows to at most ``MOST_ROWS``, and note the largest distance.

        Rows that are sums begin at multiples of a smaller power of two, so that no row belongs to two sums.
        """
        levels, _, counts, _ = self.rows()
        ends = np.cumsum(levels)
        found = np.flatnonzero(counts[:, _DISCOVERED])
        # If the last discovery is in a sum, it is no later than when the row was summed up.
        if found.size and levels[found[-1]] == 1:
            self._depth = int(ends[found[-1]])
        firsts = np.flatnonzero(np.diff((ends - levels) // levels_a_row(self.levels), prepend=-1))
        for table in (self._counts, self._seconds, self._levels):
            sums = np.add.reduceat(table[self._first : self._end], firsts)
            table[self._first : self._first + len(sums)] = sums
        self._end = self._first + len(firsts)

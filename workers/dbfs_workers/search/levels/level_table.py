"""The table of the levels of one rank: counts and times, of all traversals that are made together.

A traversal may have millions of levels. While it runs, its rows are summed up as often as there are twice as many as
the reports may have (``dbfs_workers.search.reports.packing``).
"""

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.reports import (
    COUNT_FIELDS,
    MOST_ROWS,
    ROW,
    TIME_FIELDS,
    CountedLevels,
    LevelRecords,
    PackedTables,
    Row,
    join,
    tables,
)
from dbfs_workers.search.reports.counts import LARGEST
from dbfs_workers.search.reports.packing import levels_a_row

# Rows at first. A traversal of a graph with a small diameter has about ten levels.
_ROWS: Final = 1024
# A traversal of more rows is packed when it ends, and its rows serve the next one.
_MOST_KEPT: Final = 256
_TIMED: Final = len(COUNT_FIELDS) + len(TIME_FIELDS)
_WORDS: Final = ROW.itemsize // 8


def nbytes(n: int) -> int:
    """Return the most bytes of the table in a traversal of a graph with ``n`` vertices, and while the table grows."""
    rows = max(_ROWS, min(n, 2 * MOST_ROWS))
    return (rows + rows // 2) * ROW.itemsize


class LevelTable:
    """Rows of levels, which steppers and kernels write in place, of one traversal after another.

    Attributes:
        levels: number of levels of the traversal so far.
    """

    def __init__(self) -> None:
        self.levels = 0
        # The rows of the traversal, and the largest distance when they were last summed up. The rows behind are zero,
        # except the row of the level in progress.
        self._first = self._end = self._depth = 0
        self._take(np.zeros((_ROWS, _WORDS), np.int64))

    def begin(self) -> None:
        """Begin a traversal."""
        self._first, self._depth, self.levels = self._end, 0, 0

    def row(self) -> Row:
        """Return the row of the level in progress. Valid until the level is added, or rows are asked for again."""
        self.room(1)
        return self._row(self._end)

    def last(self) -> Row:
        """Return the row of the last level; if there was none, that of the level in progress."""
        return self._row(self._end - 1) if self.levels else self.row()

    def room(self, count: int) -> NDArray[Any]:
        """Return ROW[count], at most ``MOST_ROWS``: the level in progress and those behind it. Valid as ``row``."""
        if self._end - self._first + count > 2 * MOST_ROWS:
            self._sum_up()
        end = self._end + count
        if end > len(self._rows):
            # Views of earlier traversals keep the memory before.
            self._take(np.concatenate([self._words, np.zeros((max(count, len(self._rows)), _WORDS), np.int64)]))
        return self._rows[self._end : end]

    def add(self, levels: int = 1) -> None:
        """Add the level in progress, or so many that a kernel has written into ``room``."""
        self._end += levels
        self.levels += levels

    def skip(self, levels: int) -> None:
        """Add consecutive levels that another rank has counted."""
        for first in range(0, levels, MOST_ROWS):
            count = min(MOST_ROWS, levels - first)
            self.room(count)["levels"] = 1
            self.add(count)

    def rows(self) -> NDArray[Any]:
        """Return ROW[rows], the rows of the traversal so far, as a view."""
        return self._rows[self._first : self._end]

    def end(self) -> tuple[LevelRecords, int]:
        """End the traversal; return its records, and the largest distance of the rank's vertices, 0 without any."""
        rows = slice(self._first, self._end)
        if self._end - self._first <= _MOST_KEPT:
            depth, discovered = self.levels, self.rows()["discovered"]
            while depth and not discovered[depth - 1]:
                depth -= 1
            return CountedLevels(self._counts[rows], self._seconds[rows], self.levels), depth
        self._sum_up()
        rows = slice(self._first, self._end)
        packed = PackedTables.pack(self._counts[rows], self._seconds[rows], self.levels)
        self._clear(self._first)
        return packed, self._depth

    def drop(self) -> None:
        """End the traversal without records."""
        self._clear(self._first)

    def _take(self, words: NDArray[np.int64]) -> None:
        # NumPy copies and clears plain numbers fifteen times as fast as rows.
        self._words, self._rows, self._address = words, words.view(ROW).reshape(-1), words.ctypes.data
        self._counts, self._seconds = tables(self._rows)
        self._others = words[:, _TIMED:]

    def _row(self, place: int) -> Row:
        return Row.from_address(self._address + place * ctypes.sizeof(Row))

    def _clear(self, end: int) -> None:
        """End the table before row ``end``; clear the rows behind, the row of an unfinished level included."""
        self._words[end : self._end + 1] = 0
        self._end = end

    def _sum_up(self) -> None:
        """Sum up rows to at most ``MOST_ROWS``, and note the largest distance. The level in progress moves along.

        Rows that are sums begin at multiples of a smaller power of two, so that no row belongs to two sums.
        """
        rows = self.rows()
        levels, ends = rows["levels"], np.cumsum(rows["levels"])
        found = np.flatnonzero(rows["discovered"])
        # If the last discovery is in a sum, it is no later than when the row was summed up.
        if found.size and levels[found[-1]] == 1:
            self._depth = int(ends[found[-1]])
        firsts = np.flatnonzero(np.diff((ends - levels) // levels_a_row(self.levels), prepend=-1))
        if len(firsts) == len(rows):
            return
        in_progress = self._words[self._end : self._end + 1].copy()
        for table, places in ((self._counts, LARGEST), (self._seconds, ()), (self._others, ())):
            joined = join(table[self._first : self._end], firsts, places)
            table[self._first : self._first + len(joined)] = joined
        self._clear(self._first + len(firsts))
        self._words[self._end : self._end + len(in_progress)] = in_progress

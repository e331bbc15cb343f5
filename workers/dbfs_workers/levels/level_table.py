"""The table of the levels of one rank: counts and times, a row a level, of all traversals that are made together."""

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.reports import COUNT_FIELDS, TIME_FIELDS

# Rows at first. A traversal of a graph with a small diameter has about ten levels.
_ROWS = 1024


class LevelTable:
    """Rows of levels, which are added one after another.

    Attributes:
        size: number of rows.
    """

    def __init__(self) -> None:
        self.size = 0
        self._counts = np.empty((_ROWS, len(COUNT_FIELDS)), np.int64)
        self._seconds = np.empty((_ROWS, len(TIME_FIELDS)), np.float64)

    def add(self, counts: tuple[int, ...], seconds: tuple[float, ...]) -> None:
        """Add a level.

        Args:
            counts: in the order of ``COUNT_FIELDS``.
            seconds: in the order of ``TIME_FIELDS``.
        """
        row = self._new_rows(1).start
        self._counts[row] = counts
        self._seconds[row] = seconds

    def extend(self, counts: NDArray[np.int64], seconds: NDArray[np.float64]) -> None:
        """Add consecutive levels: int64[levels, len(COUNT_FIELDS)] and float64[levels, len(TIME_FIELDS)], copied."""
        rows = self._new_rows(len(counts))
        self._counts[rows] = counts
        self._seconds[rows] = seconds

    def rows(self, first: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the counts and the seconds of the rows from ``first`` to before ``end``, as views."""
        return self._counts[first:end], self._seconds[first:end]

    def _new_rows(self, count: int) -> slice:
        first, self.size = self.size, self.size + count
        if self.size > len(self._counts):
            # Earlier views keep the memory before.
            more = ((0, max(count, len(self._counts))), (0, 0))
            self._counts, self._seconds = np.pad(self._counts, more), np.pad(self._seconds, more)
        return slice(first, self.size)

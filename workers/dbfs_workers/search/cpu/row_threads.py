"""Threads that share the rows of a phase, for kernels that take some rows at a time and run without Python's lock."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import numpy as np

from dbfs_workers.search.partition.partition import Rows

T = TypeVar("T")

# Parts for each thread. Parts with as many edges take different times, since rows are searched until they are done.
_PARTS: Final = 4
# Edges that take as long as the rest of a row.
_ROW_EDGES: Final = 4
# Rows below which one thread takes all: a part costs 20 to 50 us.
_LEAST_ROWS: Final = 2**14
_WORD_ROWS: Final = 32


class RowThreads:
    """Some threads of a rank, which begin with the first rows that they share.

    Args:
        threads: their number; with 1 the caller's thread does all.
    """

    def __init__(self, threads: int) -> None:
        self._parts = threads * _PARTS if threads > 1 else 1
        self._pool = ThreadPoolExecutor(threads, "dbfs-rows") if threads > 1 else None

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def bounds(self, rows: Rows) -> list[int]:
        """Return bounds of parts of a rank's rows with about as many edges each, multiples of a bitmap's word."""
        size = rows.starts.size
        if self._pool is None or size < _LEAST_ROWS:
            return [0, size]
        work = np.cumsum(rows.ends - rows.starts + _ROW_EDGES)
        cuts = np.searchsorted(work, work[-1] * np.arange(1, self._parts) // self._parts)
        return np.unique([0, *(cuts // _WORD_ROWS * _WORD_ROWS), size]).tolist()  # type: ignore[no-any-return]

    def even_bounds(self, size: int) -> list[int]:
        """Return bounds of parts of so many rows."""
        if self._pool is None or size < _LEAST_ROWS:
            return [0, size]
        return np.linspace(0, size, self._parts + 1).astype(int).tolist()  # type: ignore[no-any-return]

    def each(self, bounds: Sequence[int], work: Callable[[int, int], T]) -> list[T]:
        """Call a function for the bounds of each part; return the results in the order of the parts."""
        parts = [*itertools.pairwise(bounds)]
        if self._pool is None or len(parts) == 1:
            return [work(*part) for part in parts]
        return [*self._pool.map(lambda part: work(*part), parts)]

"""The places of rows, version by version: the arrays ``starts`` and ``ends``, in memory that versions use again.

A version that changes a few rows of millions would copy both arrays to change a few entries. Instead the next version
takes over the memory of an old version that is out of use, and writes only the rows that differ. A version is in use
while any of its arrays or slices exists.

Also the sizes of the pages on which rows lie (see ``pages``), for estimates.
"""

import itertools
import mmap
import weakref
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

PAGE: Final = 4
"""Columns of a page: 16 bytes. A row of a road network fills one; a row of degree 32 wastes 1.5 columns on average."""

SPARE: Final = 0.25
"""Room of a pool beyond the rows that it was made for, as a part of these."""

# Versions back to which a memory's content can be brought up to date. Two are in use alternately, a third after an
# update that was forgotten.
_KNOWN: Final = 4
# Memories kept for versions to come.
_KEPT: Final = 2
# The share of all rows from which a whole copy takes less time than single rows.
_FEW: Final = 1 / 16

_numbers = itertools.count()

Step = tuple[int, NDArray[np.int64]]
"""A version's number, unique in the process, and the rows in which the version differs from the one before it."""


@dataclass(frozen=True)
class _Spare:
    """The memory of a version that is gone, and the steps that led to that version."""

    memory: mmap.mmap
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class RowVersion:
    """The places of the rows of one version.

    Attributes:
        starts: int64[n_local], index of each row's first column.
        ends: int64[n_local], index after each row's last column.
        steps: the last versions, the oldest first, this one at the end.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    steps: tuple[Step, ...] = field(default_factory=lambda: ((next(_numbers), np.empty(0, np.int64)),))
    _spares: list[_Spare] = field(default_factory=list)

    def __reduce__(self) -> tuple[Any, ...]:
        # Dask may write a partition to disk and read it again.
        return RowVersion, (np.array(self.starts), np.array(self.ends))

    def moved(self, rows: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> "RowVersion":
        """Return the version in which some rows lie elsewhere. This version stays as it is.

        Args:
            rows: int64, the rows, each once.
            starts: int64, index of each one's first column.
            ends: int64, index after each one's last column.
        """
        steps = (*self.steps, (next(_numbers), rows))[-_KNOWN:]
        n_local, memory, stale = self.starts.size, None, None
        # ``pop`` is atomic: versions may end in any thread.
        while memory is None and self._spares:
            spare = self._spares.pop()
            memory, stale = spare.memory, _differing(spare.steps, self.steps)
        if memory is None:
            memory = mmap.mmap(-1, max(16 * n_local, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        both = np.frombuffer(memory, np.int64, 2 * n_local)
        # NumPy's slices keep ``both`` alive, not only the memory, since the memory is no array.
        spares = self._spares
        weakref.finalize(both, _give_back, spares, _Spare(memory, steps)).atexit = False
        version = RowVersion(both[:n_local], both[n_local:], steps, spares)
        if stale is None or stale.size > _FEW * n_local:
            version.starts[:], version.ends[:] = self.starts, self.ends
        else:
            version.starts[stale], version.ends[stale] = self.starts[stale], self.ends[stale]
        version.starts[rows], version.ends[rows] = starts, ends
        return version


def _give_back(spares: list[_Spare], spare: _Spare) -> None:
    if len(spares) < _KEPT:
        spares.append(spare)


def _differing(before: tuple[Step, ...], now: tuple[Step, ...]) -> NDArray[np.int64] | None:
    """Return rows among which are all that two versions have at different places; None if that is not known."""
    numbers = {number for number, _ in before}
    common = max((number for number, _ in now if number in numbers), default=None)
    if common is None:
        return None
    later = [rows for steps in (before, now) for number, rows in steps if number > common]
    return np.concatenate([np.empty(0, np.int64), *later])


def most_bytes(rows: int, columns: int) -> int:
    """Return the most bytes that the pages of rows take, with the room for updates to come.

    A short row wastes less than a page, a longer one less than a quarter of its columns (``pages.run_pages``).
    """
    pool = columns + (PAGE - 1) * rows + columns // 4
    return 16 * rows + 4 * (pool + int(SPARE * pool))

"""A traversal's two tables, counts and times by level, and their packed form.

A row of a traversal with many levels has the sums over ``levels_a_row`` consecutive levels, so that a table's memory is
bounded; the last row has the rest. Only the traversal's number of levels decides how many. So row i stands for the same
levels on every rank.

The tables of a long traversal are packed, so that moving them takes less time than the traversal did.

A road network has thousands of levels with a dozen numbers each. Most of these numbers follow from others of the same
level, or differ little from those of the level before. So a column of counts is stored as the changes, from
row to row, of its difference from the expected value, in the smallest integer type that holds them.
"""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.reports.counts import (
    COUNT_FIELDS,
    EXPECTED,
    LARGEST,
    NEXT_FRONTIER,
    TIME_FIELDS,
    N,
    Tables,
    join,
)

MOST_ROWS: Final = 4096
"""Most rows of a traversal's tables. With as many levels or fewer, each level has a row."""

# Tables of fewer rows travel as they are.
_LEAST_ROWS: Final = 64
# Bytes of a row in such tables, and what follows the tables. Pickles end with a period.
_ROW_BYTES: Final = 8 * (len(COUNT_FIELDS) + len(TIME_FIELDS))
_TABLES: Final = b"\0"


def levels_a_row(levels: int) -> int:
    """Return the number of levels that a row sums up, a power of two, in a traversal of so many levels."""
    return 1 << (max(0, levels - 1) // MOST_ROWS).bit_length()


def levels_of_rows(levels: int) -> NDArray[np.int64]:
    """Return the number of levels of each row, in a traversal of so many levels."""
    size = levels_a_row(levels)
    return np.minimum(size, levels - np.arange(0, levels, size))


def summed(table: NDArray[N], places: Sequence[int] = ()) -> NDArray[N]:
    """Return a table with a row a level as one with the rows that it may have, joined by ``counts.join``.

    ``places`` as there. Of a short traversal the same table is returned.
    """
    size = levels_a_row(len(table))
    return table if size == 1 else join(table, np.arange(0, len(table), size), places)


@dataclass(frozen=True)
class PackedTables:
    """See ``LevelRecords``: tables of a long traversal by columns. A column of equal entries is stored as one entry.

    Attributes:
        steps: by name of a column of counts, the change from row to row of its difference from the expected value.
        times: columns of seconds, in single precision.
    """

    levels: int
    rows: int
    steps: dict[str, NDArray[Any]]
    times: list[NDArray[Any]]

    @classmethod
    def pack(cls, counts: NDArray[np.int64], seconds: NDArray[np.float64], levels: int) -> "PackedTables":
        """Pack tables of at least one row, which stand for so many levels."""
        rows = len(counts)
        columns = dict(zip(COUNT_FIELDS, counts.T, strict=True))
        columns[NEXT_FRONTIER] = _next_frontier(columns["frontier"])
        # Two arrays serve all columns: a worker's allocator returns freed memory to the system at once, and each new
        # array would get its memory again page by page.
        difference, step = np.empty((2, rows), np.int64)
        steps = {}
        for name in COUNT_FIELDS:
            difference[:] = columns[name]
            for other, factor in EXPECTED.get(name, {}).items():
                difference -= columns[other] if factor == 1 else np.multiply(columns[other], factor, out=step)
            step[0] = difference[0]
            np.subtract(difference[1:], difference[:-1], out=step[1:])
            steps[name] = _narrow(step)
        return cls(levels, rows, steps, [_narrow(column) for column in seconds.T])

    def __len__(self) -> int:
        return self.levels

    def unpack(self) -> Tables:
        """Return the tables: the counts exactly, the seconds as they were in single precision."""
        steps = {name: np.broadcast_to(step, self.rows) for name, step in self.steps.items()}
        counts = {name: np.cumsum(step, dtype=np.int64) for name, step in steps.items()}
        counts[NEXT_FRONTIER] = _next_frontier(counts["frontier"])
        for name, others in EXPECTED.items():
            for other, factor in others.items():
                counts[name] += factor * counts[other]
        seconds = [np.broadcast_to(times, self.rows).astype(np.float64) for times in self.times]
        return np.stack([counts[name] for name in COUNT_FIELDS], axis=1), np.stack(seconds, axis=1)


class LevelRecords(Protocol):
    """A device's records of a traversal's levels, from which the tables are made. Picklable."""

    def __len__(self) -> int:
        """Return the number of levels."""

    def unpack(self) -> Tables:
        """Return the tables."""


@dataclass(frozen=True)
class CountedLevels:
    """See ``LevelRecords``: the tables themselves.

    Attributes:
        counts: int64[rows, len(COUNT_FIELDS)].
        seconds: float64[rows, len(TIME_FIELDS)].
    """

    counts: NDArray[np.int64]
    seconds: NDArray[np.float64]
    levels: int

    @classmethod
    def of(cls, counts: NDArray[np.int64], seconds: NDArray[np.float64]) -> "CountedLevels":
        """Return the records of tables with a row a level, which are summed up where they have too many."""
        return cls(summed(counts, LARGEST), summed(seconds), len(counts))

    def __len__(self) -> int:
        return self.levels

    def unpack(self) -> Tables:
        return self.counts, self.seconds


def pack(levels: LevelRecords) -> bytes:
    """Return the records of levels as bytes. Only those of long traversals are made into tables here."""
    if isinstance(levels, CountedLevels) and len(levels.counts) < _LEAST_ROWS:
        # NumPy takes 11 us to pickle the two arrays of a short traversal.
        return levels.counts.tobytes() + levels.seconds.tobytes() + _TABLES
    if len(levels) >= _LEAST_ROWS and not isinstance(levels, PackedTables):
        levels = PackedTables.pack(*levels.unpack(), len(levels))
    # Protocol 5 copies no array before it is written.
    return pickle.dumps(levels, protocol=5)


def unpack(packed: bytes) -> Tables:
    """Return the tables of what ``pack`` was given; seconds of 64 rows and more come in single precision."""
    if packed.endswith(_TABLES):
        rows = len(packed) // _ROW_BYTES
        counts = np.frombuffer(packed, np.int64, rows * len(COUNT_FIELDS))
        seconds = np.frombuffer(packed, np.float64, rows * len(TIME_FIELDS), offset=counts.nbytes)
        return counts.reshape(-1, len(COUNT_FIELDS)), seconds.reshape(-1, len(TIME_FIELDS))
    records: LevelRecords = pickle.loads(packed)
    return records.unpack()


def _next_frontier(frontier: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.append(frontier[1:], 0)


def _narrow(column: NDArray[Any]) -> NDArray[Any]:
    """Return the column in its smallest type, as one entry if all entries are equal."""
    low, high = column.min(), column.max()
    if low == high:
        return column[:1].copy()
    if column.dtype.kind == "f":
        return column.astype(np.float32)
    # With a negative entry the type is signed. The smallest type of -high - 1 is signed, and wide enough for high.
    return column.astype(np.promote_types(np.min_scalar_type(low), np.min_scalar_type(high if low >= 0 else -high - 1)))

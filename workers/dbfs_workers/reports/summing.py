"""Tables of long traversals: one row sums up several levels, so that a table's memory is bounded.

A row of a traversal with many levels has the sums over ``levels_a_row`` consecutive levels; the last row has the rest.
Only the traversal's number of levels decides how many. So row i stands for the same levels on every rank.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MOST_ROWS: Final = 4096
"""Most rows of a traversal's tables. With as many levels or fewer, each level has a row."""


def levels_a_row(levels: int) -> int:
    """Return the number of levels that a row sums up, a power of two, in a traversal of so many levels."""
    return 1 << (max(0, levels - 1) // MOST_ROWS).bit_length()


def levels_of_rows(levels: int) -> NDArray[np.int64]:
    """Return the number of levels of each row, in a traversal of so many levels."""
    size = levels_a_row(levels)
    return np.minimum(size, levels - np.arange(0, levels, size))


def summed(table: NDArray[Any]) -> NDArray[Any]:
    """Return a table with a row a level as a table with the rows that it may have; of a short traversal the same."""
    size = levels_a_row(len(table))
    return table if size == 1 else np.add.reduceat(table, np.arange(0, len(table), size))

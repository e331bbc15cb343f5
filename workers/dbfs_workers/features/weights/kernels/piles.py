"""What the rounds of a rank work on: the arrays, and the record of the counts that Python and the kernels share.

A distance is kept as an int64, its *key*: an integer itself, a float the bits of its type. Keys of numbers from 0 on
are in the order of the numbers, so that only a sum has to know the type.
"""

import ctypes
from typing import Final, NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from dbfs_workers.base.jit import INT64, READ_INT64, READ_UINT32, UINT8, UINT32, int64, named
from dbfs_workers.search.partition.kernels.rows import ROWS
from dbfs_workers.search.partition.partition import Rows
from dbfs_workers.search.reports.counts import structured

NEAR: Final = 1
FAR: Final = 2
CHANGED: Final = 1
"""Flags of an id: the rank's row is in the near pile, or in the far pile; another rank's is in the list of changes."""


CHUNK: Final = 64
"""Places of a pile that a thread of a team reserves at a time."""


class Piles(ctypes.Structure):
    """One traversal on one rank, between two rounds and within them.

    Attributes:
        unreached: the key of an unreached vertex: distances from here on are not labelled.
        bound: the largest key of the bucket: the vertices of distances up to there are near, others far.
        nearest: a lower bound of the keys of the far pile; ``NONE`` if the pile is empty.
        queue: which queue has the near pile.
        near, queued, far: vertices of the near pile, of its successor, and of the far pile.
        reached: vertices of this rank reached so far.
        done: rounds that the last call of a kernel completed.
        ended: when the last step ended: nanoseconds of the monotonic clock.
    """

    unreached: int
    bound: int
    nearest: int
    queue: int
    near: int
    queued: int
    far: int
    reached: int
    done: int
    ended: int


PILES: Final = structured(Piles)
"""``Piles`` as NumPy's."""

PILE_RECORDS: Final = types.Array(numba.from_dtype(PILES), 1, "C")


class Search(NamedTuple):
    """The arrays of a rank. Ids are internal ids of all ranks; rows are the rank's own.

    Attributes:
        rows: the rank's edges.
        distances: int64 by id, keys: of own rows the least distance so far; of others the least that was sent.
        parents: uint32 by id, the end of the edge that gave this distance; undefined for unreached ids.
        flags: uint8 by id.
        even_queue, odd_queue: uint32, the near pile and its successor, rows, which swap with each round. They have a
            place for each row, and for the gaps of a team.
        far: uint32, the far pile, as large, rows. Some are near by now, or final.
        changed: uint32 by id: the list of an owner's rows that are to be sent begins at the owner's first id.
        ends: int64[p], the rows of each list.
        targets: uint32, the rank's targets as rows; the traversal ends when all ranks' are final.
        limits: int64 by row, the largest key with which a row enters a pile; empty for no limits.
        clock: int64[2], scratch space.
        first: internal id of row 0.
    """

    rows: Rows
    distances: NDArray[np.int64]
    parents: NDArray[np.uint32]
    flags: NDArray[np.uint8]
    even_queue: NDArray[np.uint32]
    odd_queue: NDArray[np.uint32]
    far: NDArray[np.uint32]
    changed: NDArray[np.uint32]
    ends: NDArray[np.int64]
    targets: NDArray[np.uint32]
    limits: NDArray[np.int64]
    clock: NDArray[np.int64]
    first: int


SEARCH: Final = named(
    Search, ROWS, INT64, UINT32, UINT8, UINT32, UINT32, UINT32, UINT32, INT64, READ_UINT32, READ_INT64, INT64, int64
)

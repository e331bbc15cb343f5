"""When a repair is given up, and a new traversal takes its place.

All ranks decide at the same crossing, from sums over the ranks: the edges that they have looked at, and the time that
has passed. Times are nanoseconds of the ranks together. A time that the clocks show is never too short. It is too long
if other programs have the cores.
"""

from typing import Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from dbfs_workers.jit import INT64, int64, kernel

# Places in the limits, int64[5].
MOST = 0  # edges that may lie ahead of every repair
BUDGET = 1  # the time that those ahead may be expected to take
LIMIT = 2  # the time after which no more than as much time again may lie ahead
FEW = 3  # edges that a repair has looked at by then if the cores are its own
PATIENCE = 4  # the most time

# Shares of the time of a new traversal. The least such time counts; the median is a fifth longer.
_BUDGET_SHARE: Final = 0.6
_LIMIT_SHARE: Final = 0.2
_PATIENCE_SHARE: Final = 1.0
# A repair takes this time for an edge on a slow machine, and this one beside others' programs.
_EDGE_NANOSECONDS: Final = 50
_BUSY_NANOSECONDS: Final = 400
# Edges that may lie ahead of every repair of the ranks together, and time that comes on top for each rank: both take
# less time than the call.
_LEAST_EDGES: Final = 20_000
_LEAST_NANOSECONDS: Final = 500_000

# From this round on, most of the rows in doubt that have another support have found it. The others are roots of lost
# trees. The rows below a row of a tree are about as many as the tree has levels, of which some find a support; and for
# each of the rows in doubt, there are four rows and entries of bins to deal with.
_SETTLED_ROUND = 2
_ROOTS = 8


def of(nanoseconds: int, p: int) -> NDArray[np.int64]:
    """Return the limits, int64[5], of a repair by p ranks.

    Args:
        nanoseconds: duration of a new traversal, of the ranks together.
        p: number of ranks.
    """
    budget, limit, patience = (
        p * _LEAST_NANOSECONDS + int(share * nanoseconds) for share in (_BUDGET_SHARE, _LIMIT_SHARE, _PATIENCE_SHARE)
    )
    most = max(_LEAST_EDGES, int(_BUDGET_SHARE * nanoseconds) // _EDGE_NANOSECONDS)
    return np.array([most, budget, limit, limit // _BUSY_NANOSECONDS, patience], np.int64)


@kernel(types.boolean, INT64, int64, int64, int64)
def too_much(limits, looked, ahead, passed):
    """Return whether a new traversal is to take the repair's place.

    Args:
        limits: int64[5], see ``of``.
        looked: edges that the ranks together have looked at, at least 1.
        ahead: edges that they are expected to look at.
        passed: time that they have taken.
    """
    time_ahead = float(passed) * ahead / looked
    too_slow = time_ahead > limits[BUDGET] and ahead > limits[MOST]
    too_late = time_ahead > limits[LIMIT] and passed > limits[LIMIT] and looked > limits[FEW]
    return too_slow or too_late or passed > limits[PATIENCE]


@kernel(int64, int64, int64, int64)
def ahead_of_doubt(active, number, depth):
    """Return the edges that rounds of doubt are expected to look at yet.

    Args:
        active: rows and entries of bins that are left to deal with.
        number: number of the round, from 0 on.
        depth: the largest distance before the repair.
    """
    return active * depth // _ROOTS if number >= _SETTLED_ROUND else 0


@kernel(int64, int64, int64, int64, int64)
def ahead_of_search(looked, first, level, last):
    """Return the edges that a search is expected to look at yet, from its progress.

    Args:
        looked: edges that the search has looked at.
        first: level that the search began at.
        level: level that follows.
        last: level that the search may end at.
    """
    # The first levels say little.
    return looked * max(0, last - level) // max(1, level - first, last // 32)

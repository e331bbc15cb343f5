"""When a repair is given up, and a new traversal takes its place.

All ranks decide at the same crossing, from sums over the ranks: the edges that they have looked at, and the time that
has passed. Times are nanoseconds of the ranks together. A time that the clocks show is never too short. It is too long
if other programs have the cores.
"""

from typing import Final, NamedTuple

from numba import types

from dbfs_workers.base.jit import int64, kernel, named


class Limits(NamedTuple):
    """What a repair by ranks may take: see ``too_much``.

    Attributes:
        most: number of edges; a repair with no more of them ahead is never too slow.
        budget: the most time that the edges ahead may be expected to take.
        limit: once this time has passed, the most time that the edges ahead may be expected to take.
        few: number of edges that a repair looks at within ``limit`` even beside other programs.
        patience: the most time of a repair.
    """

    most: int
    budget: int
    limit: int
    few: int
    patience: int


LIMITS: Final = named(Limits, *(int64,) * 5)

# Shares of the time of a new traversal. The least such time counts; the median is a fifth longer.
_BUDGET_SHARE: Final = 0.6
_LIMIT_SHARE: Final = 0.2
_PATIENCE_SHARE: Final = 1.0
# Time of a repair for each edge: on a slow machine, and where other programs have the cores.
_EDGE_NANOSECONDS: Final = 50
_BUSY_NANOSECONDS: Final = 400
# Least value of ``most``, and time that each rank adds to the other bounds: both take less time than the call.
_LEAST_EDGES: Final = 20_000
_LEAST_NANOSECONDS: Final = 500_000

# In this round most rows in doubt that have another support have found the support: notices of deleted edges take one
# round, questions one, answers one. The other rows are roots of lost trees. Below a root lie about as many rows as its
# tree has levels, and some of these find a support. A row in doubt stands for four rows and entries of bins. So the
# edges ahead are an eighth of the rows and entries left, times the levels.
_SETTLED_ROUND = 3
_ROOTS = 8


def of(nanoseconds: int, p: int) -> Limits:
    """Return the limits of a repair by p ranks.

    Args:
        nanoseconds: duration of a new traversal, of the ranks together.
    """
    budget, limit, patience = (
        p * _LEAST_NANOSECONDS + int(share * nanoseconds) for share in (_BUDGET_SHARE, _LIMIT_SHARE, _PATIENCE_SHARE)
    )
    most = max(_LEAST_EDGES, int(_BUDGET_SHARE * nanoseconds) // _EDGE_NANOSECONDS)
    return Limits(most, budget, limit, int(limit // _BUSY_NANOSECONDS), patience)


@kernel(types.boolean, LIMITS, int64, int64, int64)
def too_much(limits, looked, ahead, passed):
    """Return whether a new traversal is to take the repair's place.

    Args:
        limits: see ``of``.
        looked: edges that the ranks together have looked at, at least 1.
        ahead: edges that they are expected to look at.
        passed: time that they have taken.
    """
    time_ahead = float(passed) * ahead / looked
    too_slow = time_ahead > limits.budget and ahead > limits.most
    too_late = time_ahead > limits.limit and passed > limits.limit and looked > limits.few
    return too_slow or too_late or passed > limits.patience


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

"""When a repair is given up, and a new traversal takes its place.

All ranks decide at the same crossing, from sums over the ranks: the edges that they have looked at, and the time that
has passed. Times are nanoseconds of the ranks together. A time that the clocks show is never too short. It is too long
if other programs have the cores.
"""

from typing import Final, NamedTuple

from numba import types

from dbfs_workers.base.jit import int64, kernel, named


class Limits(NamedTuple):
    """What a repair by ranks may take.

    Attributes:
        most: edges that may lie ahead of every repair.
        budget: the time that those ahead may be expected to take.
        limit: the time after which no more than as much time again may lie ahead.
        few: edges that a repair has looked at by then if the cores are its own.
        patience: the most time.
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
# A repair takes this time for an edge on a slow machine, and this one beside others' programs.
_EDGE_NANOSECONDS: Final = 50
_BUSY_NANOSECONDS: Final = 400
# Edges that may lie ahead of every repair of the ranks together, and time that comes on top for each rank: both take
# less time than the call.
_LEAST_EDGES: Final = 20_000
_LEAST_NANOSECONDS: Final = 500_000

# From this round on, most of the rows in doubt that have another support have found it: notices of deleted edges take a
# round, and so do questions and answers. The others are roots of lost
# trees. The rows below a row of a tree are about as many as the tree has levels, of which some find a support; and for
# each of the rows in doubt, there are four rows and entries of bins to deal with.
_SETTLED_ROUND = 3
_ROOTS = 8


def of(nanoseconds: int, p: int) -> Limits:
    """Return the limits of a repair by p ranks.

    Args:
        nanoseconds: duration of a new traversal, of the ranks together.
        p: number of ranks.
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

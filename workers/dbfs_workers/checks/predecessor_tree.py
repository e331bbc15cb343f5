"""The levels of the tree that predecessors form, and the vertices that are in no tree."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.checks import validation_kernels as kernels
from dbfs_workers.checks.verdict import Rule, Violation
from dbfs_workers.storage.stripe import Stripe

Levels = tuple[list[NDArray[np.int32]], Violation | None]
"""Distances by rank, and the rule that the predecessors break; None if they break none."""

_SHOWN = 8
"""Vertices of a circle that a violation names."""


def levels_along_predecessors(stripe: Stripe, predecessors: Sequence[NDArray[np.int64]]) -> Levels:
    """Return each vertex's number of steps along predecessors to a vertex that is its own predecessor.

    Predecessors out of range are one violation; no distances are returned then. Predecessors that lead in a circle, or
    to an unreached vertex, are another violation.

    Args:
        stripe: how the graph lies on the ranks.
        predecessors: by rank, int64 positions of the rank's rows without padding; -1 unreached.
    """
    parents = np.empty(stripe.n, np.int64)
    for rank, own in enumerate(predecessors):
        parents[rank :: stripe.p] = own
    levels = np.empty(stripe.n, np.int32)
    outside = np.flatnonzero((parents < -1) | (parents >= stripe.n))
    if outside.size:
        ranks: list[int] = np.unique(outside % stripe.p).tolist()
        return [], Violation(Rule.RANGE, (int(outside[0]),), tuple(ranks), outside.size)
    violation = find_rootless(stripe, parents, levels)
    return [levels[rank :: stripe.p].copy() for rank in range(stripe.p)], violation


def find_rootless(stripe: Stripe, parents: NDArray[np.int64], levels: NDArray[np.int32]) -> Violation | None:
    """Write the levels of all vertices into ``levels``; return the violation of vertices without a root, if any.

    Args:
        stripe: how the graph lies on the ranks.
        parents: int64[n], predecessors by position, all in range; -1 unreached.
        levels: int32[n]; ``kernels.NO_ROOT`` for vertices from which predecessors lead to no root.
    """
    if not kernels.levels_of_predecessors(parents, levels):
        return None
    rootless = np.flatnonzero(levels == kernels.NO_ROOT)
    path: list[int] = []
    at, seen = int(rootless[0]), set[int]()
    while at >= 0 and at not in seen:
        seen.add(at)
        path.append(at)
        at = int(parents[at])
    # A circle is named without the path that leads to it.
    vertices = path[path.index(at) :] if at >= 0 else path
    ranks: list[int] = np.unique(rootless % stripe.p).tolist()
    return Violation(Rule.TREE, tuple(vertices[:_SHOWN]), tuple(ranks), rootless.size)

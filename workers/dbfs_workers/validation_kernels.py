"""CPU kernels of the validator: a pass over edges against everybody's labels, and the levels of a tree."""

from typing import Final

import numpy as np
from numba import types

from dbfs_workers.jit import INT32, INT64, READ_INT64, READ_UINT32, UINT32, int64, kernel, void

FOUND: Final = 7
"""Numbers that ``check_edges`` counts: see there."""

LOST: Final = -2
"""Level of a vertex from which predecessors lead to no root."""

_UNKNOWN: Final = -3
_ON_THE_WAY: Final = -4

_READ_UINT64 = types.Array(types.uint64, 1, "C", readonly=True)
_HIGH = np.uint64(32)
_ONE = np.uint32(1)
_FIVE = np.uint32(5)
_BIT = np.uint32(31)


@kernel(void, READ_UINT32, READ_UINT32, _READ_UINT64, types.boolean, types.boolean, int64, UINT32, INT64)
def check_edges(src, dst, table, predecessors, directed, bound, unsupported, found):
    """Check edges against words of ``validation.PackedLabels``; a vertex of level ``bound`` was not expanded.

    Clears the bit in ``unsupported`` of each vertex that an edge supports. Adds to ``found``, and writes the first edge
    of each kind: edges that span more than one level (0, and the edge at 1 and 2), edges from a reached vertex to an
    unreached one (3, and the edge at 4 and 5), edges between reached vertices, self-loops left out (6).

    Few edges join a vertex to its predecessor and none breaks a rule, so those are the branches: the levels of an
    edge's ends, which no processor predicts, are compared without one. Scale 20, a core of a Xeon, nanoseconds an edge:
    7 so, 10 with a branch on the step between the levels.
    """
    inside = 0
    for i in range(src.size):
        u, v = src[i], dst[i]
        at_u, at_v = table[u], table[v]
        level_u, level_v = np.int64(at_u >> _HIGH), np.int64(at_v >> _HIGH)
        step = level_v - level_u
        if not predecessors or np.uint32(at_v) == u or np.uint32(at_u) == v:
            if step == 1 and (not predecessors or np.uint32(at_v) == u):
                unsupported[v >> _FIVE] &= ~(_ONE << (v & _BIT))
            elif step == -1 and not directed and (not predecessors or np.uint32(at_u) == v):
                unsupported[u >> _FIVE] &= ~(_ONE << (u & _BIT))
        # As an unsigned number, step + 1 is 0, 1 or 2, or larger.
        if np.uint64(step + 1) > np.uint64(2) or (level_u == 0) != (level_v == 0):
            kind = -1
            if level_u > 0 and level_v > 0:
                if step > 1 or not directed:
                    kind = 0
            elif (level_v == 0 and level_u < bound) or (level_u == 0 and not directed and level_v < bound):
                kind = 3
            if kind >= 0:
                if found[kind] == 0:
                    reached_first = level_u > 0
                    found[kind + 1] = u if reached_first else v
                    found[kind + 2] = v if reached_first else u
                found[kind] += 1
        inside += np.int64(level_u > 0) & np.int64(level_v > 0) & np.int64(u != v)
    found[6] += inside


@kernel(int64, READ_INT64, INT32)
def levels_of_predecessors(parents, levels):
    """Write each vertex's steps to a vertex that is its own parent: -1 if it has no parent (-1), ``LOST`` if none.

    Returns how many are lost: in a circle, on the way to one, or to a vertex without parent. Parents are in range.
    """
    levels[:] = _UNKNOWN
    lost = 0
    for start in range(parents.size):
        at, steps = start, 0
        while levels[at] == _UNKNOWN and parents[at] >= 0 and parents[at] != at:
            levels[at] = _ON_THE_WAY
            at = parents[at]
            steps += 1
        if levels[at] == _UNKNOWN:
            levels[at] = 0 if parents[at] == at else -1
        level = levels[at]
        at = start
        for step in range(steps, 0, -1):
            levels[at] = level + step if level >= 0 else LOST
            lost += level < 0
            at = parents[at]
    return lost

"""CPU kernels of the validator: a pass over edges against the labels of all ranks, and the levels of a tree."""

from typing import Final

import numpy as np
from numba import types

from dbfs_workers.base.intrinsics import trailing_zeros
from dbfs_workers.base.jit import INT32, INT64, READ_INT64, READ_UINT32, UINT32, int64, kernel, void

FOUND: Final = 7
"""Entries of ``check_edges``' argument ``found``: see there."""

NO_ROOT: Final = -2
"""Level of a vertex from which predecessors lead to no vertex that is its own predecessor."""

_UNKNOWN: Final = -3
_ON_THE_WAY: Final = -4

_GROUP = 32
_READ_UINT64 = types.Array(types.uint64, 1, "C", readonly=True)
_HIGH = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ZERO, _ONE, _TWO = np.uint64(0), np.uint64(1), np.uint64(2)
_BIT = np.uint32(1)
_WORD_SHIFT, _PLACE = np.uint32(5), np.uint32(31)


@kernel(types.UniTuple(int64, 2), READ_UINT32, READ_UINT32, int64, int64, _READ_UINT64, types.boolean, plain=True)
def _look(src, dst, first, count, table, predecessors):
    """Look at up to 32 edges without a branch; return a bit for each that needs a second look, and a count.

    An edge needs it if it breaks a rule or may support a vertex. The count is of edges between reached vertices,
    self-loops left out.
    """
    mask = np.uint32(0)
    inside = _ZERO
    for j in range(count):
        u, v = np.uint64(src[first + j]), np.uint64(dst[first + j])
        at_u, at_v = table[u], table[v]
        level_u, level_v = at_u >> _HIGH, at_v >> _HIGH
        # 0, 1 or 2 for levels that differ by one at most; larger for others, since the number is unsigned.
        step = level_v - level_u + _ONE
        wrong = (step > _TWO) | ((level_u == _ZERO) ^ (level_v == _ZERO))
        supports = ((at_u & _LOW) == v) | ((at_v & _LOW) == u) if predecessors else step != _ONE
        mask |= np.uint32(wrong | supports) << np.uint32(j)
        inside += np.uint64((level_u != _ZERO) & (level_v != _ZERO) & (u != v))
    return np.int64(mask), np.int64(inside)


@kernel(void, READ_UINT32, READ_UINT32, _READ_UINT64, types.boolean, types.boolean, int64, UINT32, INT64, plain=True)
def check_edges(src, dst, table, predecessors, directed, bound, unsupported, found):
    """Check edges against words of ``validation.PackedLabels``; vertices of level ``bound`` were not expanded.

    Clears the bit in ``unsupported`` of each vertex that an edge supports. Adds to ``found``, and writes the first edge
    of each kind: edges that span more than one level (0, and the edge at 1 and 2), edges from a reached vertex to an
    unreached one (3, and the edge at 4 and 5), edges between reached vertices, self-loops left out (6).

    One edge in 20 joins a vertex to its predecessor, and in right labels none breaks a rule. So a first pass looks at
    32 edges at a time without a branch, which the compiler turns into vector gathers. A branch on the step between the
    levels would be mispredicted every other time. Nanoseconds an edge at scale 20, on a core of a busy Xeon: 6 this
    way, 9 edge by edge.
    """
    inside = 0
    for first in range(0, src.size, _GROUP):
        if first + _GROUP <= src.size:
            mask, within = _look(src, dst, first, _GROUP, table, predecessors)
        else:
            mask, within = _look(src, dst, first, src.size - first, table, predecessors)
        inside += within
        while mask != 0:
            j = first + np.int64(trailing_zeros(np.uint32(mask)))
            mask &= mask - 1
            u, v = src[j], dst[j]
            at_u, at_v = table[u], table[v]
            level_u, level_v = np.int64(at_u >> _HIGH), np.int64(at_v >> _HIGH)
            step = level_v - level_u
            if step == 1 and level_u > 0:
                if not predecessors or np.uint32(at_v) == u:
                    unsupported[v >> _WORD_SHIFT] &= ~(_BIT << (v & _PLACE))
            elif step == -1 and level_v > 0:
                if not directed and (not predecessors or np.uint32(at_u) == v):
                    unsupported[u >> _WORD_SHIFT] &= ~(_BIT << (u & _PLACE))
            elif step != 0:
                kind = -1
                if level_u > 0 and level_v > 0:
                    if step > 1 or not directed:
                        kind = 0
                elif 0 < level_u < bound or (0 < level_v < bound and not directed):
                    kind = 3
                if kind >= 0:
                    if found[kind] == 0:
                        found[kind + 1] = u if level_u > 0 else v
                        found[kind + 2] = v if level_u > 0 else u
                    found[kind] += 1
    found[6] += inside


@kernel(int64, READ_INT64, INT32)
def levels_of_predecessors(parents, levels):
    """Write each vertex's number of steps to a vertex that is its own parent: -1 for an unreached vertex (parent -1).

    ``NO_ROOT`` for a vertex whose parents lead in a circle, or to an unreached vertex. Returns the number of vertices
    with ``NO_ROOT``. Parents are in range.
    """
    levels[:] = _UNKNOWN
    rootless = 0
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
            levels[at] = level + step if level >= 0 else NO_ROOT
            rootless += level < 0
            at = parents[at]
    return rootless

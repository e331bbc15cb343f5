"""The rule for a level's direction (Beamer 2012, section 3): compare frontier edges with unexplored edges, every level.

Beamer's rule assumes that the rest of the graph is near the frontier. In a mesh, or a chain of communities, most of it
is far away: rows look through all of their edges in vain, level after level. So two conditions are added. A level goes
bottom-up only if the frontier, growing as it did, would reach the rest in the next level. And the next bottom-up level
is expected to look at the same share of the edges as the last one.

Edges looked at over those of the component, ``direction="auto"``, 2 ranks, without both conditions / with both (a 64th
of Merrill's graphs): nlpkkt160 5.0 / 0.9, audikw1 3.8 / 0.8, cage15 2.3 / 0.8, kkt_power 6.4 / 1.0, coPapersCiteseer
6.9 / 1.4, wikipedia 4.7 / 1.5. On Kronecker graphs, R-MAT and uniform ones the conditions change nothing.
"""

from typing import Final, Protocol

# A bottom-up level looks at a part of the unexplored edges (it stops at a row's first parent) and at every word of the
# bitmap of rows, whatever the frontier. A top-down level looks at every edge of the frontier. Milliseconds a traversal
# for ALPHA 14 / 20 / 30 / 40 with ROWS_PER_EDGE 16 (2 ranks, 2 cores, means over 16 sources): Kronecker scale 20
# 11.5 / 11.5 / 12.4 / 13.6, in degree order 4.3 / 4.4 / 4.2 / 4.5; uniform, 10^6 vertices, 8 * 10^6 edges
# 23.1 / 20.3 / 20.6 / 20.3; 3-D grid of 10^6 29.3 / 29.6 / 27.9 / 30.1. ROWS_PER_EDGE 4 and 64 cost 0 to 20 % more.
ALPHA: Final = 20
ROWS_PER_EDGE: Final = 16

BATCH_SHARE: Final = 1 / 3
"""Share of all edges that a bottom-up level of a batch is expected to look at, at most."""

# Of the resident kernel on GPUs, whose rule ``search/cuda/kernels/resident/direction.cuh`` describes. Measured:
# docs/decisions/direction.md.
GPU_ALPHA: Final = 40.0
GPU_BETA: Final = 20000.0
SPARE_EDGES: Final = 1 << 20
"""Edges of one rank that a bottom-up level looks at in the time of the kernel's steps back to top-down."""


def expected_search_share(searched: int = 0, unexplored_edges: int = 0) -> float:
    """Return the share of the unexplored edges that the next bottom-up level is expected to look at.

    The next level is expected to look at the share of the last one, and at least at 1 / ALPHA, as before the first one.
    If most unvisited vertices are far from the frontier (a mesh, a chain of communities), they look through all of
    their edges in vain. One level shows that: its share is near 1.

    Args:
        searched: edges that the last bottom-up level looked at.
        unexplored_edges: sum of the degrees of unvisited vertices when it began.
    """
    return max(1 / ALPHA, searched / max(1, unexplored_edges))


class Sums(Protocol):
    """What the rule reads of a traversal's state: see ``state.State``."""

    n: int
    bottom_up: bool
    exact: bool
    frontier_edges: int
    expanded_edges: int
    unexplored_edges: int
    search_share: float


def looks_at_fewer(edges: int, others: int, share: float, n: int) -> bool:
    """Return whether a bottom-up level is expected to look at fewer edges than a top-down one.

    Args:
        edges: sum of the frontier's degrees.
        others: edges of the rows that a bottom-up level searches.
        share: share of ``others`` that the level is expected to look at.
        n: vertices of the graph.
    """
    return edges > others * share + n / ROWS_PER_EDGE


def bottom_up_pays(state: Sums) -> bool:
    """Return whether the next level is faster bottom-up. Python and Numba's kernels call this function.

    If the frontier's edges are an upper bound, return whether the level may be faster. If it may not, no rank needs to
    sum its degrees, and the ranks need no second crossing: each level of a road network keeps its one barrier.

    Args:
        state: the traversal, after a level. Its unexplored edges include those of the frontier.
    """
    edges = state.frontier_edges
    others = state.unexplored_edges - edges
    # In this order, since a division takes as long as the rest.
    fewer = looks_at_fewer(edges, others, state.search_share, state.n)
    if not fewer or not state.exact:
        return fewer
    growth = edges / max(1, state.expanded_edges)
    return edges * (1 + growth) > others


def bottom_up_pays_batch(state: Sums, all_edges: int, searched: int) -> bool:
    """Return whether the next level of a batch of sources is faster bottom-up.

    A bottom-up level searches each row that lacks any source of the frontier. In most levels that is most rows, so the
    rule compares with all edges, not with unexplored ones. A row's search ends late, with the last source. Once a
    level has shown how late, the next level is expected to look at no more edges.

    Args:
        state: the traversal, after a level.
        searched: edges that the last level looked at.
    """
    share = min(BATCH_SHARE, searched / max(1, all_edges)) if state.bottom_up else BATCH_SHARE
    return looks_at_fewer(state.frontier_edges, all_edges, share, state.n)

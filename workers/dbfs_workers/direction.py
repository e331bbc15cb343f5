"""When a level runs bottom-up (Beamer 2012, section 3): frontier edges against unexplored edges, at every level."""

# A bottom-up level looks at a part of the unexplored edges (it stops at a row's first parent) and at every word of the
# bitmap of rows, whatever the frontier; a top-down level looks at every edge of the frontier. Milliseconds a traversal
# for ALPHA 14 / 20 / 30 / 40 with ROWS_PER_EDGE 16 (2 ranks, 2 cores, means over 16 sources): Kronecker scale 20
# 11.5 / 11.5 / 12.4 / 13.6, in degree order 4.3 / 4.4 / 4.2 / 4.5; uniform, 10^6 vertices, 8 * 10^6 edges
# 23.1 / 20.3 / 20.6 / 20.3; 3-D grid of 10^6 29.3 / 29.6 / 27.9 / 30.1. ROWS_PER_EDGE 4 and 64 cost 0 to 20 % more.
ALPHA = 20
ROWS_PER_EDGE = 16


def bottom_up_pays(frontier_edges: int, unexplored_edges: int, n: int) -> bool:
    """Whether the next level is faster bottom-up.

    Args:
        frontier_edges: sum of the frontier's degrees.
        unexplored_edges: sum of the degrees of unvisited vertices.
        n: vertices of the graph.
    """
    return frontier_edges > unexplored_edges / ALPHA + n / ROWS_PER_EDGE


def bottom_up_may_pay(found: int, max_degree: int, remaining_edges: int, n: int) -> bool:
    """Whether ``bottom_up_pays`` could say yes of at most ``found`` vertices.

    On a level where it can't, no rank need sum its degrees and nobody waits for the sums: a road network's levels keep
    their one barrier.

    Args:
        found: vertices in the frontier, or more.
        max_degree: the graph's largest degree.
        remaining_edges: sum of the degrees of unvisited vertices, the frontier being counted as unvisited.
        n: vertices of the graph.
    """
    frontier_edges = min(found * max_degree, remaining_edges)
    return bottom_up_pays(frontier_edges, remaining_edges - frontier_edges, n)

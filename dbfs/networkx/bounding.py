"""Eccentricities of an undirected graph from few traversals, by bounds on all of them.

Takes and Kosters, "Computing the eccentricity distribution of large graphs", 2013. A traversal from a vertex v of
eccentricity e bounds the eccentricity of every vertex at distance d: between max(d, e - d) and e + d. Traversals start
in turn from the vertex with the smallest lower bound and from that with the largest upper bound. Vertices whose bounds
meet, or can't change the measure, need no traversal of their own.
"""

from __future__ import annotations

import enum
import itertools
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dbfs.networkx import searches
from dbfs.networkx.backend_graph import BackendGraph

PATIENCE: Final = 64
"""Traversals after which bounds are given up if they decided fewer than two vertices for each traversal. The vertices
left then get a traversal each: several in one run, whose labels stay on the workers. Graphs that look alike from all
vertices, such as cycles and lattices, come to this."""


class Measure(enum.Enum):
    """What the eccentricities are needed for: bounds of other vertices stay wide, but leave the measure as it is."""

    ALL = "the eccentricity of every vertex"
    LARGEST = "the largest eccentricity"
    SMALLEST = "the smallest eccentricity"
    LARGEST_EACH = "every vertex of the largest eccentricity"
    SMALLEST_EACH = "every vertex of the smallest eccentricity"


def bounded_eccentricities(graph: BackendGraph, measure: Measure) -> NDArray[np.int64] | None:
    """Return int64[n], an eccentricity by vertex, exact as far as the measure needs; None if the graph is disconnected.

    For a largest eccentricity these are lower bounds, else upper bounds: the measure of the bounds is that of the
    eccentricities.
    """
    n = len(graph)
    lower, upper = np.zeros(n, np.int64), np.full(n, np.iinfo(np.int64).max)
    open_ = np.ones(n, np.bool_)
    degrees = graph.adjacency.degrees
    vertex, from_far, before = int(np.argmax(degrees)), True, n
    for step in itertools.count(1):
        distances = searches.distances(graph, [vertex])
        if distances.min() < 0:
            return None
        most = int(distances.max())
        np.maximum(lower, np.maximum(distances, most - distances), out=lower)
        np.minimum(upper, most + distances, out=upper)
        lower[vertex] = upper[vertex] = most
        open_ &= _undecided(lower, upper, measure)
        left = np.flatnonzero(open_)
        if step % PATIENCE == 0:
            if before - left.size < 2 * PATIENCE:
                break
            before = left.size
        if not left.size:
            break
        bound = -upper[left] if from_far else lower[left]
        vertex = int(left[np.lexsort((-degrees[left], bound))[0]])
        from_far = not from_far
    for one, (depth, _) in zip(left.tolist(), searches.many_depths(graph, left.tolist()), strict=True):
        lower[one] = upper[one] = depth
    return lower if measure in (Measure.LARGEST, Measure.LARGEST_EACH) else upper


def _undecided(lower: NDArray[np.int64], upper: NDArray[np.int64], measure: Measure) -> NDArray[np.bool_]:
    """Return which vertices may still change the measure."""
    undecided: NDArray[np.bool_] = lower != upper
    if measure is Measure.LARGEST:
        undecided &= upper > lower.max()
    elif measure is Measure.SMALLEST:
        undecided &= lower < upper.min()
    elif measure is Measure.LARGEST_EACH:
        undecided &= upper >= lower.max()
    elif measure is Measure.SMALLEST_EACH:
        undecided &= lower <= upper.min()
    return undecided

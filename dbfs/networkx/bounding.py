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

ROUND: Final = 64
"""Traversals of a round from chosen vertices."""

PLAIN: Final = 192
"""Traversals from any undecided vertices, made after a round that decided few. Each decides one vertex. They run
several at once, and their labels stay on the workers, so together they take about as long as a round. Graphs that look
alike from all vertices, such as cycles, need them."""


class Measure(enum.Enum):
    """The measure for which eccentricities are needed. Vertices that can't change the measure keep wide bounds."""

    ALL = "the eccentricity of every vertex"
    LARGEST = "the largest eccentricity"
    SMALLEST = "the smallest eccentricity"
    LARGEST_EACH = "every vertex of the largest eccentricity"
    SMALLEST_EACH = "every vertex of the smallest eccentricity"


def bounded_eccentricities(graph: BackendGraph, measure: Measure) -> NDArray[np.int64] | None:
    """Return int64[n], an eccentricity by vertex, exact as far as the measure needs; None if the graph is disconnected.

    The answer has lower bounds if the measure is a largest eccentricity, else upper bounds: the measure of these bounds
    equals the measure of the eccentricities.
    """
    n = len(graph)
    lower, upper = np.zeros(n, np.int64), np.full(n, np.iinfo(np.int64).max)
    degrees = graph.adjacency.degrees
    vertex, from_far, left, before = int(np.argmax(degrees)), True, np.arange(n), n
    for step in itertools.count(1):
        distances = searches.distances(graph, [vertex])
        if distances.min() < 0:
            return None
        most = int(distances.max())
        np.maximum(lower, np.maximum(distances, most - distances), out=lower)
        np.minimum(upper, most + distances, out=upper)
        lower[vertex] = upper[vertex] = most
        left = left[_undecided(lower, upper, measure)[left]]
        if step % ROUND == 0:
            if before - left.size < PLAIN:
                some = left[:PLAIN].tolist()
                for one, (depth, _) in zip(some, searches.many_depths(graph, some), strict=True):
                    lower[one] = upper[one] = depth
                left = left[_undecided(lower, upper, measure)[left]]
            before = left.size
        if not left.size:
            break
        bound = -upper[left] if from_far else lower[left]
        vertex = int(left[np.lexsort((-degrees[left], bound))[0]])
        from_far = not from_far
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

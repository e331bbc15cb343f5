"""Eccentricities, and the measures made of them: diameter, radius, center, periphery, and the barycenter."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Hashable
from typing import Any, Final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dbfs.networkx import searches
from dbfs.networkx.backend_graph import BackendGraph
from dbfs.networkx.registry import NO_TRAVERSAL, NO_WEIGHTS, offered

_REFUSED = {"weight": NO_WEIGHTS, "e": NO_TRAVERSAL}


@offered(refused={"weight": NO_WEIGHTS, "sp": NO_TRAVERSAL}, single=("v",))
def eccentricity(
    G: BackendGraph,
    v: Any = None,
    sp: None = None,
    weight: None = None,
) -> int | dict[Any, int]:
    """Return the largest distance from a node, or that from each of several or all nodes by node."""
    if v is None:
        return dict(zip(G, _eccentricities(G, Measure.ALL).tolist(), strict=True))
    nodes = list(dict.fromkeys(G.nodes_in(v)))
    depths = searches.many_depths(G, G.vertices(nodes).tolist()) if nodes else iter(())
    found = {}
    for node, (depth, reached) in zip(nodes, depths, strict=True):
        if reached != len(G):
            raise _disconnected(G)
        found[node] = depth
    return found[v] if v in G else found


@offered(refused=_REFUSED, single=())
def diameter(G: BackendGraph, e: None = None, usebounds: bool = False, weight: None = None) -> int:
    """Return the largest eccentricity."""
    return int(max(_eccentricities(G, Measure.LARGEST).tolist()))


@offered(refused=_REFUSED, single=())
def radius(G: BackendGraph, e: None = None, usebounds: bool = False, weight: None = None) -> int:
    """Return the smallest eccentricity."""
    return int(min(_eccentricities(G, Measure.SMALLEST).tolist()))


@offered(refused=_REFUSED, single=())
def periphery(
    G: BackendGraph,
    e: None = None,
    usebounds: bool = False,
    weight: None = None,
) -> list[Hashable]:
    """Return the nodes of the largest eccentricity, in the order of the graph."""
    found = _eccentricities(G, Measure.LARGEST_EACH)
    return G.nodes_of(np.flatnonzero(found == max(found.tolist())))


@offered(refused=_REFUSED, single=())
def center(
    G: BackendGraph,
    e: None = None,
    usebounds: bool = False,
    weight: None = None,
) -> list[Hashable]:
    """Return the nodes of the smallest eccentricity, in the order of the graph."""
    _require_nodes(G)
    found = _eccentricities(G, Measure.SMALLEST_EACH)
    return G.nodes_of(np.flatnonzero(found == min(found.tolist())))


@offered(refused={"weight": NO_WEIGHTS, "attr": "dbfs changes no graph", "sp": NO_TRAVERSAL}, single=())
def barycenter(
    G: BackendGraph,
    weight: None = None,
    attr: None = None,
    sp: None = None,
) -> list[Hashable]:
    """Return the nodes with the smallest sum of distances to all nodes, in the order of the graph."""
    _require_nodes(G)
    sums = []
    for counts in searches.many_counts(G, range(len(G))) if len(G) else ():
        if counts.sum() != len(G):
            words = f"Input graph {G} is disconnected, so every induced subgraph has infinite barycentricity."
            raise nx.NetworkXNoPath(words)
        sums.append(int(counts @ np.arange(counts.size)))
    return G.nodes_of(np.flatnonzero(np.array(sums) == min(sums))) if sums else []


def _eccentricities(graph: BackendGraph, measure: Measure) -> NDArray[np.int64]:
    """Return the eccentricity of each vertex, as far as the measure needs them.

    Raise ``NetworkXError`` if some vertex does not reach all others.
    """
    if not len(graph):
        return np.empty(0, np.int64)
    if not graph.is_directed():
        found = bounded_eccentricities(graph, measure)
        if found is None:
            raise _disconnected(graph)
        return found
    depths = np.empty(len(graph), np.int64)
    for vertex, (depth, reached) in enumerate(searches.many_depths(graph, range(len(graph)))):
        if reached != len(graph):
            raise _disconnected(graph)
        depths[vertex] = depth
    return depths


def _require_nodes(graph: BackendGraph) -> None:
    # NetworkX first tests whether an undirected graph is a tree, and refuses a graph without nodes there.
    if not len(graph) and not graph.is_directed():
        raise nx.NetworkXPointlessConcept("G has no nodes.")


def _disconnected(graph: BackendGraph) -> nx.NetworkXError:
    kind = "digraph is not strongly connected" if graph.is_directed() else "graph is not connected"
    return nx.NetworkXError(f"Found infinite path length because the {kind}")


ROUND_TRAVERSALS: Final = 64
"""Traversals of a round from chosen vertices."""

PLAIN_TRAVERSALS: Final = 192
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
        if step % ROUND_TRAVERSALS == 0:
            if before - left.size < PLAIN_TRAVERSALS:
                some = left[:PLAIN_TRAVERSALS].tolist()
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

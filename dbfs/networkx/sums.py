"""Numbers of a whole graph that are sums over the distances of all pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dbfs.errors import InvalidOptionTypeError
from dbfs.networkx import searches
from dbfs.networkx.backend_graph import BackendGraph
from dbfs.networkx.components import is_connected, is_strongly_connected
from dbfs.networkx.paths import distance
from dbfs.networkx.registry import NO_TRAVERSAL, NO_WEIGHTS, offered

_METHODS = ("unweighted", "dijkstra", "bellman-ford", "floyd-warshall", "floyd-warshall-numpy")


@offered(refused={"weight": NO_WEIGHTS}, single=())
def average_shortest_path_length(G: BackendGraph, weight: None = None, method: str | None = None) -> float:
    """Return the mean distance of all pairs of nodes."""
    if method is not None and method not in _METHODS:
        raise ValueError(f"method not supported: {method}")
    n = len(G)
    if n == 0:
        words = "the null graph has no paths, thus there is no average shortest path length"
        raise nx.NetworkXPointlessConcept(words)
    if n == 1:
        return 0
    if not _connected(G):
        raise nx.NetworkXError(f"Graph is not {'strongly ' if G.is_directed() else ''}connected.")
    return int(_sum(G, lambda distances: distances)) / (n * (n - 1))


@offered(refused={"weight": NO_WEIGHTS}, single=())
def wiener_index(G: BackendGraph, weight: None = None) -> float:
    """Return the sum of the distances of all pairs, each undirected pair once; infinite if disconnected."""
    if not _connected(G):
        return math.inf
    total = int(_sum(G, lambda distances: distances))
    return total if G.is_directed() else total / 2


@offered(refused={"weight": NO_WEIGHTS}, single=())
def hyper_wiener_index(G: BackendGraph, weight: None = None) -> float:
    """Return the sum of ``(d + d²) / 2`` over the distances of all ordered pairs; infinite if disconnected."""
    return int(_sum(G, lambda distances: distances + distances**2)) / 2 if _connected(G) else math.inf


@offered(refused={"weight": NO_WEIGHTS}, single=())
def schultz_index(G: BackendGraph, weight: None = None) -> float:
    """Return the sum of ``d (k + l)`` over all pairs at distance d with degrees k and l; infinite if disconnected."""
    return float(sum(far for _, far in _far_degrees(G))) if _connected(G) else math.inf


@offered(refused={"weight": NO_WEIGHTS}, single=())
def gutman_index(G: BackendGraph, weight: None = None) -> float:
    """Return the sum of ``d k l`` over all pairs at distance d with degrees k and l; infinite if disconnected."""
    return sum(degree * far for degree, far in _far_degrees(G)) / 2 if _connected(G) else math.inf


@offered(single=())
def global_efficiency(G: BackendGraph) -> float:
    """Return the mean inverse distance of all pairs, 0 for a pair without a path."""
    n = len(G)
    return float(_sum(G, lambda distances: 1 / distances)) / (n * (n - 1)) if n > 1 else 0


@offered()
def efficiency(G: BackendGraph, u: Hashable, v: Hashable) -> float:
    """Return the inverse distance of two nodes, 0 if no path joins them."""
    for name, node in (("u", u), ("v", v)):
        if node is None:
            raise InvalidOptionTypeError(f"{name} must be a node, not None; efficiency needs two nodes")
    length = distance(G, u, v)
    return 0 if length is None else 1 / length


@offered(refused={"weight": NO_WEIGHTS, "sp": NO_TRAVERSAL}, single=())
def harmonic_diameter(G: BackendGraph, sp: None = None, *, weight: None = None) -> float:
    """Return the harmonic mean of the distances of all pairs, infinite for a pair without a path."""
    n = len(G)
    total = float(_sum(G, lambda distances: 1 / distances)) if n else 0.0
    if total:
        return n * (n - 1) / total
    return math.inf if n > 1 else math.nan


def _connected(graph: BackendGraph) -> bool:
    return is_strongly_connected(graph) if graph.is_directed() else is_connected(graph)


def _sum(graph: BackendGraph, value: Callable[[NDArray[np.int64]], NDArray[Any]]) -> Any:
    """Return the sum of a function of the distance over all ordered pairs of different vertices with a path."""
    counts = np.diff(graph.loaded().neighbourhood_function().pairs)
    return (counts @ value(np.arange(1, counts.size + 1))).item()


def _far_degrees(graph: BackendGraph) -> Iterator[tuple[int, int]]:
    """Yield for each vertex of a connected graph its degree, and the sum of distance times degree of all vertices."""
    for vertex, distances in enumerate(searches.many_distances(graph, range(len(graph)))):
        yield int(graph.degrees[vertex]), int(distances @ graph.degrees)

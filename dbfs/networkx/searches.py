"""The searches that the functions of the backend are made of: distances, trees, and counts of many searches."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dbfs.features.batches import sweeps
from dbfs.networkx.backend_graph import Adjacency, BackendGraph, Way


def require(graph: BackendGraph, node: Hashable, words: str) -> None:
    """Require a node to be in the graph; ``words`` is NetworkX's message, with ``{}`` for the node.

    Raise ``NodeNotFound`` if it is not.
    """
    if node not in graph:
        raise nx.NodeNotFound(words.format(node))


def max_depth(cutoff: float | None) -> int | None:
    """Return the largest distance within a cutoff of NetworkX's, which may be a fraction, infinite or negative."""
    if cutoff is None or cutoff == math.inf:
        return None
    return math.ceil(cutoff) if cutoff > 0 else 0


def distances(
    graph: BackendGraph,
    sources: Sequence[int],
    *,
    cutoff: float | None = None,
    way: Way = Way.FORWARD,
) -> NDArray[np.int32]:
    """Return int32[n], the distance of each vertex from the nearest source, -1 unreached."""
    result = graph.loaded(way).bfs(sources, max_depth=max_depth(cutoff))
    found = result.distances()
    result.release()
    return found


def reached(
    graph: BackendGraph, source: int, *, cutoff: float | None = None, way: Way = Way.FORWARD
) -> NDArray[np.int64]:
    """Return the vertices that a search reaches, the source included, ascending."""
    result = graph.loaded(way).bfs(source, max_depth=max_depth(cutoff))
    found = result.vertices_between(0, result.depth)
    result.release()
    return found


def number_reached(graph: BackendGraph, source: int, *, way: Way = Way.FORWARD) -> int:
    """Return the number of vertices that a search reaches, the source included."""
    return graph.loaded(way).bfs(source).reached


@dataclass(frozen=True)
class Tree:
    """A search tree in NetworkX's order.

    Attributes:
        order: int64, the vertices in the order in which NetworkX finds them, the source first.
        parents: int64, the parent of each vertex of ``order`` except the source, so that it is shorter by one.
    """

    order: NDArray[np.int64]
    parents: NDArray[np.int64]


def tree(graph: BackendGraph, source: int, *, cutoff: float | None = None, way: Way = Way.FORWARD) -> Tree:
    """Return the tree that NetworkX's search from a vertex makes."""
    start = np.array([source])
    order, parents = [start], [start[:0]]
    for before, after, first in _shortest_edges(graph, start, cutoff, way):
        order.append(after[first])
        parents.append(before[first])
    return Tree(np.concatenate(order), np.concatenate(parents))


def layers(graph: BackendGraph, sources: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the vertices at each distance, in the order in which NetworkX finds them."""
    yield sources
    for _, after, first in _shortest_edges(graph, sources, None, Way.FORWARD):
        yield after[first]


def all_parents(
    graph: BackendGraph, source: int, *, cutoff: float | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all edges of shortest paths from a vertex as (before, after), in NetworkX's order."""
    start = np.array([source])
    levels = [(before, after) for before, after, _ in _shortest_edges(graph, start, cutoff, Way.FORWARD)]
    before, after = zip((start[:0], start[:0]), *levels, strict=True)
    return np.concatenate(before), np.concatenate(after)


def _shortest_edges(
    graph: BackendGraph, sources: NDArray[np.int64], cutoff: float | None, way: Way
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]:
    found = distances(graph, sources.tolist(), cutoff=cutoff, way=way)
    return shortest_edges(graph.adjacency_of(way), found, sources)


def shortest_edges(
    adjacency: Adjacency, distances: NDArray[np.int32], sources: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]:
    """Yield for each level of a search the edges that lead to the next level, in NetworkX's order.

    A sequential search scans the vertices of a level in the order in which it found them, and their neighbours in the
    order of the graph. The distances say which of these edges lead on, so that a level is a few array operations.

    Args:
        adjacency: the neighbours.
        distances: int32[n], the distance of each vertex, -1 unreached.
        sources: the vertices at distance 0, in order.

    Yields:
        the vertices that the edges leave, the vertices that the edges lead to, and whether an edge is the first to lead
        to its vertex: three arrays of one length, which is above 0.
    """
    place = np.empty(distances.size, np.int64)
    level, frontier = 0, sources
    while True:
        level += 1
        parents, children = adjacency.pairs_of(frontier)
        leads_on = distances[children] == level
        parents, children = parents[leads_on], children[leads_on]
        if not children.size:
            return
        edges = np.arange(children.size)
        # NumPy keeps the last of several values for one index: in reversed order the first edge.
        place[children[::-1]] = edges[::-1]
        first = place[children] == edges
        yield parents, children, first
        frontier = children[first]


def many_distances(
    graph: BackendGraph, sources: Iterable[int], *, cutoff: float | None = None, way: Way = Way.FORWARD
) -> Iterator[NDArray[np.int32]]:
    """Yield the distances from each of many vertices, in order."""
    for result in graph.loaded(way).bfs_stream(sources, max_depth=max_depth(cutoff)):
        yield result.distances()


def many_counts(graph: BackendGraph, sources: Sequence[int]) -> Iterator[NDArray[np.int64]]:
    """Yield for each of many different vertices the number of vertices at each distance, from distance 0 on."""
    for some in sweeps.counts_of(graph.loaded(), np.array(sources, np.int64), None, what="bfs"):
        for counts in some:
            yield counts[: np.count_nonzero(counts)]

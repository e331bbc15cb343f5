"""Breadth-first traversals: edges, trees, layers, and the nodes within reach."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import networkx as nx

from dbfs.networkx import searches
from dbfs.networkx.backend_graph import BackendGraph, Way
from dbfs.networkx.registry import NO_WEIGHTS, SORTED, offered
from dbfs.networkx.searches import require

Edges = Iterator[tuple[Any, Any]]


@offered(refused={"neighbors": SORTED})
def generic_bfs_edges(
    G: BackendGraph,
    source: Hashable,
    neighbors: None = None,
    depth_limit: float | None = None,
) -> Edges:
    """Yield the edges of the search tree, from parent to child."""
    yield from _tree_edges(G, source, depth_limit, Way.FORWARD)


@offered(refused={"sort_neighbors": SORTED})
def bfs_edges(
    G: BackendGraph,
    source: Hashable,
    reverse: bool = False,
    depth_limit: float | None = None,
    sort_neighbors: None = None,
) -> Edges:
    """Yield the edges of the search tree, from parent to child."""
    yield from _tree_edges(G, source, depth_limit, Way.BACKWARD if reverse else Way.FORWARD)


@offered(refused={"sort_neighbors": SORTED})
def bfs_tree(
    G: BackendGraph,
    source: Hashable,
    reverse: bool = False,
    depth_limit: float | None = None,
    sort_neighbors: None = None,
) -> nx.DiGraph:
    """Return the search tree as a NetworkX graph."""
    found = nx.DiGraph()
    found.add_node(source)
    found.add_edges_from(_tree_edges(G, source, depth_limit, Way.BACKWARD if reverse else Way.FORWARD))
    return found


@offered(refused={"sort_neighbors": SORTED})
def bfs_predecessors(
    G: BackendGraph,
    source: Hashable,
    depth_limit: float | None = None,
    sort_neighbors: None = None,
) -> Edges:
    """Yield each node within reach with its parent."""
    for parent, child in _tree_edges(G, source, depth_limit, Way.FORWARD):
        yield child, parent


@offered(refused={"sort_neighbors": SORTED})
def bfs_successors(
    G: BackendGraph,
    source: Hashable,
    depth_limit: float | None = None,
    sort_neighbors: None = None,
) -> Iterator[tuple[Any, list[Any]]]:
    """Yield each node that has children in the search tree with its children; the source even if it has none."""
    edges = _tree_edges(G, source, depth_limit, Way.FORWARD)
    empty = True
    for parent, group in itertools.groupby(edges, key=lambda edge: edge[0]):
        empty = False
        yield parent, [child for _, child in group]
    if empty:
        yield source, []


@offered()
def bfs_layers(G: BackendGraph, sources: Hashable | Iterable[Hashable]) -> Iterator[list[Any]]:
    """Yield the nodes at each distance from a node, or from the nearest of several."""
    # As in NetworkX, the order of several sources is that of their set.
    first: list[Any] = [sources] if sources in G else list(set(sources))  # type: ignore[arg-type]  # no node: several
    for source in first:
        _require(G, source)
    if first:
        for layer in searches.layers(G, G.vertices(first)):
            yield G.nodes_of(layer)


@offered()
def descendants_at_distance(G: BackendGraph, source: Hashable, distance: int) -> set[Any]:
    """Return the nodes at a distance from a node."""
    _require(G, source)
    if distance is None or distance < 0 or distance != int(distance):
        return set()
    result = G.loaded().bfs(G.vertex(source), max_depth=int(distance))
    return set(G.nodes_of(result.vertices_between(int(distance), int(distance))))


@offered()
def descendants(G: BackendGraph, source: Hashable) -> set[Any]:
    """Return the nodes that a node reaches, without the node itself."""
    return _within_reach(G, source, Way.FORWARD)


@offered()
def ancestors(G: BackendGraph, source: Hashable) -> set[Any]:
    """Return the nodes that reach a node, without the node itself."""
    return _within_reach(G, source, Way.BACKWARD)


@offered(refused={"distance": NO_WEIGHTS})
def ego_graph(
    G: BackendGraph,
    n: Hashable,
    radius: float = 1,
    center: bool = True,
    undirected: bool = False,
    distance: None = None,
) -> nx.Graph:
    """Return the subgraph of the nodes within a radius of a node, with all attributes."""
    require(G, n, "Source {} is not in G")
    way = Way.BOTH if undirected else Way.FORWARD
    near = searches.reached(G, G.vertex(n), cutoff=radius, way=way)
    found = G.original.subgraph(G.nodes_of(near)).copy()
    if not center:
        found.remove_node(n)
    return found


def _tree_edges(graph: BackendGraph, source: Hashable, depth_limit: float | None, way: Way) -> Edges:
    _require(graph, source)
    found = searches.tree(graph, graph.vertex(source), cutoff=depth_limit, way=way)
    return zip(graph.nodes_of(found.parents), graph.nodes_of(found.order[1:]), strict=True)


def _within_reach(graph: BackendGraph, source: Hashable, way: Way) -> set[Any]:
    _require(graph, source)
    found = set(graph.nodes_of(searches.reached(graph, graph.vertex(source), way=way)))
    found.remove(source)
    return found


def _require(graph: BackendGraph, node: Hashable) -> None:
    # A traversal of NetworkX fails where it looks up the neighbours of the node: with another error than paths.
    if node not in graph:
        raise nx.NetworkXError(f"The node {node} is not in the graph.")

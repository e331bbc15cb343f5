"""Connected components, connectivity, and trees."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import networkx as nx
import numpy as np

from dbfs.networkx import searches
from dbfs.networkx.backend_graph import BackendGraph, Way
from dbfs.networkx.registry import offered

_NULL_GRAPH = "Connectivity is undefined for the null graph."


@offered()
def connected_components(G: BackendGraph) -> Iterator[set[Any]]:
    """Yield the nodes of each component; the components in the order of their first nodes."""
    if len(G):
        labels = G.loaded().components().labels
        by_label = np.argsort(labels, kind="stable")
        parts = np.split(by_label, np.cumsum(np.bincount(labels))[:-1])
        for part in sorted(parts, key=lambda vertices: int(vertices[0])):
            yield set(G.nodes_of(part))


@offered()
def weakly_connected_components(G: BackendGraph) -> Iterator[set[Any]]:
    """Yield the nodes of each component of a directed graph, ignoring the direction of edges."""
    return connected_components(G)


@offered()
def number_connected_components(G: BackendGraph) -> int:
    """Return the number of components."""
    return G.loaded().components().count if len(G) else 0


@offered()
def number_weakly_connected_components(G: BackendGraph) -> int:
    """Return the number of components of a directed graph, ignoring the direction of edges."""
    return number_connected_components(G)


@offered()
def is_connected(G: BackendGraph) -> bool:
    """Return whether every node reaches every other one."""
    _require_nodes(G, _NULL_GRAPH)
    return searches.number_reached(G, 0) == len(G)


@offered()
def is_weakly_connected(G: BackendGraph) -> bool:
    """Return whether a directed graph is connected, ignoring the direction of edges."""
    _require_nodes(G, _NULL_GRAPH)
    return number_connected_components(G) == 1


@offered()
def is_strongly_connected(G: BackendGraph) -> bool:
    """Return whether every node of a directed graph reaches every other one."""
    _require_nodes(G, _NULL_GRAPH)
    # Any node reaches all, and all reach that node.
    return all(searches.number_reached(G, 0, way=way) == len(G) for way in (Way.FORWARD, Way.BACKWARD))


@offered()
def node_connected_component(G: BackendGraph, n: Hashable) -> set[Any]:
    """Return the nodes of the component of a node."""
    return set(G.nodes_of(searches.reached(G, G.vertex(n))))


@offered()
def is_tree(G: BackendGraph) -> bool:
    """Return whether the graph is connected, ignoring the direction of edges, and has no cycle."""
    _require_nodes(G, "G has no nodes.")
    if G.number_of_edges() != len(G) - 1:
        return False
    return is_weakly_connected(G) if G.is_directed() else is_connected(G)


@offered()
def is_forest(G: BackendGraph) -> bool:
    """Return whether the graph has no cycle, ignoring the direction of edges."""
    _require_nodes(G, "G has no nodes.")
    # A component of k nodes has k - 1 edges or more, and exactly as many if it is a tree.
    return G.number_of_edges() < len(G) and G.number_of_edges() == len(G) - number_connected_components(G)


@offered()
def is_arborescence(G: BackendGraph) -> bool:
    """Return whether a directed graph is a tree with at most one edge into each node."""
    return is_tree(G) and bool(G.against.degrees.max() <= 1)


@offered()
def is_branching(G: BackendGraph) -> bool:
    """Return whether a directed graph is a forest with at most one edge into each node."""
    return is_forest(G) and bool(G.against.degrees.max() <= 1)


def _require_nodes(graph: BackendGraph, words: str) -> None:
    if not len(graph):
        raise nx.NetworkXPointlessConcept(words)

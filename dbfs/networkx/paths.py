"""Shortest paths and their lengths, between two nodes, from or to one node, and between all."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dbfs.networkx import searches, weighted
from dbfs.networkx.backend_graph import BackendGraph, Way
from dbfs.networkx.registry import offered
from dbfs.networkx.searches import require

Path = list[Any]

_METHODS = ("dijkstra", "bellman-ford")


@offered()
def bidirectional_shortest_path(G: BackendGraph, source: Hashable, target: Hashable) -> Path:
    """Return the nodes of a shortest path between two nodes."""
    require(G, source, "Source {} is not in G")
    require(G, target, "Target {} is not in G")
    found = G.loaded(in_edges=True).path(G.vertex(source), G.vertex(target))
    if not found:
        raise nx.NetworkXNoPath(f"No path between {source} and {target}.")
    return G.nodes_of(np.array(found))


@offered()
def has_path(G: BackendGraph, source: Hashable, target: Hashable) -> bool:
    """Return whether a path leads from one node to another."""
    return distance(G, source, target) is not None


@weighted.by_weight(single=("source", "target"))
def shortest_path(
    G: BackendGraph,
    source: Hashable | None = None,
    target: Hashable | None = None,
    weight: Any = None,
    method: str = "dijkstra",
) -> Path | dict[Any, Path] | Iterator[tuple[Any, dict[Any, Path]]]:
    """Return a shortest path, or those from a node, those to a node, or an iterator over all."""
    _require_method(method)
    if weight is not None:
        return weighted.shortest_paths(G, source, target, weight)
    if source is None and target is None:
        return all_pairs_shortest_path(G)
    if source is None:
        return single_target_shortest_path(G, target)
    if target is None:
        return single_source_shortest_path(G, source)
    return bidirectional_shortest_path(G, source, target)


@weighted.by_weight(single=("source", "target"))
def shortest_path_length(
    G: BackendGraph,
    source: Hashable | None = None,
    target: Hashable | None = None,
    weight: Any = None,
    method: str = "dijkstra",
) -> Any:
    """Return the length of a shortest path, or those from a node, those to a node, or an iterator over all."""
    _require_method(method)
    if weight is not None:
        return weighted.shortest_lengths(G, source, target, weight)
    if source is None and target is None:
        return all_pairs_shortest_path_length(G)
    if source is None:
        return single_target_shortest_path_length(G, target)
    if target is None:
        return single_source_shortest_path_length(G, source)
    length = distance(G, source, target)
    if length is None:
        raise nx.NetworkXNoPath(f"No path between {source} and {target}.")
    return length


@offered()
def single_source_shortest_path(
    G: BackendGraph,
    source: Hashable,
    cutoff: float | None = None,
) -> dict[Any, Path]:
    """Return a shortest path from a node to each node within reach."""
    require(G, source, "Source {} not in G")
    return _paths(G, source, cutoff, Way.FORWARD, lambda path, node: [*path, node])


@offered()
def single_target_shortest_path(
    G: BackendGraph,
    target: Hashable,
    cutoff: float | None = None,
) -> dict[Any, Path]:
    """Return a shortest path to a node from each node that reaches the node."""
    require(G, target, "Target {} not in G")
    return _paths(G, target, cutoff, Way.BACKWARD, lambda path, node: [node, *path])


@offered()
def single_source_shortest_path_length(
    G: BackendGraph,
    source: Hashable,
    cutoff: float | None = None,
) -> dict[Any, int]:
    """Return the distance of each node within reach, by distance."""
    require(G, source, "Source {} is not in G")
    return lengths(G, searches.distances(G, [G.vertex(source)], cutoff=cutoff))


@offered()
def single_target_shortest_path_length(
    G: BackendGraph,
    target: Hashable,
    cutoff: float | None = None,
) -> dict[Any, int]:
    """Return the distance to a node from each node that reaches the node, by distance."""
    require(G, target, "Target {} is not in G")
    return lengths(G, searches.distances(G, [G.vertex(target)], cutoff=cutoff, way=Way.BACKWARD))


@offered(single=())
def all_pairs_shortest_path(
    G: BackendGraph,
    cutoff: float | None = None,
) -> Iterator[tuple[Any, dict[Any, Path]]]:
    """Yield each node with a shortest path to each node within reach."""
    for node in G:
        yield node, single_source_shortest_path(G, node, cutoff)


@offered(single=())
def all_pairs_shortest_path_length(
    G: BackendGraph,
    cutoff: float | None = None,
) -> Iterator[tuple[Any, dict[Any, int]]]:
    """Yield each node with the distance of each node within reach."""
    if len(G):
        for node, distances in zip(G, searches.many_distances(G, range(len(G)), cutoff=cutoff), strict=True):
            yield node, lengths(G, distances)


def lengths(graph: BackendGraph, distances: NDArray[np.int32]) -> dict[Any, int]:
    """Return the distances of the vertices that were reached, by node; near nodes first."""
    vertices = np.flatnonzero(distances >= 0)
    vertices = vertices[np.argsort(distances[vertices], kind="stable")]
    return dict(zip(graph.nodes_of(vertices), distances[vertices].tolist(), strict=True))


def _paths(
    graph: BackendGraph, source: Hashable, cutoff: float | None, way: Way, join: Callable[[Path, Any], Path]
) -> dict[Any, Path]:
    found = searches.tree(graph, graph.vertex(source), cutoff=cutoff, way=way)
    paths: dict[Any, Path] = {source: [source]}
    for node, parent in zip(graph.nodes_of(found.order[1:]), graph.nodes_of(found.parents), strict=True):
        paths[node] = join(paths[parent], node)
    return paths


def distance(graph: BackendGraph, source: Hashable, target: Hashable) -> int | None:
    """Return the distance between two nodes; None if no path joins them."""
    require(graph, source, "Source {} is not in G")
    require(graph, target, "Target {} is not in G")
    found = graph.loaded(in_edges=True).distance(graph.vertex(source), graph.vertex(target))
    return None if found < 0 else found


def _require_method(method: str) -> None:
    # Without weights all methods give the same result. NetworkX checks the name all the same.
    if method not in _METHODS:
        raise ValueError(f"method not supported: {method}")


Predecessors = dict[Any, list[Any]]


@offered()
def predecessor(
    G: BackendGraph,
    source: Hashable,
    target: Hashable | None = None,
    cutoff: float | None = None,
    return_seen: bool | None = None,
) -> Predecessors | list[Any] | tuple[Predecessors, dict[Any, int]] | tuple[list[Any], int]:
    """Return for each node within reach all nodes before it on shortest paths, or those of one target."""
    require(G, source, "Source {} not in G")
    # NetworkX takes a cutoff of 0 as none.
    found = _predecessors(G, source, cutoff or None)
    if not return_seen:
        return found if target is None else found.get(target, [])
    distances = lengths(G, searches.distances(G, [G.vertex(source)], cutoff=cutoff or None))
    seen = {node: distances[node] for node in found}
    return (found, seen) if target is None else (found.get(target, []), seen.get(target, -1))


@weighted.by_weight()
def all_shortest_paths(
    G: BackendGraph,
    source: Hashable,
    target: Hashable,
    weight: Any = None,
    method: str = "dijkstra",
) -> Iterator[Path]:
    """Return an iterator over all shortest paths between two nodes, in the order of the graph's nodes."""
    if weight is not None:
        return _paths_back(weighted.dijkstra_predecessor_and_distance(G, source, None, weight)[0], source, target)
    require(G, source, "Source {} not in G")
    return _all_paths(G, source, target)


@weighted.by_weight()
def single_source_all_shortest_paths(
    G: BackendGraph,
    source: Hashable,
    weight: Any = None,
    method: str = "dijkstra",
) -> Iterator[tuple[Any, list[Path]]]:
    """Yield each node within reach of a node with all shortest paths to it."""
    if weight is None:
        require(G, source, "Source {} not in G")
        found = _predecessors(G, source, None)
    else:
        found = weighted.dijkstra_predecessor_and_distance(G, source, None, weight)[0]
    for node in found:
        yield node, list(_paths_back(found, source, node))


@weighted.by_weight(single=())
def all_pairs_all_shortest_paths(
    G: BackendGraph,
    weight: Any = None,
    method: str = "dijkstra",
) -> Iterator[tuple[Any, dict[Any, list[Path]]]]:
    """Yield each node with all shortest paths to each node within reach."""
    for node in G:
        yield node, dict(single_source_all_shortest_paths(G, node, weight, method))


def _all_paths(graph: BackendGraph, source: Hashable, target: Hashable) -> Iterator[Path]:
    # As of NetworkX, the lack of a path is told when the first one is taken.
    paths = graph.loaded(in_edges=True).paths(graph.vertex(source), graph.vertex(target)) if target in graph else ()
    none = True
    for path in paths:
        none = False
        yield graph.nodes_of(np.array(path))
    if none:
        raise _unreached(target)


def _unreached(target: Hashable) -> nx.NetworkXNoPath:
    return nx.NetworkXNoPath(f"Target {target} cannot be reached from given sources")


def _predecessors(graph: BackendGraph, source: Hashable, cutoff: float | None) -> Predecessors:
    before, after = searches.all_parents(graph, graph.vertex(source), cutoff=cutoff)
    found: Predecessors = {source: []}
    for node, child in zip(graph.nodes_of(before), graph.nodes_of(after), strict=True):
        found.setdefault(child, []).append(node)
    return found


def _paths_back(found: Predecessors, source: Hashable, target: Hashable) -> Iterator[Path]:
    """Yield all paths from the source to a target, by a search in depth from the target."""
    if target not in found:
        raise _unreached(target)
    path, on_path, untried = list[Any](), set[Any](), [iter([target])]
    while untried:
        node = next(untried[-1], None)
        if node is None:
            untried.pop()
            if path:
                on_path.discard(path.pop())
        # Edges of weight 0 can lead in a circle.
        elif node not in on_path:
            path.append(node)
            on_path.add(node)
            if node == source:
                yield path[::-1]
            untried.append(iter(found[node]))

"""All shortest paths, and all predecessors on them. The client finds them among the edges, given the distances."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import networkx as nx

from dbfs.networkx import searches
from dbfs.networkx.backend_graph import BackendGraph
from dbfs.networkx.paths import Path, lengths, require
from dbfs.networkx.registry import NO_WEIGHTS, offered

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


@offered(refused={"weight": NO_WEIGHTS})
def all_shortest_paths(
    G: BackendGraph,
    source: Hashable,
    target: Hashable,
    weight: None = None,
    method: str = "dijkstra",
) -> Iterator[Path]:
    """Return an iterator over all shortest paths between two nodes."""
    require(G, source, "Source {} not in G")
    return _paths_back(_predecessors(G, source, None), source, target)


@offered(refused={"weight": NO_WEIGHTS})
def single_source_all_shortest_paths(
    G: BackendGraph,
    source: Hashable,
    weight: None = None,
    method: str = "dijkstra",
) -> Iterator[tuple[Any, list[Path]]]:
    """Yield each node within reach of a node with all shortest paths to it."""
    require(G, source, "Source {} not in G")
    found = _predecessors(G, source, None)
    for node in found:
        yield node, list(_paths_back(found, source, node))


@offered(refused={"weight": NO_WEIGHTS}, single=())
def all_pairs_all_shortest_paths(
    G: BackendGraph,
    weight: None = None,
    method: str = "dijkstra",
) -> Iterator[tuple[Any, dict[Any, list[Path]]]]:
    """Yield each node with all shortest paths to each node within reach."""
    for node in G:
        yield node, dict(single_source_all_shortest_paths(G, node, weight, method))


def _predecessors(graph: BackendGraph, source: Hashable, cutoff: float | None) -> Predecessors:
    before, after = searches.all_parents(graph, graph.vertex(source), cutoff=cutoff)
    found: Predecessors = {source: []}
    for node, child in zip(graph.nodes_of(before), graph.nodes_of(after), strict=True):
        found.setdefault(child, []).append(node)
    return found


def _paths_back(found: Predecessors, source: Hashable, target: Hashable) -> Iterator[Path]:
    """Yield all paths from the source to a target, by a search in depth from the target."""
    if target not in found:
        raise nx.NetworkXNoPath(f"Target {target} cannot be reached from given sources")
    path, untried = [target], [iter(found[target])]
    while path:
        if path[-1] == source:
            yield path[::-1]
        before = next(untried[-1], None) if found[path[-1]] else None
        if before is None:
            path.pop()
            untried.pop()
        else:
            path.append(before)
            untried.append(iter(found[before]))

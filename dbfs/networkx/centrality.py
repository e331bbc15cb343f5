"""Centralities that follow from distances and shortest paths: closeness, harmonic, betweenness, reaching, of groups."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dbfs.features.batches import betweenness, measures, sweeps
from dbfs.networkx import searches
from dbfs.networkx.backend_graph import BackendGraph, Way
from dbfs.networkx.registry import NO_TRAVERSAL, NO_WEIGHTS, offered
from dbfs.networkx.searches import require


@offered(refused={"distance": NO_WEIGHTS}, single=("u",))
def closeness_centrality(
    G: BackendGraph,
    u: Hashable | None = None,
    distance: None = None,
    wf_improved: bool = True,
) -> float | dict[Any, float]:
    """Return the closeness of a node, or of every node by node: the inverse of the mean distance to the node."""
    if u is not None:
        require(G, u, "Source {} is not in G")
    vertices = None if u is None else [G.vertex(u)]
    measured = measures.closeness(G.loaded(Way.BACKWARD), vertices, wf_improved, measures.Options(), turned=True)
    found: list[float] = measured.values.tolist()
    return dict(zip(G, found, strict=True)) if u is None else found[0]


@offered(refused={"distance": NO_WEIGHTS}, single=("nbunch", "sources"))
def harmonic_centrality(
    G: BackendGraph,
    nbunch: Any = None,
    distance: None = None,
    sources: Any = None,
) -> dict[Any, float]:
    """Return for each node of ``nbunch`` the sum of the inverse distances from the sources."""
    # As in NetworkX, the order of the nodes is that of their set.
    wanted, origins = list(set(G.nodes_in(nbunch))), list(set(G.nodes_in(sources)))
    targets, starts = G.vertices(wanted), G.vertices(origins)
    found = np.zeros(len(G))
    if not targets.size or not starts.size:
        pass
    elif starts.size == len(G):
        loaded = G.loaded(Way.BACKWARD)
        found[targets] = measures.harmonic(loaded, targets, measures.Options(), turned=True).values
    elif targets.size < starts.size:
        rows = searches.many_distances(G, targets.tolist(), way=Way.BACKWARD)
        for vertex, distances in zip(targets, rows, strict=True):
            found[vertex] = _inverses(distances[starts]).sum()
    else:
        for distances in searches.many_distances(G, starts.tolist()):
            found += _inverses(distances)
    # As in NetworkX, a sum without addends is an integer.
    return {node: total or 0 for node, total in zip(wanted, found[targets].tolist(), strict=True)}


@offered(refused={"weight": NO_WEIGHTS}, single=())
def betweenness_centrality(
    G: BackendGraph,
    k: int | None = None,
    normalized: bool = True,
    weight: None = None,
    endpoints: bool = False,
    seed: Any = None,
) -> dict[Any, float]:
    """Return the share of shortest paths that pass each node; from ``k`` random sources, or from all nodes."""
    sources, loaded = _sources(G, None if k == len(G) else k, seed), G.loaded(in_edges=True)
    found, _ = betweenness.of_vertices(loaded, sources, normalized, endpoints, measures.Options())
    return dict(zip(G, found.tolist(), strict=True))


@offered(refused={"weight": NO_WEIGHTS}, single=())
def edge_betweenness_centrality(
    G: BackendGraph,
    k: int | None = None,
    normalized: bool = True,
    weight: None = None,
    seed: Any = None,
) -> dict[Any, float]:
    """Return the share of shortest paths along each edge; from ``k`` random sources, or from all nodes."""
    sources, loaded = _sources(G, k, seed), G.loaded(in_edges=True)
    ends, found, _ = betweenness.of_edges(loaded, sources, normalized, measures.Options())
    first, second = G.adjacency.pairs()
    if not G.is_directed():
        first, second = first[first <= second], second[first <= second]
    places = np.searchsorted(ends[0] * len(G) + ends[1], first * len(G) + second)
    pairs = zip(G.nodes_of(first), G.nodes_of(second), strict=True)
    values = dict(zip(pairs, found[places].tolist(), strict=True))
    if not G.is_multigraph():
        return values
    # Parallel edges share the value of their ends.
    original = G.original
    return {(u, v, key): values[u, v] / len(original[u][v]) for u, v, key in original.edges}


@offered(refused={"paths": NO_TRAVERSAL, "weight": NO_WEIGHTS})
def local_reaching_centrality(
    G: BackendGraph,
    v: Hashable,
    paths: None = None,
    weight: None = None,
    normalized: bool = True,
) -> float:
    """Return the share of the other nodes that a node reaches; in an undirected graph near nodes count more."""
    _require_edges(G)
    require(G, v, "Source {} is not in G")
    return _local_reaching(G, next(searches.many_counts(G, [G.vertex(v)])))


@offered(refused={"weight": NO_WEIGHTS}, single=())
def global_reaching_centrality(G: BackendGraph, weight: None = None, normalized: bool = True) -> float:
    """Return the mean difference of the local reaching centralities from the largest one."""
    _require_edges(G)
    local = [_local_reaching(G, counts) for counts in searches.many_counts(G, range(len(G)))]
    most = max(local)
    return sum(most - one for one in local) / (len(G) - 1)


@offered(refused={"weight": NO_WEIGHTS})
def group_closeness_centrality(G: BackendGraph, S: Collection[Hashable], weight: None = None) -> float:
    """Return the inverse of the mean distance of the other nodes to the nearest node of a group."""
    group = set(S)
    if not group:
        raise ValueError("sources must not be empty")
    for node in group:
        require(G, node, "Node {} not found in graph")
    counts = sweeps.level_counts(G.loaded(Way.BACKWARD).bfs(G.vertices(group).tolist()))
    total = int(counts @ np.arange(counts.size))
    return (len(G) - len(group)) / total if total else 0


def _sources(graph: BackendGraph, k: int | None, seed: Any) -> NDArray[np.int64]:
    """Return the vertices of all nodes, or of those that NetworkX would draw."""
    if k == 0 and len(graph) > 1:
        raise ZeroDivisionError("no sources: k must be at least 1")
    nodes = list(graph)
    return graph.vertices(nodes if k is None else nx.utils.create_py_random_state(seed).sample(nodes, k))


def _local_reaching(graph: BackendGraph, counts: NDArray[np.int64]) -> float:
    reach = int(counts.sum()) - 1 if graph.is_directed() else _inverse(counts)
    return reach / (len(graph) - 1)


def _require_edges(graph: BackendGraph) -> None:
    if not graph.number_of_edges():
        raise nx.NetworkXError("Size of G must be positive")
    if len(graph) == 1:
        raise nx.NetworkXError("local_reaching_centrality of a single node with self-loop not well-defined")


def _inverse(counts: NDArray[np.int64]) -> float:
    """Return the sum of the inverse distances of vertices, given their number at each distance."""
    return float(np.sum(counts[1:] / np.arange(1, counts.size)))


def _inverses(distances: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the inverse distances; 0 for the source and for unreached vertices."""
    far = distances > 0
    return np.divide(1.0, distances, where=far, out=np.zeros(distances.size))

"""Eccentricities, and the measures made of them: diameter, radius, center, periphery, and the barycenter."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dbfs.errors import DisconnectedGraphError
from dbfs.features.batches.diameter import Measure, eccentricities
from dbfs.features.batches.measures import Options
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
    try:
        measured = G.loaded().eccentricity(G.vertices(nodes)) if nodes else None
    except DisconnectedGraphError as error:
        raise _disconnected(G) from error
    found = dict(zip(nodes, measured.values.tolist() if measured else (), strict=True))
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
    try:
        return eccentricities(graph.loaded(), measure, Options()) if len(graph) else np.empty(0, np.int64)
    except DisconnectedGraphError as error:
        raise _disconnected(graph) from error


def _require_nodes(graph: BackendGraph) -> None:
    # NetworkX first tests whether an undirected graph is a tree, and refuses a graph without nodes there.
    if not len(graph) and not graph.is_directed():
        raise nx.NetworkXPointlessConcept("G has no nodes.")


def _disconnected(graph: BackendGraph) -> nx.NetworkXError:
    kind = "digraph is not strongly connected" if graph.is_directed() else "graph is not connected"
    return nx.NetworkXError(f"Found infinite path length because the {kind}")

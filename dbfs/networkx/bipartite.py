"""Two-colourings: the parity of the distance from one node of each component, all found in one traversal."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dbfs.networkx import searches
from dbfs.networkx.backend_graph import BackendGraph, Way
from dbfs.networkx.components import is_connected, is_weakly_connected
from dbfs.networkx.registry import offered


@offered()
def color(G: BackendGraph) -> dict[Any, int]:
    """Return 0 or 1 for each node, so that every edge joins two colours; 0 for nodes without edges."""
    return dict(zip(G, _two_colours(G).tolist(), strict=True))


@offered()
def is_bipartite(G: BackendGraph) -> bool:
    """Return whether the nodes have two colours so that every edge joins both."""
    return not _coloured(G).odd.size


@offered()
def is_bipartite_node_set(G: BackendGraph, nodes: Collection[Hashable]) -> bool:
    """Return whether in each component all nodes of one colour, and none of the other, are in ``nodes``."""
    chosen = set(nodes)
    if len(chosen) < len(nodes):
        raise nx.AmbiguousSolution("The input node set contains duplicates; pass set(nodes).")
    if G.is_directed():
        raise nx.NetworkXNotImplemented("not implemented for directed type")
    if not len(G):
        return True
    found = _coloured(G)
    inside = np.zeros(len(G), np.int64)
    inside[G.vertices(node for node in chosen if node in G)] = 1
    # Within a component all nodes of colour 0 are inside and none of colour 1, or the other way round.
    sides = np.unique(found.components * 2 + (inside ^ found.colours)) // 2
    mixed = sides[1:][sides[1:] == sides[:-1]]
    # NetworkX goes from component to component, and ends at the first that is mixed or has no two colours.
    first_odd, first_mixed = (np.isin(found.components, some).argmax() for some in (found.odd, mixed))
    if found.odd.size and (not mixed.size or first_odd <= first_mixed):
        raise _no_two_colours()
    return not mixed.size


@offered()
def sets(G: BackendGraph, top_nodes: Collection[Hashable] | None = None) -> tuple[set[Any], set[Any]]:
    """Return the nodes of each colour; ``top_nodes`` are those of the first, if they are given."""
    if top_nodes is not None:
        top = set(top_nodes)
        return top, set(G) - top
    if not (is_weakly_connected(G) if G.is_directed() else is_connected(G)):
        raise nx.AmbiguousSolution("Disconnected graph: Ambiguous solution for bipartite sets.")
    colours = _two_colours(G)
    return set(G.nodes_of(np.flatnonzero(colours))), set(G.nodes_of(np.flatnonzero(colours == 0)))


@dataclass(frozen=True)
class _Colours:
    """Colours by the parity of distances.

    Attributes:
        colours: int64[n], 0 or 1.
        components: int64[n], the component of each vertex.
        odd: the components in which an edge joins two vertices of one colour.
    """

    colours: NDArray[np.int64]
    components: NDArray[np.int64]
    odd: NDArray[np.int64]


def _coloured(graph: BackendGraph) -> _Colours:
    none = np.empty(0, np.int64)
    if not len(graph):
        return _Colours(none, none, none)
    components = graph.loaded().components().labels
    # As in NetworkX, the first node of a component that has neighbours gets colour 1.
    sources = np.flatnonzero(graph.adjacency.degrees)
    _, first = np.unique(components[sources], return_index=True)
    if not first.size:
        return _Colours(np.zeros(len(graph), np.int64), components, none)
    distances = searches.distances(graph, sources[first].tolist(), way=Way.BOTH).astype(np.int64)
    before, after = graph.adjacency.pairs()
    same = (distances[before] ^ distances[after]) & 1 == 0
    # Only nodes without edges are unreached. Their distance, -1, counts as odd, which is colour 0.
    return _Colours((distances + 1) & 1, components, np.unique(components[before[same]]))


def _two_colours(graph: BackendGraph) -> NDArray[np.int64]:
    """Return the colour of each vertex."""
    found = _coloured(graph)
    if found.odd.size:
        raise _no_two_colours()
    return found.colours


def _no_two_colours() -> nx.NetworkXError:
    return nx.NetworkXError("Graph is not bipartite.")

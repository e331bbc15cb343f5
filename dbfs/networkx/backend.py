"""The object that NetworkX loads as the backend ``dbfs``: the functions, the conversions, and when they can run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import networkx as nx

# Each of these modules offers its functions when it is imported.
from dbfs.networkx import (  # noqa: F401
    bipartite,
    centrality,
    components,
    distance_measures,
    edge_lists,
    paths,
    sums,
    traversal,
    weighted,
)
from dbfs.networkx.backend_graph import BackendGraph, ConvertedGraph, is_view
from dbfs.networkx.registry import OFFERS

_BACKEND: Final = "dbfs"


class Backend:
    """The backend: an attribute for each function that is offered, and what NetworkX calls to decide and to convert."""

    def __init__(self) -> None:
        for name, offer in OFFERS.items():
            setattr(self, name, offer.function)

    @staticmethod
    def convert_from_nx(graph: nx.Graph, **_: Any) -> BackendGraph:
        """Return the graph for traversals; NetworkX's arguments name attributes, which play no part in traversals."""
        known = _converted(graph)
        if known is not None:
            return known
        view = is_view(graph)
        if view:
            # NetworkX empties its cache when a graph changes, and knows nothing of a graph behind the view.
            graph.__networkx_cache__ = None
        return ConvertedGraph(graph, hold=view)

    @staticmethod
    def convert_to_nx(value: Any, *, name: str | None = None) -> Any:  # noqa: ARG004
        """Return the NetworkX graph that a graph was made from, or that stands for it; other values as they are.

        Errors as for ``ConvertedGraph.original``.
        """
        return value.original if isinstance(value, BackendGraph) else value

    @staticmethod
    def can_run(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool | str:
        """Return True, or why the backend can't run a function with these arguments."""
        offer = OFFERS.get(name)
        if offer is None:
            return f"dbfs does not offer {name}"
        return offer.refusal(_bound(name, args, kwargs)) or True

    @staticmethod
    def should_run(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool | str:
        """Return True, or why NetworkX itself is likely to be faster. Calls with ``backend="dbfs"`` run in any case."""
        if OFFERS[name].check is not None:
            return True
        arguments, doubt = _bound(name, args, kwargs), OFFERS[name].doubt
        reason = doubt(arguments) if doubt and arguments else None
        if reason is not None:
            return reason
        graph = next(iter(arguments.values()), None)
        if graph is None or isinstance(graph, BackendGraph):
            return True
        size, least = len(graph) + graph.number_of_edges(), nx.config.backends.dbfs.min_size
        if size < least:
            return f"the graph has {size:,} nodes and edges; nx.config.backends.dbfs.min_size is {least:,}"
        if OFFERS[name].many(arguments) or _converted(graph) is not None:
            return True
        return "to convert the graph takes longer than one traversal by NetworkX; a converted graph has no such cost"


def _converted(graph: Any) -> BackendGraph | None:
    """Return the graph that NetworkX keeps with ``graph`` since an earlier conversion, whatever its attributes."""
    kept = getattr(graph, "__networkx_cache__", None) or {}
    known = kept.get("backends", {}).get(_BACKEND, {}).values()
    return next((each for each in known if isinstance(each, BackendGraph)), None)


def _bound(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments by parameter, the graph first; none if they do not fit, which the call itself reports."""
    try:
        return OFFERS[name].signature.bind(*args, **kwargs).arguments
    except TypeError:
        return {}


backend: Final = Backend()

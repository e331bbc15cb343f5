"""Edge lists of graphs of other libraries: NetworkX, igraph, rustworkx and NetworKit.

A graph is recognised by the module of its class, so that dbfs imports none of these libraries. Its vertices without
edges stay vertices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dbfs.edges.arrays import from_arrays
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.tables.attributes import TableAttributes, require_there
from dbfs.edges.tables.pairs import SINGLE, open_pairs, with_lone
from dbfs.errors import EdgeInputError, InvalidOptionError

if TYPE_CHECKING:
    import pyarrow as pa


def is_graph(edges: Any) -> bool:
    """Return whether an object is a graph of one of the libraries, or of a class derived from theirs."""
    return _opener(edges) is not None


def open_graph(graph: Any, *, directed: bool | None, attributes: Sequence[str] = ()) -> EdgeList:
    """Make an edge list of a graph of another library.

    The ids are NetworkX's nodes; igraph's names if its vertices have names, else its indices; the indices of rustworkx
    and NetworKit. Parallel edges and self-loops stay.

    Args:
        graph: the graph. Attributes of its nodes are not read.
        directed: None as the graph says; False to cross the edges of a directed graph both ways.
        attributes: names of attributes of the edges of NetworkX's graphs that are kept; null where an edge has none.

    Raises:
        EdgeInputError: the nodes are not all integers, all strings, or all tuples of these; or igraph's names are not
            distinct strings. Or no edge has an attribute, or Arrow has no type of its values.
        InvalidOptionError: ``directed=True``, and the graph is undirected.
    """
    opener = _opener(graph)
    if opener is None:
        raise EdgeInputError(f"{type(graph).__name__} is no graph of a library that dbfs reads")
    edges = opener(graph, directed is False)
    if directed and not edges.directed:
        raise InvalidOptionError(
            f"directed=True, but the {type(graph).__name__} is undirected: its edges have no order"
        )
    # NetworkX's own functions on dbfs wrap its graphs.
    original = getattr(graph, "original", graph)
    return _with_attributes(edges, original, attributes) if attributes and opener in _OF_NETWORKX else edges


def _with_attributes(edges: EdgeList, graph: Any, attributes: Sequence[str]) -> EdgeList:
    """Return the edges of a graph of NetworkX with some of their attributes."""
    import pyarrow as pa

    rows = [data for *_, data in graph.edges(data=True)]
    require_there(attributes, [*dict.fromkeys(name for row in rows for name in row)], edges.name)
    columns = {}
    for name in attributes:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowException, OverflowError) as error:
            raise EdgeInputError(f"{edges.name}: attribute {name!r} can't be kept: {error}") from None
    values = tuple(value for value in edges.values if value not in attributes)
    return replace(edges, values=values, attributes=TableAttributes.of(pa.table(columns), edges.name))


def nodes_of(graph: Any, attributes: Sequence[str]) -> pa.Table | None:
    """Return a table of the nodes of a graph of NetworkX with some of their attributes; None for anything else.

    The ids are in the column ``vertex``, or ``node`` if that is an attribute. An attribute that a node lacks is null.

    Raises:
        EdgeInputError: no node has an attribute, Arrow has no type of its values, or the nodes are tuples or mixed.
    """
    import pyarrow as pa

    if _opener(graph) not in _OF_NETWORKX:
        return None
    nodes = dict(getattr(graph, "original", graph).nodes(data=True))
    where = f"{_name(graph)}: its nodes"
    require_there(attributes, [*dict.fromkeys(str(name) for data in nodes.values() for name in data)], where)
    columns = {"node" if "vertex" in attributes else "vertex": [*nodes]}
    columns |= {name: [data.get(name) for data in nodes.values()] for name in attributes}
    try:
        return pa.table(columns)
    except (pa.ArrowException, OverflowError) as error:
        raise EdgeInputError(f"{where} can't be kept as a table: {error}; give one by vertices=") from None


def _opener(graph: Any) -> Callable[[Any, bool], EdgeList] | None:
    for kind in type(graph).__mro__:
        opener = _OPENERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if opener is not None:
            return opener
    return None


def require_both_ways(graph: Any) -> None:
    """Raise ``EdgeInputError`` unless an undirected graph of NetworkX has each edge at both ends.

    A filter may hide one of the two.
    """
    keyed = graph.is_multigraph()
    ends = {(u, v, key) for u, row in graph.adjacency() for v in row for key in (row[v] if keyed else ("",))}
    for u, v, key in ends:
        if (v, u, key) not in ends:
            raise EdgeInputError(
                f"{_name(graph)}: the graph is undirected, but its filter shows the edge ({u!r}, {v!r}) and hides "
                f"({v!r}, {u!r}); the filter must answer alike for both"
            )


def _name(graph: Any) -> str:
    return str(graph.name) or "NetworkX graph"


def _networkx(graph: Any, undirected: bool) -> EdgeList:
    name = _name(graph)
    if hasattr(graph, "_graph") and not graph.is_directed():
        require_both_ways(graph)
    lone = [node for node, degree in graph.degree if degree == 0]
    directed = bool(graph.is_directed()) and not undirected
    # The first edge stands for all: a look at each would take as long as the edges themselves.
    attributes = next((tuple(map(str, data)) for *_, data in graph.edges(data=True)), ())
    return replace(open_pairs(graph.edges(), directed=directed, name=name, lone=lone), values=attributes)


def _backend_graph(graph: Any, undirected: bool) -> EdgeList:
    try:
        return _networkx(graph.original, undirected)
    except NotImplementedError as error:
        raise EdgeInputError(f"{error}; pass a NetworkX graph") from error


def _igraph(graph: Any, undirected: bool) -> EdgeList:
    ends, n = _table_of(graph.get_edgelist()), int(graph.vcount())
    directed = bool(graph.is_directed()) and not undirected
    if "name" not in graph.vs.attributes():
        return from_arrays(*ends, n=n, directed=directed, name="igraph graph")
    names = graph.vs["name"]
    if not all(isinstance(name, str) for name in names) or len(set(names)) != n:
        raise EdgeInputError(
            "igraph graph: the names of its vertices are not distinct strings; delete the names "
            "(del graph.vs['name']) to use the indices as ids"
        )
    import pyarrow as pa

    return from_indices(ends, pa.array(names, pa.large_string()), directed, "igraph graph")


def _rustworkx(graph: Any, undirected: bool) -> EdgeList:
    directed = type(graph).__name__ == "PyDiGraph" or any(kind.__name__ == "PyDiGraph" for kind in type(graph).__mro__)
    nodes = np.array(graph.node_indices(), np.int64)
    return _indexed(_table_of(graph.edge_list()), nodes, directed and not undirected, "rustworkx graph")


def _networkit(graph: Any, undirected: bool) -> EdgeList:
    nodes = np.array(list(graph.iterNodes()), np.int64)
    directed = bool(graph.isDirected()) and not undirected
    return _indexed(_table_of(list(graph.iterEdges())), nodes, directed, "NetworKit graph")


def from_indices(ends: tuple[Any, Any], ids: pa.Array, directed: bool, name: str) -> EdgeList:
    """Return the edge list of edges between indices of ids, each of which is a vertex.

    Args:
        ends: sources and targets, two int64 arrays of one length.
        ids: the ids, int64 or ``large_string``, each once.
        directed, name: as of ``open_pairs``.

    Errors as for ``with_lone``.
    """
    import pyarrow as pa

    lone = np.setdiff1d(np.arange(len(ids)), np.concatenate(ends))
    table = pa.table([ids.take(pa.array(end)) for end in ends], names=SINGLE)
    return with_lone(table, [ids.take(pa.array(lone))], directed=directed, name=name)


def _table_of(pairs: Any) -> tuple[Any, Any]:
    """Return pairs of indices as two int64 arrays."""
    table = np.array(list(pairs), np.int64).reshape(-1, 2)
    return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])


def _indexed(ends: tuple[Any, Any], nodes: Any, directed: bool, name: str) -> EdgeList:
    """Return the edge list of a graph whose nodes have indices, which may have gaps."""
    if nodes.size == 0 or int(nodes.max()) == nodes.size - 1:
        return from_arrays(*ends, n=nodes.size, directed=directed, name=name)
    import pyarrow as pa

    lone = np.setdiff1d(nodes, np.concatenate(ends))
    table = pa.table([pa.array(end) for end in ends], names=SINGLE)
    return with_lone(table, [pa.array(lone)], directed=directed, name=name)


_OPENERS: dict[tuple[str, str], Callable[[Any, bool], EdgeList]] = {
    ("networkx", "Graph"): _networkx,
    ("dbfs", "BackendGraph"): _backend_graph,
    ("igraph", "Graph"): _igraph,
    ("rustworkx", "PyGraph"): _rustworkx,
    ("rustworkx", "PyDiGraph"): _rustworkx,
    ("networkit", "Graph"): _networkit,
}
"""By module and name of a class: what makes an edge list of a graph; the second argument asks for undirected edges."""

_OF_NETWORKX = (_networkx, _backend_graph)
"""Those of graphs whose edges may have attributes."""

"""Graphs made of lists of edges, tables and matrices at once: no NetworkX graph comes first.

In: what NetworkX's functions of these names take. Out: a ``BackendGraph`` with NetworkX's nodes and edges, in
NetworkX's order. An edge has no attributes of its own here, so a call that would give it some is left to NetworkX.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dbfs.networkx.backend_graph import BackendGraph
from dbfs.networkx.registry import offered

_NO_ATTRIBUTES: Final = "an edge has no attributes of its own in dbfs"
_KINDS: Final = (None, nx.Graph, nx.DiGraph)


def _check_kind(arguments: Mapping[str, Any]) -> str | None:
    """Say why a graph of this kind can't be made; None if it can."""
    asked = arguments.get("create_using")
    if any(asked is kind for kind in _KINDS):
        return None
    return f"create_using={asked!r}: dbfs makes a new nx.Graph or nx.DiGraph"


def _check_pairs(arguments: Mapping[str, Any]) -> str | None:
    edges = arguments["edgelist"]
    if not isinstance(edges, Sequence | np.ndarray):
        return "an iterator tells only once whether its edges have attributes; give a list"
    if isinstance(edges, np.ndarray):
        fits = edges.ndim == 2 and edges.shape[1] == 2
    else:
        fits = all(isinstance(edge, Sequence) and len(edge) == 2 for edge in edges)
    return _check_kind(arguments) if fits else f"an edge is more than a pair: {_NO_ATTRIBUTES}"


def _check_lines(arguments: Mapping[str, Any]) -> str | None:
    if arguments.get("data", True) is not False:
        return f"data={arguments.get('data', True)!r}: {_NO_ATTRIBUTES}; data=False leaves them out"
    return _check_kind(arguments)


def _check_array(arguments: Mapping[str, Any]) -> str | None:
    matrix = arguments["A"]
    if not isinstance(matrix, np.ndarray) or matrix.dtype.kind not in "biufc":
        return f"A is no array of numbers, but {type(matrix).__name__}"
    lost = arguments.get("edge_attr", "weight") not in (None, False) and bool(np.any((matrix != 0) & (matrix != 1)))
    return f"an entry is a weight: {_NO_ATTRIBUTES}; edge_attr=None leaves it out" if lost else _check_kind(arguments)


def _check_sparse(arguments: Mapping[str, Any]) -> str | None:
    if np.any(arguments["A"].tocoo().data != 1):
        return f"an entry is a weight: {_NO_ATTRIBUTES}; abs(A).sign() has none, if no stored entry is 0"
    return _check_kind(arguments)


@offered(refused={"edge_attr": _NO_ATTRIBUTES, "edge_key": _NO_ATTRIBUTES}, check=_check_kind)
def from_pandas_edgelist(
    df: Any,
    source: Hashable = "source",
    target: Hashable = "target",
    edge_attr: None = None,
    create_using: type[nx.Graph] | None = None,
    edge_key: None = None,
) -> BackendGraph:
    """Return the graph of the edges in two columns of a table."""
    return _of_ends(df[source], df[target], create_using)


@offered(check=_check_pairs)
def from_edgelist(edgelist: Any, create_using: type[nx.Graph] | None = None) -> BackendGraph:
    """Return the graph of a list of pairs of nodes."""
    if isinstance(edgelist, np.ndarray):
        return _of_ends(edgelist[:, 0], edgelist[:, 1], create_using)
    return _of_ends([edge[0] for edge in edgelist], [edge[1] for edge in edgelist], create_using)


@offered(check=_check_array)
def from_numpy_array(
    A: NDArray[Any],
    parallel_edges: bool = False,
    create_using: type[nx.Graph] | None = None,
    edge_attr: Any = "weight",
    *,
    nodelist: Sequence[Hashable] | None = None,
) -> BackendGraph:
    """Return the graph of an adjacency matrix."""
    if A.ndim != 2:
        raise nx.NetworkXError(f"Input array must be 2D, not {A.ndim}")
    n = _square(A)
    if nodelist is not None and len(nodelist) != n:
        raise ValueError("nodelist must have the same length as A.shape[0]")
    nodes, vertices = _numbered(range(n) if nodelist is None else nodelist)
    sources, targets = (vertices[ends] for ends in A.nonzero())
    weight = {edge_attr: A.dtype.type(1).item()} if edge_attr not in (None, False) else {}
    return BackendGraph(nodes, sources, targets, directed=create_using is nx.DiGraph, attributes=weight)


@offered(check=_check_sparse)
def from_scipy_sparse_array(
    A: Any, parallel_edges: bool = False, create_using: type[nx.Graph] | None = None, edge_attribute: Any = "weight"
) -> BackendGraph:
    """Return the graph of a sparse adjacency matrix."""
    n, entries = _square(A), A.tocoo()
    ends, weight = (
        (entries.row.astype(np.int64), entries.col.astype(np.int64)),
        {edge_attribute: A.dtype.type(1).item()},
    )
    return BackendGraph(range(n), *ends, directed=create_using is nx.DiGraph, attributes=weight)


@offered(check=_check_lines)
def parse_edgelist(
    lines: Iterable[str],
    comments: str | None = "#",
    delimiter: str | None = None,
    create_using: type[nx.Graph] | None = None,
    nodetype: Callable[[str], Hashable] | None = None,
    data: bool = True,
) -> BackendGraph:
    """Return the graph of lines with two nodes each; what follows the nodes is left out."""
    told = lines if comments is None else (line.partition(comments)[0] for line in lines)
    pairs: list[list[Any]] = [pair[:2] for line in told if len(pair := line.rstrip("\n").split(delimiter, 2)) >= 2]
    if nodetype is not None:
        pairs = [[_node(name, nodetype) for name in pair] for pair in pairs]
    return from_edgelist(pairs, create_using)


@offered(check=_check_lines)
def read_edgelist(
    path: Iterable[Any],
    comments: str | None = "#",
    delimiter: str | None = None,
    create_using: type[nx.Graph] | None = None,
    nodetype: Callable[[str], Hashable] | None = None,
    data: bool = True,
    edgetype: Any = None,
    encoding: str = "utf-8",
) -> BackendGraph:
    """Return the graph of a file, which NetworkX has opened: see ``parse_edgelist``."""
    lines = (line if isinstance(line, str) else line.decode(encoding) for line in path)
    return parse_edgelist(lines, comments, delimiter, create_using, nodetype, data)


def _node(name: str, kind: Callable[[str], Hashable]) -> Hashable:
    try:
        return kind(name)
    except Exception as error:
        raise TypeError(f"Failed to convert the node {name!r} to type {kind}.") from error


def _square(matrix: Any) -> int:
    rows, columns = matrix.shape
    if rows != columns:
        raise nx.NetworkXError(f"Adjacency matrix not square: nx,ny={matrix.shape}")
    return int(rows)


def _of_ends(first: Any, second: Any, kind: type[nx.Graph] | None) -> BackendGraph:
    """Return the graph of edges by the nodes at their ends. The nodes come as they are met, edge by edge."""
    if _is_integers(first) and _is_integers(second):
        ends: NDArray[np.int64] = np.stack([first, second], axis=1, dtype=np.int64)
        values, firsts, inverse = np.unique(ends, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        nodes: list[Any] = values[order].tolist()
        places = np.argsort(order)[inverse.reshape(-1)]
    else:
        nodes, places = _numbered(itertools.chain.from_iterable(zip(first, second, strict=True)))
    return BackendGraph(nodes, places[::2], places[1::2], directed=kind is nx.DiGraph)


def _is_integers(ends: Any) -> bool:
    """Return whether the nodes are integers of NumPy that int64 holds, in an array or in a column of pandas."""
    dtype = getattr(ends, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "iu" and np.can_cast(dtype, np.int64)


def _numbered(nodes: Iterable[Hashable]) -> tuple[list[Hashable], NDArray[np.int64]]:
    """Return the nodes, each once, in the order in which they come first; and for each given node its place there."""
    places: dict[Hashable, int] = {}
    found = np.fromiter((places.setdefault(node, len(places)) for node in nodes), np.int64)
    if None in places:
        raise ValueError("None cannot be a node")
    return [*places], found

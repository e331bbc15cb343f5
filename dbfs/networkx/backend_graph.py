"""BackendGraph: a graph that NetworkX hands to the backend, with the graphs on the workers that stand for it."""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import os
import threading
import weakref
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import distributed
import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dbfs.assembly import Graph, load
from dbfs.base.calls import public
from dbfs.base.integers import whole_count
from dbfs.cluster.connect import connect
from dbfs.edges.arrays import ArrayEdges, from_arrays
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.tables.graphs import require_both_ways
from dbfs.errors import InvalidOptionError
from dbfs_workers.base.text import counted
from dbfs_workers.ids.sequence import value_of


class Way(enum.Enum):
    """How edges are crossed; all the same in an undirected graph."""

    FORWARD = "with their direction"
    BACKWARD = "against their direction"
    BOTH = "both ways"


@dataclass(frozen=True, eq=False)
class EdgeValues:
    """A number of each edge, in the order of ``BackendGraph.adjacency``, under the name of an attribute."""

    name: Any
    numbers: NDArray[Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EdgeValues) and np.array_equal(self.numbers, other.numbers)

    __hash__ = None  # type: ignore[assignment]


class BackendGraph:
    """A graph for NetworkX's functions by dbfs: its nodes are the vertices 0..n-1, in the order of the nodes.

    NetworkX's functions that make a graph of a list of edges make one with ``backend="dbfs"``, and ``from_networkx``
    makes one of a NetworkX graph, as NetworkX does for a call with ``backend="dbfs"``. The graph on the workers is
    loaded by the first traversal that needs it, and unloaded with the last reference to this object.

    Args:
        nodes: the node of each vertex.
        sources, targets: int64, the vertices of each edge's ends, in the order in which NetworkX would add the edges.
        directed: whether edges have a direction.
        attributes: those of every edge, where the graph goes back to NetworkX.
    """

    __networkx_backend__ = "dbfs"
    _multigraph = False

    def __init__(
        self,
        nodes: Iterable[Hashable],
        sources: NDArray[np.int64],
        targets: NDArray[np.int64],
        *,
        directed: bool,
        attributes: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._hold_nodes(nodes)
        self._directed, self._title = directed, "DiGraph" if directed else "Graph"
        self._sources, self._targets, self._attributes = sources, targets, dict(attributes)
        self.adjacency = adjacency_of(len(self), sources, targets, directed=directed)
        loops = 0 if directed else int(np.sum(self.adjacency.pairs()[0] == self.adjacency.neighbours))
        self._edges = self.adjacency.neighbours.size if directed else (self.adjacency.neighbours.size + loops) // 2

    def _hold_nodes(self, nodes: Iterable[Hashable]) -> None:
        self._nodes: list[Hashable] = list(nodes)
        self._vertices: dict[Hashable, int] = dict(zip(self._nodes, range(len(self._nodes)), strict=True))
        self._loaded: dict[tuple[Way, bool, Any], tuple[Graph, EdgeValues | None]] = {}
        self._loading = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        made = functools.partial(BackendGraph, directed=self._directed, attributes=self._attributes)
        return made, (self._nodes, self._sources, self._targets)

    @property
    def original(self) -> nx.Graph:
        """The same graph as one of NetworkX."""
        graph: nx.Graph = nx.DiGraph() if self._directed else nx.Graph()
        graph.add_nodes_from(self._nodes)
        edges = zip(self.nodes_of(self._sources), self.nodes_of(self._targets), strict=True)
        graph.add_edges_from(edges, **self._attributes)
        return graph

    @functools.cached_property
    def names(self) -> NDArray[np.object_]:
        """object[n], the node of each vertex."""
        return np.fromiter(self._nodes, object, len(self._nodes))

    @functools.cached_property
    def against(self) -> Adjacency:
        """The neighbours against the edges, in the order of NetworkX's ``G.pred``."""
        if not self._directed:
            return self.adjacency
        return adjacency_of(len(self), self._targets, self._sources, directed=True)

    @functools.cached_property
    def degrees(self) -> NDArray[np.int64]:
        """int64[n], the degrees of an undirected graph as NetworkX counts them: a self-loop counts twice."""
        sources, targets = self.adjacency.pairs()
        return self.adjacency.degrees + np.bincount(sources[sources == targets], minlength=len(self))

    def values(self, name: Any, way: Way) -> list[Any]:
        """Return an attribute of each edge: see ``values_of_edges``."""
        return [self._attributes.get(name, 1)] * self.adjacency_of(way).neighbours.size

    def adjacency_of(self, way: Way) -> Adjacency:
        """Return the neighbours for traversals forwards or backwards."""
        return self.adjacency if way is Way.FORWARD else self.against

    def loaded(self, way: Way = Way.FORWARD, *, in_edges: bool = False, weights: EdgeValues | None = None) -> Graph:
        """Return the graph on the workers, loading it if needed. Errors as for ``dbfs.load`` and ``client``.

        With ``weights``, a number of each edge in the order of ``adjacency``, its edges have a column ``weight``.
        """
        if not self._directed:
            way, in_edges = Way.FORWARD, False
        with self._loading:
            current = client()
            key = way, in_edges, None if weights is None else weights.name
            graph, held = self._loaded.get(key, (None, None))
            # The client, or its cluster, may have ended, and the user may have connected to another one.
            if graph is None or not graph.gang.is_of(current) or held != weights:
                options: dict[str, Any] = {} if weights is None else {"edge_columns": "weight", "backend": "cpu"}
                edges = self._edge_list(way, weights)
                graph = load(edges, client=current, ranks=ranks(), in_edges=in_edges, **options)
                self._loaded[key] = graph, weights
            return graph

    def _edge_list(self, way: Way, weights: EdgeValues | None) -> EdgeList:
        sources, targets = self.adjacency.pairs()
        values = None if weights is None else weights.numbers
        if not self._directed:
            once = sources <= targets
            sources, targets = sources[once], targets[once]
            values = None if values is None else values[once]
        if way is Way.BACKWARD:
            sources, targets = targets, sources
        directed = self._directed and way is not Way.BOTH
        edges = from_arrays(sources, targets, n=len(self), directed=directed, name="NetworkX graph")
        assert isinstance(edges, ArrayEdges)
        return edges if values is None else replace(edges, weights=values)

    def vertex(self, node: Hashable) -> int:
        """Return the vertex of a node that is in the graph; an Arrow scalar stands for its value."""
        return self._vertices[self._own(node)]

    def _own(self, node: Any) -> Any:
        """Return a node as it is, or the value of an Arrow scalar that is no node itself."""
        return node if node in self._vertices else value_of(node)

    def vertices(self, nodes: Iterable[Hashable]) -> NDArray[np.int64]:
        """Return the vertices of nodes that are in the graph."""
        return np.fromiter(map(self.vertex, nodes), np.int64)

    def nodes_of(self, vertices: NDArray[np.int64]) -> list[Any]:
        """Return the nodes of vertices."""
        nodes: list[Any] = self.names[vertices].tolist()
        return nodes

    def nodes_in(self, bunch: Any) -> Sequence[Hashable]:
        """Return the graph's nodes among ``bunch``: None for all, a node, or an iterable, as for ``G.nbunch_iter``.

        Raises:
            NetworkXError: ``bunch`` is neither a node nor an iterable of hashable values.
        """
        if bunch is None:
            return self._nodes
        if bunch in self:
            return [self._own(bunch)]
        try:
            return [node for node in map(self._own, bunch) if node in self._vertices]
        except TypeError as error:
            unhashable = "hash" in str(error)
            words = "a node of the sequence nbunch is not hashable" if unhashable else None
            raise nx.NetworkXError(words or "nbunch is not a node or a sequence of nodes.") from error

    def number_of_nodes(self) -> int:
        """Return the number of nodes."""
        return len(self._nodes)

    def number_of_edges(self) -> int:
        """Return the number of edges; parallel ones count each."""
        return self._edges

    def is_directed(self) -> bool:
        """Return whether edges have a direction."""
        return self._directed

    def is_multigraph(self) -> bool:
        """Return whether the NetworkX graph is of a type that may have parallel edges."""
        return self._multigraph

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._nodes)

    def __contains__(self, node: object) -> bool:
        try:
            return self._own(node) in self._vertices
        except TypeError:
            return False

    def __str__(self) -> str:
        # What NetworkX's messages say of a graph.
        return f"{self._title} with {len(self)} nodes and {self._edges} edges"

    def __repr__(self) -> str:
        kind = "directed " if self._directed else ""
        return f"<dbfs.networkx.BackendGraph: {kind}{counted(len(self), 'node')}, {counted(self._edges, 'edge')}>"


class ConvertedGraph(BackendGraph):
    """A ``BackendGraph`` that was made of a NetworkX graph.

    Args:
        graph: any NetworkX graph. Weights and other attributes play no part in traversals.
        hold: whether to keep ``graph`` alive. NetworkX keeps a converted graph with its original, so that neither would
            go if each held the other.
    """

    def __init__(self, graph: nx.Graph, *, hold: bool) -> None:
        self._hold_nodes(graph)
        self._directed = graph.is_directed()
        self._multigraph = graph.is_multigraph()
        self._edges = graph.number_of_edges()
        self._title = type(graph).__name__ + (f" named {graph.name!r}" if graph.name else "")
        if not self._directed and is_view(graph):
            require_both_ways(graph)
        self.adjacency = read_adjacency(graph._adj, self._vertices)
        self._before: Mapping[Any, Mapping[Any, Any]] = graph._pred if self._directed else {}
        self._held = graph if hold else None
        self._original = weakref.ref(graph)

    def __reduce__(self) -> tuple[Any, ...]:
        # NetworkX keeps a conversion with its graph, which users pickle and copy. There None stands for the conversion:
        # NetworkX takes None for a graph that was not converted yet.
        return (type(None), ()) if self._held is None else (from_networkx, (self._held,))

    @property
    def original(self) -> nx.Graph:
        """The NetworkX graph that this one was made from.

        Raises:
            NotImplementedError: that graph is gone.
        """
        graph = self._original()
        if graph is None:
            raise NotImplementedError("the NetworkX graph that this graph was made from is gone")
        return graph

    def values(self, name: Any, way: Way) -> list[Any]:
        return _values(self.original, name, way)

    @functools.cached_property
    def against(self) -> Adjacency:
        """The neighbours against the edges, in the order of ``G.pred`` unless the NetworkX graph has changed since."""
        if not self._directed:
            return self.adjacency
        with contextlib.suppress(KeyError):  # a node of the graph is gone, or new
            read = read_adjacency(self._before, self._vertices)
            if read.mirrors(self.adjacency):
                return read
        return self.adjacency.transposed()


def values_of_edges(graph: BackendGraph | nx.Graph, name: Any, way: Way = Way.FORWARD) -> list[Any]:
    """Return an attribute of each edge, in the order of ``adjacency_of(way)``.

    It is 1 where there is none, and the least one of parallel edges.
    Raise ``TypeError`` if the values of parallel edges do not compare.
    """
    return graph.values(name, way) if isinstance(graph, BackendGraph) else _values(graph, name, way)


def _values(graph: nx.Graph, name: Any, way: Way) -> list[Any]:
    neighbours = graph._pred if way is Way.BACKWARD and graph.is_directed() else graph._adj
    rows = (neighbours[node].values() for node in graph)
    if graph.is_multigraph():
        return [min(data.get(name, 1) for data in parallel.values()) for row in rows for parallel in row]
    return [data.get(name, 1) for row in rows for data in row]


def is_view(graph: nx.Graph) -> bool:
    """Return whether a graph shows the nodes and edges of another one, which may change without NetworkX's notice."""
    return hasattr(graph, "_graph") or not isinstance(graph._adj, dict)


@public
def from_networkx(graph: nx.Graph) -> BackendGraph:
    """Convert a NetworkX graph, which must not change afterwards; NetworkX's functions take the result in its place.

    With ``backend="dbfs"`` NetworkX converts by itself, and keeps the converted graph until the graph changes. A view
    (``G.subgraph(...)``, ``G.reverse(copy=False)``) is converted anew by each call.

    Args:
        graph: any NetworkX graph: directed or not, with or without parallel edges.

    Raises:
        EdgeInputError: the graph is undirected, and its filter shows an edge in one direction only.
    """
    return ConvertedGraph(graph, hold=True)


_SETTINGS: Final = "nx.config.backends.dbfs"

_lock = threading.Lock()
# By address, clients of schedulers that the settings named; under None the client of a cluster within this process.
_clients: dict[str | None, distributed.Client] = {}


def _after_fork() -> None:
    """Forget the clients of the parent: a forked child starts others. Another thread may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_after_fork)


def ranks() -> int | None:
    """Return the number of ranks that the settings ask for; None for all workers. Errors as for ``client``."""
    asked = nx.config.backends.dbfs.ranks
    return None if asked is None else whole_count(asked, f"{_SETTINGS}.ranks", 1)


def client() -> distributed.Client:
    """Return the client for the next graph.

    This is a client of ``nx.config.backends.dbfs.scheduler`` if that is set, else Dask's current client, else the
    client of a cluster within this process, which the first call starts. That cluster has CPU cores only and ends with
    the process. Neither client that is started here becomes Dask's current one.

    Raises:
        InvalidOptionError: a setting has an impossible value.
        NoWorkersError: the scheduler did not answer, or has no workers.
    """
    address = nx.config.backends.dbfs.scheduler
    if address is not None and not isinstance(address, str):
        raise InvalidOptionError(f"{_SETTINGS}.scheduler must be an address or None, not {address!r}")
    current = _current() if address is None else None
    if current is not None:
        return current
    wanted = ranks() or 1
    with _lock:
        known = _clients.get(address)
        if known is not None and known.status == "running":
            if address is not None or len(known.cluster.workers) >= wanted:
                return known
            known.close()
        if address is not None:
            _clients[address] = connect(address, set_as_default=False)
        else:
            _clients[None] = connect(
                n_workers=wanted,
                backend="cpu",
                processes=False,
                dashboard_address=None,
                set_as_default=False,
            )
        return _clients[address]


def _current() -> distributed.Client | None:
    """Return Dask's current client; None if there is none that a plain call can use."""
    try:
        current = distributed.Client.current()
    except ValueError:
        return None
    return None if current.asynchronous or current.status != "running" else current


@dataclass(frozen=True, eq=False)
class Adjacency:
    """The neighbours of n vertices; parallel edges count once.

    Attributes:
        starts: int64[n + 1], where the neighbours of each vertex start, and the number of all neighbours.
        neighbours: int64, the neighbours of vertex 0, then those of vertex 1, ...
    """

    starts: NDArray[np.int64]
    neighbours: NDArray[np.int64]

    @property
    def degrees(self) -> NDArray[np.int64]:
        """int64[n], the number of neighbours of each vertex."""
        return np.diff(self.starts)

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return each vertex with each of its neighbours: two int64 arrays."""
        return np.repeat(np.arange(self.starts.size - 1), self.degrees), self.neighbours

    def pairs_of(self, vertices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return each of some vertices with each of its neighbours, in the order of ``vertices``."""
        first = self.starts[vertices]
        counts = self.starts[vertices + 1] - first
        ends = np.cumsum(counts)
        places = np.arange(ends[-1] if ends.size else 0) + np.repeat(first - ends + counts, counts)
        return np.repeat(vertices, counts), self.neighbours[places]

    def transposed(self) -> Adjacency:
        """Return the adjacency against the edges: the vertices before each vertex, ascending."""
        sources, targets = self.pairs()
        starts = np.zeros_like(self.starts)
        np.cumsum(np.bincount(targets, minlength=starts.size - 1), out=starts[1:])
        return Adjacency(starts, sources[np.argsort(targets, kind="stable")])

    def mirrors(self, other: Adjacency) -> bool:
        """Return whether the edges here are those of ``other``, reversed."""
        n = self.starts.size - 1
        (sources, targets), (others, ends) = self.pairs(), other.pairs()
        return bool(np.array_equal(np.sort(sources * n + targets), np.sort(ends * n + others)))


def adjacency_of(n: int, sources: NDArray[np.int64], targets: NDArray[np.int64], *, directed: bool) -> Adjacency:
    """Return the neighbours in the order in which NetworkX has them after it has added edges one by one."""
    if not directed:
        # Both ends of an edge learn of each other before the next edge comes.
        sources, targets = (np.stack(ends, axis=1).reshape(-1) for ends in ((sources, targets), (targets, sources)))
    # A neighbour keeps the place where it came first.
    firsts = np.sort(np.unique(sources * n + targets, return_index=True)[1])
    sources, targets = sources[firsts], targets[firsts]
    starts = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(sources, minlength=n), out=starts[1:])
    return Adjacency(starts, targets[np.argsort(sources, kind="stable")])


def read_adjacency(neighbours: Mapping[Any, Mapping[Any, Any]], vertices: Mapping[Any, int]) -> Adjacency:
    """Read NetworkX's mapping of nodes to neighbours (``G.adj``, ``G.pred``).

    Args:
        neighbours: by node a mapping whose keys are the neighbours.
        vertices: the vertex of each node, in the order of the vertices.
    """
    # The length of a row that a multigraph's filter thins out counts neighbours that the row does not have.
    rows = [list(iter(neighbours[node])) for node in vertices]
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=starts[1:])
    flat = map(vertices.__getitem__, itertools.chain.from_iterable(rows))
    return Adjacency(starts, np.fromiter(flat, np.int64, int(starts[-1])))

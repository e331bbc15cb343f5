"""Subgraph: a part of a graph in the client's memory, as a table of edges, a matrix or a NetworkX graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, overload

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import part_of, public
from dbfs.base.integers import whole_count
from dbfs.base.memory import require_room
from dbfs.cluster.deadline import bounded, of_call
from dbfs.cluster.gang import Ref
from dbfs.cluster.own_process import StaysHere
from dbfs.edges.tables.about import of_graph
from dbfs.edges.tables.attributes import column_names
from dbfs.edges.tables.ends import ColumnNames, listed
from dbfs.errors import InvalidOptionError, MissingPackageError
from dbfs.graph.graph import Graph, R
from dbfs.graph.html import Card
from dbfs.graph.result import BFSResult
from dbfs.graph.striped import StripedGraph
from dbfs.graph.tabular import SHOWN, Tabular
from dbfs.graph.traversing import require_one_version, stream, traverse
from dbfs.service.asking import ask_ranks
from dbfs.service.client import ServiceClient
from dbfs.service.messages import GetGraph
from dbfs_workers.base.text import counted
from dbfs_workers.features.subgraphs.messages import SelectEdges
from dbfs_workers.features.subgraphs.reads import rows_between, vertex_rows
from dbfs_workers.ids.label_table import label_table, places_of, whole_table
from dbfs_workers.ids.sequence import value_of

if TYPE_CHECKING:
    import networkx
    import pyarrow as pa
    import scipy.sparse

    from dbfs_workers.ids.sequence import CallerIds

# Bytes of a row of ``Neighbourhoods`` while it is made: three numbers twice, and two ids.
_ROW_BYTES: Final = 64


@public
@dataclass(frozen=True)
class Subgraph(Tabular):
    """Some vertices of a graph and edges between them. Needs no cluster.

    The edges are those of a simple graph: duplicates count once, and so does an undirected edge. Self-loops are kept.
    With columns each of several parallel edges is an edge of its own, with its own values. ``dbfs.load`` takes a
    subgraph, with its direction and with vertices without edges.

    Attributes:
        name: the graph's name.
        directed: whether edges hold in one direction only.
        vertices: the vertices' ids, as of ``Graph.ids_of``.
        sources, targets: int64, the index of each edge's ends in ``vertices``; ascending by source, then by target. The
            source of an undirected edge is the end that comes first in ``vertices``.
        columns: an Arrow table of values of each edge; None without any.
        vertex_columns: an Arrow table of values of each vertex, in the order of ``vertices``; None without any.
    """

    _holds_edges: ClassVar[bool] = True

    name: str
    directed: bool
    vertices: CallerIds = field(repr=False)
    sources: NDArray[np.int64] = field(repr=False)
    targets: NDArray[np.int64] = field(repr=False)
    columns: pa.Table | None = field(default=None, repr=False)
    vertex_columns: pa.Table | None = field(default=None, repr=False)

    @property
    def n(self) -> int:
        """Number of vertices."""
        return len(self.vertices)

    @property
    def edges(self) -> int:
        """Number of edges."""
        return self.sources.size

    def to_arrow(self) -> pa.Table:
        """Return the edges as an Arrow table: the columns ``source`` and ``target``, which have ids, and ``columns``.

        The metadata of its schema say which vertices have no edge, and whether edges are directed. ``dbfs.load`` takes
        the same graph from the table, and from a Parquet or Arrow file of it. In pandas they are the frame's ``attrs``.
        """
        alone = np.ones(self.n, bool)
        alone[self.sources] = alone[self.targets] = False
        lone = self.vertices[np.flatnonzero(alone)]
        of = of_graph(self.name, directed=self.directed, edges=self.edges, lone=lone)
        return of.put_on(self._rows(slice(None)))

    def _rows(self, rows: slice) -> pa.Table:
        made = whole_table(source=self.vertices[self.sources[rows]], target=self.vertices[self.targets[rows]])
        if self.columns is not None:
            for name in self.columns.schema.names:
                made = made.append_column(name, self.columns[rows][name])
        return made

    def _card(self) -> Card:
        kind = "directed" if self.directed else "undirected"
        facts = {"Vertices": f"{self.n:,}", "Edges": f"{self.edges:,} {kind}"}
        return Card(self.name, facts, self._rows(SHOWN))

    def to_scipy(self) -> scipy.sparse.csr_array:
        """Return the adjacency matrix in the order of ``vertices``: int8, 1 at (source, target).

        The matrix of an undirected graph is symmetric. ``scipy.sparse.csgraph.breadth_first_tree`` returns the same
        form for a tree that reaches all vertices. The matrix itself has no ids. Its attribute ``directed``, which other
        matrices made of it lack, tells ``dbfs.load`` that a symmetric matrix is directed.
        """
        import scipy.sparse

        source, target = self.sources, self.targets
        if not self.directed:
            apart = source != target
            source, target = np.append(source, target[apart]), np.append(target, source[apart])
        ones = np.ones(source.size, np.int8)
        matrix: Any = scipy.sparse.coo_array((ones, (source, target)), shape=(self.n, self.n)).tocsr()
        matrix.directed = self.directed
        made: scipy.sparse.csr_array = matrix
        return made

    def to_networkx(self) -> networkx.Graph[Any]:
        """Return a NetworkX ``DiGraph`` or ``Graph`` whose nodes are the ids.

        ``columns`` are the edges' attributes, and ``vertex_columns`` those of the nodes. A null is no attribute. With
        parallel edges, which columns tell apart, it is a ``MultiDiGraph`` or ``MultiGraph``.

        Raises:
            MissingPackageError: NetworkX is not installed.
        """
        try:
            import networkx
        except ImportError as error:
            raise MissingPackageError("to_networkx needs NetworkX: pip install networkx") from error
        nodes = self.vertices.tolist()
        repeats = (np.diff(self.sources) == 0) & (np.diff(self.targets) == 0)
        kinds = (networkx.MultiDiGraph, networkx.MultiGraph) if repeats.any() else (networkx.DiGraph, networkx.Graph)
        made = kinds[0 if self.directed else 1]()
        made.add_nodes_from(zip(nodes, _attributes(self.vertex_columns, self.n), strict=True))
        ends = ([nodes[at] for at in of.tolist()] for of in (self.sources, self.targets))
        made.add_edges_from(zip(*ends, _attributes(self.columns, self.edges), strict=True))
        return made

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        words = f"{counted(self.n, 'vertex', 'vertices')}, {counted(self.edges, f'{kind} edge')}"
        return f"<dbfs.Subgraph of {self.name}: {words}>"


def _attributes(table: pa.Table | None, size: int) -> list[dict[str, Any]]:
    """Return for each row what is not null, by column."""
    rows: list[dict[str, Any]] = [{}] * size if table is None else table.to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def cut_out(
    graph: StripedGraph,
    vertices: NDArray[np.int64],
    ids: CallerIds,
    columns: ColumnNames = None,
    of_vertices: ColumnNames = None,
) -> Subgraph:
    """Return the subgraph of some vertices. The ranks select its edges.

    Args:
        vertices: int64 vertices, each once.
        ids: their ids.
        columns: names of columns of the edges; None for no column, and for duplicates once.
        of_vertices: names of columns of the vertices.

    Errors as for ``Graph.subgraph``.
    """
    names, beside = column_names(columns, "columns"), _of_vertices(graph, vertices, of_vertices)
    if names:
        return Subgraph(graph.name, graph.directed, ids, *_with_columns(graph, vertices, [*names], None), beside)
    chosen, index = _chosen(graph, vertices)
    messages = {rank: SelectEdges(key, chosen, index) for rank, key in enumerate(graph.partition_keys)}
    parts = ask_ranks(graph.gang, messages, f"cutting a subgraph out of {graph.name}", graph.record).values()
    # NumPy sorts plain integers several times as fast as pairs.
    sources, targets = _ends(np.sort(_keys([*parts], vertices)), vertices)
    return Subgraph(graph.name, graph.directed, ids, sources, targets, vertex_columns=beside)


def _chosen(graph: StripedGraph, vertices: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the internal ids of some vertices, ascending, and the index of each of them among the vertices."""
    internal = graph.stripe.internal(np.array(graph.numbering.positions(vertices.tolist()), np.int64))
    ascending = np.argsort(internal)
    return internal[ascending].astype(np.uint32), ascending.astype(np.uint32)


def _keys(parts: list[NDArray[np.uint32]], vertices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a number of each edge between vertices, by which edges are sorted. A square of 2^32 needs 64 bits."""
    sources, targets = np.concatenate(parts, axis=1).astype(np.uint64)
    keys: NDArray[np.uint64] = sources * np.uint64(max(1, vertices.size)) + targets
    return keys


def _ends(keys: NDArray[np.uint64], vertices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    sources, targets = np.divmod(keys, np.uint64(max(1, vertices.size)))
    return sources.astype(np.int64), targets.astype(np.int64)


def _with_columns(
    graph: StripedGraph, vertices: NDArray[np.int64], names: list[str], parents: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Table]:
    """Return the edges between some vertices, as of ``Subgraph``, and a table of their columns.

    Args:
        parents: the index of each vertex's parent among the vertices, for the edges of a tree alone; None for all.

    Raises:
        InvalidOptionError: the graph does not keep one of the columns, or its name is that of an end.
        Other errors as for ``Graph.subgraph``.
    """
    kept = graph.record.beside
    there = () if kept is None else kept.edge_columns
    wrong = next((name for name in names if name not in there or name in ("source", "target")), None)
    if wrong is not None or kept is None:
        why = f"has no column {wrong!r} of its edges" if wrong not in there else f"names its ends too by {wrong!r}"
        raise InvalidOptionError(f"{graph.name} {why}. Its columns: {listed(list(there))}")
    by_rank, chosen = zip(graph.partition_keys, kept.edge_keys, strict=True), _chosen(graph, vertices)
    arguments = [(Ref(partition), Ref(key), *chosen, parents, names) for partition, key in by_rank]
    ends, table = _read(graph, "rows-between", rows_between, arguments)
    keys = _keys(ends, vertices)
    # Stable: parallel edges come from one row, in which they ascend by their values.
    order = np.argsort(keys, kind="stable")
    return (*_ends(keys[order], vertices), table.take(order))


def _of_vertices(graph: StripedGraph, vertices: NDArray[np.int64], columns: ColumnNames) -> pa.Table | None:
    """Return a table of columns of some vertices, in their order; None without columns. Errors as of ``subgraph``."""
    names, kept = [*column_names(columns, "vertex_columns")], graph.record.beside
    if not names:
        return None
    there = [] if kept is None else kept.vertex_columns.names
    wrong = next((name for name in names if name not in there), None)
    if wrong is not None or kept is None:
        raise InvalidOptionError(
            f"{graph.name} has no column {wrong!r} of its vertices. Its columns: {listed(list(there))}"
        )
    chosen = _chosen(graph, vertices)
    arguments = [(Ref(key), rank, graph.stripe.n_local, *chosen, names) for rank, key in enumerate(kept.vertex_keys)]
    index, table = _read(graph, "vertex-rows", vertex_rows, arguments)
    return table.take(np.argsort(np.concatenate(index)))


def _read(
    graph: StripedGraph, name: str, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
) -> tuple[list[NDArray[np.uint32]], pa.Table]:
    """Return what a function returns on each rank, and the rows of its tables, without dictionaries."""
    import pyarrow as pa

    # Dask waits for data that is gone: the graph may have been unloaded, or built again.
    ServiceClient.of(graph.gang.client).call(GetGraph(graph.record.graph_id))
    doing = f"reading columns of {graph.name}"
    found = graph.gang.on_each_rank(name, function, arguments, of_call(), doing)
    table = pa.concat_tables([rows for _, rows in found])
    plain = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return [of for of, _ in found], pa.table(plain, table.schema.names)


@public
class Neighbourhood(StaysHere, Tabular):
    """The result of ``Graph.khop``. As an array, and in loops, it is its ids.

    Attributes:
        vertices: the vertices' ids, ascending: as of ``Graph.ids_of``.
        distances: int32, the distance of each of them.
    """

    def __init__(self, graph: StripedGraph, numbers: NDArray[np.int64], distances: NDArray[np.int32]) -> None:
        self.graph = graph
        self.vertices: CallerIds = graph.ids_of(numbers)
        self.distances = distances
        self._numbers = numbers

    @property
    def elsewhere(self) -> str:
        return "send vertices and distances, or to_pandas(), instead"

    @classmethod
    def of(cls, result: BFSResult) -> Self:
        """Return the vertices that a traversal reached."""
        numbers, distances, _ = result.reader().labels_between(0, result.depth, predecessors=False)
        return cls(result.graph, numbers, distances)

    def subgraph(self, *, columns: ColumnNames = None, vertex_columns: ColumnNames = None) -> Subgraph:
        """Return the vertices with all edges between them. Columns and errors are as for ``Graph.subgraph``."""
        return cut_out(self.graph, self._numbers, self.vertices, columns, vertex_columns)

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with the columns ``vertex`` (the id) and ``distance`` (int32)."""
        return self._rows(slice(None))

    def _rows(self, rows: slice) -> pa.Table:
        return label_table(self.vertices[rows], self.distances[rows], None, unreached=False)

    def _card(self) -> Card:
        facts = {"Vertices": f"{len(self):,}", "Farthest": counted(int(self.distances.max(initial=0)), "edge")}
        return Card(self.graph.name, facts, self._rows(SHOWN))

    def tolist(self) -> list[Any]:
        """Return the ids as a list of Python's integers, strings or tuples."""
        return self.vertices.tolist()

    def __len__(self) -> int:
        return len(self.vertices)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __contains__(self, one: object) -> bool:
        return value_of(one) in self.vertices

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.vertices, dtype, copy=copy)

    def __repr__(self) -> str:
        away = counted(int(self.distances.max(initial=0)), "edge")
        words = f"{counted(len(self), 'vertex', 'vertices')} at most {away} away"
        return f"<dbfs.Neighbourhood in {self.graph.name}: {words}>"


@public
@dataclass(frozen=True)
class Neighbourhoods(Tabular):
    """The result of ``Graph.khop(..., each=True)``: a row for each source and each vertex near it. Needs no cluster.

    The rows are in the order of the sources, and of one source in that of the vertices.

    Attributes:
        name: the graph's name.
        sources, vertices: ids of the rows, as of ``Graph.ids_of``.
        distances: int32, the distance of each row's vertex from its source.
    """

    name: str
    sources: CallerIds = field(repr=False)
    vertices: CallerIds = field(repr=False)
    distances: NDArray[np.int32] = field(repr=False)

    @classmethod
    def of(cls, graph: StripedGraph, sources: tuple[int, ...], k: int) -> Self:
        """Traverse from each source. Errors as of ``Graph.khop``."""
        parts, rows, version = [np.empty((3, 0), np.int64)], 0, None

        def run(some: list[int]) -> list[BFSResult]:
            return traverse(graph, BFSResult, [(source,) for source in some], max_depth=k)

        for source, result in zip(sources, stream(sources, run), strict=True):
            version = result.version if version is None else version
            require_one_version(graph, version, result.version)
            rows += result.reached
            require_room(_ROW_BYTES * rows, f"more than {rows:,} rows need", "take fewer sources, or a smaller k")
            numbers, distances, _ = result.reader().labels_between(0, k, predecessors=False)
            result.release()
            parts.append(np.stack([np.full(numbers.size, source), numbers, distances]))
        of_all, vertices, distances = np.concatenate(parts, axis=1)
        return cls(graph.name, graph.ids_of(of_all), graph.ids_of(vertices), distances.astype(np.int32))

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with the columns ``source``, ``vertex`` (ids) and ``distance`` (int32)."""
        return self._rows(slice(None))

    def _rows(self, rows: slice) -> pa.Table:
        return whole_table(source=self.sources[rows], vertex=self.vertices[rows], distance=self.distances[rows])

    def _card(self) -> Card:
        farthest = counted(int(self.distances.max(initial=0)), "edge")
        return Card(self.name, {"Rows": f"{len(self.vertices):,}", "Farthest": farthest}, self._rows(SHOWN))


@part_of("Graph")
class SubgraphsGraph(Graph[R]):
    """Parts of a graph: the vertices near some, and the edges between some."""

    @overload
    def khop(
        self, source: Any, k: int, *, each: Literal[False] = False, deadline: float | str | None = None
    ) -> Neighbourhood: ...

    @overload
    def khop(
        self, source: Any, k: int, *, each: Literal[True], deadline: float | str | None = None
    ) -> Neighbourhoods: ...

    @bounded()
    def khop(
        self, source: Any, k: int, *, each: bool = False, deadline: float | str | None = None
    ) -> Neighbourhood | Neighbourhoods:
        """Return the ids at most ``k`` edges away from an id, or from the nearest of several, with their distances.

        The source itself is included. In a directed graph edges are followed forwards. ``khop(...).subgraph()`` has all
        edges between these vertices.

        Args:
            source: id, or several.
            k: the largest distance.
            each: look around each of several ids by itself: a row for each source and each vertex near it.
            deadline: see ``bfs``.

        Raises:
            InvalidOptionError: ``k`` is below 0; or with ``each`` another client updated the graph in between.
            InvalidOptionTypeError: ``k`` is not an integer.
            GraphTooLargeError: with ``each``, this machine has no memory for the rows.
            InvalidVertexError, InvalidVertexTypeError: see ``bfs``, as for all other errors.
        """
        most = whole_count(k, "k")
        if each:
            return Neighbourhoods.of(self, self.vertices_named(source, "source"), most)
        (result,) = traverse(self, BFSResult, [self.vertices_named(source, "source")], max_depth=most)
        found = Neighbourhood.of(result)
        result.release()
        return found

    @bounded()
    def subgraph(
        self,
        ids: Any,
        *,
        columns: ColumnNames = None,
        vertex_columns: ColumnNames = None,
        deadline: float | str | None = None,
    ) -> Subgraph:
        """Return some vertices with all edges between them, as a table, a SciPy matrix or a NetworkX graph.

        The workers select the edges, and only these travel. The vertices stay in the order of ``ids``; an id that
        occurs again is left out.

        Args:
            ids: the ids.
            columns: names of columns of ``load(edge_columns=)``, whose values come with the edges. Each of several
                parallel edges then has a row of its own.
            vertex_columns: names of columns of ``load(vertex_columns=)``, whose values come with the vertices.
            deadline: as for ``bfs``.

        Raises:
            InvalidOptionError: the graph does not keep a column, or one of edges is called ``source`` or ``target``.
            Other errors as for ``bfs``.
        """
        named = np.array(self.vertices_named(ids, "id", present=True), np.int64)
        vertices = named[np.sort(np.unique(named, return_index=True)[1])]
        return cut_out(self, vertices, self.ids_of(vertices), columns, vertex_columns)


@part_of("BFSResult")
class SubgraphsResult(BFSResult):
    """The tree of a traversal."""

    @bounded()
    def tree(self, *, columns: ColumnNames = None) -> Subgraph:
        """Return the reached vertices with an edge from each one's predecessor: a directed subgraph.

        A source is the root of a tree: the number of edges is ``reached`` less the number of sources. With ``columns``,
        as of ``Graph.subgraph``, each of several parallel edges has a row of its own. Errors as for ``predecessors``
        and ``Graph.subgraph``.
        """
        self._require_predecessors()
        graph, names = self.graph, column_names(columns, "columns")
        vertices, _, parents = self.reader().labels_between(0, self.depth, predecessors=True)
        assert parents is not None
        children = np.flatnonzero(parents != vertices)
        sources = places_of(parents[children], vertices, graph.n)
        if names:
            own = np.arange(vertices.size)
            own[children] = sources
            return Subgraph(graph.name, True, graph.ids_of(vertices), *_with_columns(graph, vertices, [*names], own))
        # Stable: the children of one vertex stay in ascending order.
        order = np.argsort(sources, kind="stable")
        return Subgraph(graph.name, True, graph.ids_of(vertices), sources[order], children[order])

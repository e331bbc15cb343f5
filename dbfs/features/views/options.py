"""The options of ``load`` that keep columns of tables: of edges, and of vertices."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any, Final

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs.base.records import GraphRecord
from dbfs.building.builder import STRIPES
from dbfs.building.built_before import BuiltEdges
from dbfs.building.memory import Estimate, require_fit
from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Gang, Ref, TaskGraph, release
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.tables.attributes import (
    AttributeRows,
    as_stored,
    column_names,
    columns_of,
    require_there,
    stored_schema,
)
from dbfs.edges.tables.ends import Ends, listed
from dbfs.edges.tables.ids import Place, ids_of
from dbfs.errors import EdgeInputError, InvalidOptionError, InvalidVertexError
from dbfs.features.views.attributes import kept_of
from dbfs.graph.ids import IdLookup
from dbfs.graph.load import LoadOption
from dbfs.graph.positions import Numbering
from dbfs_workers.base.text import counted
from dbfs_workers.features.views import attributes as tasks

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs.edges.tables.ends import ColumnNames

_OF_VERTICES: Final = ("vertex", "id", "node")
"""Names of columns with the ids of vertices, in lower case."""


@dataclass(eq=False)
class KeptColumns(LoadOption):
    """The options ``edge_columns``, ``vertices`` and ``vertex_columns`` of ``load``.

    Attributes:
        names: names of the columns of edges; None for those that the edges have already.
        vertices: the table of vertices; None without one.
        of_vertices: names of its columns that are kept; None for those of a graph that was built before.
        layout: the option ``layout``.
        strings: whether integers are taken as the strings of their digits.
        there: the option by which the edges that were taken have columns; empty if they have none.
    """

    names: tuple[str, ...] | None
    vertices: Any
    of_vertices: tuple[str, ...] | None
    layout: str
    strings: bool
    there: str = ""

    @classmethod
    def of(
        cls, edges: ColumnNames, vertices: Any, of_vertices: ColumnNames, layout: str, *, strings: bool = False
    ) -> KeptColumns:
        """Return the option for what a caller gives.

        Raises:
            InvalidOptionError: one of ``vertices`` and ``vertex_columns`` is missing; others as of ``column_names``.
        """
        names = None if of_vertices is None else column_names(of_vertices, "vertex_columns")
        if (vertices is None) is bool(names):
            given, lacking = ("vertex_columns", "vertices") if vertices is None else ("vertices", "vertex_columns")
            raise InvalidOptionError(f"{given}= needs {lacking}=: the table of vertices, and the columns to keep of it")
        return cls(None if edges is None else column_names(edges, "edge_columns"), vertices, names, layout, strings)

    def take_edges(self, edges: EdgeList, *, shared: bool) -> EdgeList:
        """Return the edges with the columns as attributes. Errors as for ``EdgeList.keeping``."""
        if self.names is not None and self.names != _columns(edges):
            edges = edges.keeping(self.names)
        if self.of_vertices is not None and isinstance(edges, BuiltEdges):
            edges = edges.without_vertex_columns()
        of_vertices = self.of_vertices or (isinstance(edges, BuiltEdges) and edges.vertex_columns)
        self.there = "edge_columns=" if edges.attributes is not None else "vertex_columns=" if of_vertices else ""
        return edges

    def require(self, ranks: int, backend: str, *, mutable: bool) -> None:
        """Refuse options that attributes do not go with. Errors as for ``load``."""
        ways = {
            f"layout={self.layout!r}": (self.layout != STRIPES, f"layout={STRIPES!r} keeps them"),
            "mutable=True": (mutable, "load the graph without one of the two"),
        }
        for option, (given, way) in ways.items():
            if given and self.there:
                saved = self.names is None if self.there == "edge_columns=" else self.of_vertices is None
                without = f", and {self.there}[] leaves out those that were saved" if saved else ""
                raise InvalidOptionError(f"{self.there} does not go with {option}: {way}{without}")

    def add_data(self, record: GraphRecord, gang: Gang) -> tuple[GraphRecord, list[distributed.Future]]:
        """Send the columns of vertices to their owners.

        Raises:
            EdgeInputError: a column is not there, or can't be kept; or two rows are of one vertex.
            InvalidVertexError, InvalidVertexTypeError: an id is none of the graph.
            GraphTooLargeError: the workers have too little memory.
        """
        if not self.of_vertices:
            return record, []
        attributes, vertices = self._rows(record, gang)
        owned = max(record.stripe.owned(rank) for rank in range(gang.p))
        width = attributes.nbytes // max(1, attributes.num_rows) + 8
        needed = Estimate({"attributes": width * owned}, {}, {})
        require_fit(gang, counted(record.stripe.n, "vertex", "vertices"), needed, "the table of vertices")
        futures = _sent(record, gang, attributes, np.array(Numbering(gang, record).positions(vertices.tolist()), int))
        schema = attributes.schema.serialize().to_pybytes()
        keys = tuple(future.key for future in futures)
        kept = replaced(kept_of(record), vertex_keys=keys, vertex_schema=schema, vertices_saved=False)
        return replaced(record, beside=kept), futures

    def _rows(self, record: GraphRecord, gang: Gang) -> tuple[pa.Table, NDArray[np.int64]]:
        """Return the attributes that are kept, and the vertex of each row."""
        where, there, names = "the table of vertices", _names(self.vertices), self.of_vertices or ()
        require_there(names, there, where)
        column = _id_column([name for name in there if name not in names], where)
        table: pa.Table = columns_of(self.vertices, [column, *names], where)
        ids = ids_of(table, [column], Ends((column,), (column,), self.strings), Place(where))
        try:
            vertices = IdLookup(gang, record).vertices_of(ids, "vertex")
        except InvalidVertexError as error:
            raise type(error)(f"{where}, column {column!r}: {error}") from None
        first, numbers = np.unique(vertices, return_index=True)
        if first.size < vertices.size:
            again = int(np.setdiff1d(np.arange(vertices.size), numbers)[0])
            before = int(np.flatnonzero(vertices == vertices[again])[0])
            one = table[column][again].as_py()
            raise EdgeInputError(f"{where}: rows {before} and {again} are both of {one!r}; expected one row a vertex")
        schema = stored_schema(table.schema, names, where)
        return as_stored(table, schema, Place(where)), vertices


def _columns(edges: EdgeList) -> tuple[str, ...]:
    return () if edges.attributes is None else tuple(edges.attributes.schema.names)


def _sent(
    record: GraphRecord, gang: Gang, attributes: pa.Table, positions: NDArray[np.int64]
) -> list[distributed.Future]:
    """Send the attributes of vertices at some positions to their owners; return the futures of their tables."""
    stripe, plan, token, sent = record.stripe, TaskGraph(), uuid.uuid4().hex, list[distributed.Future]()
    try:
        keys = []
        for rank, address in enumerate(gang.addresses):
            at = np.flatnonzero(stripe.owner(positions) == rank)
            rows = AttributeRows(attributes.take(at), attributes.schema, Place(record.name))
            sent += gang.client.scatter([rows], workers=[address], hash=False)
            arguments = (Ref(sent[-1].key), stripe.row(positions[at]), stripe.owned(rank))
            keys.append(plan.add(rank, (f"vertex-attributes-{token}", rank), tasks.place_rows, *arguments).key)
        futures = gang.submit(plan, keys)
        try:
            gang.finish(
                [*futures.values()], of_call("build-deadline"), f"sending the vertices' columns of {record.name}"
            )
        except BaseException:
            release(futures.values())
            raise
        return [futures[key] for key in keys]
    finally:
        release(sent)


def _names(table: Any) -> list[str]:
    """Return the names of a table's columns. Raise ``EdgeInputError`` for what is no table."""
    names = getattr(table, "column_names", None) or getattr(table, "columns", None)
    if names is None and hasattr(table, "schema"):
        names = table.schema.names
    if isinstance(table, str) or names is None or callable(names):
        raise EdgeInputError(
            "vertices= takes a table in memory: a DataFrame of pandas or Polars, or an Arrow table; read files by "
            "pyarrow.parquet.read_table(path)"
        )
    return [str(name) for name in names]


def _id_column(others: list[str], where: str) -> str:
    """Return the column of ids among those that are not kept."""
    known = [name for name in others if name.strip().lower() in _OF_VERTICES]
    if len(known) == 1 or len(others) == 1:
        return (known or others)[0]
    raise EdgeInputError(
        f"{where}: the column of the ids must be called 'vertex', or be the only one that vertex_columns= does not "
        f"name; those are {listed(others)}"
    )

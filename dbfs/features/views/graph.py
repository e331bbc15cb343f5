"""The methods of graphs that attributes of edges bring: the columns, and views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dbfs.base.calls import part_of
from dbfs.base.records import GraphStatus
from dbfs.cluster.deadline import bounded
from dbfs.features.views.attributes import kept_of
from dbfs.features.views.view import make_view
from dbfs.graph.graph import Graph, R
from dbfs.service.client import ServiceClient
from dbfs.service.messages import GetGraph, ListGraphs

if TYPE_CHECKING:
    from typing import Self

    import pyarrow as pa


@part_of("Graph")
class ViewsGraph(Graph[R]):
    """Attributes of edges, and views."""

    @property
    def edge_columns(self) -> dict[str, pa.DataType]:
        """The columns whose values the ranks keep with the edges, with their Arrow types; empty without any."""
        return _types(kept_of(self.record).columns)

    @property
    def vertex_columns(self) -> dict[str, pa.DataType]:
        """The columns whose values the ranks keep with the vertices, with their Arrow types; empty without any."""
        return _types(kept_of(self.record).vertex_columns)

    @bounded()
    def views(self) -> list[GraphStatus]:
        """Return the views of this graph that are in the cluster, of any client, oldest first: name, edges, bytes.

        A view of a view is listed by that view. Errors as for ``refresh``.
        """
        self.require_loaded()
        service = ServiceClient.of(self.gang.client)
        service.call(GetGraph(self.record.graph_id))
        listed = service.call(ListGraphs())
        return [status for status in listed if status.view_of == self.record.graph_id]

    @bounded("build-deadline")
    def where(
        self,
        *,
        edges: Any = None,
        vertices: Any = None,
        without: Any = None,
        name: str | None = None,
        replace: bool | str = False,
        deadline: float | str | None = None,
    ) -> Self:
        """Return a view: the graph of the edges that pass a filter, with all ids and vertices of this graph.

        A view is a graph like any other, of which views can be made again. It can't be changed. It holds its own
        edges, and stays whole after this graph is unloaded. Parallel edges pass one by one. An edge of which the
        condition is null does not pass, as in SQL. Vertices that are left out count as ``deleted``: ``n`` counts them,
        measures leave them out, and no traversal begins there.

        Args:
            edges: a condition on columns that were kept by ``load(edge_columns=)``: an expression of
                ``pyarrow.compute``, such as ``pc.field("year") < 2020``; an expression of Polars; or a text in the
                manner of SQL, ``"kind = 'road' and year < 2020"``, which Polars parses. None for any edge.
            vertices: ids of the vertices to keep, where a text is an id; or a condition on the columns of
                ``load(vertex_columns=)``, an expression of pyarrow or of Polars. An edge needs both of its ends.
            without: ids of vertices to leave out.
            name: as of ``load``. A view without a name goes with its last reference.
            replace: as of ``load``.
            deadline: as of ``load``.

        Raises:
            InvalidOptionError: neither edges nor vertices are said; the graph has no columns, or not one that the
                condition names; types do not compare, or the condition is no boolean or takes other rows than an
                edge's own; or the graph is of the layout ``2d``, or may be updated.
            InvalidOptionTypeError: ``edges`` is no expression.
            InvalidVertexError, InvalidVertexTypeError: an id is not in the graph, or not of its type.
            EdgeInputError: the condition can't be computed of a value.
            NameTakenError: another graph has the name.
            GraphTooLargeError: the workers have too little memory for the view.
            WorkerLostError, DeadlineExceededError, ResultReleasedError, GraphNotFoundError: see ``load`` and ``bfs``.
        """
        record, formed = make_view(self, edges, vertices, without, name, replace)
        return type(self)(record, formed, self.gang.client)


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {field.name: field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in schema}

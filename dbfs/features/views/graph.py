"""The methods of graphs that attributes of edges bring: the columns, and views."""

from __future__ import annotations

import threading
import time
import weakref
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any

import distributed
import numpy as np

from dbfs.base.calls import part_of
from dbfs.base.records import Formation, GraphRecord, GraphStatus
from dbfs.cluster.deadline import bounded, of_call
from dbfs.cluster.gang import release
from dbfs.errors import DeadlineExceededError, GraphNotFoundError, InvalidOptionError
from dbfs.features.living.columns import fitted, readable
from dbfs.features.living.living import Update, Updates
from dbfs.features.views.attributes import kept_of
from dbfs.features.views.options import TABLE, names_in, sent_vertices, vertices_in
from dbfs.features.views.room import KEPT
from dbfs.features.views.view import Recipe, bring_up_to_date, make_again, make_view
from dbfs.graph.graph import Graph, R
from dbfs.service.client import ServiceClient
from dbfs.service.entries import GraphEntry
from dbfs.service.messages import GetGraph, ListGraphs, UnloadGraph

if TYPE_CHECKING:
    from typing import Self

    import pyarrow as pa


@part_of("Graph")
class ViewsGraph(Graph[R]):
    """Attributes of edges, and views."""

    _inner = Graph._inner | {"drop", "used"}

    # How a view was made that has no name and may be dropped; and what it is made of again, if it was dropped.
    _recipe: Recipe | None = None
    _dropped: Graph[Any] | None = None
    # Whether the graph that a view followed is gone.
    _alone = False

    def __init__(self, record: GraphRecord, formed: Formation, client: distributed.Client) -> None:
        super().__init__(record, formed, client)
        self.used = time.monotonic()
        # The calls under way that use a view, which is brought up to date once a call.
        self._calls: weakref.WeakSet[Any] = weakref.WeakSet()
        self._changing = threading.Lock()

    def require_loaded(self) -> None:
        """Raise ``ResultReleasedError`` if this object has unloaded the graph; bring a view up to date."""
        super().require_loaded()
        if not kept_of(self._record).view_of or (call := of_call().lookout) in self._calls:
            return
        if not self._changing.acquire(timeout=of_call().last):
            raise DeadlineExceededError(f"{self.name} is being made by another thread")
        try:
            if self._dropped is not None and self._recipe is not None:
                make_again(self, self._recipe, self._dropped)
                self._dropped = None
            elif kept_of(self.record).follows and not self._alone:
                self._alone = not bring_up_to_date(self)
            self._calls.add(call)
            self.used = time.monotonic()
        finally:
            self._changing.release()

    def _drop(self) -> bool:
        """See ``room.Droppable``. A view with results, or whose base is gone, is in use."""
        base = None if self._recipe is None else self._recipe.base()
        if (
            base is None
            or base.unloaded
            or self.unloaded
            or self._dropped
            or not self._changing.acquire(blocking=False)
        ):
            return False
        service = ServiceClient.of(self.gang.client)
        try:
            if self.results or not all(call.ended for call in self._calls):
                return False
            if not kept_of(base.record).view_of:
                service.call(GetGraph(base.record.graph_id))
            self.numbering.release()
            service.call(UnloadGraph(self.record.graph_id, self.gang.client.id))
            self._dropped = base
        except GraphNotFoundError:
            return False
        finally:
            self._changing.release()
        return True

    def vertices_named(self, given: Any, what: str, *, present: bool = False) -> tuple[int, ...]:
        """See ``StripedGraph``. Vertices may have come with the version that a view follows."""
        if kept_of(self._record).view_of and not self._unloaded:
            self.require_loaded()
        return super().vertices_named(given, what, present=present)

    @property
    def edge_columns(self) -> dict[str, pa.DataType]:
        """The columns whose values the ranks keep with the edges, with their Arrow types; empty without any."""
        return _types(kept_of(self.record).columns)

    @property
    def vertex_columns(self) -> dict[str, pa.DataType]:
        """The columns whose values the ranks keep with the vertices, with their Arrow types; empty without any."""
        return _types(kept_of(self.record).vertex_columns)

    @bounded()
    def update_vertices(
        self, vertices: Any, *, batch_id: str | None = None, deadline: float | str | None = None
    ) -> Update:
        """Give vertices of a graph with columns of vertices new values: a table with a row for each of them.

        A vertex that came with an update has nulls before. The graph gets a new version.

        Args:
            vertices: a table as of ``load(vertices=)``, with some of the graph's columns; nulls take the place of
                values in the others.
            batch_id, deadline: see ``insert_edges``.

        Raises:
            InvalidOptionError: the graph was loaded without ``vertex_columns=``, or can't be changed.
            EdgeInputError: values of a column are not of the type of the graph's; or two rows are of one vertex.
            InvalidVertexError, InvalidVertexTypeError: an id is none of the graph, or its vertex was deleted.
            Other errors as for ``insert_vertices``.
        """
        self.refresh()
        schema = kept_of(self.record).vertex_columns
        if not schema.names:
            raise InvalidOptionError(f"{self.name} has no columns of vertices; load it with vertex_columns=")
        given = readable(vertices)
        names = [name for name in schema.names if name in names_in(given)]
        table, numbers = vertices_in(given, names, self.lookup)
        self.deletions.refuse(numbers, "vertex")
        attributes = fitted(table, schema, TABLE)
        positions = np.array(self.numbering.positions(numbers.tolist()), np.int64)
        held = sent_vertices(self.record, self.gang, attributes, positions, whole=False)
        try:
            keys = tuple(future.key for future in held)
            return Updates(self).set_vertices(keys, numbers.size, batch_id)
        finally:
            release(held)

    @bounded()
    def views(self) -> list[GraphStatus]:
        """Return the views of this graph that are in the cluster, of any client, oldest first: name, edges, bytes.

        At the end come those of this program that were ``dropped``, which take no bytes until they are used. A view of
        a view is listed by that view. Errors as for ``refresh``.
        """
        self.require_loaded()
        service = ServiceClient.of(self.gang.client)
        service.call(GetGraph(self.record.graph_id))
        listed = service.call(ListGraphs())
        dropped = [view for view in KEPT if isinstance(view, ViewsGraph) and view._dropped is self]
        return [
            *(status for status in listed if status.view_of == self.record.graph_id),
            *(view._status() for view in sorted(dropped, key=lambda view: view.used)),
        ]

    def _status(self) -> GraphStatus:
        """Return the status of a view that was dropped."""
        entry = GraphEntry(self.record)
        entry.formed = self.formed
        return replaced(entry.status(()), bytes_per_rank=(0,) * self.ranks, dropped=True)

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
        edges, and stays whole after this graph is unloaded. A view of a graph that was loaded with ``mutable=True``
        follows: the first call after an update makes it anew, as its next version. Parallel edges pass one by one. An
        edge of which the condition is null does not pass, as in SQL. Vertices that are left out count as ``deleted``:
        ``n`` counts them, measures leave them out, and no traversal begins there.

        Args:
            edges: a condition on columns that were kept by ``load(edge_columns=)``: an expression of
                ``pyarrow.compute``, such as ``pc.field("year") < 2020``; an expression of Polars; or a text in the
                manner of SQL, ``"kind = 'road' and year < 2020"``, which Polars parses. None for any edge.
            vertices: ids of the vertices to keep, where a text is an id; or a condition on the columns of
                ``load(vertex_columns=)``, an expression of pyarrow or of Polars. An edge needs both of its ends.
            without: ids of vertices to leave out.
            name: as of ``load``. A view without a name goes with its last reference. Where a load or a view needs its
                memory, it is dropped while it has neither calls nor results: the one used longest ago first. Its next
                use makes it again of this graph, which stays loaded for that.
            replace: as of ``load``.
            deadline: as of ``load``.

        Raises:
            InvalidOptionError: neither edges nor vertices are said; the graph has no columns, or not one that the
                condition names; types do not compare, or the condition is no boolean or takes other rows than an
                edge's own; or the graph is on GPUs in the layout ``2d``, or is on GPUs and may be updated.
            InvalidOptionTypeError: ``edges`` is no expression.
            InvalidVertexError, InvalidVertexTypeError: an id is not in the graph, or not of its type.
            EdgeInputError: the condition can't be computed of a value.
            NameTakenError: another graph has the name.
            GraphTooLargeError: the workers have too little memory for the view.
            WorkerLostError, DeadlineExceededError, ResultReleasedError, GraphNotFoundError: see ``load`` and ``bfs``.
        """
        record, formed, recipe = make_view(self, edges, vertices, without, name, replace)
        view = type(self)(record, formed, self.gang.client)
        if name is None:
            view._recipe = recipe
            KEPT.add(view)
        return view


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {field.name: field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in schema}

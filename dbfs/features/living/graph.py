"""The methods of graphs that updates bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dbfs.base.calls import part_of
from dbfs.base.integers import whole_count
from dbfs.cluster.deadline import bounded
from dbfs.edges.tables.ends import listed
from dbfs.errors import InvalidOptionError
from dbfs.features.living.living import Update, Updates
from dbfs.features.living.watch import L, Watch
from dbfs.graph.graph import Graph
from dbfs.service.client import ServiceClient
from dbfs.service.messages import ListGraphs

if TYPE_CHECKING:
    from dbfs.edges.resolve import EdgeSource
    from dbfs.edges.tables.ends import ColumnNames


@part_of("Graph")
class LivingGraph(Graph[L]):
    """Updates of edges and vertices, and results that stay up to date."""

    @bounded()
    def insert_edges(
        self,
        edges: EdgeSource,
        *,
        format: str | None = None,  # noqa: A002 - the word users expect
        source: ColumnNames = None,
        target: ColumnNames = None,
        on_existing: str = "skip",
        strict: bool = False,
        batch_id: str | None = None,
        deadline: float | str | None = None,
    ) -> Update:
        """Insert edges. An edge that the graph has already is skipped.

        In a graph with columns (``load(edge_columns=)``) the edges get the values of the batch's columns of these
        names, and nulls in all others. Of an edge that occurs again in the batch the first row counts.

        If ids are strings, tuples or integers with gaps, new ids become vertices within the graph's room
        (``load(..., room=)``); ``Update.ids`` has them.

        Args:
            edges: anything that ``load`` takes, between ids of this graph's type. In an undirected graph an edge (u, v)
                is also the edge (v, u).
            format, source, target: see ``load``.
            on_existing: ``skip``; or ``update``: an edge that the graph has takes all values of its row, the last one
                in the batch, and nulls where the batch has no column; so do all of its parallel edges.
            strict: refuse the whole batch if the graph has an edge already, or an edge occurs twice in the batch.
            batch_id: an id of the caller's choice, with which the batch may be sent again without harm: of the graph's
                last 256 batches none is made a second time. After ``OutcomeUnknownError`` send the batch again with the
                id of the message.
            deadline: seconds (or a Dask duration) that the update may take, the queue included; ``dbfs.deadline`` if
                None.

        Raises:
            InvalidOptionError: the graph was not loaded with ``mutable=True``, or is frozen; or of the graph and the
                batch one is directed and the other undirected; or ``on_existing`` is ``update``, and the batch has none
                of the graph's columns.
            InvalidVertexError, InvalidVertexTypeError: an end of an edge was deleted, is no id of the graph's type, or
                is not in a graph whose ids are consecutive integers.
            EdgeInputError: with ``strict``, the graph has an edge already; or values of a column are not of the type of
                the graph's. For this and the errors of files, see also ``load``.
            GraphTooLargeError: the edges do not fit in a worker's memory, or the batch has more new ids than the graph
                has room.
            QueueFullError, WorkerLostError, DeadlineExceededError, RunCancelledError: the update ended early, and the
                graph has its version before.
            OutcomeUnknownError: no answer came by the deadline, and the update may have been made.
            ResultReleasedError, GraphNotFoundError: the graph was unloaded.
        """
        updates = Updates(self)
        batch = updates.batch(edges, format, source, target, on_existing, strict=strict)
        return updates.change("insert-edges", batch, strict=strict, batch_id=batch_id)

    @bounded()
    def delete_edges(
        self,
        edges: EdgeSource,
        *,
        format: str | None = None,  # noqa: A002 - the word users expect
        source: ColumnNames = None,
        target: ColumnNames = None,
        strict: bool = False,
        batch_id: str | None = None,
        deadline: float | str | None = None,
    ) -> Update:
        """Delete edges, with all their duplicates. An edge that the graph lacks is skipped.

        Arguments and errors as for ``insert_edges``; ``strict`` refuses a batch with an edge that the graph lacks.
        """
        updates = Updates(self)
        batch = updates.batch(edges, format, source, target)
        return updates.change("delete-edges", batch, strict=strict, batch_id=batch_id)

    @bounded()
    def insert_vertices(
        self,
        count: int,
        *,
        batch_id: str | None = None,
        deadline: float | str | None = None,
    ) -> Update:
        """Insert vertices without edges; ``Update.ids`` are their ids. Ids of deleted vertices are used again first.

        Raises:
            InvalidOptionError: the graph is ordered by degree, or its ids are not consecutive integers; or as for
                ``insert_edges``.
            InvalidOptionTypeError: ``count`` is not an integer.
            GraphTooLargeError: the graph has room for fewer vertices; see ``load(..., room=)``.
            Other errors as for ``insert_edges``.
        """
        if self.record.ids.keys or self.record.order_key is not None:
            why = "its ids are not consecutive integers" if self.record.ids.keys else "it is ordered by degree"
            raise InvalidOptionError(f"{self.record.name} can't get more vertices: {why}")
        return Updates(self).change("insert-vertices", count=whole_count(count, "count"), batch_id=batch_id)

    @bounded()
    def delete_vertices(
        self,
        ids: Any,
        *,
        strict: bool = False,
        batch_id: str | None = None,
        deadline: float | str | None = None,
    ) -> Update:
        """Delete vertices with all their edges. ``n`` still counts them, until ``insert_vertices`` uses them again.

        A traversal from a deleted vertex raises ``InvalidVertexError``, and measures of all vertices leave it out.
        ``deleted`` is the number of these vertices, and ``id in graph`` is false for each.

        Args:
            ids: an id, or several.
            strict: refuse the whole update if a vertex was deleted before.
            batch_id, deadline: see ``insert_edges``, also for the errors.
        """
        vertices = self.vertices_named(ids, "id")
        return Updates(self).change("delete-vertices", vertices=vertices, strict=strict, batch_id=batch_id)

    @bounded()
    def compact(self, *, deadline: float | str | None = None) -> None:
        """Move all rows to a pool without free pages. Errors as for ``insert_edges``."""
        Updates(self).change("compact")

    @bounded()
    def freeze(self, *, deadline: float | str | None = None) -> None:
        """Move all rows to a CSR, and refuse updates until ``thaw``. Errors as for ``insert_edges``."""
        Updates(self).change("freeze")

    @bounded()
    def thaw(self, *, deadline: float | str | None = None) -> None:
        """Move the rows of a frozen graph to pages, and allow updates again.

        Raises:
            InvalidOptionError: the graph is in the layout ``2d``, or keeps its input edges, or has views that were
                made while it could not change.
            Other errors as for ``insert_edges``.
        """
        self.require_loaded()
        graphs = ServiceClient.of(self.gang.client).call(ListGraphs())
        fixed = [status.name for status in graphs if status.fixed_on == self.record.graph_id]
        if fixed:
            raise InvalidOptionError(
                f"{self.name} has views that would not follow, {listed(fixed)}: unload these, and make views after "
                "thaw(), which follow"
            )
        Updates(self).change("thaw")

    @bounded()
    def watch(self, source: Any, *, timeout: float | None = None, deadline: float | str | None = None) -> Watch[L]:
        """Traverse from a vertex, or from several, and keep the result up to date with the batches of all clients.

        ``for change in graph.watch(source):`` waits for batches. After each batch the loop brings the result up to date
        and yields a ``Change``: the version, and the ids whose distance changed.

        Args:
            source: see ``bfs``.
            timeout: seconds after which the iteration ends if no batch has come; None to wait for ever.
            deadline: see ``bfs``; for the traversal, and again for each repair.

        Raises:
            InvalidOptionError: the graph was not loaded with ``mutable=True``. Other errors as for ``bfs``.
        """
        if not self.record.mutable:
            raise InvalidOptionError(f"{self.name} takes no updates: load it with mutable=True, or thaw() it")
        return Watch(self.search(source, predecessors=True), timeout, deadline)

"""Views of an asynchronous client's graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dbfs.cluster.awaiting import awaited, unchanged
from dbfs.features.views.graph import ViewsGraph
from dbfs.graph.asynchronous import AsyncGraph

if TYPE_CHECKING:
    import pyarrow as pa


class AsyncViewsGraph(AsyncGraph):
    """See ``ViewsGraph``."""

    synchronous: ViewsGraph[Any]

    update_vertices = awaited(ViewsGraph.update_vertices, unchanged)
    views = awaited(ViewsGraph.views, unchanged)
    where = awaited(ViewsGraph.where, lambda view: view.view())

    @property
    def edge_columns(self) -> dict[str, pa.DataType]:
        """See ``Graph.edge_columns``."""
        return self.synchronous.edge_columns

    @property
    def vertex_columns(self) -> dict[str, pa.DataType]:
        """See ``Graph.vertex_columns``."""
        return self.synchronous.vertex_columns

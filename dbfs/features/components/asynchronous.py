"""The components of an asynchronous client's graph."""

import functools
from typing import Any

import distributed

from dbfs.cluster.awaiting import awaited, in_thread, unchanged
from dbfs.features.components.components import Components, ComponentsGraph
from dbfs.graph.asynchronous import AsyncGraph, AsyncTabular


class AsyncComponents(AsyncTabular[Components]):
    """The components of an asynchronous client's graph: ``Components``, but its methods return awaitables."""

    def __init__(self, components: Components, client: distributed.Client) -> None:
        super().__init__(components, client)
        self.graph = components.graph
        self.labels = components.labels
        self.sizes = components.sizes
        self.count = components.count
        self.isolated = components.isolated

    vertices = awaited(Components.vertices, unchanged)


class AsyncComponentsGraph(AsyncGraph):
    """See ``ComponentsGraph``."""

    synchronous: ComponentsGraph[Any]

    @functools.wraps(ComponentsGraph.components)
    async def components(self, **options: Any) -> AsyncComponents:
        """Return the connected components: see ``Graph.components``."""
        return AsyncComponents(await in_thread(self._client, self.synchronous.components, **options), self._client)

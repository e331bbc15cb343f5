"""Searches between two vertices of an asynchronous client's graph."""

import functools
from collections.abc import AsyncIterator
from typing import Any

from dbfs.cluster.awaiting import awaited, in_thread, unchanged
from dbfs.features.paths.graph import PathsGraph
from dbfs.features.paths.result import PathsResult
from dbfs.graph.asynchronous import AsyncBFSResult, AsyncGraph


class AsyncPathsResult(AsyncBFSResult):
    """See ``PathsResult``."""

    paths_to = awaited(PathsResult.paths_to, unchanged)


class AsyncPathsGraph(AsyncGraph):
    """See ``PathsGraph``."""

    synchronous: PathsGraph[Any]

    distance = awaited(PathsGraph.distance, unchanged)
    reachable = awaited(PathsGraph.reachable, unchanged)
    path = awaited(PathsGraph.path, unchanged)
    count_paths = awaited(PathsGraph.count_paths, unchanged)
    pair_distances = awaited(PathsGraph.pair_distances, unchanged)

    @functools.wraps(PathsGraph.paths)
    async def paths(self, source: Any, target: Any, **options: Any) -> AsyncIterator[list[Any]]:
        """Yield all shortest paths: see ``Graph.paths``."""
        for path in await in_thread(self._client, self.synchronous.paths, source, target, **options):
            yield path

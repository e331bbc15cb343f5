"""The methods of graphs that search between two vertices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import part_of
from dbfs.base.integers import whole_count
from dbfs.base.progress import ProgressOption
from dbfs.base.records import RunProgress
from dbfs.cluster.deadline import bounded
from dbfs.errors import InvalidOptionError, InvalidVertexError
from dbfs.features.paths.search import between, distances_of, first_path
from dbfs.graph.graph import Graph, R


@part_of("Graph")
class PathsGraph(Graph[R]):
    """Distances and shortest paths between two vertices."""

    @bounded()
    def distance(self, source: Any, target: Any, *, deadline: float | str | None = None) -> int:
        """Return the number of edges on a shortest path from an id to another one; -1 without a path.

        The ranks search from both ends, and stop where the searches meet. In a directed graph the second search follows
        in-edges (``load(..., in_edges=True)``); without them, on GPUs and in a 2-D partition one search runs from the
        source until it reaches the target.

        Args:
            source, target: an id each.
            deadline: see ``bfs``.

        Raises:
            InvalidVertexError: an id is not in the graph, or was deleted; or several are given.
            Other errors as for ``bfs``.
        """
        pair = np.array([self._pair(source, target)], np.int64)
        return int(distances_of(self, pair)[0][0])

    @bounded()
    def reachable(self, source: Any, target: Any, *, deadline: float | str | None = None) -> bool:
        """Return whether a path leads from an id to another one. Arguments and errors as for ``distance``."""
        return self.distance(source, target) >= 0

    @bounded()
    def path(self, source: Any, target: Any, *, deadline: float | str | None = None) -> list[Any]:
        """Return the ids of a shortest path from an id to another one, both included; empty without a path.

        Of several shortest paths it is the first in the order of vertices, compared from the source on: the same
        whatever the order of the edges, the number of ranks and the run. ``paths`` has the others.
        The search is that of ``distance``. Without in-edges of a directed graph, on GPUs and in a 2-D partition the
        edges between the vertices that may lie on a path travel to the client.

        Arguments and errors as for ``distance``.
        """
        return self.python_ids(first_path(self, *self._pair(source, target))[0])

    @bounded()
    def paths(
        self, source: Any, target: Any, *, limit: int | None = None, deadline: float | str | None = None
    ) -> Iterator[list[Any]]:
        """Return an iterator over all shortest paths from an id to another one, each a list of ids.

        They come in the order of vertices, compared from the source on, and the first one is that of ``path``. The
        search is made at once; paths are made as they are taken. Two vertices can have more paths than a
        computer can list. Parallel edges make no other path.

        Args:
            source, target: an id each.
            limit: most paths; None for all.
            deadline: see ``bfs``; of the search.

        Raises:
            InvalidOptionError: ``limit`` is below 0, or another client updated the graph in between.
            InvalidOptionTypeError: ``limit`` is not an integer.
            Other errors as for ``distance``.
        """
        most = None if limit is None else whole_count(limit, "limit")
        pair = self._pair(source, target)
        found, _ = between(self, *pair)
        # Looked up at once, since the graph may be unloaded when the paths are taken.
        ids = dict(zip(found.vertices.tolist(), self.python_ids(found.vertices.tolist()), strict=True))
        return islice(([ids[vertex] for vertex in path] for path in found.paths(pair[0])), most)

    @bounded()
    def pair_distances(
        self,
        pairs: Iterable[Any],
        *,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
    ) -> NDArray[np.int32]:
        """Return int32[k]: the distances of k pairs, a source and a target each, -1 without a path.

        One run searches for all pairs, each as by ``distance``. Of a rank alone the threads share the pairs.

        Args:
            pairs: pairs of ids, or an array of shape (k, 2); pairs may occur again.
            deadline: see ``bfs``; of all pairs.
            progress: see ``bfs``. It counts groups of 4,096 pairs.

        Raises:
            InvalidOptionError: something in ``pairs`` is no pair; or another client updated the graph in between.
            Other errors as for ``distance``.
        """
        ends = [*map(_two, pairs)]
        sources, targets = (self._vertices([each[at] for each in ends], what) for at, what in enumerate(_ENDS))
        return distances_of(self, np.array([sources, targets], np.int64).T.reshape(-1, 2), progress)[0]

    def _pair(self, source: Any, target: Any) -> tuple[int, int]:
        """Return the vertices of two ids."""
        found = []
        for given, what in zip((source, target), _ENDS, strict=True):
            if not self.lookup.is_one(given):
                raise InvalidVertexError(f"{what} must be one id, not several; pair_distances takes many pairs")
            found.append(self._vertices(given, what)[0])
        return found[0], found[1]

    def _vertices(self, ids: Any, what: str) -> tuple[int, ...]:
        return self.vertices_named(ids, what, present=True)


_ENDS = ("source", "target")


def _two(pair: Any) -> tuple[Any, Any]:
    try:
        one, other = pair
    except (TypeError, ValueError):
        raise InvalidOptionError(f"pairs must be of a source and a target each; {pair!r} is no pair") from None
    if isinstance(pair, str):
        raise InvalidOptionError(f"pairs must be of a source and a target each; {pair!r} is a text")
    return one, other

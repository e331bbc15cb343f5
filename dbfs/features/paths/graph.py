"""The methods of graphs that search between two vertices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import part_of
from dbfs.base.integers import whole_count
from dbfs.base.progress import ProgressOption
from dbfs.base.records import RunProgress
from dbfs.cluster.awaiting import AsyncView
from dbfs.cluster.deadline import bounded
from dbfs.errors import InvalidOptionError, InvalidOptionTypeError, InvalidVertexError
from dbfs.features.batches.landmarks import Landmarks
from dbfs.features.batches.measures import VertexMeasure
from dbfs.features.paths.search import between, counts_of_paths, distances_of
from dbfs.graph.graph import Graph, R
from dbfs.graph.traversing import require_one_version


@part_of("Graph")
class PathsGraph(Graph[R]):
    """Distances and shortest paths between two vertices."""

    @bounded()
    def distance(
        self,
        source: Any,
        target: Any,
        *,
        landmarks: Landmarks | None = None,
        deadline: float | str | None = None,
    ) -> int:
        """Return the number of edges on a shortest path from an id to another one; -1 without a path.

        The ranks search from both ends, and stop where the searches meet. In a directed graph the second search follows
        in-edges (``load(..., in_edges=True)``); without them, on GPUs and in a 2-D partition one search runs from the
        source until it reaches the target.

        Args:
            source, target: an id each.
            landmarks: what ``landmarks()`` of this version of the graph returned. Where their bounds agree, or tell
                that there is no path, no search is made.
            deadline: see ``bfs``.

        Raises:
            InvalidVertexError: an id is not in the graph, or was deleted; or several are given.
            InvalidOptionError: the landmarks are of another graph, or of another version.
            InvalidOptionTypeError: ``landmarks`` is something else.
            Other errors as for ``bfs``.
        """
        return int(self._distances([self._pair(source, target)], landmarks)[0])

    @bounded()
    def reachable(
        self,
        source: Any,
        target: Any,
        *,
        landmarks: Landmarks | None = None,
        deadline: float | str | None = None,
    ) -> bool:
        """Return whether a path leads from an id to another one. Arguments and errors as for ``distance``."""
        return self.distance(source, target, landmarks=landmarks) >= 0

    @bounded()
    def path(self, source: Any, target: Any, *, deadline: float | str | None = None) -> list[Any]:
        """Return the ids of a shortest path from an id to another one, both included; empty without a path.

        Of several shortest paths it is the first in the order of vertices, compared from the source on: the same
        whatever the order of the edges, the number of ranks and the run. ``paths`` has the others.
        The search is that of ``distance``, and the edges of all shortest paths travel to the client. Without in-edges
        of a directed graph, on GPUs and in a 2-D partition more do: the edges between vertices that may lie on a path.

        Arguments and errors as for ``distance``.
        """
        pair = self._pair(source, target)
        found = between(self, *pair)
        return self.python_ids(found.vertices[next(found.paths(pair[0]), [])].tolist())

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
        found = between(self, *pair)
        # Looked up at once, since the graph may be unloaded when the paths are taken.
        ids = self.ids_of(found.vertices)
        return islice((ids[np.array(path)].tolist() for path in found.paths(pair[0])), most)

    @bounded()
    def pair_distances(
        self,
        pairs: Iterable[Any],
        *,
        landmarks: Landmarks | None = None,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
    ) -> NDArray[np.int32]:
        """Return int32[k]: the distances of k pairs, a source and a target each, -1 without a path.

        One run searches for all pairs, each as by ``distance``. Of a rank alone the threads share the pairs. A GPU
        alone searches for hundreds of pairs at once from both ends, a block of threads each. On several GPUs, in a 2-D
        partition, and on a GPU without in-edges of a directed graph a sweep serves up to 512 sources.

        Args:
            pairs: pairs of ids, or an array of shape (k, 2); pairs may occur again.
            landmarks: see ``distance``.
            deadline: see ``bfs``; of all pairs.
            progress: see ``bfs``. It counts groups of 4,096 pairs.

        Raises:
            InvalidOptionError: something in ``pairs`` is no pair; or another client updated the graph in between.
            Other errors as for ``distance``.
        """
        ends = [*map(_two, pairs)]
        sources, targets = (self._vertices([each[at] for each in ends], what) for at, what in enumerate(_ENDS))
        return self._distances([*zip(sources, targets, strict=True)], landmarks, progress)

    def _distances(
        self,
        pairs: Sequence[tuple[int, int]],
        landmarks: Landmarks | None,
        progress: ProgressOption[RunProgress] = False,
    ) -> NDArray[np.int32]:
        """Return the distances of pairs of vertices, of which the landmarks may tell some."""
        both = np.array(pairs, np.int64).reshape(-1, 2)
        if landmarks is None:
            return distances_of(self, both, progress)[0]
        if isinstance(landmarks, AsyncView):
            landmarks = landmarks.synchronous
        if not isinstance(landmarks, Landmarks):
            raise InvalidOptionTypeError(f"landmarks must be what Graph.landmarks() returns, not {landmarks!r}")
        if landmarks.graph.record.graph_id != self.record.graph_id:
            raise InvalidOptionError(f"the landmarks are of {landmarks.graph.name}, which is another graph")
        self.require_version(landmarks.version, "the set of landmarks")
        lower, upper = landmarks.bounds_of(*both.T)
        searched = np.flatnonzero(lower != upper)
        lower[searched], version = distances_of(self, both[searched], progress)
        require_one_version(self, landmarks.version, landmarks.version if version is None else version)
        return lower

    @bounded()
    def count_paths(self, source: Any, *, floats: bool = False, deadline: float | str | None = None) -> VertexMeasure:
        """Return the number of shortest paths from an id to each vertex: 1 to itself, 0 to an unreached one.

        Parallel edges count once, as in ``betweenness_centrality``. On GPUs and in a 2-D partition all edges of the
        component travel to the client.

        Args:
            source: an id.
            floats: count in float64, which rounds numbers beyond 2^53, and reaches 1.8e308; else in int64, exactly.
            deadline: see ``bfs``.

        Raises:
            TooManyPathsError: a number is too large.
            Other errors as for ``distance``.
        """
        counts = counts_of_paths(self, self._pair(source, source)[0], in_floats=floats)
        living = self.deletions.others()
        return VertexMeasure("count_paths", self.ids_of(living), counts[living], None, 1)

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

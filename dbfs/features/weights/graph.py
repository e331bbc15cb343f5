"""The methods of graphs that find shortest paths by weight."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from dbfs.base.calls import part_of
from dbfs.base.progress import ProgressOption
from dbfs.base.records import RunProgress
from dbfs.cluster.deadline import bounded
from dbfs.errors import InvalidOptionError, InvalidVertexError
from dbfs.features.batches.landmarks import Landmarks
from dbfs.features.paths.graph import PathsGraph
from dbfs.features.weights.columns import number
from dbfs.features.weights.paths import between, weigh
from dbfs.features.weights.result import SSSPResult
from dbfs.graph.graph import R
from dbfs.graph.striped import StripedGraph
from dbfs_workers.features.weights.purpose import Weighted


def _no_columns(graph: StripedGraph) -> Sequence[Hashable]:
    """Refuse a graph whose edges have no columns."""
    raise InvalidOptionError(f"the edges of {graph.name} have no columns")


@part_of("Graph")
class WeightsGraph(PathsGraph[R]):
    """Shortest paths by weight."""

    # Returns by rank the Dask key of what has the columns of the rank's edges: its ``out`` is an Arrow table.
    _column_keys = staticmethod(_no_columns)

    @bounded()
    def sssp(
        self,
        source: Any,
        weight: str,
        *,
        max_distance: float | None = None,
        targets: Any = None,
        predecessors: bool = False,
        delta: float | None = None,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
    ) -> SSSPResult:
        """Find the shortest paths by a column of weights from a vertex, or from several at once: to the nearest source.

        Of parallel edges the lightest counts. Predecessors form a tree, also where weights are 0. The algorithm is
        delta-stepping (Meyer and Sanders, "Delta-stepping: a parallelizable shortest path algorithm", 2003).

        Args:
            source: id, or several, as of ``bfs``.
            weight: name of a column of the edges: integers or floats of at least 0.
            max_distance: largest distance; vertices farther away stay unreached.
            targets: an id, or several. The search stops once their distances are final; vertices farther away stay
                unreached.
            predecessors: also record the vertex before each one on its path.
            delta: the width of a bucket, in the column's unit: distances within one are found together. None for a rule
                that looks at the mean weight and the mean degree. No value changes the distances.
            deadline, progress: as of ``bfs``.

        Raises:
            InvalidVertexError, InvalidVertexTypeError: see ``bfs``.
            InvalidOptionError: the edges have no such column, or an edge has a negative weight, NaN or none; the
                message names the column and an edge. Or ``max_distance`` or ``delta`` is below 0.
            InvalidOptionTypeError: the column has no numbers; or an option is no number.
            DistanceOverflowError: a distance needs more than 64 bits.
            GraphTooLargeError: the workers have too little memory for what the first call adds: in the layout ``2d``
                the edges and their columns once more; on GPUs that do not map each other's memory a copy of the
                edges, which the CPU searches.
            Other errors as for ``bfs``.
        """
        sources = self.vertices_named(source, "source")
        if not sources:
            raise InvalidVertexError("sssp needs at least one source")
        wanted = () if targets is None else self.vertices_named(targets, "target", present=True)
        most = None if max_distance is None else number(max_distance, "max_distance")
        width = None if delta is None else number(delta, "delta")
        self.require_loaded()

        return weigh(
            self,
            self._column_keys,
            sources,
            Weighted(weight, most, width),
            targets=wanted,
            predecessors=predecessors,
            progress=progress,
        )

    @bounded()
    def distance(
        self,
        source: Any,
        target: Any,
        *,
        weight: str | None = None,
        landmarks: Landmarks | None = None,
        deadline: float | str | None = None,
    ) -> Any:
        """Return the distance from an id to another one: the number of edges, or the least sum of weights.

        The ranks search from both ends, and stop where the searches meet. In a directed graph the second search follows
        in-edges (``load(..., in_edges=True)``); without them one search runs from the source until it reaches the
        target. So it does on GPUs, by weight only on those that map each other's memory, and without a weight in a 2-D
        partition.

        Args:
            source, target: an id each.
            weight: name of a column of the edges, as of ``sssp``; None to count edges.
            landmarks: what ``landmarks()`` of this version of the graph returned. Where their bounds agree, or tell
                that there is no path, no search is made.
            deadline: see ``bfs``.

        Returns:
            -1 without a path; infinity by a column of floats.

        Raises:
            InvalidVertexError: an id is not in the graph, or was deleted; or several are given.
            InvalidOptionError: the landmarks are of another graph, or of another version, or are given with a weight;
                others by weight as for ``sssp``.
            InvalidOptionTypeError: ``landmarks`` is something else.
            Other errors as for ``bfs``, and by weight for ``sssp``.
        """
        if weight is None:
            return super().distance(source, target, landmarks=landmarks)
        if landmarks is not None:
            raise InvalidOptionError("landmarks= tells numbers of edges; leave it out with weight=")
        return between(self, self._column_keys, *self._pair(source, target), weight, path=False)[0]

    @bounded()
    def path(
        self, source: Any, target: Any, *, weight: str | None = None, deadline: float | str | None = None
    ) -> list[Any]:
        """Return the ids of a shortest path from an id to another one, both included; empty without a path.

        Without a weight, of several shortest paths it is the first in the order of vertices, compared from the source
        on: the same whatever the order of the edges, the number of ranks and the run; ``paths`` has the others. By
        weight it is any of them, whose sum from the source on is ``distance``.
        The search is that of ``distance``. Without a weight the edges of all shortest paths travel to the client;
        without in-edges of a directed graph, on GPUs and in a 2-D partition more do: the edges between vertices that
        may lie on a path.

        Arguments and errors as for ``distance``.
        """
        if weight is None:
            return super().path(source, target)
        return self.python_ids(between(self, self._column_keys, *self._pair(source, target), weight)[1])

"""The method of graphs that finds shortest paths by weight."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from dbfs.base.calls import part_of
from dbfs.base.progress import ProgressOption
from dbfs.base.records import RunProgress
from dbfs.cluster.deadline import bounded
from dbfs.errors import InvalidOptionError, InvalidVertexError
from dbfs.features.weights.columns import number, prepare
from dbfs.features.weights.result import SSSPResult
from dbfs.graph.graph import Graph, R
from dbfs.graph.striped import StripedGraph
from dbfs.graph.traversing import traverse
from dbfs_workers.features.weights.purpose import Weighted


def _no_columns(graph: StripedGraph) -> Sequence[Hashable]:
    """Refuse a graph whose edges have no columns."""
    raise InvalidOptionError(f"the edges of {graph.name} have no columns")


@part_of("Graph")
class WeightsGraph(Graph[R]):
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
            targets: an id, or several. The search stops once their distances are final; some vertices farther away
                stay unreached.
            predecessors: also record the vertex before each one on its path.
            delta: the width of a bucket, in the column's unit: distances within one are found together. None for a rule
                that looks at the mean weight and the mean degree. No value changes the distances.
            deadline, progress: as of ``bfs``.

        Raises:
            InvalidVertexError, InvalidVertexTypeError: see ``bfs``.
            InvalidOptionError: the edges have no such column, or an edge has a negative weight, NaN or none; the
                message names the column and an edge. Or ``max_distance`` or ``delta`` is below 0; or the graph lies on
                several GPUs, in the layout ``2d``, or can be changed.
            InvalidOptionTypeError: the column has no numbers; or an option is no number.
            DistanceOverflowError: a distance needs more than 64 bits.
            Other errors as for ``bfs``.
        """
        sources = self.vertices_named(source, "source")
        if not sources:
            raise InvalidVertexError("sssp needs at least one source")
        wanted = () if targets is None else self.vertices_named(targets, "target", present=True)
        most = None if max_distance is None else number(max_distance, "max_distance")
        width = None if delta is None else number(delta, "delta")
        self.require_loaded()

        def ready() -> None:
            prepare(self, weight, self._column_keys(self))

        def made(graph: StripedGraph, *run: Any) -> SSSPResult:
            return SSSPResult(self._column_keys(graph), graph, *run)

        return traverse(
            self,
            made,
            [sources],
            targets=wanted,
            predecessors=predecessors,
            direction="top-down",
            engine=next(iter(self.engines)),
            purpose=Weighted(weight, most, width),
            progress=progress,
            ready=ready,
        )[0]

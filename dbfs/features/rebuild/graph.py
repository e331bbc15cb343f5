"""The methods of graphs that come back, and of their results."""

from __future__ import annotations

from typing import Any, Final, Self

from dbfs import config
from dbfs.base.calls import part_of
from dbfs.base.integers import whole_count
from dbfs.cluster.deadline import bounded
from dbfs.engines import Outcome
from dbfs.errors import GraphLostError, LabelsLostError, WorkerLostError
from dbfs.features.rebuild.messages import GetGraphState, GraphState
from dbfs.features.rebuild.rebuilding import bring_back
from dbfs.graph.graph import Graph, R
from dbfs.graph.result import BFSResult
from dbfs.graph.striped import StripedGraph
from dbfs.graph.traversing import traverse
from dbfs.service.client import ServiceClient
from dbfs_workers.base.errors import GraphMovedError
from dbfs_workers.base.spec import TraversalSpec

# Options of a traversal that is made again.
_OPTIONS: Final = ("targets", "predecessors", "max_depth", "direction", "purpose")
# Rebuilds by other clients that one call follows.
_MOST_MOVES: Final = 16


@part_of("Graph")
class RebuildGraph(Graph[R]):
    """Coming back after a loss."""

    def begins_again(self, error: WorkerLostError, made: int) -> bool:
        """See ``StripedGraph``: bring the graph back, unless ``dbfs.retries`` calls were made again already.

        A call that was refused because another client had built the graph again does not count.

        Raises:
            GraphLostError: the graph can't be built again; the message says why. Others as of ``bring_back``.
        """
        retries = config.count("retries", least=0)
        moved = isinstance(error, GraphMovedError)
        tried = getattr(error, "tried", False) or made > (_MOST_MOVES if moved else retries)
        if tried or isinstance(error, GraphLostError) or self.unloaded:
            # The call around the run does not begin again either.
            vars(error)["tried"] = True
            return False
        try:
            bring_back(self)
        except GraphLostError as lost:
            raise GraphLostError(f"{error}; {lost}") from error
        return True

    @bounded("build-deadline")
    def rebalance(self, *, ranks: int, deadline: float | str | None = None) -> None:
        """Spread the graph over more or fewer workers: it is built again of its source, while runs go on.

        The graph has its name, its ids and its clients afterwards, and its results lose their labels: ``recompute``
        makes them again. Until the graph is whole on its new ranks, both must fit.

        Args:
            ranks: number of ranks.
            deadline: seconds (or a Dask duration) that the build may take; ``dbfs.build-deadline`` if None.

        Raises:
            InvalidOptionError: the graph can't be built again: its edges came from a client's memory, it was loaded
                with ``rebuild="never"``, or updates have changed it.
            InvalidOptionTypeError: ``ranks`` is not an integer.
            NoWorkersError: the cluster has fewer workers.
            GraphLostError: the source was changed since the graph was built.
            ResultReleasedError, GraphNotFoundError: the graph was unloaded. Others as for ``dbfs.load``.
        """
        self.require_loaded()
        bring_back(self, whole_count(ranks, "ranks", 1))

    @bounded()
    def state(self) -> GraphState:
        """Return whether the graph is whole, lost or built again at this moment, why, and how far that has come.

        Raises:
            ResultReleasedError, GraphNotFoundError: the graph was unloaded.
        """
        self.require_loaded()
        return ServiceClient.of(self.gang.client).call(GetGraphState(self.record.graph_id))


@part_of("BFSResult")
class RebuildResult(BFSResult):
    """Results whose labels may be lost with a worker."""

    _inner = BFSResult._inner | {"begins_again"}

    def begins_again(self, error: WorkerLostError, made: int) -> bool:
        """Say that labels are lost: they are striped, so each result lost a part.

        Raises:
            LabelsLostError: always, unless the error is one that says so.
        """
        if isinstance(error, LabelsLostError | GraphLostError):
            return False
        raise self.lost(error) from error

    def lost(self, why: object) -> LabelsLostError:
        return LabelsLostError(f"the labels of run {self.run_id} are lost: {why}; recompute() makes them again")

    @bounded()
    def recompute(self, *, deadline: float | str | None = None) -> Self:
        """Traverse again, for labels that were lost with a worker, and return this result.

        A graph that is not back yet comes back first. Counts, ``seconds``, ``run_id``, ``version`` and ``attempts`` are
        those of the new run.

        Args:
            deadline: as of ``Graph.bfs``, as are the errors.
        """
        spec = self.spec

        def take(_: StripedGraph, made: TraversalSpec, engine: str, outcome: Outcome) -> RebuildResult:
            self.release()
            self._take(made, engine, outcome)
            return self

        sources = [self.source_vertices]
        options: dict[str, Any] = {name: getattr(spec, name) for name in _OPTIONS}
        traverse(self.graph, take, sources, engine=self.engine, **options)
        return self

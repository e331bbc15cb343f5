"""Shortest paths by weight of an asynchronous client's graph."""

from dbfs.cluster.awaiting import awaited, unchanged
from dbfs.features.paths.asynchronous import AsyncPathsGraph
from dbfs.features.weights.graph import WeightsGraph
from dbfs.features.weights.result import SSSPResult
from dbfs.graph.asynchronous import AsyncBFSResult


class AsyncSSSPResult(AsyncBFSResult):
    """The result of ``AsyncGraph.sssp``: that of ``Graph.sssp``, whose methods return awaitables."""

    synchronous: SSSPResult

    def __init__(self, result: SSSPResult) -> None:
        super().__init__(result)
        self.weight = result.weight

    within = awaited(SSSPResult.within, unchanged)
    validate = awaited(SSSPResult.validate, unchanged)


class AsyncWeightsGraph(AsyncPathsGraph):
    """See ``WeightsGraph``."""

    sssp = awaited(WeightsGraph.sssp, AsyncSSSPResult)
    distance = awaited(WeightsGraph.distance, unchanged)
    path = awaited(WeightsGraph.path, unchanged)

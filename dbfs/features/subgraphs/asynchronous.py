"""Parts of a graph of an asynchronous client."""

from dbfs.cluster.awaiting import AsyncView, awaited, forwarded, unchanged
from dbfs.features.subgraphs.subgraph import Neighbourhood, SubgraphsGraph, SubgraphsResult
from dbfs.graph.asynchronous import AsyncBFSResult, AsyncGraph


class AsyncNeighbourhood(AsyncView[Neighbourhood]):
    """The result of ``AsyncGraph.khop``: that of ``Graph.khop``, whose ``subgraph`` returns an awaitable."""

    def __init__(self, neighbourhood: Neighbourhood) -> None:
        super().__init__(neighbourhood, neighbourhood.graph.gang.client)
        self.vertices = neighbourhood.vertices
        self.distances = neighbourhood.distances

    _holds_edges = Neighbourhood._holds_edges
    subgraph = awaited(Neighbourhood.subgraph, unchanged)

    to_arrow = forwarded(Neighbourhood.to_arrow)
    to_pandas = forwarded(Neighbourhood.to_pandas)
    to_polars = forwarded(Neighbourhood.to_polars)
    to_parquet = forwarded(Neighbourhood.to_parquet)
    __arrow_c_stream__ = forwarded(Neighbourhood.__arrow_c_stream__)
    tolist = forwarded(Neighbourhood.tolist)
    __len__ = forwarded(Neighbourhood.__len__)
    __contains__ = forwarded(Neighbourhood.__contains__)
    __iter__ = forwarded(Neighbourhood.__iter__)
    __array__ = forwarded(Neighbourhood.__array__)


class AsyncSubgraphsResult(AsyncBFSResult):
    """See ``SubgraphsResult``."""

    tree = awaited(SubgraphsResult.tree, unchanged)


class AsyncSubgraphsGraph(AsyncGraph):
    """See ``SubgraphsGraph``."""

    khop = awaited(
        SubgraphsGraph.khop, lambda found: AsyncNeighbourhood(found) if isinstance(found, Neighbourhood) else found
    )
    subgraph = awaited(SubgraphsGraph.subgraph, unchanged)

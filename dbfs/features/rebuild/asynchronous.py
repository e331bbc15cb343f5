"""Coming back, of an asynchronous client's graphs."""

from dbfs.cluster.awaiting import awaited, unchanged
from dbfs.features.rebuild.graph import RebuildGraph
from dbfs.graph.asynchronous import AsyncGraph


class AsyncRebuildGraph(AsyncGraph):
    """See ``RebuildGraph``."""

    rebalance = awaited(RebuildGraph.rebalance, unchanged)
    state = awaited(RebuildGraph.state, unchanged)

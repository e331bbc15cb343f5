"""The NetworkX backend: NetworkX's own functions, traversed by dbfs.

In: NetworkX graphs. Out: what NetworkX's functions return::

    import networkx as nx

    nx.closeness_centrality(graph, backend="dbfs")

NetworkX finds the backend by the entry points ``networkx.backends`` and ``networkx.backend_info``; the latter is the
module ``dbfs_networkx_info``, which NetworkX imports whenever it is imported.
"""

from dbfs.networkx.backend_graph import BackendGraph, from_networkx

__all__ = ["BackendGraph", "from_networkx"]

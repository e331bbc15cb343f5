"""Saving of an asynchronous client's graph."""

from dbfs.cluster.awaiting import awaited, unchanged
from dbfs.features.saved.graph import SavedGraph
from dbfs.graph.asynchronous import AsyncGraph


class AsyncSavedGraph(AsyncGraph):
    """See ``SavedGraph``."""

    save = awaited(SavedGraph.save, unchanged)

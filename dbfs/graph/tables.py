"""Tables of a result's labels in the client's memory: Arrow, pandas and dictionaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dbfs.graph.subgraph import Subgraph
from dbfs_workers.storage.id_table import as_python
from dbfs_workers.storage.label_table import NO_PREDECESSOR, label_table, places_of, taken

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs.graph.result import BFSResult


def arrow_table(result: BFSResult, *, unreached: bool) -> pa.Table:
    """See ``BFSResult.to_arrow``."""
    graph = result.graph
    vertices, distances, parents = result.reader().labels_between(
        -1 if unreached else 0, result.depth, predecessors=result.spec.predecessors
    )
    ids = graph.ids_of(vertices)
    predecessors = None
    if parents is not None:
        parents[parents == vertices] = NO_PREDECESSOR
        # A predecessor is reached as well, so that its id is among those fetched.
        predecessors = taken(ids, places_of(parents, vertices, graph.n))
    return label_table(ids, distances, predecessors, unreached=unreached)


def tree(result: BFSResult) -> Subgraph:
    """See ``BFSResult.tree``."""
    graph = result.graph
    vertices, _, parents = result.reader().labels_between(0, result.depth, predecessors=True)
    assert parents is not None
    children = np.flatnonzero(parents != vertices)
    sources = places_of(parents[children], vertices, graph.n)
    # Stable: the children of one vertex stay in ascending order.
    order = np.argsort(sources, kind="stable")
    return Subgraph(graph.name, True, graph.ids_of(vertices), sources[order], children[order])


def distances_by_id(result: BFSResult) -> dict[Any, int]:
    """See ``BFSResult.to_dict``."""
    vertices, distances, _ = result.reader().labels_between(0, result.depth, predecessors=False)
    return dict(zip(as_python(result.graph.ids_of(vertices)), distances.tolist(), strict=True))

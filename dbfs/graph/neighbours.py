"""The edges of one vertex, read on the ranks that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dbfs.cluster.deadline import of_call
from dbfs.cluster.rank_calls import RankCalls
from dbfs.errors import GraphNotFoundError, StaleRunError
from dbfs_workers.reads.messages import ReadNeighbours

if TYPE_CHECKING:
    from dbfs.graph.naming import NamedVertices


def neighbours(graph: NamedVertices, vertex: int) -> NDArray[np.int64]:
    """Return the vertices to which edges lead from a vertex, ascending; one for each edge stored.

    Raises:
        InvalidVertexError: the vertex was deleted.
        WorkerLostError, DeadlineExceededError: see ``Gang.gather``.
        GraphNotFoundError: the graph was unloaded.
    """
    (position,) = graph.positions([vertex])
    # In a 2-D partition several ranks have a part of the vertex's edges.
    ranks = range(graph.ranks) if graph.record.layout == "2d" else [graph.stripe.owner(position)]
    keys, name = graph.record.partition_keys, graph.record.name
    messages = {rank: ReadNeighbours(keys[rank], position) for rank in ranks}
    try:
        parts = RankCalls(graph.gang, messages, of_call(), f"reading the edges of a vertex of {name}").answers()
    except StaleRunError as error:
        raise GraphNotFoundError(f"{name}: {error}") from error
    internal = np.concatenate([*parts.values()]).astype(np.int64)
    return np.sort(graph.vertices_by_position(graph.stripe.vertex(internal)))

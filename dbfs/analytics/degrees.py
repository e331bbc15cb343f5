"""Degrees of a graph, counted on the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Ref
from dbfs_workers.tasks import queries

if TYPE_CHECKING:
    from dbfs.graph.graph import Graph

Counts = tuple[NDArray[np.int64], NDArray[np.int64]]


def degree_counts(graph: Graph) -> Counts:
    """See ``Graph.degree_counts``."""
    arguments = [(Ref(key),) for key in graph.partition_keys]
    deadline = of_call()
    parts: list[Counts] = graph.gang.on_each_rank(
        "degree-counts", queries.degree_counts, arguments, deadline, f"counting the degrees of {graph.name}"
    )
    degrees, where = np.unique(np.concatenate([degrees for degrees, _ in parts]), return_inverse=True)
    vertices = np.zeros(degrees.size, np.int64)
    np.add.at(vertices, where, np.concatenate([counts for _, counts in parts]))
    return degrees, vertices


def hub(graph: Graph) -> int:
    """Return a vertex of the largest degree; the graph must not be empty."""
    arguments = [(Ref(key),) for key in graph.partition_keys]
    deadline = of_call()
    largest: list[tuple[int, int]] = graph.gang.on_each_rank(
        "largest-degree", queries.largest_degree, arguments, deadline, f"finding the hub of {graph.name}"
    )
    rank = max(range(graph.ranks), key=lambda rank: largest[rank][0])
    position = largest[rank][1] * graph.ranks + rank
    return graph.vertices_at_positions([position])[0]

"""Random search keys: vertices with an edge to another vertex (Graph500's rule for its 64 keys)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dbfs.cluster.deadline import Deadline, of_call
from dbfs.cluster.gang import Ref
from dbfs.errors import InvalidOptionError
from dbfs.integers import whole_count
from dbfs_workers.tasks import queries
from dbfs_workers.text import counted

if TYPE_CHECKING:
    from dbfs.graph.graph import Graph


def sample_sources(graph: Graph, count: int, seed: int = 1) -> list[int]:
    """Return distinct random vertices of degree at least 1, self-loops not counted; the same for any number of ranks.

    Raises:
        InvalidOptionError: the graph has fewer such vertices than ``count``, or ``count`` is below 0.
        InvalidOptionTypeError: ``count`` is not an integer.
    """
    count = whole_count(count, "count")
    generator = np.random.default_rng(seed)
    order = generator.permutation(graph.n)
    deadline = of_call()
    found: list[int] = []
    batch, at = max(64, 4 * count), 0
    while len(found) < count and at < graph.n:
        candidates = order[at : at + batch]
        found.extend(candidates[_have_neighbours(graph, candidates, deadline)].tolist())
        at, batch = at + batch, 4 * batch
    if len(found) < count:
        wanted, there = counted(count, "source"), counted(len(found), "vertex", "vertices")
        raise InvalidOptionError(f"{wanted} wanted, but {graph.name} has {there} with a neighbour")
    return found[:count]


def _have_neighbours(graph: Graph, vertices: NDArray[np.int64], deadline: Deadline) -> NDArray[np.bool]:
    """Return for each vertex whether an edge leads from it to another vertex."""
    positions = np.array(graph.positions(vertices.tolist()), np.int64)
    arguments = [
        (Ref(key), positions[positions % graph.ranks == rank] // graph.ranks)
        for rank, key in enumerate(graph.partition_keys)
    ]
    answers = graph.gang.on_each_rank(
        "have-neighbours", queries.rows_with_neighbours, arguments, deadline, f"sampling sources of {graph.name}"
    )
    flags = np.zeros(vertices.size, bool)
    for rank, answer in enumerate(answers):
        flags[positions % graph.ranks == rank] = answer
    return flags

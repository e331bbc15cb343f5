"""Random search keys: vertices that a traversal can leave (Graph500's rule for its 64 keys)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dbfs import config
from dbfs.cluster.gang import Deadline, Ref
from dbfs.errors import InvalidOptionError
from dbfs.integers import whole_count
from dbfs_workers.storage.partition import Partition

if TYPE_CHECKING:
    from dbfs.graph.graph import Graph


def sample_sources(graph: Graph, count: int, seed: int = 1) -> list[int]:
    """Distinct vertices of degree at least 1, self-loops not counted, chosen at random; the same for any rank count.

    Raises:
        InvalidOptionError: there are fewer than ``count``, or it is below 0.
        InvalidOptionTypeError: ``count`` is no integer.
    """
    count = whole_count(count, "count")
    generator = np.random.default_rng(seed)
    order = generator.permutation(graph.n)
    deadline = Deadline(config.seconds("deadline"))
    found: list[int] = []
    batch, at = max(64, 4 * count), 0
    while len(found) < count and at < graph.n:
        candidates = order[at : at + batch]
        found.extend(candidates[_have_neighbours(graph, candidates, deadline)].tolist())
        at, batch = at + batch, 4 * batch
    if len(found) < count:
        raise InvalidOptionError(f"{count} sources wanted, but {graph.name} has {len(found)} vertices with a neighbour")
    return found[:count]


def _have_neighbours(graph: Graph, vertices: NDArray[np.int64], deadline: Deadline) -> NDArray[np.bool]:
    positions = vertices if graph.order is None else graph.order.position[vertices].astype(np.int64)
    arguments = [
        (Ref(key), positions[positions % graph.ranks == rank] // graph.ranks)
        for rank, key in enumerate(graph.partition_keys)
    ]
    answers = graph.gang.on_each_rank(
        "have-neighbours", _rows_with_neighbours, arguments, deadline, f"sampling sources of {graph.name}"
    )
    flags = np.zeros(vertices.size, bool)
    for rank, answer in enumerate(answers):
        flags[positions % graph.ranks == rank] = answer
    return flags


def _rows_with_neighbours(partition: Partition, rows: NDArray[np.int64]) -> NDArray[np.bool]:
    first_id = partition.rank * partition.stripe.n_local
    answer = np.zeros(rows.size, bool)
    starts, ends = (partition.row_offsets[rows + after].tolist() for after in (0, 1))
    for index, (row, start, end) in enumerate(zip(rows.tolist(), starts, ends, strict=True)):
        answer[index] = bool((partition.columns[start:end] != first_id + row).any())
    return answer

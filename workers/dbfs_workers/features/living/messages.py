"""The messages of an update to a rank. ``worker.Updates`` handles them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.partition.partition import GraphTotals
from dbfs_workers.serving.messages import WorkerMessage
from dbfs_workers.serving.turns.changes import RankVersion


@dataclass(frozen=True)
class RankUpdate(RankVersion):
    """A rank's prepared version. Other attributes as of ``RankVersion``.

    Attributes:
        edges: edges inserted or deleted; over all ranks, an undirected edge counts once.
        refused: duplicates of an insertion, or missing edges of a deletion.
        first_refused: the first of these, as vertices (positions, if the graph is ordered by degree); None if none was.
        vertices: int64, the vertices inserted or deleted.
        absent: vertices to delete that were deleted before.
        beside: what the record says of each of the data beside the partition: ``Carried.facts``.
    """

    edges: int
    refused: int
    first_refused: tuple[int, int] | None
    vertices: NDArray[np.int64]
    absent: int
    beside: tuple[Any, ...] = ()


def refused_of(kind: str, ranks: Sequence[RankUpdate]) -> int:
    """Return how many edges of an update are refused: duplicates of an insertion, or missing edges of a deletion."""
    # An edge between two deleted vertices comes from both of them.
    return 0 if kind == "delete-vertices" else sum(rank.refused for rank in ranks)


@dataclass(frozen=True)
class TakeUpdate(WorkerMessage[int]):
    """Keep those edges of an update that start in the rank's rows, for the update; return their number.

    The client sends the whole update to every rank. For updates that are not too large this takes less time than tasks
    that bin the update.

    Attributes:
        graph_id: the graph, which is not ordered by degree.
        edges: uint32[2, edges] as bytes: the sources and then the targets, vertices of the graph.
        symmetrise: whether each edge's reverse belongs to the update too.

    Raises:
        StaleRunError: the worker is not a rank of that gang.
        GraphTooLargeError: the update may not fit.
    """

    graph_id: str
    run_id: str
    edges: bytes
    symmetrise: bool


@dataclass(frozen=True)
class CommitUpdate(WorkerMessage[None]):
    """Make the prepared version the rank's partition. Ignored if the rank has that version, or a later one.

    Attributes:
        totals: counts of the version.

    Raises:
        StaleRunError: the worker is not a rank of that gang, or has prepared no version in this run.
        GraphTooLargeError, DeviceFailedError: a GPU can't take the version over.
    """

    graph_id: str
    run_id: str
    totals: GraphTotals
    version: int

"""Validation of labels where they lie: each rank checks its own edges (``dbfs_workers.validation``)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs import config
from dbfs.errors import ValidationError
from dbfs.gang import Deadline, Ref, TaskGraph
from dbfs_workers.partition import Partition
from dbfs_workers.stripe import Stripe
from dbfs_workers.traversal import RunSpec

if TYPE_CHECKING:
    from dbfs.graph import Graph
    from dbfs_workers.validation import EdgeCheck, Violation

Labels = list[NDArray[np.int32]]
Parents = list[NDArray[np.int64]]


def validate_labels(
    graph: Graph,
    distances: Sequence[distributed.Future],
    predecessors: Sequence[distributed.Future] | None,
    spec: RunSpec,
    farthest: int | None,
) -> None:
    """Check labels against the graph's edges on the workers; neither edges nor labels come to the client.

    Args:
        graph: where the labels belong.
        distances: by rank, futures of int32 arrays of the rank's vertices.
        predecessors: by rank, futures of int64 arrays of vertex ids; None to check distances alone.
        spec: the run's; its sources are at distance 0.
        farthest: vertices at this distance may have unreached neighbours; None where all were to be reached.

    Raises:
        ValidationError: the rule that is broken, and where.
    """
    gang, token = graph.gang, uuid.uuid4().hex
    tasks = TaskGraph()
    labels = [Ref(future.key) for future in distances]
    parents = None if predecessors is None else [Ref(future.key) for future in predecessors]
    checks = [
        tasks.add(
            rank,
            (f"check-edges-{token}", rank),
            _check_edges,
            Ref(key),
            labels,
            parents,
            graph.directed,
            farthest,
        )
        for rank, key in enumerate(graph.partition_keys)
    ]
    verdict_key = (f"check-labels-{token}", 0)
    tasks.add(0, verdict_key, _check_labels, graph.stripe, checks, labels, parents, spec.sources, farthest)
    futures = gang.submit(tasks, [verdict_key])
    deadline = Deadline(config.seconds("deadline"))
    violation: Violation | None = gang.gather(list(futures.values()), deadline, f"validating {graph.name}")[0]
    if violation is not None:
        order = graph.order
        if order is not None:
            violation = replace(violation, vertices=tuple(order.vertex[list(violation.vertices)].tolist()))
        raise ValidationError(f"{graph.name}: {violation}")


def _check_edges(
    partition: Partition, distances: Labels, predecessors: Parents | None, directed: bool, max_depth: int | None
) -> EdgeCheck:
    from dbfs_workers.validation import check_edges

    return check_edges(partition, distances, predecessors, directed, max_depth)


def _check_labels(
    stripe: Stripe,
    checks: list[EdgeCheck],
    distances: Labels,
    predecessors: Parents | None,
    sources: Sequence[int],
    max_depth: int | None,
) -> Violation | None:
    from dbfs_workers.validation import check_labels

    return check_labels(stripe, checks, distances, predecessors, sources, max_depth)

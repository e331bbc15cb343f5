"""Searches by weight: from vertices to all others, or between two from both ends."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from dbfs.base.progress import ProgressOption
from dbfs.base.records import RunProgress
from dbfs.features.weights.columns import prepare
from dbfs.features.weights.result import SSSPResult
from dbfs.graph.striped import StripedGraph
from dbfs.graph.traversing import traverse
from dbfs_workers.features.weights.purpose import Number, Weighted

Columns = Callable[[StripedGraph], Sequence[Hashable]]
"""Returns by rank the Dask key of what has the columns of a graph's edges."""


def weigh(
    graph: StripedGraph,
    columns: Columns,
    sources: tuple[int, ...],
    purpose: Weighted,
    *,
    targets: tuple[int, ...] = (),
    predecessors: bool,
    progress: ProgressOption[RunProgress] = None,
) -> SSSPResult:
    """Run a traversal by weight; errors as of ``Graph.sssp``."""

    def ready() -> None:
        prepare(graph, purpose.column, columns(graph), path=purpose.path)

    def made(graph: StripedGraph, *run: Any) -> SSSPResult:
        return SSSPResult(columns(graph), graph, *run)

    return traverse(
        graph,
        made,
        [sources],
        targets=targets,
        predecessors=predecessors,
        direction="top-down",
        engine=next(iter(graph.engines)),
        purpose=purpose,
        progress=progress,
        ready=ready,
    )[0]


def between(
    graph: StripedGraph, columns: Columns, source: int, target: int, weight: str, *, path: bool = True
) -> tuple[Number, list[int]]:
    """Return the distance between two vertices, and the vertices of a shortest path; no vertices if ``path`` is False.

    Without a path the distance is -1, or infinity. Errors as of ``Graph.sssp``.
    """
    purpose = Weighted(weight, path=True)
    result = weigh(graph, columns, (source,), purpose, targets=(target,), predecessors=path, progress=False)
    try:
        reached = 0 <= result.depth < np.inf
        return result.depth, result.vertices_to(target) if path and reached else []
    finally:
        result.release()

"""The check of distances by weight, by tasks on the ranks."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Sequence

from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Ref, TaskGraph, release
from dbfs.errors import ValidationError
from dbfs.graph.result import BFSResult
from dbfs_workers.features.weights import checks as tasks


def check(result: BFSResult, weight: str, columns: Sequence[Hashable]) -> None:
    """Check a result by the column ``weight``; ``columns`` as of ``prepare``, errors as of ``SSSPResult.validate``."""
    graph = result.graph
    graph.require_version(result.version, result)
    published, plan, token = result.published_labels(), TaskGraph(), uuid.uuid4().hex
    parents = published.predecessors
    labels = (
        [Ref(future.key) for future in published.distances],
        None if parents is None else [Ref(future.key) for future in parents],
    )
    found = [
        plan.add(
            rank,
            (f"check-weighted-edges-{token}", rank),
            tasks.check_edges,
            Ref(partition),
            Ref(attributes),
            weight,
            *labels,
            result.farthest,
        )
        for rank, (partition, attributes) in enumerate(zip(graph.partition_keys, columns, strict=True))
    ]
    last = (f"check-weighted-tree-{token}", 0)
    sources = graph.numbering.positions(result.source_vertices)
    plan.add(0, last, tasks.check_tree, graph.stripe, sources, *labels, found)
    futures = graph.gang.submit(plan, [last])
    try:
        (faults,) = graph.gang.gather([futures[last]], of_call(), f"validating {graph.name}")
    finally:
        release(futures.values())
    if faults:
        rule, positions = faults[0]
        ids = map(repr, graph.python_ids(graph.numbering.vertices_at(positions)))
        raise ValidationError(f"{result}: {rule.format(*ids)}")

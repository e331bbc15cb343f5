"""The 1-D partitions of a graph in another layout, which its ranks join of their parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dbfs.base.records import GraphRecord
from dbfs.cluster.gang import Ref, TaskGraph
from dbfs_workers.building.joining import join_parts


def in_stripes(plan: TaskGraph, record: GraphRecord, token: str, share: float, doing: str) -> list[Ref]:
    """Return the 1-D partitions by rank; of a graph in another layout, add the tasks that join them.

    Args:
        token: the end of the tasks' names.
        share: share of a worker's memory limit that its process may reach.
        doing: what the partitions are for, for errors.
    """
    found, layout = [Ref(key) for key in record.partition_keys], record.layout
    if layout is None:
        return found
    stripe, ordered = record.stripe, record.order_key is not None
    in_edges = has_in_edges(record)

    def parts(function: Callable[..., Any], what: str, peers: Sequence[int], owner: int) -> list[Ref]:
        return [
            plan.add(peer, (f"{what}-part-{token}", owner * stripe.p + peer), function, found[peer], owner)
            for peer in peers
        ]

    joined = []
    for rank in range(stripe.p):
        out = parts(layout.out_part, "out", layout.out_holders(rank), rank)
        into = parts(layout.in_part, "in", layout.in_holders(rank), rank) if in_edges else None
        options = (record.infos[0].input_edges, record.directed, ordered, share, doing)
        joined.append(plan.add(rank, (f"join-parts-{token}", rank), join_parts, stripe, rank, out, into, *options))
    return joined


def has_in_edges(record: GraphRecord) -> bool:
    """Return whether a directed graph has its in-edges; an undirected one needs none."""
    return record.directed and record.infos[0].has_parents

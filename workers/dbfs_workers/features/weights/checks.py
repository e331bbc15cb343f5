"""Tasks that check distances by weight on the ranks, by Graph500's rules for its third kernel (specification 2.0).

Each rank looks at its own edges once, with the labels of all ranks. Then one rank looks at the tree.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.weights.columns import weights_of
from dbfs_workers.features.weights.purpose import Number
from dbfs_workers.ids.label_table import reached
from dbfs_workers.search.partition.partition import Partition, RankEdges
from dbfs_workers.search.partition.stripe import Stripe

BLOCK_EDGES: Final = 1 << 21
"""Edges that are looked at together. A block takes about 60 bytes an edge."""

Distances = list[NDArray[Any]]
"""By rank."""

Predecessors = list[NDArray[np.int64]] | None
"""By rank, as positions; None if the traversal recorded none."""


class Fault(NamedTuple):
    """A rule that the labels break.

    Attributes:
        rule: the rule, with places for the names of the vertices.
        vertices: positions of vertices that show it.
    """

    rule: str
    vertices: tuple[int, ...]


def check_edges(
    edges: RankEdges,
    attributes: Any,
    column: str,
    labels: Distances,
    predecessors: Predecessors,
    farthest: Number | None,
) -> tuple[list[Fault], NDArray[np.uint8]]:
    """Check each edge of a rank: no path over it is shorter than the distance of its end.

    Args:
        attributes: what has the columns of the rank's edges.
        farthest: the distance beyond which vertices may be unreached; None for none.

    Returns:
        The first fault, if there is one; and packed bits by id of the vertices whose distance and predecessor an edge
        of the rank gives.
    """
    stripe, values = edges.stripe, attributes.columns_of(edges)[column]
    distances, parents = _by_id(stripe, labels, predecessors)
    known, given, first = reached(distances), np.zeros(distances.size, bool), 0
    for own in edges.parts():
        partition = own.on(np)
        weights = weights_of(values.slice(first, own.m_local), column, partition)[0]
        first += own.m_local
        faults = _check_part(partition, weights, distances, known, parents, given, farthest)
        if faults:
            return faults, np.packbits(given)
    return [], np.packbits(given)


def _check_part(
    partition: Partition,
    weights: NDArray[Any],
    distances: NDArray[Any],
    known: NDArray[np.bool],
    parents: NDArray[np.int64] | None,
    given: NDArray[np.bool],
    farthest: Number | None,
) -> list[Fault]:
    """Check each edge of some rows, and mark in ``given`` the vertices whose labels they give; return the first fault.

    Labels are by internal id. Other arguments as of ``check_edges``.
    """
    stripe, first_id, offsets = partition.stripe, partition.rank * partition.stripe.n_local, partition.row_offsets
    for begin in range(0, weights.size, BLOCK_EDGES):
        part = slice(begin, min(begin + BLOCK_EDGES, weights.size))
        source = first_id + np.searchsorted(offsets, np.arange(part.start, part.stop), side="right") - 1
        target = partition.columns[part].astype(np.int64)
        there = known[source]
        source, target, of_edges = source[there], target[there], weights[part][there]
        sums, before = _sums(distances[source], of_edges), _comparable(distances[target])
        beyond = np.zeros(sums.size, bool) if farthest is None else sums > farthest
        beyond |= ~known[target] & np.isinf(sums) if sums.dtype.kind == "f" else False
        wrong = np.flatnonzero(np.where(known[target], sums < before, ~beyond))
        if wrong.size:
            ends = source[wrong[0]], target[wrong[0]]
            rule = "the edge from {} to {} makes a shorter path than the distance"
            return [Fault(rule, tuple(int(stripe.vertex(int(each))) for each in ends))]
        tight = known[target] & (sums == before)
        if parents is not None:
            tight &= parents[target] == source
        given[target[tight]] = True
    return []


def check_tree(
    stripe: Stripe,
    sources: tuple[int, ...],
    labels: Distances,
    predecessors: Predecessors,
    found: list[tuple[list[Fault], NDArray[np.uint8]]],
) -> list[Fault]:
    """Check that an edge gives the distance of each vertex, and that the predecessors lead to the sources.

    Args:
        sources: positions.
        found: by rank, what ``check_edges`` returned.
    """
    faults = [fault for of_rank, _ in found for fault in of_rank]
    if faults:
        return faults
    distances, parents = _by_id(stripe, labels, predecessors)
    starts = stripe.internal(np.array(sources, np.int64))
    known = reached(distances)
    given = np.bitwise_or.reduce([np.unpackbits(bits, count=distances.size) for _, bits in found]).astype(bool)
    given[starts] = distances[starts] == 0
    rules = [(known & ~given, "no edge gives the distance of {}")]
    if parents is not None:
        up = np.where(known, parents, np.arange(distances.size))
        rules.append((known != (parents >= 0), "{} has a distance without a predecessor, or the reverse"))
        right = parents[starts] == starts
        rules.append((np.isin(np.arange(distances.size), starts[~right]), "the source {} is not its own predecessor"))
        # Each step doubles the length of the ways.
        for _ in range(int(stripe.n).bit_length()):
            up = up[np.maximum(up, 0)]
        rules.append((known & ~np.isin(up, starts), "the predecessors of {} do not lead to a source"))
    for wrong, rule in rules:
        if wrong.any():
            return [Fault(rule, (int(stripe.vertex(int(np.flatnonzero(wrong)[0]))),))]
    return []


def _by_id(
    stripe: Stripe, distances: Distances, predecessors: Predecessors
) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    """Return labels by internal id, the parents as internal ids, -1 for none; the padding is unreached."""
    dtype = distances[0].dtype
    of_ids = np.full(stripe.p * stripe.n_local, np.inf if dtype.kind == "f" else -1, dtype)
    parents = np.full(of_ids.size, -1, np.int64)
    for rank, own in enumerate(distances):
        part = slice(rank * stripe.n_local, rank * stripe.n_local + own.size)
        of_ids[part] = own
        if predecessors is not None:
            above = predecessors[rank]
            parents[part] = np.where(above < 0, -1, stripe.internal(above))
    return of_ids, None if predecessors is None else parents


def _sums(distances: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """Return sums; those of integers have 64 bits without a sign, so that none is too large."""
    sums: NDArray[Any] = _comparable(distances) + _comparable(weights)
    return sums


def _comparable(numbers: NDArray[Any]) -> NDArray[Any]:
    return numbers if numbers.dtype.kind == "f" else numbers.astype(np.uint64)

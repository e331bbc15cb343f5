"""The validator's part on the workers: do labels obey the rules of breadth-first search on this graph?

Graph500's five rules (specification 2.0, "Validation"), put over edges so that each rank checks its own: no edge leaves
the reached set, no edge spans more than one level, and each reached vertex but a source has an edge from its parent
(from any vertex one level up, where there are no predecessors). Together they make the distances exact, by induction
over the levels: a vertex can't be too far (rule 2) nor too near (rule 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers import validation_kernels as kernels
from dbfs_workers.partition import Partition
from dbfs_workers.stripe import Stripe

Label = TypeVar("Label", np.int32, np.int64)

RULES = {
    1: "an edge leads from a reached vertex to an unreached one",
    2: "an edge spans more than one level",
    3: "a reached vertex has no edge from a parent one level up",
    4: "a source is not at distance 0 (and its own predecessor), or another vertex is at distance 0",
    5: "a label is out of range, or distance and predecessor disagree on whether the vertex was reached",
}


@dataclass(frozen=True)
class Violation:
    """A broken rule.

    Attributes:
        rule: key of ``RULES``.
        vertices: vertex ids that show it.
        rank: where it was found.
    """

    rule: int
    vertices: tuple[int, ...]
    rank: int

    def __str__(self) -> str:
        return f"{RULES[self.rule]}: vertices {', '.join(map(str, self.vertices))} (found on rank {self.rank})"


@dataclass(frozen=True)
class EdgeCheck:
    """What one rank found: a violation, or the bitmap (over internal ids) of vertices that an edge of its supports."""

    violation: Violation | None
    supported: NDArray[np.uint32]

    def __dask_sizeof__(self) -> int:
        return self.supported.nbytes


def check_edges(
    partition: Partition,
    distances: Sequence[NDArray[np.int32]],
    predecessors: Sequence[NDArray[np.int64]] | None,
    directed: bool,
    max_depth: int | None,
) -> EdgeCheck:
    """Check a rank's edges.

    Args:
        partition: the rank's edges.
        distances: by rank, int32 of its rows without padding.
        predecessors: by rank, int64 vertex ids of its rows, or None.
        directed: whether edges hold in one direction only.
        max_depth: the run's bound on distances, or None.
    """
    stripe = partition.stripe
    supported = np.zeros(stripe.words, np.uint32)
    parents = np.empty(0, np.int64)
    if predecessors is not None:
        parents = _padded([np.where(part >= 0, stripe.internal(part), part) for part in predecessors], stripe)
    rule, u, v = kernels.check_edges(
        partition.row_offsets,
        partition.columns,
        partition.rank * stripe.n_local,
        _padded(distances, stripe),
        parents,
        directed,
        stripe.n if max_depth is None else max_depth,
        supported,
    )
    violation = Violation(rule, (stripe.vertex(u), stripe.vertex(v)), partition.rank) if rule else None
    return EdgeCheck(violation, supported)


def check_labels(
    stripe: Stripe,
    checks: Sequence[EdgeCheck],
    distances: Sequence[NDArray[np.int32]],
    predecessors: Sequence[NDArray[np.int64]] | None,
    sources: Sequence[int],
    max_depth: int | None,
) -> Violation | None:
    """Join the ranks' findings: the first violation, or None where the result is a breadth-first search's."""
    bad = _bad_label(stripe, distances, predecessors, sources, max_depth)
    if bad is not None:
        return bad
    for check in checks:
        if check.violation is not None:
            return check.violation
    supported = np.bitwise_or.reduce([check.supported for check in checks])
    bits = np.unpackbits(supported.view(np.uint8), bitorder="little").astype(bool)
    for rank, mine in enumerate(distances):
        own = bits[rank * stripe.n_local :][: mine.size]
        orphans = np.flatnonzero((mine > 0) & ~own)
        if orphans.size:
            return Violation(3, (int(orphans[0]) * stripe.p + rank,), rank)
    return None


def _bad_label(
    stripe: Stripe,
    distances: Sequence[NDArray[np.int32]],
    predecessors: Sequence[NDArray[np.int64]] | None,
    sources: Sequence[int],
    max_depth: int | None,
) -> Violation | None:
    farthest = stripe.n - 1 if max_depth is None else max_depth
    for rank, mine in enumerate(distances):
        ids = np.arange(mine.size, dtype=np.int64) * stripe.p + rank
        wrong = (mine < -1) | (mine > farthest)
        if predecessors is not None:
            parents = predecessors[rank]
            wrong |= (parents < -1) | (parents >= stripe.n) | ((parents < 0) != (mine < 0))
        if wrong.any():
            return Violation(5, (int(ids[wrong][0]),), rank)
        rootless = (mine == 0) != np.isin(ids, sources)
        if predecessors is not None:
            rootless |= (mine == 0) & (predecessors[rank] != ids)
        if rootless.any():
            return Violation(4, (int(ids[rootless][0]),), rank)
    return None


def _padded(parts: Sequence[NDArray[Label]], stripe: Stripe) -> NDArray[Label]:
    """Labels over all internal ids: the ranks' parts one after another, -1 in the padding."""
    whole = np.full((stripe.p, stripe.n_local), -1, parts[0].dtype)
    for rank, part in enumerate(parts):
        whole[rank, : part.size] = part
    return whole.ravel()

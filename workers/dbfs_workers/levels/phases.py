"""The phases of one level on one rank, called by every engine: expand, filter + partition, contract.

An engine runs them in this order on each rank, and moves the bins between the second and the third.
"""

from collections.abc import Iterable

import numpy as np

from dbfs_workers.backends.protocol import EdgeFrontier
from dbfs_workers.errors import StaleRunError
from dbfs_workers.levels.state import Bin, TraversalState


def expand(state: TraversalState, run_id: str, level: int) -> EdgeFrontier:
    """Gather the neighbours of the frontier: the level's edge frontier."""
    with state.entering("expand", run_id, level) as counts:
        partition = state.partition
        edges = state.backend.expand(
            partition.row_offsets,
            partition.columns,
            state.frontier,
            state.first_id,
            state.spec.predecessors,
        )
        counts.frontier = state.frontier.size
        counts.edges = edges.neighbours.size
    return edges


def filter_partition(state: TraversalState, run_id: str, level: int, edges: EdgeFrontier) -> tuple[Bin, ...]:
    """Keep what this rank has not visited, and cut it into one bin per owner."""
    with state.entering("filter-partition", run_id, level) as counts:
        stripe = state.partition.stripe
        kept = state.backend.filter_partition(edges, state.visited, stripe)
        bins = tuple(
            Bin(
                run_id=run_id,
                level=level,
                source=state.rank,
                target=owner,
                rows=kept.rows[kept.offsets[owner] : kept.offsets[owner + 1]],
                parents=None if kept.parents is None else kept.parents[kept.offsets[owner] : kept.offsets[owner + 1]],
            )
            for owner in range(stripe.p)
        )
        counts.own = bins[state.rank].rows.size
        counts.sent = kept.rows.size - counts.own
        counts.filtered = counts.edges - kept.rows.size
        counts.bytes_sent = sum(sent.nbytes for sent in bins if sent.target != state.rank)
        state.outbox[level % 2] = bins
    return bins


def contract(state: TraversalState, run_id: str, level: int, bins: Iterable[Bin]) -> int:
    """Label the vertices of the bins sent to this rank, its own included; they become the next frontier.

    Returns:
        How many vertices were discovered.

    Raises:
        StaleRunError: also where a bin is of another run or level, for another rank, missing or there twice.
    """
    with state.entering("contract", run_id, level) as counts:
        received = sorted(bins, key=lambda received: received.source)
        wanted = [(run_id, level, source, state.rank) for source in range(state.partition.stripe.p)]
        if [(b.run_id, b.level, b.source, b.target) for b in received] != wanted:
            raise StaleRunError(
                f"rank {state.rank}: level {level} of run {run_id} got the bins "
                f"{[(b.run_id, b.level, b.source, b.target) for b in received]} (run, level, source, target)"
            )
        queue = state.backend.xp.empty(sum(b.rows.size for b in received), np.uint32)
        for b in received:
            counts.discovered += state.backend.contract(
                b.rows,
                b.parents,
                None if b.source == state.rank else state.own_visited,
                level + 1,
                state.distances,
                state.predecessors,
                queue[counts.discovered :],
            )
        state.frontier = queue[: counts.discovered]
        counts.culled = sum(b.rows.size for b in received) - counts.discovered
    return counts.discovered


def take_bin(state: TraversalState, run_id: str, level: int, target: int) -> Bin:
    """The bin made for a rank in one of the last two levels.

    Raises:
        StaleRunError: that level's bins are gone, or not there yet.
    """
    bins = state.outbox[level % 2]
    if not bins or (bins[target].run_id, bins[target].level) != (run_id, level):
        raise StaleRunError(
            f"rank {state.rank}: the bin of level {level} of run {run_id} for rank {target} is not in the outbox"
        )
    return bins[target]


def edges_traversed(state: TraversalState) -> tuple[int, int]:
    """Vertices reached on this rank, and the sum of their degrees: the directed edges of the traversed component."""
    reached = state.backend.xp.flatnonzero(state.distances >= 0).astype(np.uint32)
    return reached.size, state.backend.edge_count(state.partition.row_offsets, reached)

"""The phases of one level on one rank, one by one, for the taskgraph engine: expand, filter + partition, contract.

The engine's tasks (``dbfs_workers.tasks.taskgraph``) run them in this order on each rank. Between the second and the
third Dask moves the bins. The resident loop does not call them: see ``dbfs_workers.levels.loop``.
"""

from collections.abc import Iterable

import numpy as np

from dbfs_workers.backends.protocol import EdgeFrontier
from dbfs_workers.errors import StaleRunError
from dbfs_workers.levels.bins import Bin
from dbfs_workers.levels.state import TraversalState


def expand(state: TraversalState, run_id: str, level: int) -> EdgeFrontier:
    """Gather the neighbours of the frontier, the level's edge frontier. Errors as for ``TraversalState.entering``."""
    with state.entering("expand", run_id, level) as counts:
        partition = state.partition
        edges = state.backend.expand(partition.out_edges, state.frontier, state.first_id, state.spec.predecessors)
        counts.frontier = state.frontier.size
        counts.edges = edges.neighbours.size
    return edges


def filter_partition(state: TraversalState, run_id: str, level: int, edges: EdgeFrontier) -> tuple[Bin, ...]:
    """Keep the neighbours that this rank has not visited, and sort them into one bin for each owner, by rank.

    The bins also stay in the outbox for two levels. Errors as for ``TraversalState.entering``.
    """
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
    """Label the vertices of the bins for this rank, one from each rank; the new ones become the next frontier.

    Returns:
        The number of vertices discovered.

    Raises:
        StaleRunError: as for ``TraversalState.entering``; or a bin is missing, given twice, of another run or level, or
            for another rank.
    """
    with state.entering("contract", run_id, level) as counts:
        received = sorted(bins, key=lambda received: received.source)
        expected = [(run_id, level, source, state.rank) for source in range(state.partition.stripe.p)]
        if [(b.run_id, b.level, b.source, b.target) for b in received] != expected:
            raise StaleRunError(
                f"rank {state.rank}: contract of level {level} of run {run_id} needs one bin from each rank; it got "
                f"{[(b.run_id, b.level, b.source, b.target) for b in received]} (run, level, source, target)"
            )
        queue = state.backend.xp.empty(sum(b.rows.size for b in received), np.uint32)
        for b in received:
            counts.discovered += state.backend.contract(
                b.rows,
                b.parents,
                None if b.source == state.rank else state.own_visited,
                level + 1,
                state.labels,
                queue[counts.discovered :],
            )
        state.frontier = queue[: counts.discovered]
        counts.culled = sum(b.rows.size for b in received) - counts.discovered
    return counts.discovered


def take_bin(state: TraversalState, run_id: str, level: int, target: int) -> Bin:
    """Return the bin that this rank made for rank ``target`` in one of the last two levels.

    Raises:
        StaleRunError: the bins of that level were replaced by a later level's, or are not made yet.
    """
    bins = state.outbox[level % 2]
    if not bins or (bins[target].run_id, bins[target].level) != (run_id, level):
        raise StaleRunError(
            f"rank {state.rank}: the bin of level {level} of run {run_id} for rank {target} is not in the outbox"
        )
    return bins[target]


def edges_traversed(state: TraversalState) -> tuple[int, int]:
    """Return the vertices reached on this rank, and the sum of their degrees.

    Summed over the ranks, the degrees are the directed edges of the traversed component.
    """
    reached = state.backend.xp.flatnonzero(state.labels.distances >= 0).astype(np.uint32)
    return reached.size, state.backend.edge_count(state.partition.row_offsets, reached)

"""The phases of one level on one rank, one by one, for the taskgraph engine.

A top-down level has the phases expand, filter + partition, and contract, in this order on each rank. Between the second
and the third the bins move. A bottom-up level has the phases share and bottom-up. The engine's tasks
(``dbfs_workers.features.taskgraph.tasks``) run the phases. The resident loop does not call them: see
``dbfs_workers.search.levels.loop``.
"""

import time
from collections.abc import Iterable, Sequence

import numpy as np

from dbfs_workers.base.errors import StaleRunError
from dbfs_workers.features.taskgraph.bins import Bin, FrontierSlice, RankCounts
from dbfs_workers.features.taskgraph.state import TraversalState
from dbfs_workers.search.backend import EdgeFrontier


def expand(state: TraversalState, run_id: str, level: int) -> EdgeFrontier:
    """Gather the neighbours of the frontier, the level's edge frontier. Errors as for ``TraversalState.entering``."""
    with state.entering("expand", run_id, level) as counts:
        scratch = state.scratch
        edges = state.backend.expand(
            scratch.partition.out_edges, scratch.frontier, scratch.first_id, state.spec.predecessors
        )
        counts.edges = edges.neighbours.size
    return edges


def filter_partition(state: TraversalState, run_id: str, level: int, edges: EdgeFrontier) -> tuple[Bin, ...]:
    """Keep the neighbours that this rank has not visited, and sort them into one bin for each owner, by rank.

    On GPUs a vertex may be in a bin more than once; the contraction drops the repeats.

    Errors as for ``TraversalState.entering``.
    """
    with state.entering("filter-partition", run_id, level) as counts:
        stripe = state.partition.stripe
        kept = state.backend.filter_partition(edges, state.scratch.visited, stripe)
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
    return bins


def contract(state: TraversalState, run_id: str, level: int, bins: Iterable[Bin]) -> RankCounts:
    """Label the vertices of the bins for this rank, one from each rank; the new ones become the next frontier.

    Raises:
        StaleRunError: as for ``TraversalState.entering``; or a bin is missing, given twice, of another run or level, or
            for another rank.
    """
    with state.entering("contract", run_id, level) as counts:
        received = sorted(bins, key=lambda received: received.source)
        _require_one_of_each_rank(
            state, "contract", level, "bin", [(b.run_id, b.level, b.source, b.target) for b in received], (state.rank,)
        )
        scratch, queue = state.scratch, state.scratch.next_queue
        for b in received:
            counts.discovered += state.backend.contract(
                b.rows,
                b.parents,
                scratch.own_visited,
                level + 1,
                state.labels,
                queue[counts.discovered :],
                own=b.source == state.rank,
            )
        scratch.advance(counts.discovered)
        counts.culled = sum(b.rows.size for b in received) - counts.discovered
        degrees = state.backend.edge_count(scratch.partition, scratch.frontier)
    return _counts(state, counts.edges, 0, degrees)


def share(state: TraversalState, level: int) -> FrontierSlice:
    """Return the rank's part of the level's frontier, for a bottom-up level."""
    scratch, backend = state.scratch, state.backend
    with backend.typed_errors(f"rank {state.rank}, level {level}, sharing the frontier"):
        bits = backend.xp.empty(scratch.partition.stripe.words_local, np.uint32)
        backend.mark(scratch.frontier, bits)
    return FrontierSlice(state.spec.run_id, level, state.rank, bits)


def bottom_up(state: TraversalState, run_id: str, level: int, slices: Sequence[FrontierSlice]) -> RankCounts:
    """Search the rank's unvisited rows for parents in the frontier; the rows that have one become the next frontier.

    Args:
        slices: the level's frontier, one slice from each rank.

    Raises:
        StaleRunError: as for ``TraversalState.entering``; or a slice is missing, or of another run or level.
    """
    with state.entering("bottom-up", run_id, level) as counts:
        scratch, stripe = state.scratch, state.partition.stripe
        words = stripe.words_local
        _require_one_of_each_rank(
            state, "bottom-up", level, "slice", [(part.run_id, part.level, part.source) for part in slices]
        )
        for part in slices:
            assert scratch.frontier_bits is not None
            own = slice(part.source * words, (part.source + 1) * words)
            state.backend.absorb(part.bits, scratch.frontier_bits[own], scratch.visited[own])
        found = state.backend.xp.empty(words, np.uint32)
        searched, discovered, degrees = state.backend.bottom_up(scratch, state.labels, level + 1, found)
        scratch.advance(discovered)
        counts.bottom_up = True
        counts.edges = searched
        counts.own = counts.discovered = discovered
        counts.filtered = searched - discovered
        counts.bytes_sent = found.nbytes * (stripe.p - 1)
    return _counts(state, 0, searched, degrees)


def edges_traversed(state: TraversalState) -> tuple[int, int]:
    """Return the vertices reached on this rank, and the sum of their degrees.

    Summed over the ranks, the degrees are the directed edges of the traversed component.
    """
    reached = state.backend.xp.flatnonzero(state.labels.distances >= 0).astype(np.uint32)
    return reached.size, state.backend.edge_count(state.partition, reached)


def _counts(state: TraversalState, edges: int, searched: int, degrees: int) -> RankCounts:
    missing = state.targets_missing() if state.spec.targets else 0
    return RankCounts(edges, searched, state.scratch.frontier.size, degrees, missing, time.perf_counter())


def _require_one_of_each_rank(
    state: TraversalState,
    phase: str,
    level: int,
    what: str,
    received: Sequence[tuple[object, ...]],
    target: tuple[int, ...] = (),
) -> None:
    """Check that one bin, or one slice, came from each rank, all of the right run and level."""
    run_id = state.spec.run_id
    if list(received) != [(run_id, level, source, *target) for source in range(state.partition.stripe.p)]:
        raise StaleRunError(
            f"rank {state.rank}: {phase} of level {level} of run {run_id} needs one {what} from each rank; it got "
            f"{list(received)} (run, level, source{', target' if target else ''})"
        )

"""The phases of one level on one rank, one by one, for the taskgraph engine.

A top-down level has the phases expand, filter + partition, and contract, in this order on each rank. Between the second
and the third the bins move. A bottom-up level has one phase. The engine's tasks (``dbfs_workers.tasks.taskgraph``) run
the phases. The resident loop does not call them: see ``dbfs_workers.levels.loop``.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.backends.protocol import EdgeFrontier
from dbfs_workers.errors import StaleRunError
from dbfs_workers.levels.bins import Bin, FrontierPart
from dbfs_workers.levels.state import TraversalState


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
        _require_one_of_each_rank(
            state, "contract", level, "bin", [(b.run_id, b.level, b.source, b.target) for b in received], (state.rank,)
        )
        scratch, queue = state.scratch, state.scratch.next_queue
        for b in received:
            counts.discovered += state.backend.contract(
                b.rows,
                b.parents,
                None if b.source == state.rank else scratch.own_visited,
                level + 1,
                state.labels,
                queue[counts.discovered :],
            )
        scratch.advance(counts.discovered)
        counts.culled = sum(b.rows.size for b in received) - counts.discovered
    return counts.discovered


def measure(state: TraversalState, level: int, *, bits: bool, searched: int = 0) -> FrontierPart:
    """Return the rank's part of the frontier of the level that comes next.

    Args:
        state: the traversal.
        level: that level.
        bits: whether the part carries its bitmap, which a bottom-up level needs.
        searched: see ``FrontierPart``.
    """
    scratch, backend = state.scratch, state.backend
    with backend.typed_errors(f"rank {state.rank}, level {level}, measuring the frontier"):
        marked = None
        if bits:
            marked = backend.xp.empty(scratch.partition.stripe.words_local, np.uint32)
            backend.mark(scratch.frontier, marked)
        degrees = backend.edge_count(scratch.partition, scratch.frontier)
        return _part(state, level, scratch.frontier.size, degrees, searched, marked)


def bottom_up(state: TraversalState, run_id: str, level: int, frontier: Sequence[FrontierPart]) -> FrontierPart:
    """Search the rank's unvisited rows for parents in the frontier; the rows that have one become the next frontier.

    Args:
        state: the traversal.
        run_id: the run.
        level: the level.
        frontier: the level's frontier, one part from each rank, with bitmaps.

    Raises:
        StaleRunError: as for ``TraversalState.entering``; or a part is missing, or of another run or level.
    """
    with state.entering("bottom-up", run_id, level) as counts:
        scratch, stripe = state.scratch, state.partition.stripe
        _require_one_of_each_rank(
            state, "bottom-up", level, "slice", [(part.run_id, part.level, part.source) for part in frontier]
        )
        absorb(state, frontier)
        found = state.backend.xp.empty(stripe.words_local, np.uint32)
        searched, discovered, degrees = state.backend.bottom_up(scratch, state.labels, level + 1, found)
        scratch.advance(discovered)
        counts.bottom_up = True
        counts.edges = searched
        counts.own = counts.discovered = discovered
        counts.filtered = searched - discovered
        counts.bytes_sent = found.nbytes * (stripe.p - 1)
    return _part(state, level + 1, discovered, degrees, searched, found)


def absorb(state: TraversalState, frontier: Sequence[FrontierPart]) -> None:
    """Assemble the frontier's bitmap from all ranks' slices, and mark the frontier visited."""
    scratch, words = state.scratch, state.partition.stripe.words_local
    for part in frontier:
        assert part.bits is not None
        assert scratch.frontier_bits is not None
        own = slice(part.source * words, (part.source + 1) * words)
        state.backend.absorb(part.bits, scratch.frontier_bits[own], scratch.visited[own])


def edges_traversed(state: TraversalState) -> tuple[int, int]:
    """Return the vertices reached on this rank, and the sum of their degrees.

    Summed over the ranks, the degrees are the directed edges of the traversed component.
    """
    reached = state.backend.xp.flatnonzero(state.labels.distances >= 0).astype(np.uint32)
    return reached.size, state.backend.edge_count(state.partition, reached)


def _part(
    state: TraversalState, level: int, count: int, degrees: int, searched: int, bits: NDArray[np.uint32] | None
) -> FrontierPart:
    missing = state.targets_missing() if state.spec.targets else 0
    return FrontierPart(state.spec.run_id, level, state.rank, count, degrees, missing, searched, bits)


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

"""A window of the taskgraph engine: consecutive small levels as one task on each rank.

A Dask task takes the scheduler and the worker milliseconds, and a small level microseconds. So small levels share a
task. After each level every rank sends its bins and counts to rank 0 in one letter. Rank 0 adds up the counts, decides
whether the window goes on, and sends each rank the bins for its own vertices: 2 (p - 1) letters a level.

The window ends with the last small level, so no level runs past the end of a traversal. The client reads the same
barriers as of other levels.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from dbfs_workers.levels import phases
from dbfs_workers.levels.bins import Bin
from dbfs_workers.levels.direction import bottom_up_may_pay
from dbfs_workers.levels.state import TraversalState
from dbfs_workers.tasks.barriers import Barrier, RankCounts, keep
from dbfs_workers.tasks.mail import Post, receive, send
from dbfs_workers.tasks.taskgraph import MOST_EDGES, make_bins, share_frontier

MOST_LEVELS: Final = 16
"""Most levels of a window, so that Dask's dashboard shows the traversal's course."""


@dataclass(frozen=True)
class SmallLevels:
    """The rule for levels that may run in a window. The client and rank 0 apply it to the same counts.

    The size of a frontier that may turn the traversal bottom-up is known after an exact count only, which a window does
    not make. Such a level is not small.

    Attributes:
        fuse_below: a small level starts with fewer vertices.
        adaptive: whether the traversal may turn bottom-up.
        n: vertices of the graph.
        max_degree: the graph's largest degree.
        unexplored_edges: sum of the degrees of vertices that no level expanded.
        search_share: see ``bottom_up_may_pay``.
    """

    fuse_below: int
    adaptive: bool
    n: int
    max_degree: int
    unexplored_edges: int
    search_share: float

    def include(self, found: int) -> bool:
        """Return whether a level is small that expands at most ``found`` vertices."""
        if found >= self.fuse_below:
            return False
        most = min(found * self.max_degree, self.n)
        turns = bottom_up_may_pay(most, self.max_degree, self.unexplored_edges, self.n, self.search_share)
        return not (self.adaptive and turns)

    def after(self, barrier: Barrier) -> "SmallLevels":
        """Return the rule after one more level."""
        return replace(self, unexplored_edges=self.unexplored_edges - barrier.edges)


async def run_window(
    traversal: TraversalState,
    run_id: str,
    first: int,
    most: int,
    small: SmallLevels,
    post: Post,
    share: bool,
    _after: object,
) -> None:
    """Run small levels until one is not small, or no vertex was found.

    Args:
        traversal: the state.
        run_id: the run.
        first: the first level, which is small.
        most: most levels to run.
        small: the rule for further levels.
        post: the ranks' addresses.
        share: see ``expand_filter_partition``.
    """
    if share:
        await share_frontier(traversal, first, post)
    rank = traversal.rank
    for level in range(first, first + most):
        bins = await make_bins(traversal, run_id, level)
        counts = traversal.levels[level]
        own = RankCounts(counts.frontier, counts.edges, counts.own + counts.sent)
        # A rank keeps its bin for itself.
        others = tuple(None if made.target == rank else made for made in bins)
        await send(post, run_id, 0, ("counts", level, rank), (own, others))
        if rank == 0:
            barrier = await _pass_on(traversal, run_id, level, level + 1 == first + most, small, post)
            small = small.after(barrier)
        received: list[Bin | None]
        received, last = await receive(post, run_id, rank, ("bins", level))
        await _contract(traversal, run_id, level, [bins[rank], *(made for made in received if made is not None)])
        if last:
            break


async def _pass_on(
    traversal: TraversalState, run_id: str, level: int, at_end: bool, small: SmallLevels, post: Post
) -> Barrier:
    """Receive all ranks' bins and counts, and send each rank its bins. Runs on rank 0."""
    ranks = range(len(post.addresses))
    letters = [await receive(post, run_id, 0, ("counts", level, rank)) for rank in ranks]
    barrier = Barrier.total(counts for counts, _ in letters)
    on = not at_end and barrier.count > 0 and small.after(barrier).include(barrier.count)
    barrier = replace(barrier, last=not on)
    for rank in ranks:
        await send(post, run_id, rank, ("bins", level), ([bins[rank] for _, bins in letters], barrier.last))
    keep(traversal, level, barrier)
    return barrier


async def _contract(traversal: TraversalState, run_id: str, level: int, bins: list[Bin]) -> None:
    if sum(made.rows.size for made in bins) > MOST_EDGES:
        await asyncio.to_thread(phases.contract, traversal, run_id, level, bins)
    else:
        phases.contract(traversal, run_id, level, bins)

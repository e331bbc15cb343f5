"""A window of the taskgraph engine: consecutive small levels as one task on each rank.

A Dask task takes the scheduler and the worker milliseconds, and a small level microseconds. So small levels share a
task. After each level every rank sends its bins and counts to rank 0 in one letter. Rank 0 adds up the counts, decides
whether the window goes on, and sends each rank the bins for its own vertices: 2 (p - 1) letters a level.

Bins of several ranks may hold the same vertex. If the next level depends on the exact count of its frontier, because it
may be bottom-up or because the traversal has targets, the ranks count once the bins are contracted: 2 (p - 1) letters
more.

The window ends with the last level that is small and top-down, so no level runs past the end of a traversal. The client
reads the same barriers as of other levels.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from dbfs_workers.levels import phases
from dbfs_workers.levels.bins import Bin
from dbfs_workers.levels.direction import bottom_up_may_pay, bottom_up_pays
from dbfs_workers.levels.state import TraversalState
from dbfs_workers.tasks.barriers import Barrier, RankCounts, keep, receive_counts
from dbfs_workers.tasks.mail import Post, receive, send
from dbfs_workers.tasks.taskgraph import MOST_EDGES, make_bins, send_counts, share_frontier

MOST_LEVELS: Final = 16
"""Most levels of a window, so that Dask's dashboard shows the traversal's course."""


@dataclass(frozen=True)
class SmallLevels:
    """The rule for levels that run in a window. The client and rank 0 apply it to the same counts.

    Attributes:
        fuse_below: a small level starts with fewer vertices.
        adaptive: whether the traversal may turn bottom-up.
        targets: whether the traversal ends when all of its targets have labels.
        n: vertices of the graph.
        max_degree: the graph's largest degree.
        unexplored_edges: sum of the degrees of vertices that no level expanded.
        search_share: see ``bottom_up_may_pay``.
    """

    fuse_below: int
    adaptive: bool
    targets: bool
    n: int
    max_degree: int
    unexplored_edges: int
    search_share: float

    def include(self, found: int) -> bool:
        """Return whether a level is small that expands at most ``found`` vertices."""
        return found < self.fuse_below

    def need_count(self, barrier: Barrier) -> bool:
        """Return whether the next level depends on the exact count of its frontier, which the barrier lacks."""
        left = self.unexplored_edges - barrier.edges
        may_turn = self.adaptive and bottom_up_may_pay(barrier.count, self.max_degree, left, self.n, self.search_share)
        return barrier.count > 0 and (self.targets or may_turn)

    def go_on(self, barrier: Barrier) -> bool:
        """Return whether there is a next level, which is small and top-down."""
        if not barrier.count or not self.include(barrier.count):
            return False
        if not barrier.counted:
            return True
        left = self.unexplored_edges - barrier.edges - barrier.degrees
        turns = self.adaptive and bottom_up_pays(barrier.degrees, barrier.edges, left, self.n, self.search_share)
        return not turns and not (self.targets and not barrier.missing)

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
    """Run small levels until the next one is not small or not top-down, or there is none.

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
        at_end = level + 1 == first + most
        bins = await make_bins(traversal, run_id, level)
        counts = traversal.levels[level]
        own = RankCounts(counts.frontier, counts.edges, counts.own + counts.sent)
        # A rank keeps its bin for itself.
        others = tuple(None if made.target == rank else made for made in bins)
        await send(post, run_id, 0, ("bins made", level, rank), (own, others))
        if rank == 0:
            await _pass_on(traversal, level, small, post, at_end=at_end)
        received: list[Bin | None]
        received, counted, last = await receive(post, run_id, rank, ("bins", level))
        await _contract(traversal, run_id, level, [bins[rank], *(made for made in received if made is not None)])
        if counted:
            part = phases.measure(traversal, level + 1, bits=False)
            await send_counts(traversal, level, part, post, counts.frontier, counts.edges)
            if rank == 0:
                await _decide(traversal, level, small, post, at_end=at_end)
            last = await receive(post, run_id, rank, ("last", level))
        if last:
            break
        if rank == 0:
            small = small.after(traversal.barriers[level])


async def _pass_on(traversal: TraversalState, level: int, small: SmallLevels, post: Post, *, at_end: bool) -> None:
    """Receive all ranks' bins and counts, and send each rank its bins. Runs on rank 0.

    If the next level does not depend on the exact count of its frontier, the counts are the level's barrier.
    """
    run_id, ranks = traversal.spec.run_id, range(len(post.addresses))
    letters = [await receive(post, run_id, 0, ("bins made", level, rank)) for rank in ranks]
    barrier = replace(Barrier.total(counts for counts, _ in letters), counted=False)
    counted = small.need_count(barrier)
    barrier = replace(barrier, last=at_end or not small.go_on(barrier))
    for rank in ranks:
        content = ([bins[rank] for _, bins in letters], counted, barrier.last)
        await send(post, run_id, rank, ("bins", level), content)
    if not counted:
        keep(traversal, level, barrier)


async def _decide(traversal: TraversalState, level: int, small: SmallLevels, post: Post, *, at_end: bool) -> None:
    """Receive all ranks' exact counts of a level, and send whether the level is the window's last. Runs on rank 0."""
    barrier = await receive_counts(traversal.spec.run_id, level, post)
    barrier = replace(barrier, last=at_end or not small.go_on(barrier))
    for rank in range(len(post.addresses)):
        await send(post, traversal.spec.run_id, rank, ("last", level), barrier.last)
    keep(traversal, level, barrier)


async def _contract(traversal: TraversalState, run_id: str, level: int, bins: list[Bin]) -> None:
    if sum(made.rows.size for made in bins) > MOST_EDGES:
        await asyncio.to_thread(phases.contract, traversal, run_id, level, bins)
    else:
        phases.contract(traversal, run_id, level, bins)

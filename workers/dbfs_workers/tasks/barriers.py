"""The barrier of a level of the taskgraph engine: the sums of the ranks' counts, which the client reads on rank 0.

The client asks rank 0's worker for a barrier while the level runs, and gets the answer as soon as the barrier is
there. By ``Client.gather`` the counts would take the way through the scheduler, after Dask's notice that the task is
done.
"""

import asyncio
import time
from dataclasses import dataclass, fields

from dbfs_workers.levels.state import TraversalState
from dbfs_workers.tasks.mail import Post, receive, send, state_of


@dataclass(frozen=True)
class RankCounts:
    """One rank's counts of a level.

    Attributes:
        expanded: vertices of the rank's frontier in a top-down level; 0 in a bottom-up level.
        edges: edges inspected in a top-down level; 0 in a bottom-up level.
        count: vertices of the rank's next frontier. If its bins are not contracted yet, the vertices in the bins that
            this rank made, its own included; another rank may have binned the same vertices.
        degrees: sum of the next frontier's degrees; 0 if the bins are not contracted.
        missing: targets of this rank without a label; 0 if the bins are not contracted.
        searched: edges that a bottom-up level looked at.
    """

    expanded: int
    edges: int
    count: int
    degrees: int = 0
    missing: int = 0
    searched: int = 0


@dataclass(frozen=True)
class Barrier:
    """The sums over the ranks of one level's counts. It exists once every rank has finished the level.

    Attributes:
        expanded, edges, count, degrees, missing, searched: sums of ``RankCounts``. A ``count`` of 0 ends the traversal.
        at: when the barrier was reached, in seconds of rank 0's ``time.perf_counter()``.
    """

    expanded: int
    edges: int
    count: int
    degrees: int
    missing: int
    searched: int
    at: float


# By run id and level, the barriers that clients wait for. Barriers and their readers share the worker's event loop.
_awaited: dict[tuple[str, int], asyncio.Future[Barrier]] = {}


async def reach(traversal: TraversalState, level: int, post: Post, pass_on: bool, _after: object) -> Barrier:
    """Receive all ranks' counts of a level, and sum them. Runs on rank 0.

    Args:
        traversal: rank 0's state, which keeps the barrier for ``read_barrier``.
        level: the level.
        post: the ranks' addresses.
        pass_on: whether the ranks sent their bins along, of which each rank gets those for its own vertices now.
    """
    run_id, ranks = traversal.spec.run_id, range(len(post.addresses))
    letters = [await receive(post, run_id, 0, ("counts", level, rank)) for rank in ranks]
    found: list[RankCounts] = [counts for counts, _ in letters]
    if pass_on:
        for rank in ranks:
            await send(post, run_id, rank, ("bins", level), [bins[rank] for _, bins in letters])
    sums = {field.name: sum(getattr(counts, field.name) for counts in found) for field in fields(RankCounts)}
    barrier = Barrier(**sums, at=time.perf_counter())
    traversal.barriers[level % 2] = (level, barrier)
    reader = _awaited.get((run_id, level))
    if reader is not None and not reader.done():
        reader.set_result(barrier)
    return barrier


async def read_barrier(run_id: str, level: int, seconds: float) -> Barrier | None:
    """Return a level's barrier; None if it is not there within ``seconds``.

    The counts of the last two levels can be read.
    """
    traversal = state_of(run_id, 0)
    kept = None if traversal is None else traversal.barriers[level % 2]
    if kept is not None and kept[0] == level:
        barrier: Barrier = kept[1]
        return barrier
    key = (run_id, level)
    reader = _awaited.setdefault(key, asyncio.get_running_loop().create_future())
    try:
        return await asyncio.wait_for(asyncio.shield(reader), seconds)
    except TimeoutError:
        return None
    finally:
        _awaited.pop(key, None)

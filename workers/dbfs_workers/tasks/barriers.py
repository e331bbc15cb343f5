"""The barrier of a level of the taskgraph engine: the sums of the ranks' counts, which the client reads on rank 0.

The client asks rank 0's worker for barriers while levels run, and gets the answer as soon as a barrier exists.
``Client.gather`` would fetch the counts through the scheduler, after Dask's notice that the task is done.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

from dbfs_workers.levels.state import TraversalState
from dbfs_workers.tasks.mail import Post, receive, state_of

# Seconds that an answer may wait for further barriers of the same window. An answer takes client and rank 0 about a
# millisecond, which is as long as a short level of a window.
_TOGETHER: Final = 0.05


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
        last: whether the level is the last of its tasks.
        counted: whether ``count`` is exact. Else several ranks may have counted the same vertex, and ``degrees`` and
            ``missing`` are 0.
    """

    expanded: int
    edges: int
    count: int
    degrees: int
    missing: int
    searched: int
    at: float
    last: bool = True
    counted: bool = True

    @classmethod
    def total(cls, counts: Iterable[RankCounts]) -> "Barrier":
        """Return the sums of the ranks' counts."""
        found = list(counts)
        sums = {field.name: sum(getattr(each, field.name) for each in found) for field in fields(RankCounts)}
        return cls(**sums, at=time.perf_counter())


# By run id, the client's wait for news of rank 0's barriers. Barriers and their readers share the worker's event loop.
_readers: dict[str, asyncio.Future[None]] = {}


def keep(traversal: TraversalState, level: int, barrier: Barrier) -> None:
    """Keep a level's barrier in rank 0's state, for ``read_barriers``."""
    assert len(traversal.barriers) == level
    traversal.barriers.append(barrier)
    reader = _readers.pop(traversal.spec.run_id, None)
    if reader is not None and not reader.done():
        reader.set_result(None)


async def reach(traversal: TraversalState, level: int, post: Post, _after: object) -> Barrier:
    """Receive all ranks' counts of a level, and sum them. Runs on rank 0."""
    barrier = await receive_counts(traversal.spec.run_id, level, post)
    keep(traversal, level, barrier)
    return barrier


async def receive_counts(run_id: str, level: int, post: Post) -> Barrier:
    """Receive all ranks' exact counts of a level, and sum them. Runs on rank 0."""
    return Barrier.total(
        [await receive(post, run_id, 0, ("counts", level, rank)) for rank in range(len(post.addresses))]
    )


async def read_barriers(run_id: str, level: int, seconds: float) -> list[Barrier]:
    """Return the barriers of a level and of those after it so far; none if the first is not there within ``seconds``.

    Barriers of one window are returned together, as far as they follow within ``_TOGETHER`` seconds.
    """
    loop = asyncio.get_running_loop()
    end, soon = loop.time() + seconds, loop.time() + _TOGETHER
    while True:
        traversal = state_of(run_id, 0)
        barriers: list[Barrier] = [] if traversal is None else traversal.barriers[level:]
        left = (soon if barriers else end) - loop.time()
        if left <= 0 or (barriers and barriers[-1].last):
            return barriers
        # The state must not outlive the traversal because a client waits.
        del traversal
        reader = _readers.setdefault(run_id, loop.create_future())
        try:
            await asyncio.wait({reader}, timeout=left)
        finally:
            # No barrier is kept any more if the run has ended.
            _readers.pop(run_id, None)

"""The traversals of a run on one rank, one after another, and what another thread may see of them meanwhile."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import (
    DeadlineExceededError,
    RunAbortedError,
    RunCancelledError,
    WorkerLostError,
)
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.search.exchange.protocol import Cause, Exchange
from dbfs_workers.search.reports import RankProgress, RankRun


def never() -> bool:
    """Return False: the run does not stop early."""
    return False


class Frontier(Protocol):
    """The part of a rank's working memory that shows the frontier."""

    @property
    def frontier(self) -> NDArray[np.uint32]:
        """The rank's vertices at the current distance."""
        ...


class Traversal(Protocol):
    """One traversal on one rank."""

    @property
    def level(self) -> int:
        """The level in progress, or the next one."""
        ...

    @property
    def bottom_up(self) -> bool:
        """The direction of that level."""
        ...

    @property
    def reached(self) -> int:
        """Vertices of this rank labelled so far."""
        ...

    @property
    def completed(self) -> int:
        """Of a batch, sources over all ranks that are completed before the batch is."""
        ...

    @property
    def scratch(self) -> Frontier:
        """The rank's working memory."""
        ...

    def run(self, stops: bool = False) -> bool:
        """Run all levels.

        Args:
            stops: whether the run is to stop before this traversal. The value of rank 0 counts.

        Returns:
            False if the run stops here. Only a traversal of ``loop.LevelLoop`` can stop.
        """
        ...

    def result(self) -> RankRun:
        """Return the labels, counts and times of this rank. Called once, after ``run`` or after later traversals."""
        ...


class Watch:
    """Shows another thread how far a run is. That thread reads the loop's own fields, at no cost to the loop.

    Args:
        number: the gang's serial number of the run.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._in_progress: tuple[int, Traversal] | None = None

    def show(self, index: int, traversal: Traversal) -> None:
        """Show the traversal that begins; ``index`` is its place in the run."""
        self._in_progress = (index, traversal)

    def end(self) -> None:
        """Show no traversal any more. Else the last one's labels would not be freed before the next run begins."""
        self._in_progress = None

    def progress(self) -> RankProgress | None:
        """Return how far the run is; None before its first traversal, and after the last."""
        in_progress = self._in_progress
        if in_progress is None:
            return None
        index, traversal = in_progress
        frontier = traversal.scratch.frontier.size
        level, bottom_up, reached = traversal.level, traversal.bottom_up, traversal.reached
        return RankProgress(index, level, bottom_up, frontier, reached, traversal.completed)


def traverse_each(
    start: Callable[[Sequence[TraversalSpec]], Sequence[Traversal]],
    specs: Sequence[TraversalSpec],
    exchange: Exchange,
    *,
    watch: Watch,
    deadline: float,
    ahead: int = 1,
    stops: Callable[[], bool] = never,
) -> list[RankRun]:
    """Take part in the traversals of a run, one after another. Every rank calls this with the same specs and number.

    Args:
        start: makes some traversals ready.
        specs: the traversals; all of one run id.
        exchange: this rank's end of the gang's exchange.
        watch: shows how far the run is. Its number is the gang's serial number of the run: see ``Exchange.begin``.
        deadline: end of all waits, in seconds of ``time.monotonic()``.
        ahead: number of traversals that are made ready together, and whose results are made together. Between two
            traversals Python's own code and data are no longer in the caches, and each step takes five times as long.
        stops: returns whether the run is to stop before the next traversal, on rank 0. The first one is always made.

    Returns:
        The traversals that were made: all of them, or those before the run stopped.

    Raises:
        DeadlineExceededError, RunCancelledError, RunAbortedError, WorkerLostError, StaleRunError: the run is over on
            every rank; the exchange serves the next one.
        Exception: ``start`` or the traversal raised it; the run is aborted on every rank.
    """
    # Outside of the try: a start that came twice must not abort the run that the first one started.
    exchange.begin(specs[0].run_id, watch.number, deadline)
    try:
        runs: list[RankRun] = []
        for first in range(0, len(specs), ahead):
            traversals = start(specs[first : first + ahead])
            for index, traversal in enumerate(traversals, first):
                watch.show(index, traversal)
                if not traversal.run(index > 0 and stops()):
                    return runs + [made.result() for made in traversals[: index - first]]
            runs += [traversal.result() for traversal in traversals]
        return runs
    except (DeadlineExceededError, RunCancelledError, RunAbortedError, WorkerLostError):
        raise
    except BaseException as error:
        # The peers would wait for this rank until the deadline.
        exchange.abort(watch.number, Cause.FAILED, f"{type(error).__name__}: {error}")
        raise
    finally:
        watch.end()

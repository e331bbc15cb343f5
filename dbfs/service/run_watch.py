"""How the service keeps up with a run: it asks the ranks where they are, but only of runs that last.

A traversal may take a millisecond, and what it must not wait for is its own progress. So the ranks are asked for the
first time when a run has lasted ``EVERY`` seconds, by a message to each worker's event loop, which reads what the
traversing thread leaves in memory anyway.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from dbfs.records import RunProgress
from dbfs.service.entries import RunEntry
from dbfs_workers.reports import RunPosition
from dbfs_workers.spec import direction_name

# Seconds between two looks, of a gang of many ranks so many for each. Measured with 4 ranks on 2 busy cores: a look
# takes 2 ms of the scheduler's time and 0.8 ms of each worker's event loop.
EVERY = 0.25
_A_RANK = 0.01
# Seconds. A stopped worker does not answer, and the others' answers grow old.
_PATIENCE = 1.0

Ask = Callable[..., Awaitable[Any]]


class RunWatch:
    """Looks at one run from time to time, until it is stopped.

    Args:
        run: what to look at; a look leaves ``run.progress``.
        ask: calls a handler of a worker: ``ask(address, operation, **message)``.
    """

    def __init__(self, run: RunEntry, ask: Ask) -> None:
        self._run = run
        self._ask = ask
        self._every = max(EVERY, _A_RANK * len(run.workers))
        self._looking: asyncio.Task[None] | None = None
        # A timer costs a run that is over at once next to nothing; a task would cost it more.
        self._timer = asyncio.get_running_loop().call_later(self._every, self._begin)

    def stop(self) -> None:
        """The run is over."""
        self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def _begin(self) -> None:
        self._looking = asyncio.ensure_future(self._look_again())

    async def _look_again(self) -> None:
        while True:
            await look(self._run, self._ask)
            await asyncio.sleep(self._every)


async def look(run: RunEntry, ask: Ask) -> None:
    """Ask the ranks where a run is. What is known stays where it is not under way on all of them."""
    graph_id, addresses = run.graph.record.graph_id, run.graph.record.addresses

    async def question(address: str) -> Any:
        # Asked in here: a look that is cancelled before it began leaves no question that nobody awaits.
        return await asyncio.wait_for(ask(address, "dbfs_position", graph_id=graph_id, number=run.number), _PATIENCE)

    answers = await asyncio.gather(*map(question, addresses), return_exceptions=True)
    # A rank that is lost, or does not answer, ends the run elsewhere, with an error of its own.
    if all(isinstance(answer, RunPosition) for answer in answers):
        run.note(_sum(run, answers))


def _sum(run: RunEntry, positions: list[Any]) -> RunProgress:
    # One that is ahead has counted more; those behind are about to.
    ahead: RunPosition = max(positions, key=lambda position: (position.traversal, position.level))
    same = [position for position in positions if position.traversal == ahead.traversal]
    return RunProgress(
        traversals=run.traversals,
        finished=ahead.traversal,
        level=ahead.level,
        direction=direction_name(ahead.bottom_up),
        frontier=sum(position.frontier for position in same),
        reached=sum(position.reached for position in same),
        seconds=time.time() - (run.started or run.queued),
    )

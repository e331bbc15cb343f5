"""The queue of runs by itself: which runs start, and when."""

import asyncio
from types import SimpleNamespace
from typing import Any

from dbfs.service.entries import RunEntry
from dbfs.service.history import History
from dbfs.service.queue import RunQueue


def waiting(name: str, workers: str) -> RunEntry:
    """A run of a gang whose workers are letters."""
    graph: Any = SimpleNamespace(record=SimpleNamespace(addresses=tuple(workers), name=name), numbers=iter(range(9)))
    return RunEntry(graph, "client", name, 1, 60.0)


def test_no_run_overtakes_one_that_waits_for_its_workers() -> None:
    """Gangs that overlap in part: c could start beside a, but b waits for a worker of c."""

    async def started() -> list[list[str]]:
        queue = RunQueue(History(), lambda run: False)
        a, b, c = waiting("a", "12"), waiting("b", "23"), waiting("c", "34")
        seen = []
        for run in (a, b, c):
            queue.runs.append(run)
            queue.start_runs()
        for over in (a, b, c):
            seen.append([run.run_id for run in queue.runs if run.started is not None])
            queue.runs.remove(over)
            queue.start_runs()
        return seen

    assert asyncio.run(started()) == [["a"], ["b"], ["c"]]

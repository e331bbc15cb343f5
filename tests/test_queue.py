"""The queue of runs on the scheduler, without a cluster: who starts when."""

import asyncio
import itertools
import math
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dask
import pytest

from dbfs.errors import LateError, QueueFullError, WorkerLostError
from dbfs.service.entries import RunEntry
from dbfs.service.leases import Lease, Leases
from dbfs.service.queue import RunQueue
from dbfs_workers.exchange.protocol import Cause
from dbfs_workers.leases.messages import EndLease, LeaseEnd


def run_on(workers: str) -> RunEntry:
    """Return a run of a gang whose workers have one letter each. Called within an event loop."""
    record = SimpleNamespace(addresses=tuple(workers), name=workers)
    graph: Any = SimpleNamespace(record=record, numbers=itertools.count(1), require_whole=lambda: None)
    return RunEntry(graph, "client", f"run on {workers}", 1, 5.0)


def queue(revoke: Callable[[RunEntry], bool] = lambda _: False) -> RunQueue:
    """Return an empty queue, which keeps no history."""
    history: Any = SimpleNamespace(fail=lambda run, error: None)
    return RunQueue(history, revoke)


def started(runs: list[RunEntry]) -> list[bool]:
    """Return which of some runs have started."""
    return [run.started is not None for run in runs]


def test_no_run_overtakes_one_that_waits_for_the_same_worker() -> None:
    async def check() -> None:
        waiting, runs = queue(), [run_on(workers) for workers in ("ab", "bc", "cd", "e")]
        waiting.runs += runs
        waiting.start_runs()
        # The third run's workers are free, but the second one waits for one of them.
        assert started(runs) == [True, False, False, True]
        waiting.runs.remove(runs[0])
        waiting.start_runs()
        assert started(runs) == [True, True, False, True]

    asyncio.run(check())


def test_no_run_overtakes_one_that_waits_for_the_end_of_a_lease() -> None:
    async def check() -> None:
        runs = [run_on(workers) for workers in ("ab", "bc", "d")]
        waiting = queue(lambda run: run is runs[0])
        waiting.runs += runs
        waiting.start_runs()
        assert started(runs) == [False, False, True]

    asyncio.run(check())


@pytest.mark.parametrize("error", [None, ValueError("the run fails")])
def test_the_end_of_a_run_starts_the_next(error: Exception | None) -> None:
    async def check() -> None:
        waiting, first, second = queue(), run_on("ab"), run_on("bc")

        async def take(run: RunEntry) -> None:
            async with waiting.turn(run):
                pass

        try:
            async with waiting.turn(first):
                following = asyncio.ensure_future(take(second))
                await asyncio.sleep(0)
                assert second.started is None
                if error is not None:
                    raise error
        except ValueError:
            pass
        assert second.started is not None
        await following
        assert waiting.runs == []

    asyncio.run(check())


def test_as_many_runs_wait_as_the_configuration_allows() -> None:
    async def check() -> None:
        waiting, runs = queue(), [run_on("a") for _ in range(3)]
        waiting.runs += runs
        waiting.start_runs()
        with pytest.raises(QueueFullError, match="run late: as many runs wait as dbfs.service.waiting-runs allows, 2"):
            waiting._require_place("late")
        waiting.runs.remove(runs[2])
        waiting._require_place("in time")

    with dask.config.set({"dbfs.service.waiting-runs": 2}):
        asyncio.run(check())


@pytest.mark.parametrize(
    ("cause", "error", "asked", "number", "recovers"),
    [
        (None, LateError("no answer"), 3, 7, False),
        (Cause.CANCELLED, LateError("no answer"), 1, 5 + (1 << 20), True),
        (None, WorkerLostError("rank 0 left"), 1, 5 + (1 << 20), True),
    ],
    ids=["to end", "stopped", "lost"],
)
def test_a_lease_that_is_not_stopped_lasts_until_rank_0_answers(
    cause: Cause | None, error: Exception, asked: int, number: int, recovers: bool
) -> None:
    """A rank 0 that is stopped may still make its part when it goes on: the gang is not another run's before."""
    endings: list[EndLease] = []

    async def call(address: str, ending: EndLease, seconds: float) -> LeaseEnd:
        endings.append(ending)
        if len(endings) < 3:
            raise error
        return LeaseEnd(7, failed=False)

    async def end() -> None:
        record = SimpleNamespace(graph_id="id", addresses=("a", "b"))
        graph: Any = SimpleNamespace(record=record, numbers=itertools.count(1), recovers=True, doors=())
        workers: Any = SimpleNamespace(call=call)
        history: Any = None
        leases = Leases(workers, [], history, lambda: None)
        lease = leases._held["id"] = Lease(graph, "me", 1, 5)
        await leases._end(lease, EndLease("id", 1, cause))
        assert leases._held == {}
        assert (len(endings), next(graph.numbers), graph.must_recover) == (asked, number, recovers)

    asyncio.run(end())


def test_a_run_under_a_lease_holds_up_no_run() -> None:
    async def check() -> None:
        waiting, runs = queue(), [run_on("ab"), run_on("bc")]
        runs[0].under_lease = True
        waiting.runs += runs
        waiting.start_runs()
        assert started(runs) == [False, True]

    asyncio.run(check())


def test_a_single_traversal_gets_no_lease_while_clients_take_turns() -> None:
    asked: list[str] = []

    async def call(address: str, message: Any) -> None:
        asked.append(address)
        raise LateError("no answer")

    async def grant() -> None:
        workers: Any = SimpleNamespace(until=lambda end: call)
        history: Any = None
        leases, run = Leases(workers, [], history, lambda: None), run_on("ab")
        graph = run.graph
        graph.record.graph_id, graph.doors, graph.leasable, graph.last_client = "id", None, True, "another"
        for revoked, calls in ((-math.inf, 0), (time.monotonic(), 0), (-math.inf, 1)):
            graph.revoked = revoked
            assert await leases.grant(run) is None
            assert len(asked) == calls

    asyncio.run(grant())

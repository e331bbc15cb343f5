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

from dbfs.errors import (
    DbfsError,
    ExchangeUnavailableError,
    LateError,
    QueueFullError,
    RunCancelledError,
    StaleRunError,
    UnreachableError,
    WorkerLostError,
)
from dbfs.service.entries import DirectRun, QueuedRun
from dbfs.service.queue import RunQueue
from dbfs.service.turns import Turn, Turns
from dbfs.service.worker_calls import all_answers, require_reach
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.serving.messages import GetHost, WorkerMessage
from dbfs_workers.serving.rpc import PickledValue
from dbfs_workers.serving.turns.messages import BeginTurn, BegunTurn, EndTurn, TurnEnd
from dbfs_workers.serving.turns.requests import Answer


class Graph(SimpleNamespace):
    """A graph's entry, of which sets have one for each object."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # its base can not be hashed
    __eq__ = object.__eq__


def run_on(workers: str) -> QueuedRun:
    """Return a run of a gang whose workers have one letter each. Called within an event loop."""
    record = SimpleNamespace(addresses=tuple(workers), name=workers)
    graph: Any = Graph(record=record, numbers=itertools.count(1), require_whole=lambda: None, stuck=False)
    return QueuedRun(graph, "client", f"run on {workers}", 1, 5.0)


def run_graph() -> Any:
    """Return a graph on one worker."""
    record = SimpleNamespace(graph_id="id", addresses=("a",), name="graph", order_key=None)
    return SimpleNamespace(
        record=record,
        numbers=itertools.count(1),
        lines=0,
        last_client="",
        revoked=-math.inf,
        must_recover=False,
        recovers=False,
        stuck=False,
        runs=0,
    )


def queue(revoke: Callable[[QueuedRun], bool] = lambda _: False) -> RunQueue:
    """Return an empty queue, which keeps no history."""
    history: Any = SimpleNamespace(fail=lambda run, error: None)
    return RunQueue(history, revoke)


def started(runs: list[QueuedRun]) -> list[bool]:
    """Return which of some runs have started."""
    return [run.started is not None for run in runs]


def test_a_run_that_waits_for_a_late_rank_holds_up_its_own_graph_only() -> None:
    async def check() -> None:
        waiting, runs = queue(), [run_on(workers) for workers in ("ab", "bc", "bc", "cd")]
        runs[2].graph = runs[1].graph
        waiting.runs += runs
        waiting.start_runs()
        assert started(runs) == [True, False, False, False]
        # Worker a is late.
        runs[0].graph.stuck = True
        waiting.start_runs()
        assert started(runs) == [True, True, False, False]
        # And then d, but the last run is behind another one's worker c.
        runs[3].graph.stuck = True
        waiting.start_runs()
        assert started(runs) == [True, True, False, False]
        # Nor do two runs of one graph start at once.
        runs[1].graph.stuck = True
        waiting.start_runs()
        assert started(runs) == [True, True, False, True]

    asyncio.run(check())


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


def test_no_run_overtakes_one_that_waits_for_the_end_of_a_turn() -> None:
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

        async def take(run: QueuedRun) -> None:
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
        waiting, runs, late = queue(), [run_on("a") for _ in range(3)], run_on("b")
        waiting.runs += runs
        waiting.start_runs()
        with pytest.raises(QueueFullError, match="run on b: as many runs wait as dbfs.service.waiting-runs allows, 2"):
            waiting._require_place(late)
        waiting.runs.remove(runs[2])
        waiting._require_place(late)

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
def test_a_turn_that_is_not_stopped_lasts_until_rank_0_answers(
    cause: Cause | None, error: Exception, asked: int, number: int, recovers: bool
) -> None:
    """A rank 0 that is stopped may still make its part when it goes on: the gang is not another run's before."""
    endings: list[EndTurn] = []

    async def call(address: str, ending: EndTurn, seconds: float) -> TurnEnd:
        endings.append(ending)
        if len(endings) < 3:
            raise error
        return TurnEnd(7, failed=False)

    async def end() -> None:
        record = SimpleNamespace(graph_id="id", addresses=("a", "b"))
        graph: Any = SimpleNamespace(record=record, numbers=itertools.count(1), recovers=True, lines=1)
        workers: Any = SimpleNamespace(call=call)
        history: Any = None
        turns = Turns(workers, history, lambda: None)
        turn = turns._held["id"] = Turn(graph, "me", 1, 5)
        await turns._end(turn, turn.message(cause))
        assert turns._held == {}
        assert turn.over.done()
        assert (len(endings), next(graph.numbers), graph.must_recover) == (asked, number, recovers)

    asyncio.run(end())


def test_a_run_in_its_clients_turn_holds_up_no_run() -> None:
    async def check() -> None:
        waiting, run = queue(), run_on("bc")
        direct = DirectRun(run_on("ab").graph, "another", "sent directly", 1, time.time())
        async with waiting.turn(run, [direct]):
            assert run.started is not None
        assert run.behind == "run sent directly"

    asyncio.run(check())


def led_by(answer: Callable[[BeginTurn], BegunTurn | Exception]) -> tuple[Turns, list[WorkerMessage[Any]]]:
    """Return the turns of a scheduler whose rank 0 answers with ``answer``, and the messages that it gets."""
    sent: list[WorkerMessage[Any]] = []

    async def call(address: str, message: Any, seconds: float) -> Any:
        sent.append(message)
        if isinstance(message, BeginTurn):
            begun = answer(message)
            if isinstance(begun, Exception):
                raise begun
            return begun
        return TurnEnd(9, failed=False)

    def until(end: float) -> Any:
        return lambda address, message: call(address, message, end)

    workers: Any = SimpleNamespace(call=call, until=until)
    history: Any = None
    return Turns(workers, history, lambda: None), sent


def well(message: BeginTurn) -> BegunTurn:
    """Answer as a rank 0 does that has made the work, if there was any."""
    return BegunTurn(("a", 1) if message.token else None, None if message.work is None else Answer((b"",), last=True))


def test_a_single_traversal_leaves_its_client_no_turn_while_clients_take_turns() -> None:
    async def lead() -> None:
        turns, _ = led_by(well)
        for revoked, client, traversals, granted in (
            (-math.inf, "client", 1, False),
            (time.monotonic(), "client", 1, False),
            (-math.inf, "client", 1, True),
            (time.monotonic(), "client", 2, True),
            (-math.inf, "another", 1, False),
        ):
            run = led_run(client, traversals)
            run.graph.revoked = revoked
            led = await turns.lead(run, PickledValue(b""), holds=True)
            assert (led.grant is not None) == granted
            assert (led.answer is None) == (traversals > 1)
            while turns._held and not granted:
                await asyncio.sleep(0)
            turns._held.clear()

    graph = run_graph()

    def led_run(client: str, traversals: int) -> QueuedRun:
        return QueuedRun(graph, client, "run", traversals, 5.0)

    asyncio.run(lead())


@pytest.mark.parametrize(("cause", "error"), [(Cause.CANCELLED, RunCancelledError), (Cause.LOST, WorkerLostError)])
def test_a_run_whose_turn_is_stopped_ends_though_rank_0_does_not_answer(cause: Cause, error: type[DbfsError]) -> None:
    """A stopped rank 0 neither makes the run nor says that the turn is over."""

    async def stop() -> None:
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def call(address: str, message: Any, seconds: float = 0.0) -> Any:
            if isinstance(message, EndTurn):
                raise LateError("no answer")
            return await never

        async def call_all(addresses: Any, message: Any) -> None:
            assert message.cause is cause

        workers: Any = SimpleNamespace(call=call, until=lambda end: call, call_all=call_all)
        history: Any = None
        turns, run = Turns(workers, history, lambda: None), QueuedRun(run_graph(), "client", "run", 1, 60.0)
        run.started = time.time()
        leading = asyncio.ensure_future(turns.lead(run, PickledValue(b""), holds=True))
        while not turns._held:
            await asyncio.sleep(0)
        run.stop(error("lost rank 1"))
        await turns.stop("id", cause, "lost rank 1", 1)
        with pytest.raises(error, match="run run: lost rank 1"):
            await leading
        assert turns._held == {}
        assert run.graph.lines == 0

    asyncio.run(stop())


@pytest.mark.parametrize(
    ("ends", "error", "words"),
    [
        ({1: LateError("silent")}, LateError, "of a run: no answer from rank 1: silent"),
        ({0: LateError("silent"), 1: UnreachableError("gone")}, WorkerLostError, r"of a run: lost rank 1 \(b\)"),
        ({0: LateError("silent"), 1: StaleRunError("over")}, StaleRunError, "over"),
    ],
    ids=["late", "late and lost", "late and refused"],
)
def test_an_error_of_a_call_of_all_ranks_names_the_rank(
    ends: dict[int, Exception], error: type[Exception], words: str
) -> None:
    """A late rank may answer yet, so the error of another one says more."""

    async def call(address: str, message: Any) -> Any:
        if (end := ends.get("ab".index(address))) is not None:
            raise end

    with pytest.raises(error, match=words):
        asyncio.run(all_answers(call, "ab", itertools.repeat(GetHost()), "of a run: "))


def test_each_rank_has_to_reach_the_next_one() -> None:
    asked: list[tuple[str, str]] = []
    closed = {"tcp://10.0.0.3:9"}

    async def call(address: str, message: Any) -> Any:
        asked.append((address, message.address))
        return "refused" if message.address in closed else ""

    ranks = [f"tcp://10.0.0.{host}:9" for host in (1, 2, 3)]
    with pytest.raises(ExchangeUnavailableError) as caught:
        asyncio.run(require_reach(call, ranks))
    assert "rank 1 (tcp://10.0.0.2:9) can't connect to rank 2 at 10.0.0.3, port 9: refused; open the port" in str(
        caught
    )
    assert asked == list(zip(ranks, [*ranks[1:], ranks[0]], strict=True))
    closed.clear()
    asyncio.run(require_reach(call, ranks))
    asyncio.run(require_reach(call, ranks[:1]))

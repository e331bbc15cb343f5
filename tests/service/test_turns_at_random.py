"""Turns on the scheduler in random games: clients that hold, leave and cancel, and ranks that are late.

The scheduler's own classes play on a clock that jumps to the next event. Rank 0 of each gang is a model of
``serving.turns.worker.WorkerTurns``. In each game no two turns hold a worker, each client gets an answer or an error
by the deadline, and nothing is left behind.
"""

import asyncio
import itertools
import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dbfs.errors import DbfsError, LateError, StaleRunError
from dbfs.service.entries import QueuedRun
from dbfs.service.messages import TurnGrant
from dbfs.service.queue import RunQueue
from dbfs.service.scheduler import SchedulerService
from dbfs.service.turns import Turns
from dbfs.service.worker_calls import GRACE_SECONDS
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.serving.rpc import LATE_SECONDS, PickledValue
from dbfs_workers.serving.turns.messages import BeginTurn, BegunTurn, EndTurn, TurnEnd
from dbfs_workers.serving.turns.notes import NotedRun, NoteRuns
from dbfs_workers.serving.turns.requests import REFUSAL, Answer

WORK: PickledValue[Any] = PickledValue(b"")
DEADLINE = 5.0
# Lateness of a rank that is late, at most; longer than what the scheduler waits for any message.
MOST_LATE = 4 * GRACE_SECONDS


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next event."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        loop: Any = self
        if not loop._ready and loop._scheduled:
            self.now = max(self.now, loop._scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]


class Rank0:
    """Rank 0 of one gang: what ``WorkerTurns`` does with the scheduler's messages and a client's runs."""

    def __init__(self, game: "Game", graph: Any) -> None:
        self.game = game
        self.graph = graph
        self.latest = self.current = self.making = self.number = 0
        self.revoked = True
        self.busy = asyncio.Lock()
        self.stop = asyncio.Event()

    async def begin(self, message: BeginTurn) -> BegunTurn:
        self.require_later(message.turn)
        async with self.busy:
            self.require_later(message.turn)
            self.latest = self.current = message.turn
            self.number, self.revoked = message.number, False
            self.stop.clear()
            if message.epoch < message.turn and self.game.dice.random() < 0.1:
                # As a line to another rank broke since the turn before.
                self.revoked = True
                self.stop.set()
        answer = None if message.work is None else await self.make(message.turn)
        return BegunTurn(("door", 1) if message.token else None, answer)

    def require_later(self, turn: int) -> None:
        if turn <= self.latest:
            raise StaleRunError("the turn is over")

    async def make(self, turn: int) -> Answer:
        """Make a run that came in a turn."""
        async with self.busy:
            if self.revoked or turn != self.current:
                return REFUSAL
            self.game.require_alone(self, turn)
            self.making = turn
            self.number += 1
            try:
                async with asyncio.timeout(self.game.dice.choice((0.001, 0.1, 2.0))):
                    await self.stop.wait()
            except TimeoutError:
                pass
            self.making = 0
            return Answer((b"",), last=True, over=self.revoked)

    async def end(self, message: EndTurn) -> TurnEnd:
        if message.cause is not None and self.latest < message.turn:
            self.latest = message.turn
            return TurnEnd(0, failed=False)
        if self.current == message.turn:
            self.revoked = True
            if message.cause is not None:
                self.stop.set()
        async with self.busy:
            return TurnEnd(self.number, failed=self.stop.is_set())


class Game:
    """Clients and gangs that share workers. Also the calls of the scheduler to the workers: see ``WorkerCalls``."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.graphs = [self.graph(name, workers) for name, workers in (("one", "ab"), ("two", "bc"), ("three", "d"))]
        self.ranks = {graph.record.graph_id: Rank0(self, graph) for graph in self.graphs}
        self.history: Any = SimpleNamespace(fail=lambda *_: None, add=lambda *_: None)
        self.queue = RunQueue(self.history, lambda run: self.turns.revoke(run))
        calls: Any = self
        self.turns = Turns(calls, self.history, self.queue.start_runs)
        self.service: Any = SimpleNamespace(_turns=self.turns)
        self.answers = 0
        self.ended_at_once: set[tuple[str, int]] = set()

    @staticmethod
    def graph(name: str, workers: str) -> Any:
        record = SimpleNamespace(graph_id=name, addresses=tuple(workers), name=name, order_key=None)
        rest = {
            "lines": 0,
            "last_client": "",
            "revoked": -math.inf,
            "must_recover": False,
            "recovers": False,
            "stuck": False,
        }
        return SimpleNamespace(record=record, numbers=itertools.count(1), runs=0, require_whole=lambda *_: None, **rest)

    async def call(self, address: str, message: Any, seconds: float) -> Any:
        """Have a worker answer a message, which it may get late: then it carries the message out all the same."""
        if isinstance(message, EndTurn) and message.cause is not None:
            self.ended_at_once.add((message.graph_id, message.turn))
        late = self.dice.random() * (MOST_LATE if self.dice.random() < 0.1 else 0.01)
        answering = asyncio.ensure_future(self.answer(message, late))
        done, _ = await asyncio.wait([answering], timeout=seconds)
        if not done:
            answering.add_done_callback(lambda answer: answer.exception())
            raise LateError("no answer")
        return answering.result()

    async def answer(self, message: Any, late: float) -> Any:
        await asyncio.sleep(late)
        rank = self.ranks[message.graph_id]
        if isinstance(message, BeginTurn):
            return await rank.begin(message)
        if isinstance(message, EndTurn):
            return await rank.end(message)
        return None

    def until(self, end: float) -> Callable[[str, Any], Any]:
        loop = asyncio.get_running_loop()
        return lambda address, message: self.call(address, message, max(1e-3, end - loop.time()))

    async def call_all(self, addresses: Any, message: Any) -> None:
        """Ranks other than 0 have nothing to say."""

    def require_alone(self, rank: Rank0, turn: int) -> None:
        """Check that no other turn uses a worker of a run that begins, unless rank 0 did not answer to its end."""
        held = self.turns._held
        for one, other in itertools.combinations(held.values(), 2):
            assert not set(one.graph.record.addresses) & set(other.graph.record.addresses)
        workers = set(rank.graph.record.addresses)
        mine = held.get(rank.graph.record.graph_id)
        if mine is None or mine.serial != turn:
            # The scheduler gave this turn up, as rank 0 did not answer in time.
            return
        for graph_id, other_rank in self.ranks.items():
            if other_rank is not rank and workers & set(other_rank.graph.record.addresses) and other_rank.making:
                assert (graph_id, other_rank.making) in self.ended_at_once

    async def client(self, name: str) -> None:
        """Make some runs, hold a turn or not, and leave."""
        loop, cancels = asyncio.get_running_loop(), list[asyncio.Future[None]]()
        for index in range(self.dice.randrange(1, 4)):
            await asyncio.sleep(self.dice.random())
            graph, traversals = self.dice.choice(self.graphs), self.dice.choice((1, 3))
            run = QueuedRun(graph, name, f"{name}{index}", traversals, DEADLINE)
            if self.dice.random() < 0.2:
                cancels.append(asyncio.ensure_future(self.cancel(run, self.dice.random())))
            grant = None
            try:
                async with self.queue.turn(run):
                    run.require_going_on()
                    led = await self.turns.lead(run, WORK, holds=self.dice.random() < 0.7)
                    assert (led.answer is None) == (traversals > 1 and led.grant is not None)
                    grant = led.grant
            except DbfsError:
                pass
            self.answers += 1
            # Twice, as the end of a turn that was stopped has a little time to come over.
            assert loop.time() <= run.ends + 2 * LATE_SECONDS + 1e-6
            if grant is not None:
                await self.hold(graph, grant, run)
        await asyncio.gather(*cancels)

    async def hold(self, graph: Any, grant: TurnGrant, run: QueuedRun) -> None:
        """Send runs to rank 0 until it refuses one, or leave."""
        rank = self.ranks[graph.record.graph_id]
        for _ in range(self.dice.randrange(3)):
            await asyncio.sleep(self.dice.random() / 10)
            answer = await rank.make(grant.turn)
            if not answer.ranks:
                return
            ended = NotedRun(run.run_id, 0.0, 1, ended=1.0)
            await self.turns.note_runs(NoteRuns(graph.record.graph_id, grant.turn, (ended,)))
        if self.dice.random() < 0.5:
            await self.turns.stop(graph.record.graph_id, Cause.CANCELLED, "its client left")

    async def cancel(self, run: QueuedRun, after: float) -> None:
        """Cancel a run that waits or is under way, as the scheduler does: it is over soon after that."""
        await asyncio.sleep(after)
        if run in self.queue.runs:
            await SchedulerService._stop(self.service, run, "by the game")
            await asyncio.sleep(2 * LATE_SECONDS)
            assert run not in self.queue.runs

    async def play(self) -> None:
        """Play, and check that nothing is left behind."""
        await asyncio.gather(*(self.client(name) for name in "xyz"))
        assert self.answers >= 3
        for graph in self.graphs:
            await self.turns.stop(graph.record.graph_id, Cause.CANCELLED, "the graph was unloaded")
        assert self.turns._held == {}
        assert self.turns.runs == []
        assert self.queue.runs == []
        await asyncio.sleep(2 * MOST_LATE)
        assert len(asyncio.all_tasks()) == 1


def games(seeds: range) -> None:
    """Play a game for each seed."""
    for seed in seeds:
        clock = Clock()

        async def play(seed: int = seed) -> None:
            await Game(seed).play()

        try:
            clock.run_until_complete(play())
        except BaseException as error:
            error.add_note(f"game {seed}")
            raise
        finally:
            clock.close()


def test_a_thousand_games() -> None:
    games(range(1000))


@pytest.mark.long
def test_twenty_thousand_games() -> None:
    games(range(1000, 21_000))

"""Games: what clients do and what befalls them, drawn from a seed; and the smallest part of a game that fails alike."""

import asyncio
import contextlib
import itertools
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from dbfs.service import idle, late_workers, run_watch, turns
from dbfs_workers.search.members import member
from dbfs_workers.serving import plugin
from dbfs_workers.serving.turns import leader, ranks, worker
from tests.support.simulated import fibers, rebuilds, wire
from tests.support.simulated.cluster import Client, Cluster, within
from tests.support.simulated.ranks import Gangs

NAMES = ("one", "two", "three")
# Two graphs that share a worker, and one by itself.
GANGS = ((0, 1), (1, 2), (3,))
# Seconds after which what a game has begun is over.
_SETTLED = 60.0
# The logs of a game are in memory, where there is such a folder.
_FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None


@dataclass(frozen=True)
class Step:
    """Something that a client does, or that befalls the cluster.

    Attributes:
        who: the client's number; -1 for none.
        at: when, or for a client how long after its step before.
    """

    who: int
    at: float
    what: str
    graph: int = 0
    count: int = 0
    holds: bool = False

    def __str__(self) -> str:
        if self.who < 0:
            return f"the world after {self.at:.3f} s: {self.what} worker {self.graph}, {self.count}"
        holding = ", holding the turn" if self.holds else ""
        return f"client {self.who} after {self.at:.3f} s: {self.what} {NAMES[self.graph]} {self.count}{holding}"


@dataclass(frozen=True)
class Plan:
    """A game: its steps, the seed of what the wire does, and whether graphs that lost workers come back."""

    seed: int
    steps: tuple[Step, ...]
    rebuilds: bool = False

    @classmethod
    def drawn(cls, seed: int) -> "Plan":
        """Draw a plan."""
        dice = random.Random(seed)
        steps = []
        for who in range(dice.randrange(1, 4)):
            for _ in range(dice.randrange(1, 6)):
                what = dice.choices(("run", "update", "cancel", "load", "unload", "leave"), (10, 6, 1, 0.5, 0.3, 0.5))[
                    0
                ]
                at = dice.choice((0.0, 0.01, dice.random(), 2 * dice.random()))
                graph, count = dice.randrange(3), dice.choice((1, 1, 3, 8))
                steps.append(Step(who, at, what, graph, count, dice.random() < 0.7))
        for _ in range(dice.choice((0, 1, 1, 2, 3))):
            kinds = ("trap", "trap and cut", "trap and kill", "stop", "kill", "slow", "cut")
            what = dice.choices(kinds, (8, 4, 2, 2, 1, 4, 1))[0]
            count = dice.randrange(1, 30) if what.startswith("trap") else dice.choice((1, 3, 7, 14))
            steps.append(Step(-1, 3 * dice.random(), what, dice.randrange(4), count))
        return cls(seed, tuple(steps))

    @classmethod
    def of_rebuilds(cls, seed: int) -> "Plan":
        """Draw a game in which workers are killed, and their successors too."""
        dice = random.Random(seed)
        steps = []
        for who in range(dice.randrange(1, 4)):
            for _ in range(dice.randrange(2, 6)):
                graph = dice.randrange(3)
                # The second graph takes no updates.
                what = dice.choices(("run", "update", "unload"), (10, 8 if graph != 1 else 0, 0.3))[0]
                at = dice.choice((0.0, 0.01, dice.random(), 3 * dice.random()))
                steps.append(Step(who, at, what, graph, dice.choice((1, 1, 3, 8)), dice.random() < 0.7))
        for _ in range(dice.choice((1, 1, 2, 3))):
            kinds = ("kill", "kill twice", "trap and kill", "quit", "stop", "slow", "cut")
            what = dice.choices(kinds, (4, 6, 6, 2, 1, 1, 1))[0]
            count = dice.choice((1, 3, 7)) if what in ("stop", "slow", "cut") else dice.randrange(1, 20)
            steps.append(Step(-1, 4 * dice.random(), what, dice.randrange(4), count))
        return cls(seed, tuple(steps), rebuilds=True)


@dataclass
class Failure:
    """Why a game failed, and its story."""

    error: BaseException
    story: list[str] = field(default_factory=list)


def play(plan: Plan) -> Failure | None:
    """Play a game; return why it failed."""
    return _played(plan)[0]


def told(plan: Plan) -> list[str]:
    """Play a game; return its story."""
    return _played(plan)[1]


def _played(plan: Plan) -> tuple[Failure | None, list[str]]:
    """Play a game; return why it failed, and its story."""
    failure = None
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory(dir=_FAST) as folder:
        clock = fibers.Clock()
        try:
            with fibers.simulated_time(patched, clock) as all_fibers:
                the_wire = wire.Wire(random.Random(plan.seed), clock, all_fibers)
                game = _Game(plan, the_wire, Path(folder))
                _patch(patched, the_wire, game.gangs)
                try:
                    clock.run_until_complete(game.play())
                except Exception as error:
                    failure = Failure(error, the_wire.story)
                finally:
                    all_fibers.over = True
                    for task in asyncio.all_tasks(clock):
                        task.cancel()
                    all_fibers.end_all()
                    clock.run_until_complete(asyncio.sleep(0))
                    rebuilds.close_logs(game.cluster.all)
        finally:
            clock.close()
    return failure, the_wire.story


def _patch(patched: pytest.MonkeyPatch, the_wire: wire.Wire, gangs: Gangs) -> None:
    """Give the classes under test the game's threads, doors and periods."""
    rebuilds.patch(patched)
    for threaded in (leader, ranks, member):
        patched.setattr(threaded, "threading", fibers.THREADING)
    patched.setattr(leader, "wait", fibers.wait)
    patched.setattr(member, "ThreadPoolExecutor", fibers.Executor)
    for watching in (idle, run_watch, late_workers):
        patched.setattr(watching, "PeriodicCallback", fibers.Periodic)
    patched.setattr(plugin, "WorkerDoor", lambda of: wire.Door(the_wire, of.address))
    patched.setattr(plugin, "start_returning", lambda *_: None)
    patched.setattr(plugin, "_prepare_kernels", lambda *_: None)
    make_burst: Any = leader.Leader._burst

    def burst(of: Any, request: Any, *arguments: Any) -> Any:
        gangs.begins(of._graph_id, request.turn)
        return make_burst(of, request, *arguments)

    patched.setattr(leader.Leader, "_burst", burst)
    tokens = itertools.count(1)
    for making in (worker, turns):
        patched.setattr(making, "new_token", lambda: next(tokens).to_bytes(32, "big"))


class _Game:
    """One game."""

    def __init__(self, plan: Plan, the_wire: wire.Wire, folder: Path) -> None:
        self.plan, self.wire, self.gangs = plan, the_wire, Gangs(the_wire)
        self.folder = folder
        self.clients: dict[str, tuple[Client, asyncio.Task[None] | None]] = {}
        self.tokens = itertools.count(1)
        self.runs: list[tuple[str, str]] = []

    async def play(self) -> None:
        """Play, and check that nothing is left behind."""
        cluster = self.cluster = Cluster(self.wire, self.gangs, 4, self.folder if self.plan.rebuilds else None)
        await cluster.start()
        addresses = self.addresses = tuple(cluster.workers)
        first = Client(cluster, "first")
        for name, gang in zip(NAMES, GANGS, strict=True):
            await first.load(name, tuple(addresses[number] for number in gang))
        playing = [
            asyncio.ensure_future(self._client(who, [step for step in self.plan.steps if step.who == who]))
            for who in sorted({step.who for step in self.plan.steps if step.who >= 0})
        ]
        playing += [asyncio.ensure_future(self._befalls(step)) for step in self.plan.steps if step.who < 0]
        for done in asyncio.as_completed(playing):
            with contextlib.suppress(asyncio.CancelledError):
                await done
        await asyncio.sleep(_SETTLED)
        service = cluster.service
        if self.plan.rebuilds:
            await self._all_come_back(first)
        assert service._queue.runs == [], "runs wait for ever"
        for graph in service.graphs.values():
            self._check(graph)
        for name in NAMES:
            await within(first.unload(name), first.deadline + 1)
        await asyncio.sleep(_SETTLED)
        assert service._turns._held == {}, "turns are held for ever"
        assert service.reserved == {}
        for there in cluster.workers.values():
            assert there.service.members == {}, f"{there.address} has members of graphs that are gone"
            assert not self.wire.doors[there.address].tokens, f"{there.address} admits lines of turns that are over"
        assert not self.gangs.violations, "; ".join(self.gangs.violations)
        held = [fiber for fiber in self.wire.fibers.all if fiber.place in cluster.workers]
        assert not held, "\n".join(("threads wait for ever:", *(fiber.where() for fiber in held)))

    async def _all_come_back(self, first: Client) -> None:
        """Check that all graphs come back, with each update whose client got an answer."""
        for client, _ in self.clients.values():
            for graph_id, tokens in client.told.items():
                first.told.setdefault(graph_id, []).extend(tokens)
        self.wire.traps.clear()
        for name in NAMES:
            if first.graph(name) != "none":
                await first.run(name, f"last-{name}", 1, holds=False)

    def _check(self, graph: Any) -> None:
        """Check a graph when nothing is under way."""
        record = graph.record
        gone = [rank for rank, address in enumerate(record.addresses) if address in self.wire.gone]
        if gone or graph.lost:
            assert set(gone) <= graph.lost, f"{record.name} has not lost ranks {gone}, whose processes are gone"
            return
        turn = self.cluster.service._turns._held.get(record.graph_id)
        assert turn is None or turn.client in self.cluster.clients, f"{turn.client} holds a turn and has left"
        assert record.updated == record.version, f"{record.updated} edges were counted by {record.version} updates"
        for address in record.addresses:
            latest: Any = self.cluster.workers[address].service.members[record.graph_id].latest
            if latest is not None:
                self.cluster.gangs.committed(record.graph_id, latest.history)

    async def _client(self, who: int, steps: Sequence[Step]) -> None:
        name = f"client{who}"
        fibers.PLACE.set(name)
        client = Client(self.cluster, name)
        self.clients[name] = client, asyncio.current_task()
        for number, step in enumerate(steps):
            await asyncio.sleep(step.at)
            self.wire.tell(str(step))
            graph = NAMES[step.graph]
            if step.what == "leave":
                self.cluster.leave(name)
                return
            if step.what == "run":
                run_id = f"{name}-{number}"
                self.runs.append((name, run_id))
                work = client.run(graph, run_id, step.count, holds=step.holds)
            elif step.what == "update":
                work = client.update(graph, next(self.tokens), 3)
            elif step.what == "cancel":
                mine = [run for run in self.runs if run[0] != name] or [(name, "none")]
                work = Client(self.cluster, mine[-1][0]).cancel(mine[-1][1])
            elif step.what == "load":
                addresses = tuple(self.addresses[number] for number in GANGS[step.graph])
                work = client.load(graph, addresses)
            else:
                work = client.unload(graph)
            # An update is sent three times; a load has two messages.
            await within(work, (6 if self.plan.rebuilds else 3) * client.deadline + 3)
            self.wire.tell("answered")
        client.let_go()

    async def _befalls(self, step: Step) -> None:
        await asyncio.sleep(step.at)
        self.wire.tell(str(step))
        place = self.addresses[step.graph]
        other, seconds = self.addresses[(step.graph + 1) % 4], self.wire.dice.choice((0.3, 1.0, 6.0, 13.0))
        if step.what == "trap":
            self.wire.trap(place, step.count, lambda: self.wire.stop_for(place, seconds))
        elif step.what == "trap and cut":
            self.wire.trap(place, step.count, lambda: self.wire.cut_off(place, other, seconds))
        elif step.what == "trap and kill":
            self.wire.trap(place, step.count, lambda: self.cluster.kill(place))
        elif step.what == "kill twice":
            self.cluster.joins.append(lambda new: self.wire.trap(new, step.count, lambda: self.cluster.kill(new)))
            self.cluster.kill(place)
        elif step.what == "quit":
            name = f"client{step.graph}"
            if name in self.clients and name in self.cluster.clients:
                _, playing = self.clients[name]
                self.cluster.leave(name)
                assert playing is not None
                playing.cancel()
        elif step.what == "stop":
            self.wire.stop_for(place, step.count)
        elif step.what == "kill":
            self.cluster.kill(place)
        elif step.what == "cut":
            self.wire.cut_off(place, other, step.count)
        else:
            self.wire.late = 0.1
            await asyncio.sleep(step.count)
            self.wire.late = 0.0


def smallest(plan: Plan) -> tuple[Plan, Failure]:
    """Return the smallest part of a failing game that still fails, and how."""
    failure = play(plan)
    assert failure is not None
    for step in plan.steps:
        fewer = replace(plan, steps=tuple(other for other in plan.steps if other is not step))
        found = play(fewer)
        if found is not None:
            plan, failure = fewer, found
    return plan, failure


def play_all(seeds: range) -> None:
    """Play a game for each seed; an error tells the smallest story of the first that fails."""
    for seed in seeds:
        for drawn in (Plan.drawn(seed), *([] if seed % 4 else [Plan.of_rebuilds(seed)])):
            if play(drawn) is not None:
                plan, failure = smallest(drawn)
                steps = "\n".join(map(str, plan.steps))
                failure.error.add_note(f"game {seed}, of which this is left:\n{steps}\n\n" + "\n".join(failure.story))
                raise failure.error

"""The processes of a game: the scheduler's half of the service, workers, and clients that speak their protocol."""

import asyncio
import contextlib
import itertools
import pickle
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from distributed.core import Status

from dbfs.base.records import GraphIds, GraphRecord
from dbfs.cluster.deadline import GRACE_SECONDS
from dbfs.errors import (
    DbfsError,
    DeadlineExceededError,
    ExchangeUnavailableError,
    LateError,
    OutcomeUnknownError,
    WorkerLostError,
)
from dbfs.features.living.updates import UpdateReport, Updates
from dbfs.features.rebuild.scheduler import Rebuilds
from dbfs.service.entries import values_of
from dbfs.service.messages import (
    AddGraph,
    CancelRun,
    EndLoad,
    Enqueue,
    EnqueueUpdate,
    Reserve,
    SchedulerMessage,
    TurnGrant,
    UnloadGraph,
)
from dbfs.service.scheduler import SchedulerService
from dbfs_workers.base.lines.line import LineClosedError
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.features.living.update_spec import UpdateChange, UpdateSpec
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.serving import rpc
from dbfs_workers.serving.rpc import NAME, A, PickledValue
from dbfs_workers.serving.turns.messages import EndTurn
from dbfs_workers.serving.turns.requests import Answer, Request, Run
from tests.support.simulated import rebuilds
from tests.support.simulated.fibers import PLACE, to_thread
from tests.support.simulated.ranks import Gangs, Rows, SimulatedService
from tests.support.simulated.wire import Line, Wire, open_line

SCHEDULER = ""
# Seconds in which the scheduler notices that a worker's process is gone.
_NOTICED = 0.3


class Worker:
    """A worker's process: see ``distributed.Worker``, and what the scheduler knows of one."""

    status = Status.running
    host = "one"
    memory_limit = 0

    def __init__(self, wire: Wire, gangs: Gangs, address: str) -> None:
        self.address = self.name = address
        self.data: dict[Any, Any] = {}
        self.handlers: dict[str, Any] = {}
        self.rpc, self.scheduler = wire.rpc, wire.rpc(SCHEDULER)
        self.memory_manager = SimpleNamespace(memory_spill_fraction=0.0)
        self.state = SimpleNamespace(nthreads=1, tasks={})
        self.metrics = {"memory": 0}
        self._wire, self._heard = wire, wire.loop.now
        wire.handlers[address] = self.handlers
        self.service = SimulatedService(gangs)
        PLACE.set(address)
        self.service.setup(self)
        PLACE.set(SCHEDULER)

    @property
    def last_seen(self) -> float:
        """When the scheduler had the last heartbeat."""
        if not self._wire.is_stopped(self.address):
            self._heard = self._wire.loop.now
        return self._heard


class Cluster:
    """A scheduler and its workers: see ``distributed.Scheduler`` for the first attributes.

    Args:
        logs: the folder of the logs of living graphs, in a game whose graphs are built again; None in another one.

    Attributes:
        joins: what befalls the workers that join next in the places of killed ones, given their addresses.
    """

    def __init__(self, wire: Wire, gangs: Gangs, workers: int, logs: Path | None) -> None:
        self.wire = wire
        self.gangs = gangs
        self.handlers: dict[str, Any] = {}
        self.clients: dict[str, Any] = {}
        self.periodic_callbacks: dict[str, Any] = {}
        self.worker_plugins = {NAME: b""}
        self.tasks: dict[Any, Any] = {}
        self.logs = logs
        self.joins: list[Callable[[str], None]] = []
        self.numbers = itertools.count(workers)
        self.idle_timeout = None
        self.rpc = wire.rpc
        wire.handlers[SCHEDULER] = self.handlers
        wire.watch, wire.answered = self._watch, self._answered
        self.workers = {
            address: Worker(wire, self.gangs, address) for address in map("inproc://w{}".format, range(workers))
        }
        self.all = [*self.workers.values()]
        self.service = SchedulerService([Updates, Rebuilds], lambda _: None)  # type: ignore[arg-type, return-value]

    async def start(self) -> None:
        """Start the service."""
        await self.service.start(self)

    @property
    def running(self) -> set[Worker]:
        """The workers that have joined."""
        return {*self.workers.values()}

    def client_desires_keys(self, keys: Any, client: str) -> None:
        """Dask keeps the data."""

    def client_releases_keys(self, keys: Any, client: str) -> None:
        """Dask frees the data."""

    def _watch(self, operation: str, message: bytes) -> None:
        if operation == EndTurn.operation:
            ending: EndTurn = pickle.loads(message)
            if ending.cause is not None:
                self.gangs.give_up(ending.graph_id)

    def _answered(self, target: str, operation: str, message: bytes) -> None:
        if operation == EndTurn.operation:
            ending: EndTurn = pickle.loads(message)
            graph = self.service.graphs.get(ending.graph_id)
            if graph is not None and graph.record.addresses[0] == target:
                self.gangs.ended(ending.graph_id, ending.turn)

    def kill(self, address: str) -> None:
        """Kill a worker's process; the scheduler hears of it a little later, and another worker may join then."""
        already = address in self.wire.gone
        self.wire.kill(address)

        def hear() -> None:
            if self.workers.pop(address, None) is not None:
                self.service.remove_worker(self, address, stimulus_id="lost")

        self.wire.loop.call_later(_NOTICED, hear)
        if self.logs is not None and not already:
            self.wire.loop.call_later(self.wire.dice.choice((0.5, 1.0, 4.0)), self._replace)

    def _replace(self) -> None:
        address = f"inproc://w{next(self.numbers)}"
        worker = self.workers[address] = Worker(self.wire, self.gangs, address)
        self.all.append(worker)
        if self.joins:
            self.joins.pop()(address)

    def leave(self, client: str) -> None:
        """End a client's process."""
        self.wire.kill(client)
        self.clients.pop(client, None)
        self.service.remove_client(self, client)


class Client:
    """A client's process. Its calls are awaited; each ends by its deadline.

    Attributes:
        known: by graph, the latest version that the client was told of.
        told: by graph, the updates that the client was told of.
    """

    deadline = 5.0

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name, self.id, self.wire = cluster, name, name, cluster.wire
        self.known: dict[str, int] = {}
        self.told: dict[str, list[int]] = {}
        self._held: dict[str, tuple[TurnGrant, Line]] = {}
        cluster.clients[name] = SimpleNamespace(wants_what=set())

    async def ask(self, message: SchedulerMessage[A], seconds: float) -> A:
        """Send the scheduler a message, and return the answer."""
        server = self.wire.rpc(SCHEDULER)
        try:
            answer = await rpc.send(server, message, seconds + GRACE_SECONDS)
        except TimeoutError as error:
            raise LateError("no answer from the scheduler") from error
        return rpc.unpack("scheduler", message, answer)

    async def load(self, name: str, addresses: tuple[str, ...]) -> None:
        """Add a graph of a name, in place of an earlier one."""
        graph_id, p = f"{name}-{uuid.UUID(int=self.wire.dice.getrandbits(128)).hex[:8]}", len(addresses)
        logs = self.cluster.logs
        # The second graph takes no updates in such a game.
        keeps = logs if name != "two" else None
        stripe, keys = Stripe(8 * p, p), tuple(f"part-{graph_id}-{rank}" for rank in range(p))
        await self.ask(Reserve(graph_id, self.name, addresses, name, replace=True), self.deadline)
        rows = [Rows(rank, stripe) for rank in range(p)]
        for address, key, part in zip(addresses, keys, rows, strict=True):
            if address in self.cluster.workers:
                self.cluster.workers[address].data[key] = part
        infos = tuple(part.info for part in rows)
        record = GraphRecord(
            graph_id=graph_id, name=name, named=True, client=self.name, source="a game", directed=False, stripe=stripe,
            addresses=addresses, partition_keys=keys, ids=GraphIds(), order_key=None, input_edge_keys=(), infos=infos,
            backend="cpu", exchange="auto", layout=None, created=0.0, read_seconds=0.0, build_seconds=0.0,
            mutable=logs is None or keeps is not None, log=str(keeps / graph_id) if keeps else "",
        )  # fmt: skip
        try:
            await self.ask(AddGraph(record, self.deadline), self.deadline)
            if logs is not None:
                await self.ask(rebuilds.keeping(graph_id), self.deadline)
        except (DbfsError, OSError):
            await self.ask(EndLoad(graph_id, self.name, name, "failed"), self.deadline)
            raise

    def graph(self, name: str) -> str:
        """Return the id of the graph that has a name now, as ``dbfs.open`` would."""
        graphs = self.cluster.service.graphs.values()
        return next((graph.record.graph_id for graph in graphs if graph.record.name == name), "none")

    async def bring_back(self, name: str, graph_id: str) -> None:
        """Bring a graph back that lost a worker. Raise ``WorkerLostError`` if this game's graphs don't come back."""
        entry = self.cluster.service.graphs.get(self.graph(name))
        if self.cluster.logs is None or entry is None:
            raise WorkerLostError(f"{graph_id} is lost")
        await rebuilds.bring_back(self, entry.record)

    async def unload(self, name: str) -> None:
        """Unload a graph."""
        await self.ask(UnloadGraph(self.graph(name), self.name), self.deadline)

    async def cancel(self, run_id: str) -> None:
        """Cancel a run, which is over soon after that unless a process does not answer."""
        await self.ask(CancelRun(run_id, self.name), self.deadline)
        await asyncio.sleep(1.0)
        left = [run for run in self.cluster.service._queue.runs if run.run_id == run_id]
        assert not left or self.wire.disturbed, f"{run_id} is under way a second after it was cancelled"

    async def run(self, name: str, run_id: str, traversals: int, *, holds: bool) -> None:
        """Make a run, and once more if it lost a worker and the graph comes back."""
        graph_id = self.graph(name)
        try:
            await self._run(graph_id, run_id, traversals, holds=holds)
        except WorkerLostError:
            await self.bring_back(name, graph_id)
            await self._run(self.graph(name), f"{run_id}-again", traversals, holds=holds)

    async def _run(self, graph_id: str, run_id: str, traversals: int, *, holds: bool) -> None:
        """Make a run: in the turn that the client holds, else through the scheduler."""
        done, first = 0, self.cluster.gangs.first_id(graph_id)
        least, told = self.known.get(first, 0), [*self.told.get(first, ())]
        end = self.wire.loop.now + self.deadline
        specs = RunSpec(TraversalSpec(run_id, (), predecessors=False, backend="cpu"), ((0,),) * traversals)

        def take(answer: Answer) -> None:
            nonlocal done
            reports = values_of(answer.ranks)
            for traversal in zip(*reports, strict=True):
                (version,) = {report.version for report in traversal}
                assert version >= least, f"{self.name} was told of version {least}, and traversed {version}"
                history = self.cluster.gangs.histories[first, version]
                assert set(told) <= set(history), f"{self.name} was told of {told}, and traversed {history}"
                self.known[first] = max(self.known.get(first, 0), version)
            done += len(reports[0])
            self.wire.tell(f"has {done} of {traversals} traversals of {run_id}")

        while done < traversals:
            rest = Run(specs[done:], done, ())
            left = max(1e-3, end - self.wire.loop.now)
            held = self._held.pop(graph_id, None)
            if held is not None:
                for answer in await self._in_turn(graph_id, held, Request(held[0].turn, run_id, left, rest)):
                    take(answer)
                continue
            message = Enqueue(graph_id, self.name, run_id, PickledValue.of(rest), traversals - done, left, holds)
            reply = await self.ask(message, left)
            if reply.answer is not None:
                take(reply.answer)
            if reply.grant is not None:
                try:
                    line = await self._opened(reply.grant)
                except LineClosedError:
                    continue
                except ExchangeUnavailableError:
                    holds = False
                    continue
                self._held[graph_id] = reply.grant, line
        assert done == traversals, f"{done} traversals of {traversals}"

    async def update(self, name: str, token: int, tries: int) -> None:
        """Make an update, in a turn or through the scheduler; send it again if its outcome is not known."""
        graph_id = self.graph(name)
        change = UpdateChange(
            spec=UpdateSpec("insert-vertices", False, count=token), strict=False, batch_id=f"batch-{token}"
        )
        for number in range(tries):
            run_id, held = f"update-{token}-{number}", self._held.pop(graph_id, None)
            try:
                if held is not None and number == 0:
                    request = Request(held[0].turn, run_id, self.deadline, change)
                    answers = await self._in_turn(graph_id, held, request)
                    if not answers:
                        continue
                    answer = answers[-1]
                else:
                    work = PickledValue[Any].of(change)
                    message = EnqueueUpdate(
                        graph_id, self.name, run_id, work, self.deadline, change.kind, change.batch_id
                    )
                    answer = await self.ask(message, self.deadline)
                report: UpdateReport = values_of(answer.ranks)[0].value()
            except (OutcomeUnknownError, LateError):
                continue
            except WorkerLostError:
                # It may have been decided before.
                await self.bring_back(name, graph_id)
                graph_id = self.graph(name)
                continue
            except DeadlineExceededError:
                # Of an update that was sent before, an earlier sending may be made yet.
                if not number:
                    self.cluster.gangs.refused.add(token)
                return
            except DbfsError:
                return
            version = report.record.version
            first = self.cluster.gangs.first_id(graph_id)
            self.known[first] = max(self.known.get(first, 0), version)
            self.told.setdefault(first, []).append(token)
            return

    async def _opened(self, grant: TurnGrant) -> Line:
        line: Line = await to_thread(open_line, self.wire, self.name, grant.address, grant.token, 2.0)
        return line

    async def _in_turn(self, graph_id: str, held: tuple[TurnGrant, Line], request: Request) -> list[Answer]:
        """Send rank 0 a request; return its answers, none if the turn was over."""
        grant, line = held
        end = self.wire.loop.now + request.deadline + GRACE_SECONDS

        def exchange() -> tuple[list[Answer], bool]:
            answers: list[Answer] = []
            try:
                line.send(pickle.dumps(request), 2.0)
                while True:
                    answer: Answer = pickle.loads(line.receive(end))
                    if answer.ranks:
                        answers.append(answer)
                    if answer.last:
                        return answers, answer.over
            except LineClosedError:
                return answers, True
            except TimeoutError as error:
                raise LateError("no answer from rank 0") from error

        try:
            answers: list[Answer]
            answers, over = await to_thread(exchange)
        except BaseException:
            line.close()
            raise
        if over:
            line.close()
        else:
            self._held[graph_id] = grant, line
        return answers

    def let_go(self) -> None:
        """Close the lines of all turns."""
        for _, line in self._held.values():
            line.close()
        self._held.clear()


async def within(work: Awaitable[Any], seconds: float) -> None:
    """Await a call, which must end within so many seconds; errors of dbfs, and broken connections, are answers too."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    with contextlib.suppress(DbfsError, OSError):
        await work
    took = loop.time() - began
    assert took <= seconds, f"a call took {took:.2f} s, and has {seconds:g}"

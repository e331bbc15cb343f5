"""The scheduler's half of the service: graphs by name, and one queue of runs for the workers that graphs share.

The service is a scheduler plugin; ``serving.plugin`` is its counterpart on the workers. ``graph_table`` keeps the
data of every graph alive and forms the gangs; runs start in the order of ``queue``. When a worker or a client leaves,
its runs end.
"""

import asyncio
import contextlib
import itertools
import pickle
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import distributed
from distributed.diagnostics.plugin import SchedulerPlugin

from dbfs import config
from dbfs.base.records import Formation, GraphRecord, GraphStatus, RunProgress, RunStatus, WorkerStatus, waits_for
from dbfs.cluster.gang import tidy
from dbfs.cluster.worker_states import rank_order
from dbfs.errors import (
    DbfsError,
    GraphNotFoundError,
    NotOwnerError,
    RunCancelledError,
    RunNotFoundError,
    WorkerLostError,
)
from dbfs.service import forming, idle, log, run_watch
from dbfs.service.client_notes import ClientNotes
from dbfs.service.entries import GraphEntry, QueuedRun, Reservation, RunEntry, TaskRun, values_of
from dbfs.service.feature import GraphChanges, Records, SchedulerFeature, ServiceView
from dbfs.service.graph_table import GraphTable
from dbfs.service.history import History
from dbfs.service.late_workers import WorkerWatch
from dbfs.service.messages import (
    AddGraph,
    CancelRun,
    ChooseBackend,
    CountBuildTasks,
    DropLabels,
    Enqueue,
    EnqueueTasks,
    ExplainLoss,
    FreeAll,
    GetGraph,
    GetProgress,
    ListGraphs,
    ListNotReady,
    ListRuns,
    ListWorkers,
    OpenGraph,
    PublishLabels,
    Reserve,
    RunReply,
    Stage,
    TryGang,
    UnloadGraph,
)
from dbfs.service.queue import RunQueue
from dbfs.service.task_runs import TaskRuns
from dbfs.service.turns import Turns
from dbfs.service.worker_calls import WorkerCalls, all_answers, require_reach
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.reports import RunSummary
from dbfs_workers.serving.messages import DropRankLabels, ForgetClient, ForgetRun, PublishRankLabels
from dbfs_workers.serving.plugin import WorkerService
from dbfs_workers.serving.rpc import NAME, handlers

_UNFINISHED_STATES = ("waiting", "no-worker", "queued", "processing", "erred")
# Runs that were cancelled before they came; a message is late by some minutes at most.
_CANCELLED_RUNS_KEPT = 1024


class SchedulerService(SchedulerPlugin):  # type: ignore[misc]  # distributed is untyped
    """The scheduler's half of the service. ``dbfs.service.messages`` documents what a handler does.

    Args:
        features: what features add to the scheduler.
        on_workers: makes the half of each worker, given the share of its memory for labels.

    Attributes:
        records: what features read: see ``Records``, whose fields are attributes here too.
        reserved: reservations for graphs that are being built, by graph id.
    """

    name = NAME
    idempotent = True

    def __init__(
        self, features: Sequence[type[SchedulerFeature]], on_workers: Callable[[float], WorkerService]
    ) -> None:
        self._feature_types = features
        self._on_workers = on_workers
        self._features: tuple[SchedulerFeature, ...] = ()
        self.graphs: dict[str, GraphEntry] = {}
        self.reserved: dict[str, Reservation] = {}
        self.history = History()
        self._queue = RunQueue(self.history, lambda run: self._turns.revoke(run))
        self._tasks: set[asyncio.Future[None]] = set()
        # By run id, the clients that cancelled a run which had not come yet.
        self._given_up: dict[str, str] = {}

    async def start(self, scheduler: distributed.Scheduler) -> None:
        """Register the handlers and install the workers' half. Dask calls this when the plugin is installed."""
        self.scheduler = scheduler
        self._workers = WorkerCalls(scheduler)
        self.watch = WorkerWatch(scheduler, self.graphs, self._queue.start_runs)
        self._table = GraphTable(scheduler, self._workers, self.graphs, self.reserved)
        self._task_runs = TaskRuns(lambda client: client in scheduler.clients)
        self._turns = Turns(self._workers, self.history, self._queue.start_runs)
        self.notes = ClientNotes(self.graphs, self.reserved, lambda client: client in scheduler.clients)
        self.records = Records(scheduler, self.graphs, self._queue, self._turns, self.history, self.notes, self.watch)
        view = ServiceView(self.records, self._table, self._workers, self._turn, self._task_runs)
        self._features = tuple(feature(view) for feature in self._feature_types)
        self._changes = next((feature for feature in self._features if isinstance(feature, GraphChanges)), None)
        for service in (self, self._turns, self._task_runs, self.notes, *self._features):
            scheduler.handlers.update(handlers(service))
        idle.keep_awake(scheduler, lambda: bool(self._table.workers))
        run_watch.watch(scheduler, lambda: self.records.runs, self._workers, self.watch)
        on_workers = self._on_workers(float(config.get("build.memory-share")))
        if NAME not in scheduler.worker_plugins:
            await self._workers.install(pickle.dumps(on_workers), self.watch)

    @Reserve.handler
    async def reserve(self, message: Reserve) -> None:
        for graph in self._table.reserve(message):
            await self._dissolve(graph, f"{log.shown(message.client)} replaces it")

    @ChooseBackend.handler
    async def choose_backend(self, message: ChooseBackend) -> str:
        call = self._workers.until(time.monotonic() + message.deadline)
        await require_reach(call, message.addresses)
        return await forming.choose_backend(message.addresses, message.backend, message.exchange, call)

    @TryGang.handler
    async def try_gang(self, message: TryGang) -> Formation:
        call = self._workers.until(time.monotonic() + message.deadline)
        await require_reach(call, message.addresses)
        return await forming.attempt(message.addresses, message.exchange, call)

    @AddGraph.handler
    async def add_graph(self, message: AddGraph) -> Formation:
        # The client tells if this fails.
        graph, replaced = await self._table.add(message.record, time.monotonic() + message.deadline)
        graph.decided.update((batch_id, report.value()) for batch_id, report in message.reports)
        self.notes.loads["loaded"] += 1
        log.graph_loaded(graph)
        for old in replaced:
            await self._dissolve(old, f"{log.shown(message.record.client)} replaces it")
        return graph.formed

    @OpenGraph.handler
    async def open_graph(self, message: OpenGraph) -> tuple[GraphRecord, Formation]:
        graph = self._table.named(message.name)
        return graph.record, graph.formed

    @GetGraph.handler
    async def get_graph(self, message: GetGraph) -> GraphRecord:
        return self._table.get(message.graph_id).record

    @ExplainLoss.handler
    async def explain_loss(self, message: ExplainLoss) -> str:
        graph = self.graphs.get(message.graph_id)
        return "" if graph is None else idle.explain(graph.retired)

    @ListGraphs.handler
    async def list_graphs(self, message: ListGraphs) -> list[GraphStatus]:  # noqa: ARG002
        found = [graph.status(self.watch.not_ready(graph.record.addresses)) for graph in self.graphs.values()]
        # A view stands while the graph that it was made of is spread anew.
        latest = self._table.latest_id
        return [replace(one, view_of=latest(one.view_of), fixed_on=latest(one.fixed_on)) for one in found]

    @ListWorkers.handler
    async def list_workers(self, message: ListWorkers) -> list[WorkerStatus]:  # noqa: ARG002
        return self.watch.statuses(sorted(self.scheduler.workers, key=rank_order))

    @ListNotReady.handler
    async def list_not_ready(self, message: ListNotReady) -> dict[str, tuple[WorkerStatus, ...]]:
        found = {"": self.watch.not_ready(self.scheduler.workers)}
        for graph_id in message.graph_ids:
            graph = self.graphs.get(graph_id)
            found[graph_id] = () if graph is None else self.records.blocking(frozenset(graph.record.addresses))
        return found

    @UnloadGraph.handler
    async def unload_graph(self, message: UnloadGraph) -> None:
        with contextlib.suppress(GraphNotFoundError):
            graph = self._table.latest(message.graph_id)
            if not graph.record.named:
                _require_owner(message.client, graph.record.client, f"unload {graph.record.name}")
            del self.graphs[graph.record.graph_id]
            await self._dissolve(graph, f"{log.shown(message.client)} unloaded it")

    @FreeAll.handler
    async def free_all(self, message: FreeAll) -> None:
        graphs = list(self.graphs.values())
        self.graphs.clear()
        # First, so that Dask misses no data if a worker does not answer below.
        for graph in graphs:
            self._table.free(graph)
        wanted = self.scheduler.clients[message.client].wants_what
        self.scheduler.client_releases_keys(keys=[task.key for task in wanted], client=message.client)
        await asyncio.gather(*(self._dissolve(graph, "the cluster ends") for graph in graphs))

    @CountBuildTasks.handler
    async def count_build_tasks(self, message: CountBuildTasks) -> tuple[dict[str, Stage], tuple[int, ...]]:
        binned = _binned_by_rank(self.scheduler, message.token, max(1, message.ranks))
        return _stages(self.scheduler, message.token), binned

    @Enqueue.handler
    async def enqueue(self, message: Enqueue) -> RunReply:
        graph = self._table.get(message.graph_id)
        run = QueuedRun(graph, message.client, message.run_id, message.traversals, message.deadline)
        async with self._turn(run):
            reply = await self._turns.lead(run, message.work, holds=message.holds)
            if reply.answer is not None:
                self.history.add(run, RunSummary.of(values_of(reply.answer.ranks)))
        return reply

    @EnqueueTasks.handler
    async def enqueue_tasks(self, message: EnqueueTasks) -> str:
        graph = self._table.get(message.graph_id)
        facts = (message.client, message.run_id, message.traversals, message.deadline)
        run = TaskRun(graph, *facts, update=message.update)
        self._spawn(self._hold_workers(run))
        return await run.begun

    @ListRuns.handler
    async def list_runs(self, message: ListRuns) -> list[RunStatus]:  # noqa: ARG002
        counted = run_watch.counted_by_ranks(self.records.runs)
        await asyncio.gather(*(run_watch.update_progress(run, self._workers, self.watch) for run in counted))
        return [run.status(waits_for(self.records.blocking(run.workers))) for run in self.records.runs]

    @GetProgress.handler
    async def get_progress(self, message: GetProgress) -> RunProgress | None:
        return next((run.progress for run in self.records.runs if run.run_id == message.run_id), None)

    @CancelRun.handler
    async def cancel_run(self, message: CancelRun) -> None:
        for run in self.records.runs:
            if run.run_id == message.run_id:
                _require_owner(message.client, run.client, f"cancel run {run.run_id}")
                log.cancel_requested(run)
                # If the turn ends before rank 0 has made all traversals, the client queues the rest of them.
                self._refuse_later(run.run_id, run.client)
                await self._stop(run, "a client called run.cancel() or dbfs cancel")
                return
        # A run that a client has given up may come after this message.
        self._refuse_later(message.run_id, message.client)
        raise RunNotFoundError(f"no run {message.run_id} waits or is under way")

    def _refuse_later(self, run_id: str, client: str) -> None:
        """Refuse a client's run that was cancelled before it came."""
        self._given_up[run_id] = client
        if len(self._given_up) > _CANCELLED_RUNS_KEPT:
            del self._given_up[next(iter(self._given_up))]

    @PublishLabels.handler
    async def publish_labels(self, message: PublishLabels) -> None:
        run_id = message.run_id
        try:
            graph = self._table.get(message.graph_id)
        except GraphNotFoundError as error:
            raise GraphNotFoundError(f"the graph was unloaded, which released the labels of run {run_id}") from error
        graph.require_whole(f"labels of run {run_id}")
        addresses, call = graph.record.addresses, self._workers.until(time.monotonic() + message.deadline)

        async def publish(index: int) -> None:
            of_rank = PublishRankLabels(message.graph_id, run_id, index)
            sizes = await all_answers(call, addresses, itertools.repeat(of_rank), f"labels of run {run_id}: ")
            for address, nbytes in zip(addresses, sizes, strict=True):
                who_has = {key: [address] for key in nbytes}
                self.scheduler.update_data(who_has=who_has, nbytes=nbytes, client=message.client)

        await asyncio.gather(*map(publish, message.indices))

    @DropLabels.handler
    async def drop_labels(self, message: DropLabels) -> None:
        graph = self.graphs.get(message.graph_id)
        if graph is not None:
            drop = DropRankLabels(message.graph_id, message.dropped)
            await self._workers.call_all(graph.record.addresses, drop)

    def remove_client(self, scheduler: distributed.Scheduler, client: str) -> None:  # noqa: ARG002
        """End the client's runs, reservations and nameless graphs. Dask calls this when a client leaves."""
        self.notes.remove_client(client)
        self._table.release_all(client)
        self._end_turns(client)
        for run in self._queue.runs:
            if run.client == client:
                self._spawn(self._stop(run, "its client left"))
        for graph_id, graph in list(self.graphs.items()):
            if graph.record.client == client and not graph.record.named:
                self._spawn(self._dissolve(self.graphs.pop(graph_id), "its client left"))
                self._table.free(graph)
            else:
                self._forget(client, graph)

    def update_graph(
        self, scheduler: distributed.Scheduler, *, tasks: list[Any], annotations: dict[str, Any], **_: Any
    ) -> None:
        """Keep Dask's records of dbfs's tasks bounded. Dask calls this when a client submits tasks."""
        tidy(scheduler, tasks, annotations)

    async def before_close(self) -> None:
        """Free all graphs, so that Dask warns of no lost data. Dask calls this before the scheduler closes."""
        for graph in self.graphs.values():
            self._table.free(graph)
        for feature in self._features:
            feature.close()

    def valid_workers_downscaling(
        self,
        scheduler: distributed.Scheduler,  # noqa: ARG002
        workers: list[distributed.scheduler.WorkerState],
    ) -> list[distributed.scheduler.WorkerState]:
        """Return the workers that Dask may close as idle. Dask calls this when an adaptive cluster shrinks."""
        kept = self._table.workers
        return [worker for worker in workers if worker.address not in kept]

    def remove_worker(self, scheduler: distributed.Scheduler, worker: str, *, stimulus_id: str, **_: Any) -> None:  # noqa: ARG002
        """Mark the graphs with a rank on the worker as lost; end their runs. Dask calls this when a worker leaves."""
        for graph in self.graphs.values():
            if worker in graph.record.addresses:
                rank = graph.record.addresses.index(worker)
                graph.lost.add(rank)
                if idle.is_retirement(stimulus_id):
                    graph.retired.add(rank)
                log.worker_lost(graph, rank, worker)
                self._table.lose(graph, rank)
                self._spawn(self._turns.stop(graph.record.graph_id, Cause.LOST, f"lost rank {rank}", rank))
        for run in self._queue.runs:
            if worker in run.workers:
                rank = run.graph.record.addresses.index(worker)
                lost = WorkerLostError(f"lost rank {rank} ({worker}); load the graph again")
                run.stop(lost)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        # Dask's hooks must not wait for workers. The set keeps the task from being collected as garbage.
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @contextlib.asynccontextmanager
    async def _turn(self, run: QueuedRun) -> AsyncIterator[None]:
        """See ``ServiceView.turn``."""
        self._table.require_client(run.client, f"run {run.run_id}")
        if self._given_up.get(run.run_id) == run.client:
            raise RunCancelledError(f"run {run.run_id}: cancelled before it came")
        try:
            async with self._queue.turn(run, self._turns.runs):
                if self._changes is not None:
                    await self._changes.settle(run)
                yield
        finally:
            if run.client not in self.scheduler.clients:
                # The ranks may have kept the labels after they forgot the client.
                self._forget(run.client, run.graph)
                self._end_turns(run.client)

    async def _hold_workers(self, run: TaskRun) -> None:
        """Queue a run of tasks, and keep its workers from its turn to its end."""
        try:
            async with self._turn(run):
                run.graph.runs += not run.update
                run.graph.last_client = run.client
                reports = await self._task_runs.hold(run)
                # An update enters the history with its version.
                if not run.update:
                    self.history.add(run, RunSummary.of(reports))
        except Exception as error:
            self._spawn(self._workers.call_all(run.graph.record.addresses, ForgetRun(run.run_id)))
            if not run.begun.done():
                run.begun.set_exception(error)
            elif not isinstance(error, DbfsError):
                # The client has dbfs's own errors already.
                raise

    def _forget(self, client: str, graph: GraphEntry) -> None:
        """Have the ranks of a graph release the labels of a client that has left."""
        record = graph.record
        self._spawn(self._workers.call_all(record.addresses, ForgetClient(record.graph_id, client)))

    def _end_turns(self, client: str) -> None:
        """End the turns that a client holds who has left."""
        for graph_id in self._turns.held_by(client):
            self._spawn(self._turns.stop(graph_id, Cause.CANCELLED, "its client left"))

    async def _stop(self, run: RunEntry, message: str) -> None:
        """Cancel a run, whether it waits, is led by rank 0, or consists of tasks."""
        if isinstance(run, QueuedRun):
            run.stop(RunCancelledError(f"cancelled: {message}"))
        if run.started is not None:
            await self._turns.stop(run.graph.record.graph_id, Cause.CANCELLED, message)

    async def _dissolve(self, graph: GraphEntry, why: str) -> None:
        """End a graph's runs and its gang, and free its data; ``why`` goes into the log."""
        unloaded = "the graph was unloaded"
        for run in self._queue.runs:
            if run.graph is graph:
                run.stop(RunCancelledError(f"cancelled: {unloaded}"))
        await self._turns.stop(graph.record.graph_id, Cause.CANCELLED, unloaded)
        log.graph_unloaded(graph, why)
        await self._table.disband(graph)


def _require_owner(client: str, owner: str, action: str) -> None:
    """Check that a client may stop the work of another client; ``action`` names the request in the error."""
    if client != owner and not config.flag("service.anyone-may-stop"):
        raise NotOwnerError(
            f"only its own client {owner} may {action}, not {client}; "
            "dbfs.service.anyone-may-stop: true in the scheduler's configuration allows it to all clients"
        )


def _stages(scheduler: distributed.Scheduler, token: str) -> dict[str, Stage]:
    """Return the counts of the tasks whose keys end in a build's token, by the tasks' names.

    Dask forgets a name when all its tasks are over and their results are no longer needed.
    """
    return {
        name.removesuffix(f"-{token}"): (
            group.states["processing"],
            len(group) - sum(group.states[state] for state in _UNFINISHED_STATES),
            len(group),
            group.nbytes_total,
        )
        for name, group in scheduler.task_groups.items()
        if name.endswith(f"-{token}")
    }


def _binned_by_rank(scheduler: distributed.Scheduler, token: str, ranks: int) -> tuple[int, ...]:
    """Return the number of pieces that each rank has binned on CPUs; empty if Dask has no such tasks (any more)."""
    group = scheduler.task_groups.get(f"bin-edges-{token}")
    if group is None:
        return ()
    # Task i is of rank i % p.
    counts = [0] * ranks
    for index in range(len(group)):
        task = scheduler.tasks.get((group.name, index))
        counts[index % ranks] += task is None or task.state not in _UNFINISHED_STATES
    return tuple(counts)

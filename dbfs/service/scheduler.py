"""The service on the scheduler: graphs by name, and one queue of runs for the workers they share.

A scheduler plugin, paired with ``dbfs_workers.plugin``. It keeps the partitions of every graph alive, forms the gangs,
and starts runs: a run begins when all its workers are free and no run before it wants one of them, so that any number
of clients may traverse at once and none deadlocks. A worker or a client that leaves ends the runs it was part of.
"""

import asyncio
import pickle
import time
from collections.abc import Coroutine
from typing import Any

import distributed
from distributed.diagnostics.plugin import SchedulerPlugin

from dbfs import dashboard
from dbfs.errors import (
    GraphNotFoundError,
    NameTakenError,
    RunNotFoundError,
    WorkerLostError,
)
from dbfs.records import Formed, GraphRecord, GraphStatus, RunProgress, RunStatus
from dbfs.service import forming
from dbfs.service.build_stages import Stage, stages
from dbfs.service.conductor import Conductor
from dbfs.service.entries import GraphEntry, RunEntry, UnreachableError
from dbfs.service.history import History
from dbfs.service.run_watch import look
from dbfs_workers.exchange.protocol import Cause
from dbfs_workers.plugin import WorkerService
from dbfs_workers.reports import RankReport
from dbfs_workers.rpc import NAME, answering


class SchedulerService(SchedulerPlugin):  # type: ignore[misc]  # distributed is untyped
    """See the module. ``dbfs.service`` calls the handlers."""

    name = NAME
    idempotent = True

    def __init__(self) -> None:
        self.graphs: dict[str, GraphEntry] = {}
        self.reserved: dict[str, str] = {}
        # In the order in which they came, under way or not.
        self.runs: list[RunEntry] = []
        self.history = History()
        self._tasks: set[asyncio.Future[None]] = set()

    async def start(self, scheduler: distributed.Scheduler) -> None:
        """Called by Dask when the plugin is installed: install the workers' half, too."""
        self.scheduler = scheduler
        self._conductor = Conductor(scheduler)
        handlers = (
            self.reserve,
            self.release,
            self.choose_backend,
            self.add,
            self.open,
            self.list_graphs,
            self.unload,
            self.enqueue,
            self.publish,
            self.drop,
            self.list_runs,
            self.progress,
            self.build_stages,
            self.cancel,
        )
        scheduler.handlers.update({f"dbfs_{handler.__name__}": answering(handler) for handler in handlers})
        dashboard.install(scheduler, self)
        await scheduler.register_worker_plugin(None, pickle.dumps(WorkerService()), name=NAME, idempotent=True)

    async def reserve(self, name: str, client: str) -> None:
        """Keep a name for a graph that is about to be built.

        Raises:
            NameTakenError: another graph has it, or is being built under it.
        """
        if name in self.reserved or any(graph.record.name == name for graph in self.graphs.values()):
            raise NameTakenError(f"there is a graph named {name!r} already; unload it, or choose another name")
        self.reserved[name] = client

    async def release(self, name: str) -> None:
        """Give back a name whose graph could not be built."""
        self.reserved.pop(name, None)

    async def choose_backend(self, addresses: list[str], backend: str, exchange: str) -> str:
        """What a graph is to be built on.

        Raises:
            BackendUnavailableError: see ``forming.choose_backend``.
        """
        return await forming.choose_backend(addresses, backend, exchange, self._conductor.ask)

    async def add(self, record: bytes) -> Formed:
        """Take over a graph's partitions and form its gang.

        Raises:
            WorkerLostError: a rank is gone already.
            BackendUnavailableError, ExchangeUnavailableError, GraphTooLargeError: see ``forming.form``.
        """
        added: GraphRecord = pickle.loads(record)
        self.reserved.pop(added.name, None)
        missing = [address for address in added.addresses if address not in self.scheduler.workers]
        if missing:
            raise WorkerLostError(f"{added.name}: lost {', '.join(missing)} before the graph was whole; load it again")
        graph = GraphEntry(added)
        graph.formed = await forming.form(added, self._conductor.ask)
        self.scheduler.client_desires_keys(keys=added.keys, client=_holder(added.graph_id))
        self.graphs[added.graph_id] = graph
        return graph.formed

    async def open(self, name: str) -> tuple[GraphRecord, Formed]:
        """A graph by its name, and what its gang became.

        Raises:
            GraphNotFoundError: with the names there are.
        """
        for graph in self.graphs.values():
            if graph.record.named and graph.record.name == name:
                return graph.record, graph.formed
        names = sorted(graph.record.name for graph in self.graphs.values() if graph.record.named)
        there = f"there are {', '.join(map(repr, names))}" if names else "there are none"
        raise GraphNotFoundError(f"no graph is named {name!r}; {there}")

    async def list_graphs(self) -> list[GraphStatus]:
        """Every graph, in the order in which they were loaded."""
        return [
            GraphStatus(
                name=graph.record.name,
                n=graph.record.stripe.n,
                m=sum(info.m_local for info in graph.record.infos),
                bytes_per_rank=tuple(info.nbytes for info in graph.record.infos),
                ranks=graph.record.stripe.p,
                created=graph.record.created,
                runs=graph.runs,
                backend=graph.formed.backend,
                exchange=graph.formed.exchange,
                lost=tuple(sorted(graph.lost)),
            )
            for graph in self.graphs.values()
        ]

    async def unload(self, graph_id: str) -> None:
        """Forget a graph and free its memory. Runs on it are cancelled."""
        graph = self.graphs.pop(graph_id, None)
        if graph is not None:
            await self._dissolve(graph)

    async def enqueue(
        self,
        graph_id: str,
        client: str,
        run_id: str,
        specs: bytes,
        traversals: int,
        deadline: float,
        dropped: list[tuple[str, int]],
    ) -> list[list[RankReport]]:
        """Make traversals; the ranks keep the labels until they are published or dropped, or the client leaves.

        Args:
            graph_id: the graph's.
            client: id of the client that asks, to which the labels belong.
            run_id: the run's.
            specs: pickled ``list[TraversalSpec]``, not looked at here.
            traversals: how many there are.
            deadline: seconds the run may take once it has started.
            dropped: traversals (run id and index) whose labels are to be forgotten.

        Returns:
            By rank, a report of each traversal.

        Raises:
            GraphNotFoundError: the graph was unloaded.
            WorkerLostError, DeadlineExceededError, RunCancelledError, RunAbortedError, DeviceFailedError: the run
                ended early.
        """
        graph = self.graphs.get(graph_id)
        if graph is None:
            raise GraphNotFoundError("the graph was unloaded; load it again")
        run = RunEntry(graph, client, run_id, traversals)
        self.runs.append(run)
        try:
            self._start_runs()
            await run.turn
            graph.require_whole()
            graph.runs += 1
            reports = await self._conductor.conduct(run, specs, deadline, dropped)
            self.history.add(run, reports)
            return reports
        except Exception as error:
            self.history.fail(run, error)
            raise
        finally:
            self.runs.remove(run)
            self._start_runs()

    async def publish(self, graph_id: str, client: str, run_id: str, index: int) -> None:
        """Make the labels of a traversal Dask data, under the keys of ``dbfs_workers.plugin.label_key``.

        Raises:
            GraphNotFoundError: the graph was unloaded, and the labels went with it.
            ResultReleasedError: they were dropped.
            WorkerLostError: a rank is gone.
        """
        graph = self.graphs.get(graph_id)
        if graph is None:
            raise GraphNotFoundError("the graph was unloaded, and its ranks took the labels of this run with them")
        graph.require_whole(f"labels of run {run_id}")
        addresses = graph.record.addresses
        message = {"graph_id": graph_id, "run_id": run_id, "index": index}
        asked = (self._conductor.ask(address, "dbfs_publish_rank", **message) for address in addresses)
        sizes: list[dict[Any, int]] = []
        for rank, answer in enumerate(await asyncio.gather(*asked, return_exceptions=True)):
            if isinstance(answer, UnreachableError):
                raise WorkerLostError(f"labels of run {run_id}: lost rank {rank}; {answer}")
            if isinstance(answer, BaseException):
                raise answer
            sizes.append(answer)
        for address, nbytes in zip(addresses, sizes, strict=True):
            self.scheduler.update_data(who_has={key: [address] for key in nbytes}, nbytes=nbytes, client=client)

    async def drop(self, graph_id: str, dropped: list[tuple[str, int]]) -> None:
        """Have the ranks forget the labels of traversals."""
        graph = self.graphs.get(graph_id)
        if graph is not None:
            await self._conductor.everyone(graph, "dbfs_drop", graph_id=graph_id, dropped=dropped)

    async def list_runs(self) -> list[RunStatus]:
        """The runs that wait or are under way, in the order in which they came; it looks where they are."""
        await asyncio.gather(*(look(run, self._conductor.ask) for run in self.runs if run.started is not None))
        return [run.status() for run in self.runs]

    async def progress(self, run_id: str) -> RunProgress | None:
        """Where a run was when its ranks were last asked; None before that, and when it is over."""
        return next((run.progress for run in self.runs if run.run_id == run_id), None)

    async def build_stages(self, token: str) -> dict[str, Stage]:
        """See ``build_watch.stages``."""
        return stages(self.scheduler, token)

    async def cancel(self, run_id: str) -> None:
        """End a run by its next level; its client gets ``RunCancelledError``.

        Raises:
            RunNotFoundError: it is over, or never was.
        """
        for run in self.runs:
            if run.run_id == run_id:
                await self._conductor.stop(run, Cause.CANCELLED, "by request")
                return
        raise RunNotFoundError(f"no run {run_id} waits or is under way")

    def remove_client(self, scheduler: distributed.Scheduler, client: str) -> None:  # noqa: ARG002
        """Called by Dask: the client's runs, reservations and nameless graphs end with it."""
        self.reserved = {name: owner for name, owner in self.reserved.items() if owner != client}
        for run in self.runs:
            if run.client == client:
                self._later(self._conductor.stop(run, Cause.CANCELLED, "its client is gone"))
        for graph_id, graph in list(self.graphs.items()):
            if graph.record.client == client and not graph.record.named:
                self._later(self._dissolve(self.graphs.pop(graph_id)))
                self._free(graph)
            else:
                self._later(self._conductor.everyone(graph, "dbfs_forget_client", graph_id=graph_id, client=client))

    async def before_close(self) -> None:
        """Called by Dask: free everything, or it would warn of each graph that it is lost with its worker."""
        for graph in self.graphs.values():
            self._free(graph)
        dashboard.uninstall(self)

    def remove_worker(self, scheduler: distributed.Scheduler, worker: str, **_: Any) -> None:  # noqa: ARG002
        """Called by Dask: every graph with a rank there is lost, and its runs end."""
        for graph in self.graphs.values():
            if worker in graph.record.addresses:
                graph.lost.add(graph.record.addresses.index(worker))
                # Else Dask would compute lost partitions again, from the edges on, on workers that can't have them.
                self._free(graph)
        for run in self.runs:
            if worker in run.workers:
                self._later(self._conductor.lose(run, run.graph.record.addresses.index(worker)))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        # Dask's hooks must not wait for workers; the set keeps the task from being collected.
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _start_runs(self) -> None:
        """Let every run begin whose workers are free and not wanted by a run before it."""
        wanted: set[str] = set()
        for run in self.runs:
            if run.started is None and not run.turn.done() and not wanted & run.workers:
                run.started = time.time()
                run.number = next(run.graph.numbers)
                run.turn.set_result(None)
            wanted |= run.workers

    async def _dissolve(self, graph: GraphEntry) -> None:
        for run in list(self.runs):
            if run.graph is graph:
                await self._conductor.stop(run, Cause.CANCELLED, "the graph was unloaded")
        if graph.maps_gpus:
            await self._conductor.everyone(graph, "dbfs_detach", graph_id=graph.record.graph_id)
        await self._conductor.everyone(graph, "dbfs_leave", graph_id=graph.record.graph_id)
        self._free(graph)

    def _free(self, graph: GraphEntry) -> None:
        self.scheduler.client_releases_keys(keys=graph.record.keys, client=_holder(graph.record.graph_id))


def _holder(graph_id: str) -> str:
    """The client in whose name the scheduler keeps a graph's keys (as Dask's published datasets do)."""
    return f"dbfs-{graph_id}"

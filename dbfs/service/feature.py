"""What a feature adds to the scheduler: a ``SchedulerFeature``, which the service is given.

A feature's class travels with the service, from the client that installs dbfs to the scheduler.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import distributed

from dbfs.base.records import WorkerStatus
from dbfs.cluster.worker_states import rank_order
from dbfs.service.client_notes import ClientNotes
from dbfs.service.entries import GraphEntry, QueuedRun, RunEntry
from dbfs.service.graph_table import GraphTable
from dbfs.service.history import History
from dbfs.service.late_workers import WorkerWatch
from dbfs.service.queue import RunQueue
from dbfs.service.task_runs import TaskRuns
from dbfs.service.turns import Turns
from dbfs.service.worker_calls import WorkerCalls


@dataclass(frozen=True)
class Records:
    """The service's records. They change while the scheduler runs; features read them.

    Attributes:
        graphs: graphs by graph id, in the order of loading.
        queue: runs that wait or are under way.
        turns: runs under way that clients send in their turns.
        history: runs that are over.
        notes: what clients told.
        watch: the states of the workers.
    """

    scheduler: distributed.Scheduler
    graphs: Mapping[str, GraphEntry]
    queue: RunQueue
    turns: Turns
    history: History
    notes: ClientNotes
    watch: WorkerWatch

    @property
    def runs(self) -> list[RunEntry]:
        """The runs that wait or are under way, in the order of arrival."""
        return sorted([*self.queue.runs, *self.turns.runs], key=lambda run: run.queued)

    def blocking(self, workers: frozenset[str]) -> tuple[WorkerStatus, ...]:
        """Return the workers that keep a run from its end: late or paused ones of its own, or of a run before it."""
        ahead = [run.workers for run in self.runs if run.started is not None and run.workers & workers]
        return self.watch.not_ready(sorted(workers.union(*ahead), key=rank_order))


@dataclass(frozen=True)
class ServiceView:
    """The service, as its features see it.

    Attributes:
        table: the graphs, their names and their data.
        workers: calls to the workers.
        turn: queues a run and waits for its turn; the run is over when the context ends. Errors as for ``Enqueue``.
        task_runs: runs of tasks whose turn has come.
    """

    records: Records
    table: GraphTable
    workers: WorkerCalls
    turn: Callable[[QueuedRun], AbstractAsyncContextManager[None]]
    task_runs: TaskRuns

    def graph(self, graph_id: str) -> GraphEntry:
        """Return a graph by its id. Errors as for ``GraphTable.get``."""
        return self.table.get(graph_id)


class SchedulerFeature:
    """A feature's half on the scheduler, made once, as the service starts.

    Its methods that are marked by ``@AMessage.handler`` handle the feature's messages.
    """

    def __init__(self, view: ServiceView) -> None:
        self.view = view

    def close(self) -> None:
        """End what the feature does. Called before the scheduler closes."""


class GraphChanges(SchedulerFeature, ABC):
    """The feature that changes graphs. It handles ``EnqueueUpdate``."""

    @abstractmethod
    async def settle(self, run: QueuedRun) -> None:
        """Have all ranks commit the graph's latest version, before a run whose turn has come.

        Raises:
            LateError: a rank did not answer by the run's deadline.
            WorkerLostError: a rank could not commit the version: then the graph is lost.
        """

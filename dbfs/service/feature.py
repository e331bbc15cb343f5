"""What a feature adds to the scheduler: a ``SchedulerFeature``, which the service is given.

A feature's class travels with the service, from the client that installs dbfs to the scheduler.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import distributed

from dbfs.base.records import WorkerStatus
from dbfs.cluster.worker_states import rank_order
from dbfs.service.client_notes import ClientNotes
from dbfs.service.entries import GraphEntry, RunEntry
from dbfs.service.history import History
from dbfs.service.log import Refusals
from dbfs.service.messages import RunReply
from dbfs.service.turns import Turns
from dbfs.service.worker_calls import WorkerCalls
from dbfs.service.worker_watch import WorkerWatch
from dbfs_workers.serving.rpc import PickledValue
from dbfs_workers.serving.turns.requests import Work


@dataclass(frozen=True)
class Records:
    """The service's records. They change while the scheduler runs; features read them.

    Attributes:
        graphs: graphs by graph id, in the order of loading.
        runs: runs that wait or are under way, in the order of arrival.
        history: runs that are over.
        refusals: runs for which the queue had no place.
        notes: what clients told.
        watch: the states of the workers.
    """

    scheduler: distributed.Scheduler
    graphs: Mapping[str, GraphEntry]
    runs: Sequence[RunEntry]
    history: History
    refusals: Refusals
    notes: ClientNotes
    watch: WorkerWatch

    def blocking(self, workers: frozenset[str]) -> tuple[WorkerStatus, ...]:
        """Return the workers that keep a run from its end: late or paused ones of its own, or of a run before it."""
        ahead = [run.workers for run in self.runs if run.started is not None and run.workers & workers]
        return self.watch.not_ready(sorted(workers.union(*ahead), key=rank_order))


@dataclass(frozen=True)
class ServiceView:
    """The service, as its features see it.

    Attributes:
        graph: returns a graph by its id, or raises ``GraphNotFoundError``.
        turns: leads runs.
    """

    records: Records
    graph: Callable[[str], GraphEntry]
    workers: WorkerCalls
    turns: Turns


class SchedulerFeature:
    """A feature's half on the scheduler, made once, as the service starts.

    Its methods that are marked by ``@AMessage.handler`` handle the feature's messages.
    """

    def __init__(self, view: ServiceView) -> None:
        self.view = view

    def close(self) -> None:
        """End what the feature does. Called before the scheduler closes."""


class GraphChanges(SchedulerFeature, ABC):
    """The feature that changes graphs."""

    @abstractmethod
    async def apply(self, run: RunEntry, work: PickledValue[Work], batch_id: str) -> RunReply:
        """Carry out an update whose turn has come; errors as for ``Enqueue``. What went wrong may be in the answer.

        Args:
            run: the update's run.
            work: the ``Change`` to make.
            batch_id: the update's id; empty for that of the run.
        """

    @abstractmethod
    async def settle(self, run: RunEntry) -> None:
        """Have all ranks commit the graph's latest version, before a run whose turn has come.

        Raises:
            LateError: a rank did not answer by the run's deadline.
            WorkerLostError: a rank could not commit the version: then the graph is lost.
        """

"""Every message that the scheduler answers, as a frozen dataclass. ``SchedulerService`` and its parts handle them.

Clients send them by ``ServiceClient``. Workers' messages are in ``serving.messages``: the fields and answers here
are records of ``dbfs``, which workers do not import.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbfs.base.records import Formation, GraphRecord, GraphStatus, RunProgress, RunStatus
from dbfs.cluster.worker_states import ListNotReady as ListNotReady
from dbfs.cluster.worker_states import ListWorkers as ListWorkers
from dbfs.cluster.worker_states import SchedulerMessage as SchedulerMessage
from dbfs.errors import DbfsError
from dbfs_workers.base.lines.line import Address
from dbfs_workers.base.spec import TraversalPlace
from dbfs_workers.base.text import GraphName, Identifier, ShownText
from dbfs_workers.search.reports import RankReport
from dbfs_workers.serving.rpc import PickledValue
from dbfs_workers.serving.turns.requests import Answer, Work

Stage = tuple[int, int, int, int]
"""Counts of the tasks of one name: tasks under way, tasks that are over, all tasks, bytes of the results so far."""


# Clients.


@dataclass(frozen=True)
class Introduce(SchedulerMessage[None]):
    """Tell what a client is, for the log. The words are not checked; the first ones of a client count."""

    client: Identifier
    user: Identifier
    host: Identifier
    program: Identifier


# Graphs.


@dataclass(frozen=True)
class Reserve(SchedulerMessage[None]):
    """Reserve workers, and a name, for a graph that is about to be built. Dask does not close the workers as idle.

    Attributes:
        graph_id: id of the graph, which alone may take the name.
        client: id of the client that builds the graph; the reservation ends if that client leaves.
        addresses: the workers.
        name: the name; None for a graph without a name.
        replace: whether another graph may have the name, which ``AddGraph`` then unloads.
        first: whether to unload that graph now.

    Raises:
        InvalidOptionError: the name is not printable text of at most 255 characters.
        NameTakenError: another graph has the name, or is being built under it.
        ClientError: the client is not in the cluster.
    """

    graph_id: str
    client: Identifier
    addresses: tuple[str, ...]
    name: GraphName | None
    replace: bool
    first: bool = False


@dataclass(frozen=True)
class EndLoad(SchedulerMessage[None]):
    """Tell that a load failed: the reservation for its graph ends, if there is one, and the log says why.

    Attributes:
        client: id of the client that wanted it.
        name: the graph's name, or what was to be loaded.
        error: the class of the error, a colon, and the message; ``cancelled`` instead of the class of an interrupt.
    """

    graph_id: str
    client: Identifier
    name: ShownText
    error: ShownText


@dataclass(frozen=True)
class ChooseBackend(SchedulerMessage[str]):
    """Return the backend that builds and traverses a graph: ``cpu`` or ``cuda``.

    Attributes:
        addresses: workers of the gang, by rank.
        backend: the requested backend, one of ``records.BACKENDS``.
        exchange: the requested exchange, one of ``records.EXCHANGES``.
        deadline: seconds that the workers may take to answer.

    Raises:
        LateError: a worker did not answer in time.
        BackendUnavailableError: see ``forming.choose_backend``.
        ExchangeUnavailableError: see ``worker_calls.require_reach``.
    """

    addresses: tuple[str, ...]
    backend: str
    exchange: str
    deadline: float


@dataclass(frozen=True)
class TryGang(SchedulerMessage[Formation]):
    """Form a gang without a graph, have its ranks leave again, and return how it was formed.

    The ranks of GPUs are not connected: they map the memory of a graph.

    Attributes:
        addresses, exchange, deadline: see ``ChooseBackend``. The deadline holds for all.

    Raises:
        LateError: a worker did not answer in time.
        WorkerLostError: a worker left meanwhile.
        BackendUnavailableError, ExchangeUnavailableError: see ``forming.form``.
    """

    addresses: tuple[str, ...]
    exchange: str
    deadline: float


@dataclass(frozen=True)
class ChangeReport:
    """The effects of a change. A feature adds what its clients get.

    Attributes:
        record: the graph as it is now.
        applied: whether the graph has the changes; False if a rank refused the whole change.
    """

    record: GraphRecord
    applied: bool


Reports = tuple[tuple[str, PickledValue[ChangeReport]], ...]
"""What clients are told that send changes again, by the ids of batches."""


@dataclass(frozen=True)
class AddGraph(SchedulerMessage[Formation]):
    """Take over the data of a graph that was built, and form its gang; then unload the graph that had its name.

    Attributes:
        deadline: seconds that forming the gang may take.
        reports: what clients that send batches again are told, by batch id.

    Raises:
        LateError: a rank did not answer in time.
        ClientError: the graph's client left in the meantime.
        NameTakenError: the name is not reserved for the graph any more.
        WorkerLostError: a rank's worker left in the meantime.
        BackendUnavailableError, ExchangeUnavailableError, GraphTooLargeError: see ``forming.form``.
    """

    record: GraphRecord
    deadline: float
    reports: Reports = ()


@dataclass(frozen=True)
class OpenGraph(SchedulerMessage[tuple[GraphRecord, Formation]]):
    """Return a graph by its name, and how its gang was formed.

    Raises:
        GraphNotFoundError: no graph has the name; the message lists the names.
    """

    name: GraphName


@dataclass(frozen=True)
class GetGraph(SchedulerMessage[GraphRecord]):
    """Return a graph as it is now, after the updates of all clients.

    Raises:
        GraphNotFoundError: the graph was unloaded.
    """

    graph_id: str


@dataclass(frozen=True)
class ExplainLoss(SchedulerMessage[str]):
    """Return why ranks of a graph lost their workers, in words; empty if Dask does not say."""

    graph_id: str


@dataclass(frozen=True)
class ListGraphs(SchedulerMessage[list[GraphStatus]]):
    """Return every graph in the cluster, in the order of loading."""


@dataclass(frozen=True)
class UnloadGraph(SchedulerMessage[None]):
    """Remove a graph, cancel its runs and free its memory. Ignored if there is no such graph.

    Attributes:
        client: id of the client that unloads it.

    Raises:
        NotOwnerError: another client loaded the graph, without a name.
    """

    graph_id: str
    client: Identifier


@dataclass(frozen=True)
class NoteSave(SchedulerMessage[None]):
    """Tell that a save of a graph begins or is over, for the log.

    Attributes:
        client: id of the client that saves it.
        folder: path or URL of the folder.
        nbytes: bytes of the files of a save that is over; None as it begins, and if it failed.
        error: the error of a save that failed, as of ``EndLoad``; None for others.
    """

    graph_id: str
    client: Identifier
    save_id: Identifier
    folder: ShownText
    nbytes: int | None = None
    error: ShownText | None = None


@dataclass(frozen=True)
class FreeAll(SchedulerMessage[None]):
    """Unload every graph, named ones included, and release the client's labels, because the cluster is about to end."""

    client: Identifier


@dataclass(frozen=True)
class CountBuildTasks(SchedulerMessage[tuple[dict[str, Stage], tuple[int, ...]]]):
    """Return the counts of a build's tasks by name, and the pieces binned by rank.

    Attributes:
        token: ending of the keys of the build's tasks.
    """

    token: str
    ranks: int


# Runs.


@dataclass(frozen=True)
class TurnGrant:
    """A turn that a client holds.

    Attributes:
        address: where rank 0 takes the client's line.
        token: the token that opens a line there.
    """

    turn: int
    address: Address
    token: bytes


@dataclass(frozen=True)
class RunReply:
    """The end of a run, or the turn to make it.

    Attributes:
        answer: rank 0's answer; None if the client is to send the run to rank 0.
        grant: the turn, if the client holds it from now on with a line to rank 0.
        waited: how long the run waited in the queue, and behind which runs, in words.
    """

    answer: Answer | None
    grant: TurnGrant | None
    waited: str = ""


@dataclass(frozen=True)
class Enqueue(SchedulerMessage[RunReply]):
    """Queue a run, and wait until it is over, or until the client has the turn: then it sends the run to rank 0.

    The ranks keep the labels until these are published or dropped, or the client leaves.

    Attributes:
        client: id of the client, which owns the labels.
        run_id: the run's id.
        work: what to make, which the scheduler passes on unread.
        traversals: number of traversals.
        deadline: seconds that the run may take, waiting included.
        holds: whether the client can open a line to rank 0, and so hold the turn.

    Raises:
        GraphNotFoundError: the graph was unloaded.
        ClientError: the client is not in the cluster.
        QueueFullError: too many runs wait already.
        WorkerLostError, DeadlineExceededError, RunCancelledError: the run ended early.
        RunAbortedError, DeviceFailedError, StaleRunError: the run failed.
    """

    graph_id: str
    client: Identifier
    run_id: Identifier
    work: PickledValue[Work]
    traversals: int
    deadline: float
    holds: bool


@dataclass(frozen=True)
class EnqueueTasks(SchedulerMessage[str]):
    """Queue a run whose levels the client submits as Dask tasks; return how long it waited for its turn, in words.

    No other run uses the workers then, until the client tells the end by ``TellTurn``. Errors as for ``Enqueue``.

    Attributes:
        graph_id, client, run_id, deadline: as of ``Enqueue``.
        traversals: number of traversals; 0 for an update.
        update: kind of the update, as of ``Change``; empty for traversals.
    """

    graph_id: str
    client: Identifier
    run_id: Identifier
    traversals: int
    deadline: float
    update: str


@dataclass(frozen=True)
class EnqueueUpdate(SchedulerMessage[Answer]):
    """Queue an update, and wait until it is over; one with the id of a run of tasks that has its turn is made in that.

    An update changes the graph on all ranks at once, or on none: after an error the graph has its version before,
    unless the error is ``WorkerLostError``: then a rank is lost.

    Attributes:
        graph_id, client, run_id, deadline: as of ``Enqueue``.
        work: the ``Change`` to make.
        update: its kind.
        batch_id: an update with the id of one of the graph's last updates is not made again: its report is returned.

    Raises:
        InvalidOptionError: the graph takes no updates.
        GraphTooLargeError, InvalidVertexError: a rank could not prepare the update's version.
        OutcomeUnknownError: the update met its deadline, and may have been made.
        Others as for ``Enqueue``.
    """

    graph_id: str
    client: Identifier
    run_id: Identifier
    work: PickledValue[Work]
    deadline: float
    update: str
    batch_id: Identifier


@dataclass(frozen=True)
class AwaitEnd(SchedulerMessage[None]):
    """Wait until a run of tasks that has its turn is over, or must end early.

    Raises:
        RunNotFoundError: the run is over.
        RunCancelledError, WorkerLostError: the run must end.
    """

    run_id: Identifier
    client: Identifier


RunEnd = PickledValue[list[list[RankReport]]] | DbfsError
"""The end of a run of tasks: by rank, a report of each traversal; or why the run ended early."""


@dataclass(frozen=True)
class TellTurn(SchedulerMessage[None]):
    """Note the progress of a run of tasks, or end the run, which frees its workers. Ignored if the run is over.

    Attributes:
        told: the progress, or the end.
    """

    run_id: Identifier
    client: Identifier
    told: RunProgress | RunEnd


@dataclass(frozen=True)
class ListRuns(SchedulerMessage[list[RunStatus]]):
    """Return the runs that wait or are under way, in the order of arrival, with their progress at this moment."""


@dataclass(frozen=True)
class GetProgress(SchedulerMessage[RunProgress | None]):
    """Return the latest progress of a run; None before the first look at its ranks, and after its end."""

    run_id: Identifier


@dataclass(frozen=True)
class CancelRun(SchedulerMessage[None]):
    """End a run by its next level; its client gets ``RunCancelledError``.

    Attributes:
        client: id of the client that cancels it.

    Raises:
        RunNotFoundError: no run with this id waits or is under way.
        NotOwnerError: another client started the run.
    """

    run_id: Identifier
    client: Identifier


# Labels that ranks keep.


@dataclass(frozen=True)
class PublishLabels(SchedulerMessage[None]):
    """Make traversals' labels Dask data of a client, under the keys of ``search.partition.labels.label_key``.

    Attributes:
        run_id: the run that made the traversals.
        indices: the traversals' indices in the run.
        deadline: seconds that the ranks may take.

    Raises:
        GraphNotFoundError: the graph was unloaded, which freed the labels.
        ResultReleasedError: the labels were dropped.
        WorkerLostError: a rank's worker is lost.
        DeadlineExceededError: a rank did not answer in time.
    """

    graph_id: str
    client: Identifier
    run_id: Identifier
    indices: tuple[int, ...]
    deadline: float


@dataclass(frozen=True)
class DropLabels(SchedulerMessage[None]):
    """Release the labels of traversals on all ranks. Ignored if the graph was unloaded."""

    graph_id: str
    dropped: tuple[TraversalPlace, ...]

"""Updates of living graphs on the scheduler, which enters a version that the ranks have, and settles late ranks.

Rank 0 leads an update in a turn: every rank prepares the next version, and then all commit it. The scheduler has the
version from rank 0 (``EnterUpdate``), whether the update's client holds the turn or not.

A large update is a run of tasks: its client bins the update's edges by tasks, and then sends the update under the run's
id. From then on the client is not needed. A client that dies before leaves bins that Dask drops; one that dies later
leaves a graph that has the whole update or nothing of it.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dbfs.base.records import GraphRecord
from dbfs.errors import InvalidOptionError, LateError, OutcomeUnknownError, WorkerLostError
from dbfs.service.entries import DirectRun, GraphEntry, QueuedRun, values_of
from dbfs.service.feature import GraphChanges, ServiceView
from dbfs.service.messages import ChangeReport, EnqueueUpdate
from dbfs.service.worker_calls import all_answers
from dbfs_workers.features.living.messages import CommitUpdate, RankUpdate, refused_of
from dbfs_workers.serving.answers import answer_well
from dbfs_workers.serving.rpc import PickledValue
from dbfs_workers.serving.turns.changes import totals_of
from dbfs_workers.serving.turns.notes import EnterUpdate
from dbfs_workers.serving.turns.requests import Answer

# Updates of a graph whose ids are known. Each takes some kilobytes.
UPDATES_KEPT: Final = 256


@dataclass(frozen=True)
class UpdateReport(ChangeReport):
    """The effects of an update. Other attributes as of ``ChangeReport``.

    Attributes:
        edges: edges inserted or deleted.
        refused: duplicates of an insertion, or missing edges of a deletion.
        first_refused: one of these, as vertices (positions, if the graph is ordered by degree); None if none was.
        vertices: int64, the vertices inserted or deleted.
        absent: vertices to delete that were deleted before.
    """

    edges: int
    refused: int
    first_refused: tuple[int, int] | None
    vertices: NDArray[np.int64]
    absent: int


@dataclass
class _GraphUpdates:
    """The updates of a graph.

    Attributes:
        unsettled: has a rank commit the latest version, if one has yet to do so.
    """

    unsettled: CommitUpdate | None = None


class Updates(GraphChanges):
    """Carries out updates on the workers."""

    def __init__(self, view: ServiceView) -> None:
        super().__init__(view)
        self._workers, self._turns, self._history = view.workers, view.records.turns, view.records.history
        self._updated: WeakKeyDictionary[GraphEntry, _GraphUpdates] = WeakKeyDictionary()

    @EnqueueUpdate.handler
    async def enqueue_update(self, message: EnqueueUpdate) -> Answer:
        view = self.view
        if view.task_runs.holds(message.run_id):
            async with view.task_runs.applying(message.run_id, message.client) as held:
                return await self._apply(held, message)
        graph = view.graph(message.graph_id)
        run = QueuedRun(graph, message.client, message.run_id, 0, message.deadline, update=message.update)
        async with view.turn(run):
            answer = await self._apply(run, message)
            # An error of a rank is the run's.
            values_of(answer.ranks)
        return answer

    async def _apply(self, run: QueuedRun, message: EnqueueUpdate) -> Answer:
        """Carry out an update whose turn has come; errors as for ``EnqueueUpdate``, those of ranks in the answer."""
        graph = run.graph
        graph.require_whole(f"run {run.run_id}")
        # An update in a turn of its client's has its run's id, and comes this way if its client got no answer there.
        decided = graph.decided
        known = decided.get(message.batch_id) or decided.get(run.run_id)
        if known is not None:
            return Answer((answer_well(PickledValue.of(known)),), last=True)
        if run.update not in ("thaw", "replace"):
            require_mutable(graph.record)
        try:
            answer = (await self._turns.lead(run, message.work, holds=False)).answer
        except LateError as error:
            # Rank 0 may have decided, or decide before the deadline.
            raise OutcomeUnknownError(f"{error}; graph.version shows whether the update was made") from error
        # Only who may hold the turn gets it instead.
        assert answer is not None
        return answer

    async def settle(self, run: QueuedRun) -> None:
        """See ``GraphChanges``. Does nothing if all ranks have said that they committed the version."""
        graph = run.graph
        updated = self._of(graph)
        commit = updated.unsettled
        if commit is None:
            return
        try:
            await all_answers(self._workers.until(run.ends), graph.record.addresses, itertools.repeat(commit))
        except LateError as error:
            late = f"run {run.run_id}: not all ranks have committed version {commit.version} yet: {error}"
            raise LateError(late) from error
        except Exception as error:
            raise self._tear(graph, f"run {run.run_id}: {error}") from error
        updated.unsettled = None

    @EnterUpdate.handler
    async def enter_update(self, message: EnterUpdate) -> PickledValue[Any]:
        graph = self.view.graph(message.graph_id)
        updated, decided = self._of(graph), graph.decided
        if message.batch_id in decided:
            return PickledValue.of(decided[message.batch_id])
        ranks = [rank for rank in message.ranks.value() if isinstance(rank, RankUpdate)]
        if message.torn:
            raise self._tear(graph, message.torn)
        report = decided[message.batch_id] = _report(graph, message.kind, ranks, applied=message.applied)
        if len(decided) > UPDATES_KEPT:
            del decided[next(iter(decided))]
        graph.take(report.record)
        if not message.settled:
            version = ranks[0].version
            updated.unsettled = CommitUpdate(message.graph_id, message.run_id, totals_of(ranks), version)
        run = DirectRun(graph, message.client, message.run_id, 0, message.began, update=message.kind)
        self._history.add_update(run)
        return PickledValue.of(report)

    def _of(self, graph: GraphEntry) -> _GraphUpdates:
        return self._updated.setdefault(graph, _GraphUpdates())

    def _tear(self, graph: GraphEntry, why: str) -> WorkerLostError:
        """Mark a graph as lost, because some ranks have the new version and some the old one; return the error."""
        graph.lost.update(range(graph.record.stripe.p))
        return WorkerLostError(
            f"{graph.record.name}: not all ranks committed the version that an update made; "
            f"load the graph again ({why})"
        )


def require_mutable(record: GraphRecord) -> None:
    """Check that a graph takes updates.

    Raises:
        InvalidOptionError: the graph was not loaded with ``mutable=True``, or is frozen.
    """
    if not record.mutable:
        raise InvalidOptionError(f"{record.name} takes no updates: load it with mutable=True, or thaw() it")


def _report(graph: GraphEntry, kind: str, ranks: Sequence[RankUpdate], *, applied: bool) -> UpdateReport:
    """Return the effects of an update, given what each rank has prepared."""
    first, record = ranks[0], graph.record
    edges, vertices = sum(rank.edges for rank in ranks), first.vertices
    changed = replace(
        record,
        stripe=first.stripe,
        infos=tuple(rank.info for rank in ranks),
        version=first.version,
        beside=record.beside and record.beside.changed([rank.beside for rank in ranks]),
        updated=record.updated + edges + vertices.size,
        mutable={"freeze": False, "thaw": True}.get(kind, record.mutable),
    )
    refused = next((rank.first_refused for rank in ranks if rank.first_refused is not None), None)
    return UpdateReport(
        record=changed if applied else record,
        edges=edges,
        refused=refused_of(kind, ranks),
        first_refused=refused,
        vertices=np.asarray(vertices),
        absent=first.absent,
        applied=applied,
    )

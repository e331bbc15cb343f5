"""Updates of living graphs on the scheduler, which enters a version that the ranks have, and settles late ranks.

Rank 0 leads an update in a turn: every rank prepares the next version, and then all commit it. The scheduler has the
version from rank 0 (``Updates.enter``), whether the update's client holds the turn or not.

A large batch is a run of tasks: its client bins the batch's edges by tasks, and then sends the update under the run's
id. From then on the client is not needed. A client that dies before leaves bins that Dask drops; one that dies later
leaves a graph that has the whole update or nothing of it.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dbfs.base.records import GraphRecord
from dbfs.errors import InvalidOptionError, LateError, OutcomeUnknownError, WorkerLostError
from dbfs.service.entries import GraphEntry, RunEntry
from dbfs.service.history import History
from dbfs.service.messages import Led, UpdateReport
from dbfs.service.turns import Turns
from dbfs.service.worker_calls import WorkerCalls, all_answers
from dbfs_workers.features.living.messages import CommitUpdate, RankUpdate, refused_of, totals_of
from dbfs_workers.serving.rpc import Pickled
from dbfs_workers.serving.turns.notes import EnterUpdate
from dbfs_workers.serving.turns.requests import Answer, Work, answer_well


class Updates:
    """Carries out updates on the workers.

    Args:
        workers: calls to the workers.
        turns: leads runs.
        history: takes the updates that are decided.
    """

    def __init__(self, workers: WorkerCalls, turns: Turns, history: History) -> None:
        self._workers = workers
        self._turns = turns
        self._history = history

    async def apply(self, run: RunEntry, work: Pickled[Work], batch_id: str) -> Led:
        """Carry out an update whose turn has come; errors as for ``Enqueue``. What went wrong may be in the answer."""
        graph = run.graph
        graph.require_whole(f"run {run.run_id}")
        # An update in a turn of its client's has its run's id, and comes this way if its client got no answer there.
        known = graph.decided.get(batch_id) or graph.decided.get(run.run_id)
        if known is not None:
            return Led(Answer((answer_well(Pickled.of(known)),), last=True), None)
        if run.update != "thaw":
            require_mutable(graph.record)
        try:
            return await self._turns.lead(run, work, holds=False)
        except LateError as error:
            # Rank 0 may have decided, or decide before the deadline.
            raise OutcomeUnknownError(f"{error}; graph.version shows whether the update was made") from error

    async def settle(self, run: RunEntry) -> None:
        """Have all ranks commit the graph's latest version, if one of them has not said that it did.

        Raises:
            LateError: a rank did not answer by the run's deadline.
            WorkerLostError: a rank could not commit the version: then the graph is lost.
        """
        graph = run.graph
        commit = graph.unsettled
        if commit is None:
            return
        try:
            await all_answers(self._workers.until(run.ends), graph.record.addresses, itertools.repeat(commit))
        except LateError as error:
            late = f"run {run.run_id}: not all ranks have committed version {commit.version} yet: {error}"
            raise LateError(late) from error
        except Exception as error:
            raise self._tear(graph, f"run {run.run_id}: {error}") from error
        graph.unsettled = None

    def enter(self, graph: GraphEntry, message: EnterUpdate) -> UpdateReport:
        """Enter an update that rank 0 has decided; returns and errors as for ``EnterUpdate``."""
        known = graph.decided.get(message.batch_id)
        if known is not None:
            return known
        ranks = message.ranks.value()
        if message.torn:
            raise self._tear(graph, message.torn)
        report = graph.decide(message.batch_id, _report(graph, message.kind, ranks, applied=message.applied))
        if not message.settled:
            version = ranks[0].version
            graph.unsettled = CommitUpdate(message.graph_id, message.run_id, totals_of(ranks), version)
        run = RunEntry.of_note(graph, message.client, message.run_id, 0, message.began)
        run.update = message.kind
        self._history.add_update(run)
        return report

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

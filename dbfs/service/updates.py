"""Updates of living graphs on the scheduler: every rank prepares the next version, and then all commit it.

Under a lease rank 0 does the same, and the scheduler enters the version afterwards (``Updates.enter``).

An update is a run of tasks: its client bins the batch's edges by tasks, and then sends ``ApplyUpdate``. From then on
the client is not needed. A client that dies before leaves bins that Dask drops; one that dies later leaves a graph that
has the whole update or nothing of it.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dbfs.errors import InvalidOptionError, LateError, WorkerLostError
from dbfs.records import GraphRecord
from dbfs.service.entries import GraphEntry, RunEntry, Unsettled, first_cause, name_lost_rank
from dbfs.service.history import History
from dbfs.service.messages import ApplyUpdate, UpdateReport
from dbfs.service.task_runs import TaskRuns
from dbfs.service.worker_calls import WorkerCalls
from dbfs_workers.leases.notes import EnterUpdate
from dbfs_workers.messages import WorkerMessage
from dbfs_workers.rpc import LATE_SECONDS
from dbfs_workers.updates.messages import (
    CommitUpdate,
    DropUpdate,
    PrepareUpdate,
    RankUpdate,
    refused_of,
    totals_of,
)


class Updates:
    """Carries out updates on the workers.

    Args:
        workers: calls to the workers.
        task_runs: the runs of tasks whose turn has come.
        history: takes the updates that are decided under a lease.
    """

    def __init__(self, workers: WorkerCalls, task_runs: TaskRuns, history: History) -> None:
        self._workers = workers
        self._task_runs = task_runs
        self._history = history
        self._dropping: set[asyncio.Future[None]] = set()

    async def apply(self, message: ApplyUpdate) -> UpdateReport:
        """Carry out an update; returns and errors as for ``ApplyUpdate``."""
        async with self._task_runs.applying(message.run_id, message.client) as held:
            run, graph, graph_id = held.run, held.run.graph, message.graph_id
            graph.require_whole(f"run {run.run_id}")
            # An update under a lease has its run's id, and comes this way if its client got no answer there.
            known = graph.decided.get(message.batch_id) or graph.decided.get(run.run_id)
            if known is not None:
                return known
            if message.kind != "thaw":
                require_mutable(graph.record)
            collections = message.collections or (None,) * graph.record.stripe.p
            prepare = [PrepareUpdate(graph_id, run.run_id, message.spec, each) for each in collections]
            try:
                ranks: list[RankUpdate] = await self._call(run, prepare, run.remaining)
                graph.require_whole(f"run {run.run_id}")
                held.require_going_on()
            except BaseException:
                self._drop(run)
                raise
            if message.strict and (refused_of(message.kind, ranks) or ranks[0].absent):
                self._drop(run)
                return graph.decide(message.batch_id, _report(graph, message.kind, ranks, applied=False))
            # The version is the graph's from here on. A rank that is late commits it when it goes on.
            report = graph.decide(message.batch_id, _report(graph, message.kind, ranks, applied=True))
            graph.unsettled = Unsettled(run.run_id, totals_of(ranks), ranks[0].version)
            with contextlib.suppress(LateError):
                await self.settle(run, run.remaining + LATE_SECONDS)
            return report

    async def settle(self, run: RunEntry, seconds: float) -> None:
        """Have all ranks commit the graph's latest version, if one of them has not said that it did.

        Raises:
            LateError: a rank did not answer within ``seconds``.
            WorkerLostError: a rank could not commit the version: then the graph is lost.
        """
        graph = run.graph
        unsettled = graph.unsettled
        if unsettled is None:
            return
        record, version = graph.record, unsettled.version
        commit = CommitUpdate(record.graph_id, unsettled.run_id, unsettled.totals, version)
        try:
            await self._call(run, [commit] * record.stripe.p, seconds)
        except LateError as error:
            raise LateError(f"run {run.run_id}: not all ranks have committed version {version} yet: {error}") from error
        except Exception as error:
            raise self._tear(graph, str(error)) from error
        graph.unsettled = None

    def enter(self, graph: GraphEntry, message: EnterUpdate) -> UpdateReport:
        """Enter an update that rank 0 has decided under a lease; returns and errors as for ``EnterUpdate``."""
        known = graph.decided.get(message.run_id)
        if known is not None:
            return known
        ranks = message.ranks.value()
        if message.torn:
            raise self._tear(graph, message.torn)
        report = graph.decide(message.run_id, _report(graph, message.kind, ranks, applied=message.applied))
        if not message.settled:
            graph.unsettled = Unsettled(message.run_id, totals_of(ranks), ranks[0].version)
        run = RunEntry.leased(graph, message.client, message.run_id, 0, message.began)
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

    async def _call(self, run: RunEntry, messages: Sequence[WorkerMessage[Any]], seconds: float) -> list[Any]:
        """Send each rank its message, and return the answers by rank.

        Raises:
            WorkerLostError: a rank's worker is lost.
            LateError: a rank did not answer in time.
            Exception: a rank raised it.
        """
        addresses = run.graph.record.addresses
        calls = [
            self._workers.call(address, message, seconds) for address, message in zip(addresses, messages, strict=True)
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        errors = [
            name_lost_rank(run, rank, answer)
            for rank, answer in enumerate(answers)
            if isinstance(answer, BaseException)
        ]
        if errors:
            raise first_cause(errors)
        return answers

    def _drop(self, run: RunEntry) -> None:
        """Have all ranks forget what they prepared. A rank that is late does not delay the update's error."""
        record = run.graph.record
        dropping = asyncio.ensure_future(
            self._workers.call_all(record.addresses, DropUpdate(record.graph_id, run.run_id))
        )
        self._dropping.add(dropping)
        dropping.add_done_callback(self._dropping.discard)


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

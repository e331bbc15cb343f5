"""Updates of living graphs on the scheduler: every rank prepares the next version, and then all commit it.

Under a lease rank 0 has the ranks prepare and commit, and the scheduler decides in between (``Updates.decide``).

An update is a run of tasks: its client bins the batch's edges by tasks, and then sends ``ApplyUpdate``. From then on
the client is not needed. A client that dies before leaves bins that Dask drops; one that dies later leaves a graph that
has the whole update or nothing of it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dbfs.errors import DeadlineExceededError, InvalidOptionError, WorkerLostError
from dbfs.records import GraphRecord
from dbfs.service.entries import GraphEntry, RunEntry, first_cause, name_lost_rank
from dbfs.service.history import History
from dbfs.service.leases import Lease
from dbfs.service.task_runs import TaskRuns
from dbfs.service.update_messages import ApplyUpdate, UpdateReport
from dbfs.service.worker_calls import GRACE, WorkerCalls
from dbfs_workers.leases.notes import DecideUpdate, Decision
from dbfs_workers.messages import WorkerMessage
from dbfs_workers.rpc import Pickled
from dbfs_workers.storage.partition import GraphTotals
from dbfs_workers.updates.messages import CommitUpdate, DropUpdate, PrepareUpdate, RankUpdate


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

    async def apply(self, message: ApplyUpdate) -> UpdateReport:
        """Carry out an update; returns and errors as for ``ApplyUpdate``."""
        async with self._task_runs.applying(message.run_id, message.client) as run:
            graph, graph_id = run.graph, message.graph_id
            graph.require_whole(f"run {run.run_id}")
            if run.run_id == graph.decided[0]:
                return report_of(graph.decided[1])
            if message.kind != "thaw":
                require_mutable(graph.record)
            collections = message.collections or (None,) * graph.record.stripe.p
            prepare = [PrepareUpdate(graph_id, run.run_id, message.spec, each) for each in collections]
            try:
                ranks: list[RankUpdate] = await self._call(run, prepare, run.remaining)
                graph.require_whole(f"run {run.run_id}")
            except BaseException:
                await self._drop(run)
                raise
            report = _report(graph, message.kind, ranks)
            if message.strict and (report.refused or report.absent):
                await self._drop(run)
                return replace(report, record=graph.record, applied=False)
            try:
                commits = [CommitUpdate(graph_id, run.run_id, _totals(ranks))] * len(ranks)
                await self._call(run, commits, run.remaining + GRACE)
            except Exception as error:
                # Some ranks may have the new version and some the old one.
                graph.lost.update(range(len(ranks)))
                lost = f"{graph.record.name}: not all ranks committed version {ranks[0].version}; load the graph again"
                raise WorkerLostError(f"{lost} ({error})") from error
            thawed = {"freeze": False, "thaw": True}.get(message.kind, graph.record.mutable)
            graph.changes.add(report.record.updated - graph.record.updated)
            graph.record = replace(report.record, mutable=thawed)
            return replace(report, record=graph.record)

    def decide(self, lease: Lease, message: DecideUpdate) -> Decision:
        """Decide on an update under a lease; errors as for ``DecideUpdate``."""
        graph, run_id = lease.graph, message.run_id
        if run_id == graph.decided[0]:
            return graph.decided[1]
        graph.require_whole(f"run {run_id}")
        require_mutable(graph.record)
        ranks = message.ranks.value()
        report = _report(graph, message.kind, ranks)
        if message.strict and (report.refused or report.absent):
            decision = Decision(None, Pickled.of(replace(report, record=graph.record, applied=False)))
        else:
            decision = Decision(_totals(ranks), Pickled.of(report))
            lease.decided += 1
            graph.changes.add(report.record.updated - graph.record.updated)
            graph.record = report.record
        graph.decided = run_id, decision
        run = RunEntry.leased(graph, lease.client, run_id, 0, message.began)
        run.update = message.kind
        self._history.add_update(run)
        return decision

    async def _call(self, run: RunEntry, messages: Sequence[WorkerMessage[Any]], seconds: float) -> list[Any]:
        """Send each rank its message, and return the answers by rank.

        Raises:
            WorkerLostError: a rank's worker is lost.
            DeadlineExceededError: a rank did not answer in time.
            Exception: a rank raised it.
        """
        addresses = run.graph.record.addresses
        calls = [
            asyncio.wait_for(self._workers.call(address, message), seconds)
            for address, message in zip(addresses, messages, strict=True)
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        errors: list[BaseException] = []
        for rank, answer in enumerate(answers):
            if isinstance(answer, TimeoutError) and not isinstance(answer, DeadlineExceededError):
                errors.append(DeadlineExceededError(f"run {run.run_id}: no answer from rank {rank} in {seconds:.3g} s"))
            elif isinstance(answer, BaseException):
                errors.append(name_lost_rank(run, rank, answer))
        if errors:
            raise first_cause(errors)
        return answers

    async def _drop(self, run: RunEntry) -> None:
        """Have all ranks forget what they prepared."""
        record = run.graph.record
        await self._workers.call_all(record.addresses, DropUpdate(record.graph_id, run.run_id))


def require_mutable(record: GraphRecord) -> None:
    """Check that a graph takes updates.

    Raises:
        InvalidOptionError: the graph was not loaded with ``mutable=True``, or is frozen.
    """
    if not record.mutable:
        raise InvalidOptionError(f"{record.name} takes no updates: load it with mutable=True, or thaw() it")


def report_of(decision: Decision) -> UpdateReport:
    """Return the report of a decision."""
    report: UpdateReport = decision.report.value()
    return report


def _totals(ranks: Sequence[RankUpdate]) -> GraphTotals:
    """Return the counts of a version over all ranks."""
    return GraphTotals(
        sum(rank.info.m_local for rank in ranks),
        sum(rank.connected for rank in ranks),
        max(rank.info.max_degree for rank in ranks),
    )


def _report(graph: GraphEntry, kind: str, ranks: Sequence[RankUpdate]) -> UpdateReport:
    """Return what an update does, of what each rank has prepared."""
    first, record = ranks[0], graph.record
    edges, vertices = sum(rank.edges for rank in ranks), first.vertices
    changed = replace(
        record,
        stripe=first.stripe,
        infos=tuple(rank.info for rank in ranks),
        version=first.version,
        updated=record.updated + edges + vertices.size,
    )
    refused = next((rank.first_refused for rank in ranks if rank.first_refused is not None), None)
    return UpdateReport(
        record=changed,
        edges=edges,
        # An edge between two deleted vertices comes from both of them.
        refused=0 if kind == "delete-vertices" else sum(rank.refused for rank in ranks),
        first_refused=refused,
        vertices=np.asarray(vertices),
        absent=first.absent,
        applied=True,
    )

"""Conducting a run whose turn has come: start every rank by one call, watch the run, and stop it if it must end early.

``SchedulerService`` decides when a run may start, and calls ``Conductor.conduct``.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from dbfs.errors import LateError, RunCancelledError, UnreachableError, WorkerLostError
from dbfs.service import forming
from dbfs.service.entries import RunEntry, first_cause, name_lost_rank
from dbfs.service.messages import Enqueue
from dbfs.service.run_watch import RunWatch
from dbfs.service.worker_calls import GRACE_SECONDS, WorkerCalls
from dbfs_workers.exchange.protocol import Cause
from dbfs_workers.messages import AbortRun, ReportLostPeer, StartRank
from dbfs_workers.reports import RankReport
from dbfs_workers.rpc import LATE_SECONDS


class Conductor:
    """Carries out runs on the workers."""

    def __init__(self, workers: WorkerCalls) -> None:
        self._workers = workers
        self._stopping: set[asyncio.Future[None]] = set()

    async def conduct(self, run: RunEntry, request: Enqueue) -> list[list[RankReport]]:
        """Start every rank of a run and wait for the reports; returns and errors as for ``Enqueue``."""
        graph = run.graph
        deadline = run.remaining
        start = StartRank(
            graph_id=request.graph_id,
            number=run.number,
            client=request.client,
            specs=request.specs,
            first=request.first,
            deadline=deadline,
            dropped=request.dropped,
        )
        # ``_wait`` ends before: a late rank is one that has not answered by then.
        seconds = deadline + GRACE_SECONDS
        calls = [
            asyncio.ensure_future(self._workers.call(address, start, seconds)) for address in graph.record.addresses
        ]
        watch = RunWatch(run, self._workers)
        try:
            late = await self._wait(run, calls)
        finally:
            watch.stop()
        errors = [
            name_lost_rank(run, rank, error)
            for rank, call in enumerate(calls)
            if call not in late and (error := call.exception()) is not None
        ]
        graph.must_recover = graph.recovers and bool(late or errors)
        if late:
            why = f"not done after {run.deadline:g} s"
            self._begin(self.stop(run, Cause.DEADLINE, why))
            for call in late:
                call.cancel()
            await asyncio.wait(late)
            ranks = ", ".join(str(rank) for rank, call in enumerate(calls) if call in late)
            errors.append(LateError(f"run {run.run_id}: {why}; no answer from rank {ranks}"))
        if errors:
            raise first_cause(errors)
        return [call.result() for call in calls]

    async def stop(self, run: RunEntry, cause: Cause, message: str) -> None:
        """End a run by its next level; a run that waits for its turn ends at once."""
        if run.started is None:
            run.refuse(RunCancelledError(f"run {run.run_id}, waiting for its turn: cancelled: {message}"))
            return
        if cause is Cause.CANCELLED:
            run.cancelled = message
        abort = AbortRun(run.graph.record.graph_id, run.number, cause, message)
        await self._workers.call_all(run.graph.record.addresses, abort)

    async def report_lost_worker(self, run: RunEntry, rank: int) -> None:
        """End a run because the worker of one of its ranks is lost."""
        if run.started is None:
            run.refuse(
                WorkerLostError(f"run {run.run_id}, waiting for its turn: lost rank {rank}; load the graph again")
            )
            return
        lost = ReportLostPeer(run.graph.record.graph_id, run.number, rank)
        await self._workers.call_all(run.graph.record.addresses, lost)

    async def _wait(
        self, run: RunEntry, calls: Sequence[asyncio.Future[list[RankReport]]]
    ) -> set[asyncio.Future[list[RankReport]]]:
        """Wait for the ranks; return the calls that were not answered in time.

        The ranks notice the deadline themselves. ``LATE_SECONDS`` is for a rank that is stopped or out of reach.
        """
        done, late = await asyncio.wait(
            calls, timeout=run.remaining + LATE_SECONDS, return_when=asyncio.FIRST_EXCEPTION
        )
        errors = {rank: call.exception() for rank, call in enumerate(calls) if call in done}
        first = next(((rank, error) for rank, error in errors.items() if error is not None), None)
        if late and first is not None:
            rank, error = first
            if not run.graph.maps_gpus:
                # Ranks that exchange through hosts tell each other of a failure, unless the rank failed before its
                # first crossing. Resident kernels never do.
                late = (await asyncio.wait(calls, timeout=min(LATE_SECONDS, run.remaining + LATE_SECONDS)))[1]
            if late:
                if isinstance(error, UnreachableError):
                    self._begin(self.report_lost_worker(run, rank))
                else:
                    self._begin(self.stop(run, Cause.FAILED, f"rank {rank} failed first: {error}"))
                late = (await asyncio.wait(calls, timeout=min(GRACE_SECONDS, run.remaining + LATE_SECONDS)))[1]
        return late

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin to end a run. A rank that is stopped does not answer, and must not delay the run's error."""
        task = asyncio.ensure_future(work)
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def recover(self, run: RunEntry) -> None:
        """Clear the state that the run before this one left on the ranks, if it failed.

        Raises:
            ExchangeUnavailableError: a host can't be reached.
            LateError: a rank did not answer before the run's deadline.
        """
        graph = run.graph
        if graph.must_recover:
            try:
                await forming.connect(graph.record, self._workers.until(run.ends))
            except LateError as error:
                raise LateError(
                    f"run {run.run_id}: some ranks did not recover from the previous failed run within its deadline: "
                    f"{error}"
                ) from error
            graph.must_recover = False

"""Carrying out a run whose turn has come: the ranks are called once each, watched, and told where it has to end early.

Part of the service (``dbfs.service.scheduler``), which knows the graphs and whose turn it is.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import distributed

from dbfs.errors import DeadlineExceededError, RunCancelledError, WorkerLostError
from dbfs.service import forming
from dbfs.service.entries import GraphEntry, RunEntry, UnreachableError, cause_of, of_rank
from dbfs.service.run_watch import RunWatch
from dbfs_workers.exchange.protocol import Cause
from dbfs_workers.reports import RankReport
from dbfs_workers.rpc import unpack

# Seconds. The ranks notice a deadline themselves; this is for one that can't (it is stopped, or out of reach).
_GRACE = 2.0


class Conductor:
    """Talks to the workers for the service."""

    def __init__(self, scheduler: distributed.Scheduler) -> None:
        self.scheduler = scheduler

    async def ask(self, address: str, op: str, **message: Any) -> Any:
        """Call a handler of a worker; raises what it raises.

        Raises:
            UnreachableError: the call broke off.
        """
        try:
            answer = await getattr(self.scheduler.rpc(address), op)(**message)
        except OSError as error:
            raise UnreachableError(f"lost the worker {address}: {error}; load the graph again") from error
        return unpack(answer)

    async def everyone(self, graph: GraphEntry, op: str, **message: Any) -> None:
        """Tell all workers of a gang that are there; nobody waits long for one that does not answer."""
        there = [address for address in graph.record.addresses if address in self.scheduler.workers]
        asked = [asyncio.wait_for(self.ask(address, op, **message), _GRACE) for address in there]
        await asyncio.gather(*asked, return_exceptions=True)

    async def conduct(
        self, run: RunEntry, specs: bytes, deadline: float, dropped: list[tuple[str, int]]
    ) -> list[list[RankReport]]:
        """See ``SchedulerService.enqueue``."""
        graph = run.graph
        await self._recover(run, deadline)
        message = {
            "graph_id": graph.record.graph_id,
            "number": run.number,
            "client": run.client,
            "specs": specs,
            "deadline": deadline,
            "dropped": dropped,
        }
        calls = [
            asyncio.ensure_future(self.ask(address, "dbfs_start_rank", **message)) for address in graph.record.addresses
        ]
        watch = RunWatch(run, self.ask)
        try:
            late = await self._wait(run, calls, deadline)
        finally:
            watch.stop()
        errors = [
            of_rank(run, rank, error)
            for rank, call in enumerate(calls)
            if call not in late and (error := call.exception()) is not None
        ]
        graph.failed = graph.maps_gpus and bool(late or errors)
        if late:
            await self.stop(run, Cause.DEADLINE, f"not done after {deadline:g} s")
            for call in late:
                call.cancel()
            await asyncio.wait(late)
            ranks = ", ".join(str(rank) for rank, call in enumerate(calls) if call in late)
            errors.append(
                DeadlineExceededError(f"run {run.run_id}: not done after {deadline:g} s; no answer from rank {ranks}")
            )
        if errors:
            raise cause_of(errors)
        return [call.result() for call in calls]

    async def stop(self, run: RunEntry, cause: Cause, message: str) -> None:
        """End a run by its next level, or before its turn."""
        if run.started is None:
            run.refuse(RunCancelledError(f"run {run.run_id}, waiting for its turn: {message}"))
            return
        graph = run.graph
        await self.everyone(
            graph,
            "dbfs_abort",
            graph_id=graph.record.graph_id,
            number=run.number,
            cause=int(cause),
            message=message,
        )

    async def lose(self, run: RunEntry, rank: int) -> None:
        """End a run one of whose workers is gone."""
        if run.started is None:
            run.refuse(
                WorkerLostError(f"run {run.run_id}, waiting for its turn: lost rank {rank}; load the graph again")
            )
            return
        message = {"graph_id": run.graph.record.graph_id, "number": run.number, "rank": rank}
        await self.everyone(run.graph, "dbfs_peer_lost", **message)

    async def _wait(
        self, run: RunEntry, calls: Sequence[asyncio.Future[list[RankReport]]], deadline: float
    ) -> set[asyncio.Future[list[RankReport]]]:
        """Wait for the ranks; returns the calls that were not answered in time."""
        if not run.graph.maps_gpus:
            return (await asyncio.wait(calls, timeout=deadline + _GRACE))[1]
        # Kernels don't tell each other of a failure: somebody has to, at the first.
        done, late = await asyncio.wait(calls, timeout=deadline + _GRACE, return_when=asyncio.FIRST_EXCEPTION)
        errors = {rank: call.exception() for rank, call in enumerate(calls) if call in done}
        first = next(((rank, error) for rank, error in errors.items() if error is not None), None)
        if late and first is not None:
            rank, error = first
            if isinstance(error, UnreachableError):
                await self.lose(run, rank)
            else:
                await self.stop(run, Cause.FAILED, f"rank {rank} failed first: {error}")
            late = (await asyncio.wait(calls, timeout=_GRACE))[1]
        return late

    async def _recover(self, run: RunEntry, deadline: float) -> None:
        """Have the ranks forget an earlier run that failed."""
        graph = run.graph
        if graph.failed:
            try:
                await forming.recover(graph.record, self.ask, deadline)
            except TimeoutError:
                raise DeadlineExceededError(
                    f"run {run.run_id}: not all ranks got over a run that failed before, after {deadline:g} s"
                ) from None
            graph.failed = False

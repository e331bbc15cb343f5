"""Leases on the scheduler: which client may send its runs to which gang, and when that ends.

A lease is granted to a run whose turn has come, if the run has several traversals or if its client made the graph's
last run. The lease lasts until another run wants one of the gang's workers, or until the client, a worker or the graph
leaves the cluster. An update of a few edges by the client itself leaves the lease. Rank 0 ends the lease: see
``dbfs_workers.leases``.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from typing import Final

from dbfs.errors import DbfsError, LateError, ResourceError
from dbfs.service.entries import Doors, GraphEntry, RunEntry
from dbfs.service.forming import EPOCHS
from dbfs.service.history import History
from dbfs.service.messages import LeaseGrant
from dbfs.service.run_watch import RunWatch
from dbfs.service.worker_calls import GRACE_SECONDS, WorkerCalls
from dbfs_workers.exchange.protocol import Cause
from dbfs_workers.leases.messages import EndLease, GrantLease, LeaseEnd, OpenDoor
from dbfs_workers.leases.notes import NoteRuns, RunEnded
from dbfs_workers.lines.line import new_token

logger = logging.getLogger(__name__)

# Seconds after a revocation in which single traversals get no lease. Several clients, or threads of one, then traverse
# in turn, and each would revoke the lease of the one before: a lease costs more than it saves.
_NO_LEASE_SECONDS: Final = 0.5
# Added to the serial numbers of a gang whose rank 0 did not say which numbers the lease has used.
_SKIPPED_NUMBERS: Final = 1 << 20


class Lease:
    """A client's lease on a gang.

    Attributes:
        graph: the graph of the gang.
        client: id of the holder.
        serial: serial number of the lease.
        first_number: the gang's serial number of the lease's first run.
        ending: the task that ends the lease on rank 0; None until the lease is to end.
        run: the run under way, once it is seen.
        watch: looks at that run.
    """

    def __init__(self, graph: GraphEntry, client: str, serial: int, first_number: int) -> None:
        self.graph = graph
        self.client = client
        self.serial = serial
        self.first_number = first_number
        self.ending: asyncio.Task[None] | None = None
        self.run: RunEntry | None = None
        self.watch: RunWatch | None = None


class Leases:
    """The leases of all gangs.

    Args:
        workers: calls workers.
        runs: the service's runs, among them the leased runs that are seen under way.
        history: takes the runs that ended.
        start_runs: starts the runs that waited for a lease's end.
    """

    def __init__(
        self, workers: WorkerCalls, runs: list[RunEntry], history: History, start_runs: Callable[[], None]
    ) -> None:
        self._workers = workers
        self._runs = runs
        self._history = history
        self._start_runs = start_runs
        self._serials = itertools.count(1)
        self._held: dict[str, Lease] = {}

    async def grant(self, run: RunEntry) -> LeaseGrant | None:
        """Grant a lease to the client of a run whose turn has come; None if the scheduler is to conduct the run."""
        graph, now = run.graph, time.monotonic()
        streak, graph.last_client = graph.last_client == run.client, run.client
        if not graph.leasable or not (run.traversals > 1 or (streak and now - graph.revoked > _NO_LEASE_SECONDS)):
            return None
        record, serial, token = graph.record, next(self._serials), new_token()
        # Not the run's own number: if the run was cancelled meanwhile, the ranks abort whatever has that number.
        number = next(graph.numbers)
        call = self._workers.until(time.monotonic() + min(GRACE_SECONDS, run.remaining))
        try:
            doors = graph.doors
            if doors is None:
                opening = OpenDoor(record.graph_id, new_token(), next(EPOCHS))
                calls = (call(address, opening) for address in record.addresses[1:])
                doors = graph.doors = Doors(tuple(await asyncio.gather(*calls)), opening.token, opening.epoch)
            granting = GrantLease(
                graph_id=record.graph_id,
                lease=serial,
                client=run.client,
                number=number,
                run_id=run.run_id,
                token=token,
                addresses=record.addresses[1:],
                doors=doors.addresses,
                doors_token=doors.token,
                epoch=doors.epoch,
                seconds=min(GRACE_SECONDS, run.remaining),
                order_key=record.order_key,
            )
            address = await call(record.addresses[0], granting)
        except Exception as error:
            # If a worker is lost or late, the run finds that out. Whatever else fails, the run does without a lease.
            graph.doors = None
            graph.leasable = isinstance(error, LateError | ResourceError)
            logger.log(
                logging.INFO if isinstance(error, DbfsError) else logging.WARNING,
                "no lease on %s: %s",
                record.name,
                error,
            )
            return None
        lease = self._held[record.graph_id] = Lease(graph, run.client, serial, number)
        # Listed on: the client sends this run to rank 0 next.
        listed = RunEntry.leased(graph, run.client, run.run_id, run.traversals, run.queued)
        listed.number = number
        self._list_run(lease, listed)
        return LeaseGrant(serial, address, token, run.waited())

    def revoke(self, run: RunEntry) -> bool:
        """Begin to end the leases that hold any of a run's workers; return whether there are any."""
        held = [lease for lease in self._held.values() if run.workers & set(lease.graph.record.addresses)]
        for lease in held:
            lease.graph.revoked = time.monotonic()
            if lease.ending is None:
                lease.ending = asyncio.ensure_future(self._end(lease, EndLease(_graph_id(lease), lease.serial)))
        return bool(held)

    async def stop(self, graph_id: str, cause: Cause, message: str, lost: int = 0) -> None:
        """End the lease of a gang, if there is one, and its run under way at once."""
        lease = self._held.get(graph_id)
        if lease is None:
            return
        ending = EndLease(graph_id, lease.serial, cause, message, lost)
        # A rank that is stopped does not answer, and must not delay the message to rank 0.
        others = asyncio.ensure_future(self._workers.call_all(lease.graph.record.addresses[1:], ending))
        stopping = asyncio.ensure_future(self._end(lease, ending))
        # A revocation that waits for the run's end goes on.
        lease.ending = lease.ending or stopping
        await asyncio.wait([others, stopping])

    def held_by(self, client: str) -> list[str]:
        """Return the ids of the graphs on whose gangs a client has a lease."""
        return [graph_id for graph_id, lease in self._held.items() if lease.client == client]

    def note(self, notes: NoteRuns) -> None:
        """Take notes of a lease's runs into the history and into the list of runs."""
        lease = self._held.get(notes.graph_id)
        if lease is None or lease.serial != notes.lease:
            return
        for ended in notes.ended:
            self._note_ended(lease, ended)
        under_way = notes.under_way
        if under_way is not None:
            if lease.run is None or lease.run.run_id != under_way.run_id:
                self._forget_run(lease)
                began = under_way.began
                run = RunEntry.leased(lease.graph, lease.client, under_way.run_id, under_way.traversals, began)
                self._list_run(lease, run)
            if lease.run is not None:
                lease.run.number, lease.run.before = under_way.number, under_way.finished

    def _note_ended(self, lease: Lease, ended: RunEnded) -> None:
        lease.graph.runs += not ended.update
        run = lease.run
        if run is not None and run.run_id == ended.run_id:
            self._forget_run(lease)
        else:
            run = RunEntry.leased(lease.graph, lease.client, ended.run_id, ended.traversals, ended.began)
        run.traversals, run.update = ended.traversals, ended.update
        summary = ended.summary.value()
        if ended.error is not None:
            self._history.fail(run, ended.error)
        elif summary is not None:
            self._history.add(run, summary)

    async def _end(self, lease: Lease, ending: EndLease) -> None:
        """End a lease on rank 0, and note the state of its gang."""
        graph = lease.graph
        unknown = LeaseEnd(lease.first_number + _SKIPPED_NUMBERS, failed=True)
        end = None
        while end is None and self._held.get(graph.record.graph_id) is lease:
            try:
                end = await self._workers.call(graph.record.addresses[0], ending, GRACE_SECONDS)
            except LateError:
                # A run may go on to the end of its current burst, but a run that is stopped ends at once.
                end = None if ending.cause is None else unknown
            except DbfsError:
                # Rank 0 is lost, or is no rank any more.
                end = unknown
        if end is not None and self._held.get(graph.record.graph_id) is lease:
            del self._held[graph.record.graph_id]
            # An answer came already, and was late itself: rank 0 has forgotten the lease.
            end = end if end.number else unknown
            graph.numbers = itertools.count(end.number)
            graph.must_recover = graph.recovers and end.failed
            if end.failed:
                graph.doors = None
            self._forget_run(lease)
            self._start_runs()

    def _list_run(self, lease: Lease, run: RunEntry) -> None:
        """Put the run under way on the list of runs, which is in the order of arrival, and begin to watch the run."""
        later = (at for at, other in enumerate(self._runs) if other.queued > run.queued)
        self._runs.insert(next(later, len(self._runs)), run)
        lease.run = run
        lease.watch = RunWatch(run, self._workers)

    def _forget_run(self, lease: Lease) -> None:
        """Take the run under way off the list of runs."""
        if lease.run is not None:
            self._runs.remove(lease.run)
            lease.run = None
        if lease.watch is not None:
            lease.watch.stop()
            lease.watch = None


def _graph_id(lease: Lease) -> str:
    return lease.graph.record.graph_id

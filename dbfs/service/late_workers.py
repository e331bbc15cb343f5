"""The states of the workers: which are late, which are paused, and the lines of the log that say so.

A worker sends heartbeats to the scheduler, so no message asks for its state. Dask itself removes a worker that was
silent for ``distributed.scheduler.worker-ttl``, which is minutes.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import distributed
from distributed.core import Status
from tornado.ioloop import PeriodicCallback

from dbfs import config
from dbfs.base.records import WorkerState, WorkerStatus
from dbfs.service import log
from dbfs.service.entries import GraphEntry

# Seconds between two looks.
_LOOK_SECONDS: Final = 1.0
# Seconds after which the log says again that a worker is late or paused.
_AGAIN_SECONDS: Final = 60.0


class WorkerWatch:
    """Looks at the workers every second until the scheduler closes.

    Args:
        graphs: the graphs by graph id. A look sets whether each is ``stuck``.
        start_runs: starts the runs that waited behind those of a graph that is stuck.
    """

    def __init__(
        self, scheduler: distributed.Scheduler, graphs: Mapping[str, GraphEntry], start_runs: Callable[[], None]
    ) -> None:
        self._scheduler = scheduler
        self._graphs = graphs
        self._start_runs = start_runs
        self._silence = config.seconds("silence")
        # By address, as of the last look, and when the log said last that the worker is not ready.
        self._seen: dict[str, WorkerStatus] = {}
        self._said: dict[str, float] = {}
        # When the scheduler itself was stopped last. Times are in seconds since the epoch, as Dask's.
        self._listening, self._looked = 0.0, time.time()
        # The scheduler stops these when it closes.
        looks = PeriodicCallback(self.look, 1e3 * min(_LOOK_SECONDS, self._silence / 4))
        scheduler.periodic_callbacks["dbfs-workers"] = looks
        looks.start()

    def statuses(self, addresses: Iterable[str]) -> list[WorkerStatus]:
        """Return the workers at some addresses as they are now, without those that left."""
        # Once for all workers: a graph may have a rank on each.
        names: dict[str, list[str]] = defaultdict(list)
        for graph in self._graphs.values():
            for address in dict.fromkeys(graph.record.addresses):
                names[address].append(graph.record.name)
        there = (address for address in addresses if address in self._scheduler.workers)
        return [self._status(address, tuple(names[address])) for address in there]

    def not_ready(self, addresses: Iterable[str]) -> tuple[WorkerStatus, ...]:
        """Return those workers at some addresses that are late or paused."""
        return tuple(worker for worker in self.statuses(addresses) if worker.state is not WorkerState.READY)

    def look(self) -> None:
        """Note the states of all workers; log those that changed, and again and again those that are not ready."""
        now = time.time()
        if now - self._looked > self._silence / 2:
            # The scheduler was stopped, or its clock was set: its workers were not silent meanwhile.
            self._listening = now
        self._looked = now
        seen = {worker.address: worker for worker in self.statuses(self._scheduler.workers)}
        for worker in seen.values():
            last = self._seen.get(worker.address)
            changed = last is None or last.state is not worker.state
            if worker.state is WorkerState.READY:
                if last is not None and changed:
                    log.worker_ready(worker, last)
            elif changed or now - self._said[worker.address] >= _AGAIN_SECONDS:
                self._said[worker.address] = now
                log.worker_not_ready(worker)
        self._seen = seen
        late = {worker.address for worker in seen.values() if worker.state is WorkerState.LATE}
        for graph in self._graphs.values():
            graph.stuck = graph.formed.backend == "cpu" and not late.isdisjoint(graph.record.addresses)
        self._start_runs()
        self._said = {address: said for address, said in self._said.items() if address in seen}

    def _status(self, address: str, graphs: tuple[str, ...]) -> WorkerStatus:
        worker, now = self._scheduler.workers[address], time.time()
        silent = max(0.0, now - max(worker.last_seen, self._listening))
        state = WorkerState.PAUSED if worker.status is Status.paused else WorkerState.READY
        state = WorkerState.LATE if silent >= self._silence else state
        last = self._seen.get(address)
        return WorkerStatus(
            address=address,
            name=str(worker.name),
            host=worker.host,
            state=state,
            since=now if last is None or last.state is not state else last.since,
            memory=worker.metrics.get("memory", 0),
            memory_limit=worker.memory_limit or 0,
            silent=silent,
            graphs=graphs,
        )

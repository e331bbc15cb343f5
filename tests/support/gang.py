"""A gang without Dask: one process a rank. Pipes carry the calls that the service would send to the workers."""

import contextlib
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.search.exchange.hosts import Hosts
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import NO_VERTEX, Stripe
from dbfs_workers.search.reports import COUNT_FIELDS, join
from dbfs_workers.search.reports.counts import LARGEST, Largest, Total
from tests.support.partitions import build
from tests.support.processes import context

PATIENCE = 60.0
"""Seconds that the test waits for an answer of a rank."""


class Told(NamedTuple):
    """What the ranks tell each other at a crossing of a test, of either rule."""

    ranks: Total
    ids: Total
    calls: Total
    highest: Largest
    lowest: Largest


class Worker:
    """State of a rank's process. The test calls the methods by their names."""

    exchange: Any
    door: Any = None
    team: Any = None
    scratch: Any = None
    end: Any = None

    def join(self, stripe: Stripe, entries: int | None, rank: int, hosts: Any) -> None:
        from dbfs_workers.search.exchange.across_hosts import end_of
        from tests.support.exchanges import plain_door

        self.door = self.door or plain_door()
        self.exchange = end_of(stripe, rank, "gang", hosts, self.door, entries)

    def offer(self) -> Any:
        return self.exchange.offer()

    def connect(self, offers: Any) -> None:
        self.exchange.connect(offers)

    def break_streams(self, host: int) -> None:
        """Cut the connection to a host, as a router between the two might."""
        self.exchange._links[host].live()._connection.shutdown(2)

    def narrow(self, size: int) -> None:
        """Give the connections to other hosts small buffers, so that the kernel can't send a whole frame."""
        for link in self.exchange._links.values():
            for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                link.live()._connection.setsockopt(socket.SOL_SOCKET, buffer, size)

    def leave_frames_to_python(self) -> None:
        """Have Python send and receive all frames, as with TLS."""
        for link in self.exchange._links.values():
            link.enter_kernel = lambda: None
            link._row[0] = -1

    def load(self, partition: Partition, backend: str, staged: bool, team: int) -> None:
        from dbfs_workers.base.team import Team
        from dbfs_workers.search import backends
        from dbfs_workers.search.cpu import team_calls as cpu_team_calls
        from dbfs_workers.search.cpu.kernels.team_tasks import TASKS
        from dbfs_workers.search.exchange.staged import StagedExchange
        from dbfs_workers.search.partition.scratch import Scratch
        from dbfs_workers.search.partition.shared_rows import share

        self.backend = backends.get(backend)
        if backend == "cpu":
            partition = share(partition)
        if team and self.team is None:
            # The threads share all levels, however small.
            cpu_team_calls.LEAST_EDGES = cpu_team_calls.LEAST_ROWS = cpu_team_calls.LEAST_ENTRIES = 1  # type: ignore[misc]
            self.team = Team(team, TASKS)
        self.scratch = Scratch(partition, self.backend.xp)
        self.scratch.team = self.team
        self.end = StagedExchange(self.exchange, partition.stripe, self.backend) if staged else self.exchange

    def run(self, specs: list[TraversalSpec], number: int, seconds: float) -> list[Any]:
        from dbfs_workers.search.levels import loop
        from dbfs_workers.search.levels.traversals import Watch
        from dbfs_workers.search.partition.labels import RankLabels

        levels, watch = levels_of(self.scratch, self.end, self.backend.name), Watch(number)
        runs = loop.traverse(levels, specs, self.end, watch=watch, deadline=time.monotonic() + seconds)
        to_host, labels = self.backend.to_host, [run.labels for run in runs]
        parents = [None if of.predecessors is None else to_host(of.predecessors) for of in labels]
        return [
            replace(run, labels=RankLabels(to_host(of.distances), above))
            for run, of, above in zip(runs, labels, parents, strict=True)
        ]

    def weigh(self, specs: list[TraversalSpec], number: int, seconds: float, weights: NDArray[Any]) -> list[Any]:
        """Traverse by weight."""
        from dbfs_workers.features.weights.levels import WeightLevels
        from dbfs_workers.features.weights.storage import WeightScratch
        from dbfs_workers.search.levels import loop
        from dbfs_workers.search.levels.traversals import Watch

        scratch = WeightScratch(self.scratch.partition, weights)
        watch, deadline = Watch(number), time.monotonic() + seconds
        return loop.traverse(lambda: WeightLevels(scratch, self.end), specs, self.end, watch=watch, deadline=deadline)

    def cross(self, number: int, times: int, seconds: float, run_id: str) -> list[Told]:
        self.exchange.begin(run_id, number, time.monotonic() + seconds)
        rank = self.exchange.rank
        return [self.exchange.cross(i, "test", Told(1, rank, i, rank, -rank), sliced=False) for i in range(times)]

    def fail(self, number: int) -> None:
        """Break inside a run: the rank's state is unusable."""
        del self.scratch.queues
        self.run([spec(0)], number, PATIENCE)

    def abort(self, number: int, cause: Cause, message: str) -> None:
        self.exchange.abort(number, cause, message)

    def close(self) -> bool:
        """Close the exchange and forget the graph; return whether shared memory is still mapped."""
        self.exchange.close()
        self.scratch = self.end = None
        with open("/proc/self/maps") as maps:  # noqa: PTH123
            return "memfd:dbfs" in maps.read()


def serve(pipe: Connection) -> None:
    worker = Worker()
    sending = threading.Lock()

    def call(ticket: int, name: str, arguments: tuple[Any, ...]) -> None:
        try:
            answer = getattr(worker, name)(*arguments)
        except Exception as error:
            # The traceback would keep the rank's state, and with it shared memory, for some time.
            answer = error.with_traceback(None)
        with sending:
            pipe.send((ticket, answer))

    # A thread per call: during a run the rank must still take the call that aborts it.
    with contextlib.suppress(EOFError):
        while True:
            threading.Thread(target=call, args=pipe.recv(), daemon=True).start()


@dataclass
class Call:
    """A call that a rank has not answered yet."""

    gang: "Gang"
    rank: int
    ticket: int

    def result(self) -> Any:
        """Wait for the call; return its result, or raise its error."""
        return self.gang.answer(self.rank, self.ticket)


class Gang:
    """Processes of ``p`` ranks.

    With ``staged`` they use the exchange that copies device arrays through the host. ``entries`` is the size of a bin.
    ``hosts`` has the host that each rank pretends to be on; all are on one by default. ``team`` threads share
    all levels of a rank; 0 for none.
    """

    def __init__(
        self,
        p: int,
        backend: str = "cpu",
        *,
        staged: bool = False,
        entries: int | None = None,
        hosts: tuple[int, ...] | None = None,
        team: int = 0,
    ) -> None:
        self.p = p
        self.backend = backend
        self.team = team
        self.staged = staged
        self.entries = entries
        self.hosts = Hosts(hosts or (0,) * p)
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []
        self.answers: list[dict[int, Any]] = [{} for _ in range(p)]
        self.tickets = 0
        self.number = 0
        for _ in range(p):
            mine, theirs = multiprocessing.Pipe()
            process = context(backend).Process(target=serve, args=(theirs,), daemon=True)
            process.start()
            self.pipes.append(mine)
            self.processes.append(process)

    def call(self, rank: int, name: str, *arguments: Any) -> Call:
        self.tickets += 1
        self.pipes[rank].send((self.tickets, name, arguments))
        return Call(self, rank, self.tickets)

    def answer(self, rank: int, ticket: int) -> Any:
        while ticket not in self.answers[rank]:
            if not self.pipes[rank].poll(PATIENCE):
                raise TimeoutError(f"rank {rank} hangs")
            came, answer = self.pipes[rank].recv()
            self.answers[rank][came] = answer
        answer = self.answers[rank].pop(ticket)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def everywhere(self, name: str, *arguments: Any, ranks: Sequence[int] | None = None) -> list[Call]:
        return [self.call(rank, name, *arguments) for rank in (range(self.p) if ranks is None else ranks)]

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def join(self, stripe: Stripe) -> None:
        # Of a staged gang the bins on the host are as large as those on the device.
        entries = stripe.n_local if self.staged else self.entries
        for joined in [self.call(rank, "join", stripe, entries, rank, self.hosts) for rank in range(self.p)]:
            joined.result()
        self.connect()
        self.number = 0

    def connect(self) -> None:
        """Connect the ranks, or make what a failed run broke anew, as the service does."""
        offers = [call.result() for call in self.everywhere("offer")]
        for connected in self.everywhere("connect", offers):
            connected.result()

    def load(self, partitions: Sequence[Partition]) -> None:
        self.join(partitions[0].stripe)
        loading = [
            self.call(rank, "load", partition, self.backend, self.staged, self.team)
            for rank, partition in enumerate(partitions)
        ]
        for loaded in loading:
            loaded.result()

    def run(self, *specs: TraversalSpec) -> list["Answer"]:
        number = self.next_number()
        ranks = [call.result() for call in self.everywhere("run", list(specs), number, PATIENCE)]
        return [Answer(runs) for runs in zip(*ranks, strict=True)]

    def disconnect(self) -> list[bool]:
        return [call.result() for call in self.everywhere("close")]

    def kill(self, rank: int) -> None:
        self.processes[rank].kill()

    def stop(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(5)
            process.kill()
            process.join()


@contextlib.contextmanager
def started(
    p: int, backend: str = "cpu", *, staged: bool = False, hosts: tuple[int, ...] | None = None
) -> Iterator[Gang]:
    """Start a gang for one test, which may break it; check that no shared memory remains afterwards."""
    before = shared_segments()
    gang = Gang(p, backend, staged=staged, hosts=hosts)
    try:
        yield gang
    finally:
        gang.stop()
    assert shared_segments() <= before


def shared_segments() -> set[str]:
    """Return the names of Python's segments of shared memory. Other programs use the same folder."""
    return {path.name for path in Path("/dev/shm").glob("psm_*")}


class Answer:
    """Labels of one traversal, joined from the ranks' results."""

    def __init__(self, ranks: Sequence[Any]) -> None:
        self.ranks = ranks

    def distances(self, stripe: Stripe) -> NDArray[np.int32]:
        return self._join(stripe, [run.labels.distances for run in self.ranks])

    def parents(self, stripe: Stripe) -> NDArray[np.int64]:
        ids = self._join(stripe, [run.labels.predecessors for run in self.ranks]).astype(np.int64)
        return np.where(ids == NO_VERTEX, -1, stripe.vertex(ids))

    def total(self, value: Callable[[Any], Any]) -> Any:
        return sum(value(run) for run in self.ranks)

    def counts(self) -> dict[str, NDArray[np.int64]]:
        """Return the counts of the levels by name, over all ranks."""
        return dict(
            zip(COUNT_FIELDS, join(np.stack([run.counts for run in self.ranks]), (0,), LARGEST)[0].T, strict=True)
        )

    @staticmethod
    def _join(stripe: Stripe, parts: list[NDArray[Any]]) -> NDArray[Any]:
        whole = np.empty(stripe.n, parts[0].dtype)
        for rank, part in enumerate(parts):
            whole[rank :: stripe.p] = part[: stripe.owned(rank)]
            # The padding is never reached.
            assert (part[stripe.owned(rank) :] == part.dtype.type(-1 if part.dtype == np.int32 else NO_VERTEX)).all()
        return whole


def spec(*sources: int, **options: Any) -> TraversalSpec:
    given: dict[str, Any] = {"run_id": "run", "sources": sources, "predecessors": False, "backend": "cpu"}
    return TraversalSpec(**(given | options))


def levels_of(scratch: Any, exchange: Any, backend: str = "cpu", free_bytes: int = 2**30) -> Callable[[], Any]:
    """Return a function that makes what runs the levels of a rank of the layout 1d."""
    from dbfs_workers.search import backends
    from dbfs_workers.search.levels.rank_levels import StripeLevels

    return lambda: StripeLevels(backends.get(backend), scratch, exchange, lambda: free_bytes)


def repeated(one: TraversalSpec, times: int) -> RunSpec:
    """Return a run that makes one traversal several times."""
    return RunSpec(one, (one.sources,) * times)


def partitions(
    n: int, src: NDArray[np.int64], dst: NDArray[np.int64], p: int, *, directed: bool, in_edges: bool = True
) -> list[Partition]:
    return build(Stripe(n, p), src, dst, directed=directed, in_edges=directed and in_edges)

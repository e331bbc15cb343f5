"""Chaos: clients of graphs whose workers are killed and stopped at random, and what their calls end with.

Each answer is compared with SciPy's. Each client has a part of a living graph, which no other client changes, and
a model of it. Of an update whose outcome its client does not know, the next answer tells.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import click
import dask
import distributed
import numpy as np
import psutil
import scipy.sparse
import scipy.sparse.csgraph
from distributed.core import Status

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, connect
from dbfs.base import progress
from dbfs.errors import DbfsError

# Seconds that a call may take, and seconds after that in which its error arrives.
_DEADLINE: Final = 30.0
_GRACE: Final = 3.0
# Longest stop of a worker, in seconds.
_STOPPED: Final = 10.0
# Vertices of a client's part of the living graph.
_PART: Final = 200
_KINDS: Final = {"traversal": 60, "batch": 15, "update": 15, "load": 10}
# Share of calls that must have a right answer.
_LEAST: Final = 0.9


@dataclass(frozen=True)
class Calls:
    """The calls of a kind.

    Attributes:
        right: share of calls with a right answer.
        errors: share of calls with a typed error in their deadline.
        late: calls that ended after their deadline.
        wrong: wrong answers, and errors that are none of dbfs.
        longest: seconds of the longest call.
        named: the errors, and how many there were of each.
    """

    kind: Annotated[str, Column("calls")]
    count: Annotated[int, Column("", ",")]
    right: Annotated[float, Column("right,\n%", ".1f", times=100)]
    errors: Annotated[float, Column("typed\nerrors, %", ".1f", times=100)]
    late: Annotated[int, Column("late", ",")]
    wrong: Annotated[int, Column("wrong", ",")]
    longest: Annotated[float, Column("longest,\ns", ".1f")]
    named: Annotated[str, Column("errors")]


@dataclass(frozen=True)
class Kept:
    """What processes keep before the chaos and after it."""

    what: Annotated[str, Column("kept")]
    before: Annotated[float, Column("before", ",.0f")]
    after: Annotated[float, Column("after", ",.0f")]


@dataclass
class _Tally:
    """How the calls of a kind ended."""

    count: int = 0
    right: int = 0
    late: int = 0
    longest: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def calls(self, kind: str) -> Calls:
        count, typed = max(1, self.count), sum(self.errors.values())
        named = ", ".join(f"{number} {name}" for name, number in self.errors.most_common())
        wrong = len(self.wrong)
        return Calls(kind, self.count, self.right / count, typed / count, self.late, wrong, self.longest, named)


class _Oracle:
    """Distances in the graph that no client changes, by SciPy."""

    def __init__(self, scale: int) -> None:
        pieces = [piece.read() for piece in dbfs.kronecker(scale).cut(1 << 20)]
        src, dst = (np.concatenate(ends) for ends in zip(*pieces, strict=True))
        matrix = scipy.sparse.coo_array((np.ones(src.size, np.int8), (src, dst)), (2**scale, 2**scale)).tocsr()
        degrees = np.bincount(np.concatenate([src, dst]), minlength=2**scale)
        self.sources = np.flatnonzero(degrees)[:: max(1, np.count_nonzero(degrees) // 64)][:64].tolist()
        found = scipy.sparse.csgraph.dijkstra(matrix, directed=False, unweighted=True, indices=self.sources)
        self.distances = np.where(np.isinf(found), -1, found).astype(np.int32)

    def counts(self, index: int) -> list[int]:
        distances = self.distances[index]
        return [int(count) for count in np.bincount(distances[distances >= 0])]


class _Client(threading.Thread):
    """A client: its calls, one after another, until an event is set."""

    def __init__(self, number: int, address: str, oracle: _Oracle, tallies: dict[str, _Tally], ends: threading.Event):
        super().__init__(name=f"chaos-{number}", daemon=True)
        self._number, self._oracle, self._tallies, self._ends = number, oracle, tallies, ends
        self._dice = random.Random(number)
        self._client = distributed.Client(address, set_as_default=False)
        self._first = number * _PART
        # The chords of this client's part, in each way that it may be.
        self._models: list[frozenset[int]] = [frozenset()]

    def run(self) -> None:
        try:
            while not self._ends.is_set():
                self.call(self._dice.choices([*_KINDS], [*_KINDS.values()])[0])
        finally:
            self.close()

    def close(self) -> None:
        """Leave the cluster."""
        self._client.close()

    def round(self) -> None:
        """Make a call of each kind."""
        for kind in _KINDS:
            self.call(kind)

    def call(self, kind: str) -> None:
        """Make a call, and note how it ends."""
        tally, made = self._tallies[kind], getattr(self, f"_{kind}")
        began, error, right = time.monotonic(), "", False
        try:
            right = made()
            wrong = "" if right else f"a wrong answer of client {self._number}"
        except DbfsError as raised:
            error, wrong = type(raised).__name__, ""
        except Exception as raised:
            wrong = f"{type(raised).__name__}: {raised}"
        took = time.monotonic() - began
        with _LOCK:
            tally.count += 1
            tally.right += right
            tally.longest = max(tally.longest, took)
            tally.late += took > _DEADLINE + _GRACE
            tally.errors.update([error] if error else [])
            tally.wrong += [wrong] if wrong else []

    def _traversal(self) -> bool:
        if self._dice.random() < 0.5:
            return self._look()
        index = self._dice.randrange(len(self._oracle.sources))
        result = dbfs.open("steady", client=self._client).bfs(self._oracle.sources[index], deadline=_DEADLINE)
        return bool(np.array_equal(result.distances(), self._oracle.distances[index]))

    def _look(self) -> bool:
        """Traverse this client's part of the living graph."""
        result = dbfs.open("living", client=self._client).bfs(self._first, deadline=_DEADLINE)
        found = result.distances()[self._first : self._first + _PART].tolist()
        self._models = [model for model in self._models if _of_part(model) == found]
        right = bool(self._models) and result.reached == _PART
        self._models = self._models or [frozenset()]
        return right

    def _batch(self) -> bool:
        some = self._dice.sample(range(len(self._oracle.sources)), 16)
        sources = [self._oracle.sources[index] for index in some]
        made = dbfs.open("steady", client=self._client).bfs_batch(sources, deadline=_DEADLINE)
        expected = [self._oracle.counts(index) for index in some]
        rows = (row[: int(np.flatnonzero(row)[-1]) + 1].tolist() for row in made.counts)
        return [*rows] == expected

    def _update(self) -> bool:
        """Add a chord from the part's first vertex, or take one away."""
        graph = dbfs.open("living", client=self._client)
        there = sorted(self._models[0])
        add = len(there) < 3 or self._dice.random() < 0.5
        chord = self._dice.randrange(2, _PART) if add else self._dice.choice(there)
        changed = [model | {chord} if add else model - {chord} for model in self._models]
        self._models = [*{*self._models, *changed}]
        change = graph.insert_edges if add else graph.delete_edges
        made = change([(self._first, self._first + chord)], deadline=_DEADLINE)
        self._models = [*{*changed}]
        return made.edges + made.skipped == 1

    def _load(self) -> bool:
        n = self._dice.randrange(10, 1000)
        with dbfs.load(f"path:n={n}", client=self._client, deadline=_DEADLINE) as graph:
            return graph.bfs(0, deadline=_DEADLINE).depth == n - 1


_LOCK: Final = threading.Lock()


def _of_part(chords: frozenset[int]) -> list[int]:
    """Return the distances from the first vertex of a path, with chords from there."""
    starts = {0: 0, **dict.fromkeys(chords, 1)}
    return [min(far + abs(vertex - start) for start, far in starts.items()) for vertex in range(_PART)]


class _Chaos(threading.Thread):
    """Kills workers, and stops them for some seconds, each of them once in ``life`` seconds on average."""

    def __init__(self, cluster: Any, life: float, ends: threading.Event) -> None:
        super().__init__(name="chaos", daemon=True)
        self._cluster, self._life, self._ends = cluster, life, ends
        self._dice = random.Random(0)
        self.kills = self.stops = 0

    def run(self) -> None:
        while not self._ends.wait(self._dice.expovariate(2 * len(self._cluster.workers) / self._life)):
            # A nanny gives up a worker that dies before it has joined.
            nannies = [nanny for nanny in list(self._cluster.workers.values()) if nanny.status is Status.running]
            joined = [nanny for nanny in nannies if nanny.process.status is Status.running]
            if not joined:
                continue
            pid = self._dice.choice(joined).pid
            with contextlib.suppress(ProcessLookupError, TypeError):
                if self._dice.random() < 0.5:
                    os.kill(pid, signal.SIGKILL)
                    self.kills += 1
                else:
                    os.kill(pid, signal.SIGSTOP)
                    self.stops += 1
                    try:
                        self._ends.wait(self._dice.uniform(0.1, _STOPPED))
                    finally:
                        os.kill(pid, signal.SIGCONT)


@click.command()
@options.value("--minutes", 10.0, "How long clients call.", click.FloatRange(0.1))
@options.count("--clients", 8, "Number of clients.")
@options.ranks(3)
@options.value(
    "--life", 60.0, "Mean life of a worker, in seconds, and its mean time between stops.", click.FloatRange(1)
)
@options.count("--scale", 14, "Log2 of the number of vertices of the graph without updates.", least=6)
@options.json
def chaos(minutes: float, clients: int, ranks: int, life: float, scale: int, file: str | None) -> None:
    """Have clients call while workers are killed and stopped at random, and check all answers.

    Clients traverse a Kronecker graph and a living graph with a checkpoint, make batches and updates, and load graphs.
    The command fails if an answer is wrong, if a call ends after its deadline, or if less than 90 % of the calls have
    an answer.

    Example: dbfs bench chaos --minutes 1 --ranks 2
    """
    oracle, tallies = _Oracle(scale), {kind: _Tally() for kind in _KINDS}
    # On a busy machine Dask would give up a worker that takes long to start again.
    settings = {"dbfs.retries": 3, "distributed.deploy.lost-worker-timeout": "300 s"}
    with Results("chaos", file) as results, dask.config.set(settings), connect(ranks, "cpu") as client:
        with tempfile.TemporaryDirectory(prefix="dbfs-chaos-") as folder, _graphs(client, clients, scale, folder):
            kept = _played(client, oracle, tallies, clients, life, 60 * minutes)
        results.take("kept", kept, f"{clients} clients, {ranks} ranks, a life of {life:g} s")
        results.take("calls", [tally.calls(kind) for kind, tally in tallies.items()], f"{minutes:g} minutes of calls")
    wrong = [words for tally in tallies.values() for words in tally.wrong]
    counts, right = (sum(getattr(tally, name) for tally in tallies.values()) for name in ("count", "right"))
    if wrong or any(tally.late for tally in tallies.values()) or right < _LEAST * counts:
        click.echo("\n".join(dict.fromkeys(wrong)) or "calls were late, or too few had an answer", err=True)
        sys.exit(1)


@contextlib.contextmanager
def _graphs(client: distributed.Client, clients: int, scale: int, folder: str) -> Iterator[None]:
    """Load the graphs by their names for the time of the block."""
    # A part for each client, and one for calls in peace.
    n = (clients + 1) * _PART
    ends = np.arange(n - 1)
    ends = ends[ends % _PART < _PART - 1]
    paths = dbfs.from_arrays(ends, ends + 1, n=n, directed=False)
    steady = dbfs.load(f"kronecker:scale={scale}", client=client, name="steady")
    living = dbfs.load(paths, client=client, name="living", mutable=True, checkpoint=Path(folder, "living"))
    try:
        yield
    finally:
        steady.unload()
        living.unload()


def _played(
    client: distributed.Client, oracle: _Oracle, tallies: dict[str, _Tally], clients: int, life: float, seconds: float
) -> list[Kept]:
    """Have clients call for some seconds of chaos; return what is kept before and after, when a client has called."""
    cluster, address = client.cluster, client.scheduler.address
    ranks = len(cluster.workers)

    ends, peace = threading.Event(), {kind: _Tally() for kind in _KINDS}
    visitor = _Client(clients, address, oracle, peace, ends)

    def quiet() -> dict[str, float]:
        visitor.round()
        if any(tally.right < tally.count for tally in peace.values()):
            raise RuntimeError(f"calls in peace failed: {peace}")
        gc.collect()
        time.sleep(2)
        return _kept(cluster)

    before = quiet()
    callers = [_Client(number, address, oracle, tallies, ends) for number in range(clients)]
    befalls = _Chaos(cluster, life, ends)
    for thread in (*callers, befalls):
        thread.start()
    with progress.bar("chaos", int(seconds)) as bar:
        for second in range(int(seconds)):
            time.sleep(1)
            calls = sum(tally.count for tally in tallies.values())
            bar.set(second, f"{calls:,} calls, {befalls.kills} kills, {befalls.stops} stops")
    ends.set()
    for thread in (befalls, *callers):
        thread.join(_DEADLINE + 60)
        if thread.is_alive():
            raise RuntimeError(f"{thread.name} hangs")
    client.wait_for_workers(ranks, timeout=60)
    kept = [Kept(what, before[what], after) for what, after in quiet().items()]
    visitor.close()
    return kept


def _kept(cluster: Any) -> dict[str, float]:
    """Return what this process and the workers' keep."""
    own, workers = psutil.Process(), [psutil.Process(nanny.pid) for nanny in cluster.workers.values()]
    of: dict[str, Callable[[psutil.Process], float]] = {
        "MiB": lambda process: process.memory_info().rss / 2**20,
        "threads": lambda process: process.num_threads(),
        "files": lambda process: process.num_fds(),
    }
    kept = {f"{what} of the clients and the scheduler": count(own) for what, count in of.items()}
    kept |= {f"{what} of all workers": sum(map(count, workers)) for what, count in of.items()}
    kept["segments of shared memory"] = len([*Path("/dev/shm").iterdir()])
    return kept

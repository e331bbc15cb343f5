"""Processes that are stopped (SIGSTOP) before, in and after each public call: how long the call takes then.

``python -m tests.support.stalls --deadline 2`` prints the whole matrix.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import distributed

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import DbfsError, DeadlineExceededError
from dbfs.service.runs import RunSender

N = 2000
RANKS = 3
WHEN = ("before", "in", "after")
STOPPED = ("rank 0", "rank 1", "scheduler")


@dataclass
class Processes:
    """A scheduler and its workers, each a process of its own.

    Attributes:
        address: address of the scheduler.
        client: a client.
        other: another client.
        pids: process ids, by ``rank 0``, ``rank 1`` and so on, and ``scheduler``.
    """

    address: str
    client: distributed.Client
    other: distributed.Client
    pids: dict[str, int]


@contextlib.contextmanager
def processes(workers: int = RANKS, **environment: str) -> Iterator[Processes]:
    """Start a scheduler and workers with more environment; end them, stopped or not, with the context."""
    dask = [sys.executable, "-m", "dask"]
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder) / "scheduler.json"
        environment = os.environ | {"DASK_DBFS__WRITE__FOLDERS": "['/']"} | environment
        nowhere = subprocess.DEVNULL
        quiet: dict[str, Any] = {"stdout": nowhere, "stderr": nowhere, "cwd": folder, "env": environment}
        command = ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(at)]
        try:
            started.append(subprocess.Popen([*dask, *command], **quiet))
            command = ["worker", "--scheduler-file", str(at), "--no-nanny", "--nthreads", "1", "--no-dashboard"]
            started += [subprocess.Popen([*dask, *command], **quiet) for _ in range(workers)]
            client = distributed.Client(scheduler_file=str(at), set_as_default=False, timeout="60s")
            client.wait_for_workers(workers, timeout=60)
            address = client.scheduler.address
            other = distributed.Client(address, set_as_default=False)
            found = client.run(os.getpid)
            by_rank = sorted(found, key=lambda one: (len(one), one))
            pids = {f"rank {rank}": found[one] for rank, one in enumerate(by_rank)}
            yield Processes(address, client, other, {**pids, "scheduler": started[0].pid})
            client.close()
            other.close()
        finally:
            for process in started:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process for the length of the context."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


Call = Callable[[Graph, float], object]


def _queued(graph: Graph) -> None:
    """Have the client's next runs go through the scheduler, which conducts them."""
    RunSender.of(graph.gang.client)._unreachable[graph.record.graph_id] = float("inf")


def _leased(graph: Graph) -> None:
    RunSender.of(graph.gang.client)._unreachable.clear()
    graph.bfs_many([0, 1], max_depth=1)


def _of_result(call: Callable[[dbfs.BFSResult], object]) -> Callable[[Graph], Call]:
    def prepare(graph: Graph) -> Call:
        result = graph.bfs(0, predecessors=True)

        def timed(graph: Graph, deadline: float) -> object:
            with dbfs_deadline(deadline):
                return call(result)

        return timed

    return prepare


@contextlib.contextmanager
def dbfs_deadline(seconds: float) -> Iterator[None]:
    """Set ``dbfs.deadline``."""
    with dask.config.set({"dbfs.deadline": seconds}):
        yield


def _configured(call: Callable[[Graph], object]) -> Call:
    def timed(graph: Graph, deadline: float) -> object:
        with dbfs_deadline(deadline):
            return call(graph)

    return timed


def _plain(call: Call, ready: Callable[[Graph], None] = lambda graph: None) -> Callable[[Graph], Call]:
    def prepare(graph: Graph) -> Call:
        ready(graph)
        return call

    return prepare


def _load(graph: Graph, deadline: float) -> object:
    return dbfs.load("path:n=500", client=graph.gang.client, ranks=graph.ranks, deadline=deadline)


def _save(graph: Graph, deadline: float) -> object:
    with tempfile.TemporaryDirectory() as folder:
        return graph.save(Path(folder) / "saved", deadline=deadline)


def _load_saved(graph: Graph) -> Call:
    folder = tempfile.mkdtemp()
    graph.save(folder, replace=True)
    return lambda graph, deadline: dbfs.load(folder, client=graph.gang.client, ranks=graph.ranks, deadline=deadline)


def _parquet(result: dbfs.BFSResult) -> object:
    with tempfile.TemporaryDirectory() as folder:
        return result.to_parquet(Path(folder) / "labels")


def _repair(graph: Graph) -> Call:
    result = graph.bfs(0, predecessors=True)
    graph.insert_edges([(0, 7)])
    return lambda graph, deadline: result.update(deadline=deadline)


def _edge(graph: Graph, deadline: float) -> object:
    return graph.insert_edges([(1, 9), (2, 40)], deadline=deadline)


def _batch(graph: Graph, deadline: float) -> object:
    return graph.insert_edges([(vertex, vertex + 5) for vertex in range(1500)] * 3, deadline=deadline)


CALLS: dict[str, Callable[[Graph], Call]] = {
    "bfs, leased": _plain(lambda graph, deadline: graph.bfs(0, deadline=deadline), _leased),
    "bfs, queued": _plain(lambda graph, deadline: graph.bfs(0, deadline=deadline), _queued),
    "bfs_many": _plain(lambda graph, deadline: graph.bfs_many([0, 5, 9], deadline=deadline), _leased),
    "bfs_batch": _plain(lambda graph, deadline: graph.bfs_batch([0, 5, 9], deadline=deadline), _leased),
    "bfs, taskgraph": _plain(lambda graph, deadline: graph.bfs(0, max_depth=4, engine="taskgraph", deadline=deadline)),
    "bfs, validate": _plain(
        lambda graph, deadline: graph.bfs(0, predecessors=True, validate=True, deadline=deadline), _leased
    ),
    "khop": _plain(lambda graph, deadline: graph.khop(3, 2, deadline=deadline), _leased),
    "subgraph": _plain(lambda graph, deadline: graph.subgraph([1, 2, 3], deadline=deadline)),
    "components": _plain(lambda graph, deadline: graph.components(deadline=deadline)),
    "degree_counts": _plain(_configured(lambda graph: graph.degree_counts())),
    "sample_sources": _plain(_configured(lambda graph: graph.sample_sources(3))),
    "version": _plain(_configured(lambda graph: graph.version)),
    "insert_edges, leased": _plain(_edge, _leased),
    "insert_edges, queued": _plain(_edge, _queued),
    "insert_edges, batch": _plain(_batch),
    "delete_vertices": _plain(lambda graph, deadline: graph.delete_vertices([N - 1], deadline=deadline)),
    "freeze": _plain(lambda graph, deadline: graph.freeze(deadline=deadline)),
    "update": _repair,
    "distances": _of_result(lambda result: result.distances()),
    "path_to": _of_result(lambda result: result.path_to(40)),
    "to_pandas": _of_result(lambda result: result.to_pandas()),
    "to_parquet": _of_result(_parquet),
    "publish": _of_result(lambda result: result.publish()),
    "validate": _of_result(lambda result: result.validate()),
    "load": _plain(_load),
    "load, saved": _load_saved,
    "save": _plain(_save),
    "open": _plain(lambda graph, deadline: dbfs.open(graph.name, client=graph.gang.client, deadline=deadline)),
    "graphs": _plain(_configured(lambda graph: dbfs.graphs(client=graph.gang.client))),
    "runs": _plain(_configured(lambda graph: dbfs.runs(client=graph.gang.client))),
    "unload": _plain(lambda graph, deadline: graph.unload(deadline=deadline)),
}


@dataclass
class Outcome:
    """A call beside a stopped process.

    Attributes:
        seconds: time of the call.
        error: the error that it raised; None if it returned.
    """

    seconds: float
    error: BaseException | None


def timed(call: Callable[[], object]) -> Outcome:
    """Make a call, and take its time."""
    began, error = time.monotonic(), None
    try:
        call()
    except BaseException as raised:
        error = raised
    return Outcome(time.monotonic() - began, error)


def stall(there: Processes, graph: Graph, name: str, process: str, when: str, deadline: float) -> Outcome:
    """Stop a process before, in or after a call, and make the call; after it, make the call once more."""
    pid, call = there.pids[process], CALLS[name](graph)
    if when == "after":
        with contextlib.suppress(DbfsError):
            call(graph, 10 * deadline)
        if name == "freeze":
            graph.thaw(deadline=30)
    if when != "in":
        with stopped(pid):
            return timed(lambda: call(graph, deadline))
    made: list[Outcome] = []
    thread = threading.Thread(target=lambda: made.append(timed(lambda: call(graph, deadline))))
    thread.start()
    time.sleep(0.004)
    with stopped(pid):
        thread.join(60)
    return made[0]


def check(there: Processes, graph: Graph, name: str) -> Graph:
    """Check that both clients get right answers from the graph, without a new load; return the graph."""
    if name == "unload":
        with contextlib.suppress(DbfsError):
            graph.unload()
        return made_anew(there)
    if name == "freeze":
        graph.thaw(deadline=30)
    for client in (there.client, there.other):
        opened = dbfs.open(graph.name, client=client, deadline=30)
        for runs in ([0], [0, 1]):
            distances = opened.bfs_many(runs, deadline=30)[0].distances()
            assert distances[0] == 0
            assert distances[1] == 1
            assert (distances[: N - 1] >= 0).all()
        version = opened.version
        opened.insert_edges([(0, 1)], deadline=30)
        assert opened.version == version + 1
        opened.bfs(0, predecessors=True, validate=True, deadline=30)
    return graph


def made_anew(there: Processes, ranks: int = RANKS) -> Graph:
    """Load a mutable path under a new name, on the first workers."""
    RunSender.of(there.client)._unreachable.clear()
    return dbfs.load(f"path:n={N}", client=there.client, ranks=ranks, name=f"stalls-{uuid.uuid4().hex}", mutable=True)


def main() -> None:
    """Print the matrix."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--deadline", type=float, default=2.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    worst, late, wrong = 0.0, 0, 0
    with processes() as there, dask.config.set({"dbfs.write.folders": ["/"]}):
        graph = made_anew(there)
        for name in CALLS:
            if options.only not in name:
                continue
            for process in (*STOPPED,):
                for when in WHEN:
                    outcome = stall(there, graph, name, process, when, options.deadline)
                    kind = "returned" if outcome.error is None else type(outcome.error).__name__
                    fault = ""
                    if outcome.error is not None and not isinstance(outcome.error, DeadlineExceededError):
                        fault += f" ERROR {outcome.error}"
                    if outcome.seconds > options.deadline + 0.5:
                        late += 1
                        fault += " LATE_SECONDS"
                    try:
                        graph = check(there, graph, name)
                    except Exception as error:
                        wrong += 1
                        fault += f" WRONG AFTERWARDS {type(error).__name__}: {error}"
                        graph = made_anew(there)
                    worst = max(worst, outcome.seconds)
                    print(f"{name:22s} {process:10s} {when:7s} {outcome.seconds:6.2f} s {kind}{fault}", flush=True)
        print(f"worst {worst:.2f} s; {late} late; {wrong} wrong afterwards")


if __name__ == "__main__":
    main()

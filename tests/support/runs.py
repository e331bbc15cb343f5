"""Runs that last long enough for a test to interrupt them."""

import contextlib
import os
import signal
import threading
import time
import unittest.mock
from collections.abc import Iterator

import distributed

import dbfs
from dbfs.assembly import Graph
from dbfs.cluster import deadline
from dbfs.errors import WorkerLostError
from dbfs.service import runs, turns
from dbfs_workers.search.members.label_room import LabelRoom
from dbfs_workers.serving.rpc import LATE_SECONDS
from dbfs_workers.serving.turns import leader
from tests.support.waiting import PATIENCE, eventually

ENDLESS = 1_000_000
"""Vertices of a path: a traversal from its end takes so many levels that a test can catch the run midway.

On CPU cores a bottom-up traversal takes many minutes, because each level looks at all vertices; a top-down one takes
less than a second.
"""


class Background:
    """A traversal that runs in a thread of its own. The constructor returns once the run has started.

    By default, the resident engine goes bottom-up on CPU cores.

    Args:
        graph: the graph.
        waits: the run waits behind another one. Then the constructor returns once the run is listed.
        batch: whether the run is a batch.
        options: of ``Graph.bfs``, or of ``Graph.bfs_batch``.

    Attributes:
        error: the run's error; None while the run lasts, and if the run finished.
        run: the run as it was listed first.
    """

    def __init__(self, graph: Graph, *, waits: bool = False, batch: bool = False, **options: object) -> None:
        if graph.backend == "cpu" and options.get("engine") != "taskgraph":
            options = {"direction": "bottom-up"} | options
        self.error: BaseException | None = None
        self.graph = graph
        self._batch = batch
        client = graph.gang.client
        # An earlier run that was cancelled may be listed for a moment longer.
        before = {run.status.run_id for run in dbfs.runs(client=client)}
        self.thread = threading.Thread(target=self._run, kwargs=options, daemon=True)
        self.thread.start()
        listed: list[dbfs.Run] = []
        while not listed:
            assert self.thread.is_alive(), self.error
            time.sleep(0.02)
            runs = dbfs.runs(client=client)
            listed = [run for run in runs if run.status.running != waits and run.status.run_id not in before]
        self.run = listed[0]

    def _run(self, **options: object) -> None:
        try:
            traverse = self.graph.bfs_batch if self._batch else self.graph.bfs
            traverse(0, **options)  # type: ignore[arg-type]
        except BaseException as error:
            self.error = error

    def join(self) -> BaseException | None:
        """Wait for the end of the run; return its error, None if the run finished."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "the run hangs"
        return self.error


@contextlib.contextmanager
def rank_0_ends_runs() -> Iterator[None]:
    """Let client and scheduler wait at a deadline for what rank 0 says, however busy the machine is."""
    with contextlib.ExitStack() as stack:
        for module in (deadline, runs, turns):
            stack.enter_context(unittest.mock.patch.object(module, "GRACE_SECONDS", PATIENCE))
        stack.enter_context(unittest.mock.patch.object(turns, "LATE_SECONDS", PATIENCE))
        yield


@contextlib.contextmanager
def ranks_end_runs(client: distributed.Client) -> Iterator[None]:
    """Let rank 0 as well wait at a deadline for what each rank says."""
    with rank_0_ends_runs():
        client.run(setattr, leader, "LATE_SECONDS", PATIENCE)
        try:
            yield
        finally:
            client.run(setattr, leader, "LATE_SECONDS", LATE_SECONDS)


def set_room(graph_id: str, limit: int, dask_worker: distributed.Worker) -> None:
    """Give a worker's rank of a graph another memory limit, in bytes. Clients run this on workers."""
    dask_worker.plugins["dbfs"].members[graph_id].room = LabelRoom(limit)


def kill_rank_1_mid_run(graph: Graph, *, batch: bool = False) -> None:
    """Kill the worker of rank 1 during a run, and check that the run's error names the rank and the level."""
    victim = graph.gang.addresses[1]
    pid = graph.gang.client.run(os.getpid, workers=[victim])[victim]
    run = Background(graph, batch=batch)
    # A run whose turn only begins has no level.
    eventually(lambda: [listed for listed in dbfs.runs(client=graph.gang.client) if listed.status.progress])
    os.kill(pid, signal.SIGKILL)
    error = run.join()
    assert isinstance(error, WorkerLostError)
    assert "level" in str(error)
    assert "rank 1" in str(error)

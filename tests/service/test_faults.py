"""Real processes, killed: a run or a build ends with a typed error, soon, and never hangs."""

import os
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import dask
import distributed
import numpy as np
import pytest
from distributed.core import error_message

import dbfs
from dbfs.base.records import RunProgress
from dbfs.cluster import deadline
from dbfs.cluster.deadline import Deadline
from dbfs.cluster.gang import Gang, Ref, TaskGraph, joined_workers
from dbfs.edges.edge_list import EdgeList
from dbfs.errors import DbfsError, DeadlineExceededError, ExchangeUnavailableError, StaleRunError, WorkerLostError
from dbfs.service.client import ServiceClient
from dbfs.service.messages import ChooseBackend
from dbfs_workers.building.pieces import Edges
from tests.support.runs import ENDLESS, Background

pytestmark = pytest.mark.alone


@pytest.fixture
def mortal() -> Iterator[distributed.Client]:
    """A cluster of the test's own, to be harmed."""
    with dbfs.connect(n_workers=3, dashboard_address=None) as client:
        yield client


def kill(client: distributed.Client, address: str) -> None:
    pid = client.run(os.getpid, workers=[address])[address]
    os.kill(pid, signal.SIGKILL)


def wait_until_gone(client: distributed.Client, prefix: str) -> None:
    for _ in range(50):
        if not client.run_on_scheduler(lambda dask_scheduler: [k for k in dask_scheduler.tasks if prefix in str(k)]):
            return
        time.sleep(0.1)
    pytest.fail(f"tasks named {prefix} are left on the cluster")


@pytest.mark.full
def test_a_worker_killed_mid_run(mortal: distributed.Client) -> None:
    graph = dbfs.load(dbfs.path(100_000), client=mortal)
    victim = graph.gang.addresses[1]
    killed_at: list[float] = []

    def kill_soon(progress: RunProgress) -> None:
        if progress.level == 3:
            killed_at.append(time.monotonic())
            kill(mortal, victim)

    with pytest.raises(WorkerLostError, match=rf"level \d+: lost rank 1 \({victim}\)"):
        graph.bfs(0, engine="taskgraph", progress=kill_soon)
    # Not a timing test: without the liveness check the wait would last for ever (the deadline is minutes away).
    assert time.monotonic() - killed_at[0] < 30
    with pytest.raises(WorkerLostError, match="rank 1.*load the graph again"):
        graph.bfs(0)
    mortal.wait_for_workers(3, timeout=30)
    with dbfs.load(dbfs.path(50), client=mortal) as again:
        assert again.bfs(0, validate=True).depth == 49


@pytest.mark.full
def test_the_only_worker_killed_mid_run(mortal: distributed.Client) -> None:
    """Nobody is left who could say in which level it was."""
    with dbfs.load(dbfs.path(ENDLESS), client=mortal, ranks=1) as graph:
        run = Background(graph)
        (victim,) = graph.gang.addresses
        kill(mortal, victim)
        error = run.join()
        assert isinstance(error, WorkerLostError)
        assert re.match(rf"run \w+: lost rank 0; lost the worker {victim}: .*; load the graph again", str(error))


@pytest.mark.full
def test_labels_of_a_lost_worker(mortal: distributed.Client) -> None:
    graph = dbfs.load(dbfs.path(50), client=mortal)
    result = graph.bfs(0)
    kill(mortal, graph.gang.addresses[2])
    with pytest.raises(WorkerLostError, match="labels of run.*lost rank 2"):
        while True:
            result.distances()


def map_a_peer() -> None:
    raise ExchangeUnavailableError("the labels of process 7 can't be mapped")


@pytest.mark.full
def test_memory_of_a_lost_worker_that_can_not_be_mapped(mortal: distributed.Client) -> None:
    gang = Gang(mortal, tuple(sorted(joined_workers(mortal))))
    for lost in (ExchangeUnavailableError, WorkerLostError):
        with pytest.raises(lost, match="process 7" if lost is ExchangeUnavailableError else "mapping: lost rank 1"):
            gang.gather([mortal.submit(map_a_peer, workers=gang.addresses[:1], pure=False)], Deadline(20), "mapping")
        if lost is ExchangeUnavailableError:
            kill(mortal, gang.addresses[1])
            while gang.addresses[1] in joined_workers(mortal):
                time.sleep(0.05)


class Slow:
    """A piece that takes its time."""

    def read(self) -> Edges:
        time.sleep(30)
        return np.zeros(1, np.int64), np.zeros(1, np.int64)


class SlowEdges(EdgeList):
    """One slow piece per rank."""

    def cut(self, piece_edges: int) -> list[Slow]:
        return [Slow() for _ in range(3)]


@pytest.mark.full
def test_a_worker_killed_mid_build(mortal: distributed.Client) -> None:
    addresses = sorted(joined_workers(mortal))

    def kill_one(_: object) -> None:
        if not killed:
            killed.append(addresses[0])
            kill(mortal, addresses[0])

    killed: list[str] = []
    with pytest.raises(WorkerLostError, match="building slow edges: lost rank"):
        dbfs.load(SlowEdges("slow edges", 5, 3, directed=False, mirrored=False), client=mortal, progress=kill_one)


@pytest.mark.full
def test_a_worker_killed_before_the_build(mortal: distributed.Client) -> None:
    """The scheduler calls a worker that has left."""
    dbfs.install(mortal)
    service = ServiceClient.of(mortal)
    addresses = tuple(joined_workers(mortal))
    kill(mortal, addresses[0])
    began = time.monotonic()
    with pytest.raises(WorkerLostError, match=rf"lost rank 0 \({addresses[0]}\)"):
        service.call(ChooseBackend(addresses, "auto", "auto", 9.0))
    # Dask's own attempts to connect take 30 s.
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("interval", ["20 ms", "1 minute"])
def test_deadlines(
    client: distributed.Client, leaves_nothing: None, interval: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of levels that are each done before a wait would look at the clock."""
    # However busy the machine is: the scheduler's own answer is the one that is looked at.
    monkeypatch.setattr(deadline, "GRACE_SECONDS", 60.0)
    with dbfs.load(dbfs.path(3000), client=client) as graph:
        with (
            dask.config.set({"dbfs.liveness-interval": interval}),
            pytest.raises(DeadlineExceededError, match=r"run \w+, level \d+: not done after 0.3 s") as kept,
        ):
            graph.bfs(0, deadline=0.3, engine="taskgraph")
        # The exception is kept, and with it every frame of the run: its futures must be let go all the same.
        assert kept.value.__traceback__ is not None
        wait_until_gone(client, "state")
        assert graph.bfs(0, max_depth=3, validate=True).reached == 4


def test_a_failing_task_keeps_its_own_error(client: distributed.Client) -> None:
    gang = Gang(client, tuple(sorted(joined_workers(client))))
    graph = TaskGraph()

    def fail() -> None:
        raise StaleRunError("by the test")

    graph.add(0, "fails", fail)
    graph.add(1, "follows", lambda _: 1, Ref("fails"))
    futures = gang.submit(graph, ["follows"])
    with pytest.raises(StaleRunError, match="by the test"):
        gang.gather(list(futures.values()), Deadline(20), "failing")


def test_typed_errors_survive_the_way_from_a_worker() -> None:
    import pickle

    import dbfs.errors

    for name in dbfs.errors.__all__:
        error = getattr(dbfs.errors, name)("rank 3, level 2")
        assert isinstance(error, DbfsError)
        # As a message of the service travels, and as a failed task's error does, which is pickled with its traceback.
        failed: Any = error_message(error)["exception"]
        for pickled in (pickle.dumps(error), failed.data):
            copied = pickle.loads(pickled)
            assert type(copied) is type(error)
            assert str(copied) == "rank 3, level 2"
        assert len(type(error).__mro__) > len(DbfsError.__mro__) or name == "DbfsError"

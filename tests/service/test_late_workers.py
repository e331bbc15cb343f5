"""What the scheduler knows of silent and paused workers, and where it says so: the log, lists, page, metrics."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import dask
import distributed
import pytest
from distributed.core import Status

import dbfs
from dbfs.base.records import GraphStatus, WorkerState, WorkerStatus, waits_for
from dbfs.cli.graphs import _state
from dbfs.service import late_workers
from dbfs.service.late_workers import WorkerWatch
from tests.support.waiting import eventually

READY = WorkerStatus("tcp://a:1", "one", "a", WorkerState.READY, 0.0, 480 << 20, 600 << 20, 0.3, ("web",))


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(late_workers, "time", clock)
    monkeypatch.setattr(late_workers, "PeriodicCallback", lambda *_: SimpleNamespace(start=lambda: None))
    return clock


def fake(clock: Clock, *names: str) -> Any:
    workers = {
        f"tcp://{name}:1": SimpleNamespace(
            name=name, host=name, last_seen=clock.now, status=Status.running, metrics={"memory": 9}, memory_limit=10
        )
        for name in names
    }
    return SimpleNamespace(workers=workers, periodic_callbacks={})


def test_the_sentences() -> None:
    late = replace(READY, state=WorkerState.LATE, silent=12.0)
    paused = replace(READY, state=WorkerState.PAUSED)
    assert str(late) == "worker one (tcp://a:1), silent for 12 s"
    assert str(replace(late, name="tcp://a:1")) == "worker tcp://a:1, silent for 12 s"
    assert str(paused) == (
        "worker one (tcp://a:1), paused: 480.00 MiB of 600.00 MiB; release results, or give it more memory"
    )
    assert waits_for([READY]) == ""
    assert waits_for([READY, late, paused]) == f"waits for {late}, and for {paused}"
    assert str(replace(late, name="a\x1b[2J")).startswith("worker a\\x1b[2J (tcp")


def test_a_graph_says_whom_it_waits_for() -> None:
    status = GraphStatus("web", 9, 9, (9, 9), 2, datetime.now(UTC), 0, "cpu", "tcp", ())
    assert _state(status) == "ready"
    late = replace(READY, state=WorkerState.LATE, silent=12.0)
    assert _state(replace(status, not_ready=(late,))) == "waits for worker one (tcp://a:1), silent for 12 s"
    assert _state(replace(status, not_ready=(late,), lost=(1,))) == "lost rank 1; load it again"
    assert _state(replace(status, lost=(1,), returning="is built again by me")) == "lost rank 1; is built again by me"


def test_a_late_worker_is_told_once_again_each_minute_and_when_it_is_back(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = fake(clock, "one", "two")
    watch = WorkerWatch(scheduler, {}, lambda: None)
    begun = clock.now
    while clock.now < begun + 80:
        clock.now += 1
        scheduler.workers["tcp://two:1"].last_seen = clock.now
        watch.look()
    assert [record.getMessage() for record in caplog.records] == [
        "worker one (tcp://one:1), silent for 10 s; graphs with a rank there: none",
        "worker one (tcp://one:1), silent for 1 min 10 s; graphs with a rank there: none",
    ]
    (late,) = watch.not_ready(scheduler.workers)
    assert (late.state, late.since, late.silent) == (WorkerState.LATE, begun + 10, 80)
    caplog.clear()
    scheduler.workers["tcp://one:1"].last_seen = clock.now
    watch.look()
    watch.look()
    assert [record.getMessage() for record in caplog.records] == [
        "worker one (tcp://one:1) is ready again, late for 1 min 10 s"
    ]
    assert not watch.not_ready(scheduler.workers)


def test_a_paused_worker_is_told_and_a_worker_that_leaves_is_forgotten(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = fake(clock, "one")
    watch = WorkerWatch(scheduler, {}, lambda: None)
    worker = scheduler.workers["tcp://one:1"]
    worker.status = Status.paused
    watch.look()
    clock.now += 12
    for _ in range(3):
        # Late says more: a paused worker answers.
        clock.now += 1
        watch.look()
    words = [record.getMessage() for record in caplog.records]
    assert len(words) == 1
    assert "paused: 9 B of 10 B" in words[0]
    del scheduler.workers["tcp://one:1"]
    watch.look()
    assert watch.statuses(["tcp://one:1"]) == []


def test_a_scheduler_that_was_stopped_itself_calls_nobody_late(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    scheduler = fake(clock, "one")
    watch = WorkerWatch(scheduler, {}, lambda: None)
    watch.look()
    clock.now += 100
    watch.look()
    assert not caplog.records
    for _ in range(9):
        clock.now += 1
        watch.look()
    assert not caplog.records
    clock.now += 1
    watch.look()
    assert "silent for 10 s" in caplog.text


@pytest.fixture
def mortal() -> Iterator[distributed.Client]:
    with dask.config.set({"dbfs.silence": "1s"}):
        with dbfs.connect(n_workers=2, backend="cpu", dashboard_address="127.0.0.1:0") as client:
            yield client


@pytest.mark.alone
def test_a_stopped_worker_is_late_everywhere_and_back(mortal: distributed.Client) -> None:
    graph = dbfs.load("path:n=50", client=mortal, name="web")
    running, stopped = graph.gang.addresses
    pid = mortal.run(os.getpid, workers=[stopped])[stopped]

    def late() -> list[str]:
        (status,) = dbfs.graphs(client=mortal)
        return [worker.address for worker in status.not_ready]

    def workers() -> dict[str, WorkerStatus]:
        return {worker.address: worker for worker in dbfs.cluster_state(client=mortal).workers}

    os.kill(pid, signal.SIGSTOP)
    try:
        # A worker that runs may be late for a moment, too: its heartbeat comes late on a busy machine.
        eventually(late, lambda found: found == [stopped])
        found = eventually(workers, lambda found: found[running].state is WorkerState.READY)
        assert found[stopped].state is WorkerState.LATE
        assert found[stopped].graphs == ("web",)
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(late, lambda found: not found)
    assert graph.bfs(0, validate=True).depth == 49

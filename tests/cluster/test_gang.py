"""Waiting for tasks on a gang."""

import gc
import os
import time
import weakref
from typing import Any

import dask
import distributed
import pytest
from distributed.comm import CommClosedError

from dbfs.cluster.deadline import Deadline
from dbfs.cluster.gang import Gang, joined_workers
from dbfs.errors import DeadlineExceededError, WorkerLostError
from tests.support.losses import lose, mortal_cluster


class Held:
    """Something that a caller's frame holds."""


def wait_long(client: distributed.Client) -> "weakref.ref[Held]":
    held = Held()
    gang = Gang(client, tuple(joined_workers(client)))
    future = client.submit(lambda: time.sleep(0.3), pure=False)
    with dask.config.set({"dbfs.liveness-interval": "20 ms"}):
        gang.gather([future], Deadline(30), "waiting")
    return weakref.ref(held)


def test_a_wait_of_many_looks_leaves_nothing_of_its_callers(client: distributed.Client) -> None:
    gc.collect()
    gc.disable()
    try:
        assert wait_long(client)() is None
    finally:
        gc.enable()


def test_results_of_workers_of_this_host_do_not_pass_the_scheduler(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang = Gang(client, tuple(joined_workers(client)))
    future = client.submit(lambda: 7, pure=False)
    monkeypatch.setattr(client.scheduler, "gather", None, raising=False)
    assert gang.gather([future], Deadline(30), "reading") == [7]


def test_a_deadline_while_a_task_runs(client: distributed.Client) -> None:
    gang = Gang(client, tuple(joined_workers(client)))
    future = client.submit(lambda: time.sleep(0.5), pure=False)
    with dask.config.set({"dbfs.liveness-interval": "20 ms"}), pytest.raises(DeadlineExceededError, match="sleeping"):
        gang.gather([future], Deadline(0.1), "sleeping")


def test_a_call_ends_when_a_worker_has_left() -> None:
    settings = {"dbfs.liveness-interval": "20 ms", "distributed.comm.timeouts.connect": "10 minutes"}
    with dask.config.set(settings), mortal_cluster(2) as client:
        gang = Gang(client, tuple(joined_workers(client)))
        assert gang.run(os.getpid, "reading") == [os.getpid()] * 2
        lose(client, gang.addresses[1], replaced=False)
        with pytest.raises(WorkerLostError, match="reading: lost rank 1"):
            gang.run(os.getpid, "reading")


def test_a_call_whose_connection_broke_before_the_scheduler_missed_the_worker(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang, there = Gang(client, tuple(joined_workers(client))), [True, True, False]
    ask = client.scheduler.identity

    async def broken(*_: Any, **options: Any) -> None:
        raise CommClosedError("in <TCP (closed) Scheduler Broadcast>: Connection reset by peer")

    async def identity(**options: Any) -> Any:
        found = await ask(**options)
        known = there.pop(0) if there else False
        return found if known else {**found, "workers": dict.fromkeys(gang.addresses[1:])}

    monkeypatch.setattr(client, "run", broken)
    monkeypatch.setattr(client.scheduler, "identity", identity, raising=False)
    with pytest.raises(WorkerLostError, match="reading: lost rank 0"):
        gang.run(os.getpid, "reading")
    assert not there
    # Another reason: all workers are there.
    monkeypatch.setattr(client.scheduler, "identity", ask, raising=False)
    monkeypatch.setattr("dbfs.cluster.gang._ANSWER_SECONDS", 0.1)
    with pytest.raises(CommClosedError):
        gang.run(os.getpid, "reading")

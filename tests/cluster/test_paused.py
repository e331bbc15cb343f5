"""Memory that clients left behind returns to the system, and a worker that Dask pauses is told by name."""

import contextlib
import importlib
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import dask
import distributed
import pytest
from distributed.core import Status

import dbfs
from dbfs.base.records import WorkerState
from dbfs.cluster import lookout
from dbfs.cluster.connect import roster
from dbfs.cluster.worker_states import ListNotReady
from dbfs.errors import DeadlineExceededError, GraphTooLargeError, NoRoomForLabelsError
from dbfs_workers.base import memory_room
from dbfs_workers.base.memory_room import resident_bytes, room_for, usable_share
from dbfs_workers.serving import rpc
from tests.support.waiting import eventually

UNSPILLED = {f"distributed.worker.memory.{what}": False for what in ("target", "spill")}
LIMIT = 600 << 20


@pytest.mark.parametrize(
    ("share", "pause", "usable"),
    [(0.9, False, 0.9), (0.9, 0.95, 0.9), (0.9, 0.8, 0.75), (0.5, 0.8, 0.5), (1.0, 1.0, 0.95), (0.9, 0.01, 0.0)],
)
def test_nothing_fills_a_worker_up_to_its_pause(share: float, pause: float | bool, usable: float) -> None:
    assert usable_share(share, pause) == usable


def test_freed_memory_returns_before_a_refusal_and_not_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    free = 5

    def return_freed() -> None:
        nonlocal free
        free += 3

    monkeypatch.setattr(memory_room, "return_freed", return_freed)
    assert [room_for(needed, lambda: free) for needed in (5, 6, 8, 9)] == [5, 8, 8, 11]


@pytest.mark.full
def test_the_memory_of_results_that_a_client_left_returns_to_the_system() -> None:
    with (
        dask.config.set(UNSPILLED),
        dbfs.connect(n_workers=1, backend="cpu", dashboard_address=None, memory_limit=LIMIT) as client,
    ):

        def memory() -> int:
            return int(*client.run(resident_bytes).values())

        # Under a nanny the heap holds labels below 128 KiB; larger ones return to the system by themselves.
        shared = dbfs.load("star:n=30000", client=client, name="shared")
        # Results of a client that stays lie between those of one that leaves, also at the end of the heap.
        kept = []
        with distributed.Client(client.scheduler.address, set_as_default=False) as other:
            graph, held = dbfs.open("shared", client=other), []
            with pytest.raises(NoRoomForLabelsError, match="publish"):
                while True:
                    held += graph.bfs_many(range(100))
                    kept.append(shared.bfs(0))
            full = memory()
            # The fullest that dbfs makes a worker is less than what pauses the worker.
            assert 0.8 * LIMIT < full < 0.95 * LIMIT
            assert client.run(status) == {graph.gang.addresses[0]: "running"}
            del held
        assert eventually(memory, lambda now: now < full - (200 << 20)) < 0.6 * LIMIT
        with dbfs.load("path:n=1000000", client=client) as another:
            assert another.bfs(0).depth == 999_999


@pytest.fixture
def paused(client: distributed.Client) -> Iterator[str]:
    """The address of the shared cluster's second worker, which is paused. Without a memory limit Dask leaves it so."""
    address = roster(client, 4)[1]
    client.run(set_status, "paused", workers=[address])
    try:
        eventually(lambda: states(client)[address], lambda state: state is WorkerState.PAUSED)
        yield address
    finally:
        client.run(set_status, "running", workers=[address])
        eventually(lambda: states(client)[address], lambda state: state is WorkerState.READY)


@pytest.mark.full
def test_a_load_takes_the_workers_that_are_not_paused(
    client: distributed.Client, paused: str, caplog: pytest.LogCaptureFixture
) -> None:
    for ranks in (3, None):
        caplog.clear()
        with dbfs.load("path:n=40", client=client, ranks=ranks) as graph:
            assert paused not in graph.gang.addresses
            assert graph.bfs(0, engine="taskgraph").depth == 39
        assert "going on with 3 workers of 4, without worker" in caplog.text
        assert f"({paused}), paused: " in caplog.text


@pytest.mark.full
def test_a_load_that_needs_a_paused_worker_says_so_at_once_and_ends_by_its_deadline(
    client: distributed.Client, paused: str, caplog: pytest.LogCaptureFixture, leaves_nothing: None
) -> None:
    with pytest.raises(DeadlineExceededError, match=rf"waits for worker \S+ \({paused}\), paused: .*release results"):
        dbfs.load("path:n=40", client=client, ranks=4, deadline=5)
    assert "4 workers, of which 3 are ready; the graph waits for worker" in caplog.text
    assert dbfs.graphs(client=client) == []


def test_a_load_goes_on_when_the_worker_does(client: distributed.Client, paused: str) -> None:
    threading.Timer(1, client.run, (set_status, "running"), {"workers": [paused]}).start()
    with dbfs.load("path:n=40", client=client, ranks=4) as graph:
        assert graph.bfs(0, validate=True).depth == 39


@pytest.mark.full
def test_a_paused_worker_makes_runs_and_its_tasks_wait_by_name(client: distributed.Client) -> None:
    with dbfs.load("path:n=40", client=client, ranks=4) as graph:
        address = graph.gang.addresses[1]
        client.run(set_status, "paused", workers=[address])
        try:
            # Runs of the resident engine are no tasks.
            assert graph.bfs(0).distances().tolist() == list(range(40))
            with pytest.raises(DeadlineExceededError, match=rf"level 0: not done .*\({address}\), paused"):
                graph.bfs(0, engine="taskgraph", deadline=4)
            (listed,) = dbfs.graphs(client=client)
            assert [worker.address for worker in listed.not_ready] == [address]
        finally:
            client.run(set_status, "running", workers=[address])
        assert graph.bfs(0, engine="taskgraph", validate=True).depth == 39


def test_the_calls_of_a_client_that_wait_ask_in_one_message(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Earlier calls of the client have looked at the real clock.
    asked, send, now = [], rpc.send, time.monotonic()

    async def noted(server: Any, message: rpc.Message[Any], seconds: float) -> rpc.Envelope | None:
        if isinstance(message, ListNotReady):
            asked.append(message.graph_ids)
        return await send(server, message, seconds)

    monkeypatch.setattr(rpc, "send", noted)
    monkeypatch.setattr(lookout, "time", SimpleNamespace(monotonic=lambda: now))
    with dbfs.load("path:n=40", client=client) as one, dbfs.load("path:n=40", client=client) as other:
        address, ready = one.gang.addresses[:2]
        client.run(set_status, "paused", workers=[address])
        try:
            eventually(lambda: states(client)[address], lambda state: state is WorkerState.PAUSED)
            whom: list[Any] = [one.record.graph_id, other.record.graph_id, [address], [ready]]
            calls = [lookout.Lookout() for _ in whom]

            def told() -> list[bool]:
                for call in calls:
                    call.look(client)
                return [f"({address}), paused" in call.why for call in calls]

            with contextlib.ExitStack() as waits:
                for call, of_call in zip(calls, whom, strict=True):
                    waits.enter_context(call.over(of_call))
                asked.clear()
                assert (told(), asked) == ([False] * 4, [])
                now += lookout._ASK_SECONDS
                eventually(told, lambda found: found == [True, True, True, False])
                assert asked == [tuple(sorted(whom[:2]))]
                now += lookout._ASK_SECONDS
                told()
                calls.append(lookout.Lookout())
                waits.enter_context(calls[-1].over([address]))
                # A call that has just begun takes no answer to a question of before.
                eventually(told, lambda found: found == [True, True, True, False, False] and len(asked) == 2)
        finally:
            client.run(set_status, "running", workers=[address])


def test_a_full_worker_refuses_a_graph_by_name() -> None:
    with dbfs.connect(n_workers=1, backend="cpu", dashboard_address=None, memory_limit=LIMIT) as client:
        dbfs.install(client)
        # From now on Dask pauses the worker at once, as it does if memory outside of dbfs fills it.
        client.run(set_pause, 0.06)
        eventually(lambda: set(states(client).values()), lambda found: found == {WorkerState.PAUSED})
        paused = r"worker 0 \(tcp://.*\), paused: .* of 600.00 MiB; release results, or give it more memory"
        with pytest.raises(GraphTooLargeError, match=rf"rank 0 \({paused}\) may take 0 bytes more \(1% of"):
            dbfs.load("path:n=40", client=client, ranks=1)
        client.run(set_pause, 0.9)
        with dbfs.load("path:n=40", client=client, ranks=1) as graph:
            assert graph.bfs(0).depth == 39


def test_a_first_load_asks_for_states_when_the_scheduler_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    known = []

    def look(client: distributed.Client, *arguments: Any, **options: Any) -> tuple[str, ...]:
        known.append("dbfs_list_workers" in client.cluster.scheduler.handlers)
        return roster(client, *arguments, **options)

    monkeypatch.setattr(importlib.import_module("dbfs.graph.load"), "roster", look)
    with dbfs.connect(n_workers=1, backend="cpu", processes=False, dashboard_address=None) as client:
        dbfs.load("path:n=9", client=client).unload()
    assert known == [True]


def states(client: distributed.Client) -> dict[str, WorkerState]:
    return {worker.address: worker.state for worker in dbfs.cluster_state(client=client).workers}


def status(dask_worker: distributed.Worker) -> str:
    """Run on a worker: return its state."""
    return str(dask_worker.status.name)


def set_status(name: str, dask_worker: distributed.Worker) -> None:
    """Run on a worker: have it be in a state."""
    dask_worker.status = Status[name]


def set_pause(share: float, dask_worker: distributed.Worker) -> None:
    """Run on a worker: have Dask pause it at a share of its memory limit."""
    dask_worker.memory_manager.memory_pause_fraction = share

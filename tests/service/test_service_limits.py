"""What clients of one cluster may do to each other: names, deadlines in the queue, the queue's length, cancelling."""

import asyncio
import threading
import time
import uuid
from dataclasses import replace
from datetime import datetime
from typing import Any

import dask
import distributed
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.base.records import Formation, GraphRecord
from dbfs.errors import (
    ClientError,
    DeadlineExceededError,
    GraphNotFoundError,
    NameTakenError,
    NotOwnerError,
    QueueFullError,
    RunCancelledError,
    WorkerLostError,
)
from dbfs.service import forming
from dbfs.service.client import ServiceClient
from dbfs.service.messages import AddGraph, CancelRun, EndLoad, Enqueue, OpenGraph, Reserve, UnloadGraph
from dbfs.service.worker_calls import WorkerCall
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.serving import rpc
from dbfs_workers.serving.answers import error_of, failed
from dbfs_workers.serving.rpc import PickledValue
from dbfs_workers.serving.turns.requests import Run, Work
from tests.support.runs import Background
from tests.support.waiting import eventually

pytestmark = pytest.mark.alone


def reserved(client: distributed.Client) -> set[str]:
    graphs: set[str] = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.plugins["dbfs"].reserved))
    return graphs


def test_a_late_release_does_not_free_a_name_that_another_client_has_reserved(
    client: distributed.Client, other: distributed.Client
) -> None:
    one, two = ServiceClient.of(client), ServiceClient.of(other)
    one.call(Reserve("first", client.id, (), "mine", replace=False))
    one.call(EndLoad("first", client.id, "mine", "FormatError: bad"))
    two.call(Reserve("second", other.id, (), "mine", replace=False))
    one.call(EndLoad("first", client.id, "mine", "FormatError: bad"))
    with pytest.raises(NameTakenError, match="a graph named 'mine' is being built"):
        one.call(Reserve("third", client.id, (), "mine", replace=False))
    two.call(EndLoad("second", other.id, "mine", "FormatError: bad"))
    assert not reserved(client)


def test_a_graph_without_its_reservation_is_not_added(
    client: distributed.Client, leaves_nothing: None, older: set[datetime]
) -> None:
    service = ServiceClient.of(client)
    with dbfs.load("path:n=8", client=client) as graph:
        named = replace(graph.record, graph_id=uuid.uuid4().hex, name="late", named=True)
        with pytest.raises(NameTakenError, match="late: the name is not reserved for this graph any more"):
            service.call(AddGraph(named, 9.0))
        service.call(Reserve("of another graph", client.id, (), "late", replace=False))
        with pytest.raises(NameTakenError, match="late: the name is not reserved for this graph any more"):
            service.call(AddGraph(named, 9.0))
        service.call(EndLoad("of another graph", client.id, "mine", "FormatError: bad"))
        assert [status.name for status in dbfs.graphs(client=client) if status.created not in older] == [graph.name]


def test_a_reserved_name_stays_reserved_when_a_nameless_graph_has_that_source(
    client: distributed.Client, other: distributed.Client
) -> None:
    service = ServiceClient.of(client)
    service.call(Reserve("id", client.id, (), "path:n=8", replace=False))
    with dbfs.load("path:n=8", client=other), pytest.raises(NameTakenError, match="is being built"):
        dbfs.load("path:n=9", client=other, name="path:n=8")
    service.call(EndLoad("id", client.id, "mine", "FormatError: bad"))


def test_clients_that_never_were_get_nothing(client: distributed.Client) -> None:
    service = ServiceClient.of(client)
    with pytest.raises(ClientError, match="the name 'ghost': no client nobody is in the cluster"):
        service.call(Reserve("id", "nobody", (), "ghost", replace=False))
    assert not reserved(client)
    with dbfs.load("path:n=4", client=client) as graph:
        with pytest.raises(ClientError, match="run lost: no client nobody is in the cluster"):
            service.call(Enqueue(graph.record.graph_id, "nobody", "lost", PickledValue(b""), 1, 9.0, holds=False))
        with pytest.raises(ClientError, match="no client nobody is in the cluster"):
            service.call(AddGraph(replace(graph.record, graph_id="x", client="nobody"), 9.0))


def formed_late(monkeypatch: pytest.MonkeyPatch, meanwhile: Any) -> None:
    """Have the scheduler call ``meanwhile`` when it has formed a gang, before it adds the graph."""
    form = forming.form

    async def form_late(record: GraphRecord, call: WorkerCall) -> Formation:
        formed = await form(record, call)
        await meanwhile(record)
        return formed

    monkeypatch.setattr(forming, "form", form_late)


def members(client: distributed.Client) -> int:
    return sum(client.run(lambda dask_worker: len(dask_worker.plugins["dbfs"].members)).values())


def test_a_graph_whose_client_left_while_its_gang_formed_is_not_added(
    client: distributed.Client, other: distributed.Client, leaves_nothing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The graph of other tests of this module, which has two ranks, may be there.
    there = members(client)
    scheduler = client.cluster.scheduler

    async def leave(record: GraphRecord) -> None:
        scheduler.remove_client(record.client)

    formed_late(monkeypatch, leave)
    with pytest.raises(ClientError, match=f"no client {other.id} is in the cluster"):
        dbfs.load("path:n=50", client=other, name="orphan")
    monkeypatch.undo()
    with pytest.raises(GraphNotFoundError, match="no graph is named 'orphan'"):
        dbfs.open("orphan", client=client)
    assert not reserved(client)
    assert members(client) == there


def test_the_old_graph_has_its_name_until_the_gang_of_the_new_one_is_formed(
    client: distributed.Client, other: distributed.Client, monkeypatch: pytest.MonkeyPatch, leaves_nothing: None
) -> None:
    plugin = client.cluster.scheduler.plugins["dbfs"]
    seen: list[int] = []

    async def look(record: GraphRecord) -> None:
        opened, _ = await plugin.open_graph(OpenGraph("street"))
        seen.append(opened.stripe.n)

    async def fail(record: GraphRecord) -> None:
        raise WorkerLostError("lost rank 0")

    with dbfs.load("path:n=5", client=client, name="street") as old:
        there = members(client)
        formed_late(monkeypatch, fail)
        with pytest.raises(WorkerLostError, match="lost rank 0"):
            dbfs.load("path:n=6", client=other, name="street", replace=True)
        assert (old.bfs(0).depth, dbfs.open("street", client=other).n, members(client)) == (4, 5, there)
        monkeypatch.undo()
        formed_late(monkeypatch, look)
        with dbfs.load("path:n=7", client=other, name="street", replace=True):
            assert (seen, dbfs.open("street", client=client).n, members(client)) == ([5], 7, there)
            with pytest.raises(GraphNotFoundError, match="unloaded"):
                old.bfs(0)


@pytest.mark.full
def test_a_graph_whose_worker_left_while_its_gang_formed_is_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    with dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None) as mortal:
        scheduler = mortal.cluster.scheduler

        async def lose(record: GraphRecord) -> None:
            await scheduler.remove_worker(record.addresses[1], stimulus_id="test")

        formed_late(monkeypatch, lose)
        with pytest.raises(WorkerLostError, match="lost tcp://.* while the graph was built"):
            dbfs.load("path:n=50", client=mortal, name="orphan")
        assert dbfs.graphs(client=mortal) == []


@pytest.mark.full
def test_of_two_clients_with_one_name_one_loads(client: distributed.Client, other: distributed.Client) -> None:
    for _ in range(25):
        outcomes: list[Graph | Exception] = []
        together = threading.Barrier(2)

        def load(of: distributed.Client, outcomes: Any = outcomes, together: Any = together) -> None:
            together.wait()
            try:
                outcomes.append(dbfs.load("path:n=20", client=of, name="wanted"))
            except NameTakenError as error:
                outcomes.append(error)

        threads = [threading.Thread(target=load, args=(of,)) for of in (client, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        (winner,) = (outcome for outcome in outcomes if isinstance(outcome, Graph))
        assert sum(isinstance(outcome, NameTakenError) for outcome in outcomes) == 1
        winner.unload()


def test_a_deadline_counts_the_wait_in_the_queue(
    client: distributed.Client, other: distributed.Client, endless: Graph
) -> None:
    with dbfs.load("path:n=9", client=other, ranks=2) as second:
        run = Background(endless)
        (ahead,) = dbfs.runs(client=client)
        began = time.monotonic()
        behind = rf"in the queue behind run {ahead.status.run_id}"
        words = rf"its turn did not come within 0\.\d+ s \(waited \d[\d.]* m?s {behind}\)"
        with pytest.raises(DeadlineExceededError, match=words):
            second.bfs(0, deadline=0.9)
        # A bound against waiting for the run ahead, which lasts a minute.
        assert time.monotonic() - began < 10
        # The gang serves on, and the run ahead goes on.
        assert [status.status.running for status in dbfs.runs(client=client)] == [True]
        ahead.cancel()
        assert isinstance(run.join(), RunCancelledError)
        assert second.bfs(0).depth == 8


@pytest.mark.full
def test_a_run_that_waited_has_the_rest_of_its_deadline(client: distributed.Client, endless: Graph) -> None:
    run = Background(endless, deadline=1.5)
    began = time.monotonic()
    words = r"level \d+.* \(waited \d.*s in the queue behind run \w+, ran \d.*s\)"
    with pytest.raises(DeadlineExceededError, match=words):
        endless.bfs(0, direction="bottom-up", deadline=3)
    assert time.monotonic() - began < 10
    assert isinstance(run.join(), DeadlineExceededError)


def test_only_so_many_runs_wait(client: distributed.Client, endless: Graph) -> None:
    run = Background(endless)
    with dask.config.set({"dbfs.service.waiting-runs": 2}):
        waiting = [threading.Thread(target=lambda: endless.bfs(0, max_depth=2)) for _ in range(2)]
        for thread in waiting:
            thread.start()
        eventually(lambda: len(dbfs.runs(client=client)) == 3)
        with pytest.raises(QueueFullError, match=r"as many runs wait as .*waiting-runs allows, 2"):
            endless.bfs(0)
    # On a busy machine the first run's turn may have ended before that run came: then it queues behind the others.
    run.run.cancel()
    assert isinstance(run.join(), RunCancelledError)
    for thread in waiting:
        thread.join(30)
    assert endless.bfs(0, max_depth=2).reached == 3


@pytest.mark.full
def test_hundreds_of_runs_at_once(client: distributed.Client) -> None:
    """As many as Dask's connections allow are answered: all of them, or the rest with an error."""

    async def enqueue(graph: Graph, count: int) -> list[Any]:
        answers = []
        for _ in range(count):
            spec = TraversalSpec(uuid.uuid4().hex, (0,), False, "cpu")
            packed: PickledValue[Work] = PickledValue.of(Run(RunSpec.single(spec), 0, ()))
            message = Enqueue(graph.record.graph_id, client.id, spec.run_id, packed, 1, 60.0, holds=False)
            answers.append(rpc.send(client.scheduler, message, 60.0))
        return list(await asyncio.gather(*answers))

    with dbfs.load("path:n=4", client=client, ranks=2) as graph:
        with dask.config.set({"dbfs.service.waiting-runs": 512}):
            answers = client.sync(enqueue, graph, 512)
        assert [failed(answer) for answer in answers] == [False] * 512
        answers = client.sync(enqueue, graph, 512)
        errors = [error for answer in answers if (error := error_of(answer))]
        assert 0 < len(errors) < 512
        assert {type(error) for error in errors} == {QueueFullError}
        assert not dbfs.runs(client=client)


def test_another_clients_run_and_nameless_graph_are_safe(
    client: distributed.Client, other: distributed.Client, endless: Graph
) -> None:
    run = Background(endless)
    (seen,) = dbfs.runs(client=other)
    graph = dbfs.load("path:n=9", client=client)
    unload = UnloadGraph(graph.record.graph_id, other.id)
    with pytest.raises(NotOwnerError, match=f"only its own client {client.id} may cancel run .*anyone-may-stop"):
        seen.cancel()
    with pytest.raises(NotOwnerError, match=f"only its own client {client.id} may unload"):
        ServiceClient.of(other).call(unload)
    assert run.thread.is_alive()
    with dask.config.set({"dbfs.service.anyone-may-stop": True}):
        ServiceClient.of(other).call(CancelRun(seen.status.run_id, other.id))
        assert isinstance(run.join(), RunCancelledError)
        ServiceClient.of(other).call(unload)
    with pytest.raises(GraphNotFoundError, match="unloaded"):
        graph.bfs(0)

"""A cluster with graphs is not idle: Dask closes no worker that holds one, nor the scheduler; or the error says so."""

from collections.abc import Iterator
from typing import Any

import dask
import distributed
import pytest

import dbfs
from dbfs.errors import FormatError, NoWorkersError, WorkerLostError
from dbfs.graph import load
from tests.support.waiting import eventually


@pytest.fixture
def three() -> Iterator[distributed.Client]:
    """The client of a cluster of three workers."""
    with dbfs.connect(n_workers=3, processes=False, dashboard_address=None, set_as_default=False) as client:
        yield client


def idle(client: distributed.Client) -> int:
    """Return how many of a cluster's three workers Dask would close."""
    return len(client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.workers_to_close(n=3)))


def test_workers_are_not_idle_while_they_hold_a_graph(three: distributed.Client) -> None:
    assert idle(three) == 3
    with dbfs.load("path:n=9", client=three, ranks=1), dbfs.load("path:n=9", client=three, ranks=2, name="path"):
        assert idle(three) == 1
    assert idle(three) == 3


@pytest.mark.parametrize("name", [None, "path"])
def test_workers_are_not_idle_while_a_graph_is_built_on_them(
    three: distributed.Client, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    during = []

    def build(*arguments: Any, **options: Any) -> Any:
        during.append(idle(three))
        if fails:
            raise FormatError("no edges")
        return made(*arguments, **options)

    made = load.build
    monkeypatch.setattr(load, "build", build)
    for fails in (True, False):
        if fails:
            with pytest.raises(FormatError, match="no edges"):
                dbfs.load("path:n=9", client=three, ranks=2, name=name)
            eventually(lambda: idle(three) == 3)
        else:
            dbfs.load("path:n=9", client=three, ranks=2, name=name).unload()
    assert during == [1, 1]
    assert idle(three) == 3


def test_workers_are_idle_again_when_the_client_leaves_a_build(three: distributed.Client) -> None:
    # In the loop of the first client: a loop of its own has but 10 s to start, on a machine that may stand still.
    with distributed.Client(three.scheduler.address, loop=three.loop, set_as_default=False) as other:
        dbfs.install(other)
        reserve = load.Reserve("graph", other.id, tuple(three.scheduler_info(n_workers=-1)["workers"]), None, False)
        load.ServiceClient.of(other).call(reserve)
        assert idle(three) == 0
    eventually(lambda: idle(three) == 3)


def test_an_adaptive_cluster_that_starts_no_workers_needs_a_minimum(three: distributed.Client) -> None:
    three.cluster.adapt(minimum=3, maximum=4)
    with dask.config.set({"dbfs.workers-timeout": "10ms"}):
        with pytest.raises(NoWorkersError, match=r"4 workers wanted, 3 found .*adapt\(minimum=4\)"):
            dbfs.load("path:n=9", client=three, ranks=4)


@pytest.mark.alone
@pytest.mark.parametrize("engine", ["resident", "taskgraph"])
def test_the_error_says_that_dask_retired_a_worker(three: distributed.Client, engine: str) -> None:
    graph = dbfs.load("path:n=90", client=three, rebuild="never")
    graph.bfs(0)
    three.retire_workers([graph.gang.addresses[1]])
    for _ in range(2):
        with pytest.raises(WorkerLostError, match=r"lost rank 1.*Dask retired the worker of rank 1: by retire_workers"):
            graph.bfs(0, engine=engine)


@pytest.mark.full
@pytest.mark.alone
def test_an_adaptive_cluster_keeps_the_workers_of_a_graph(three: distributed.Client) -> None:
    looks = []

    class Counted(distributed.Adaptive):  # type: ignore[misc]  # distributed is untyped
        async def target(self) -> int:
            looks.append(await super().target())
            return int(looks[-1])

    graph = dbfs.load("path:n=90", client=three, ranks=2)
    three.cluster.adapt(Adaptive=Counted, minimum=1, maximum=3, interval="20ms", wait_count=2)
    eventually(lambda: len(three.cluster.workers) == 2)
    more = len(looks) + 20
    eventually(lambda: len(looks) > more)
    assert graph.bfs(0).depth == 89
    graph.unload()
    eventually(lambda: len(three.cluster.workers) == 1)


@pytest.mark.full
def test_an_idle_timeout_begins_when_the_last_graph_is_gone() -> None:
    checks = []

    def count(dask_scheduler: distributed.Scheduler) -> None:
        looks = dask_scheduler.periodic_callbacks["idle-timeout"]
        check = looks.callback

        def counted() -> None:
            checks.append(dask_scheduler.status)
            check()

        looks.callback = counted

    # The client looks for its scheduler half a minute, unless it is told otherwise.
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "2s"}),
        dbfs.connect(
            n_workers=1, processes=False, dashboard_address=None, scheduler_kwargs={"idle_timeout": "1s"}
        ) as client,
    ):
        graph = dbfs.load("path:n=9", client=client)
        count(client.cluster.scheduler)
        # A look takes a quarter of a second.
        eventually(lambda: len(checks) > 12)
        assert graph.bfs(0).depth == 8
        graph.unload()
        scheduler = client.cluster.scheduler
        eventually(lambda: scheduler.status in (distributed.Status.closing, distributed.Status.closed))

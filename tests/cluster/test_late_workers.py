"""Workers that join after the client: a load waits for them, says what it waits for, and on how many it loads."""

import asyncio
import logging
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
import distributed
import pytest

import dbfs
from dbfs.cluster import awaiting, connect
from dbfs.errors import NoWorkersError


class Heard(logging.Handler):
    """Hands on the messages of a log as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: queue.Queue[str] = queue.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.put(record.getMessage())


@pytest.fixture
def heard() -> Iterator[queue.Queue[str]]:
    handler = Heard()
    connect.logger.addHandler(handler)
    yield handler.messages
    connect.logger.removeHandler(handler)


@pytest.fixture
def empty() -> Iterator[distributed.Client]:
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None, silence_logs=40) as cluster:
        with distributed.Client(cluster, set_as_default=False) as client:
            yield client


@pytest.mark.parametrize("ranks", [None, 1, 2])
@pytest.mark.parametrize("own", [True, False])
def test_a_load_waits_for_workers(
    empty: distributed.Client, heard: queue.Queue[str], ranks: int | None, own: bool
) -> None:
    with ThreadPoolExecutor(1) as pool, distributed.Client(empty.scheduler.address, set_as_default=False) as remote:
        client = empty if own else remote
        load = pool.submit(dbfs.load, [(0, 1), (1, 2)], client=client, ranks=ranks, deadline=60)
        wanted = "1 worker wanted" if ranks is None else f"{ranks} worker{'s' * (ranks > 1)} wanted"
        assert heard.get(timeout=60).startswith(f"{wanted}, 0 found; waiting 60 s for more" if not own else wanted)
        empty.cluster.scale(2)
        graph = load.result(60)
        assert graph.ranks in ((1, 2) if ranks is None else (ranks,))
        assert heard.get(timeout=60).startswith(f"going on with {graph.ranks} worker")
        assert graph.bfs(0).to_dict() == {0: 0, 1: 1, 2: 2}
        graph.unload()


def test_without_ranks_a_load_takes_what_joins_within_a_second_after_the_first(
    empty: distributed.Client, heard: queue.Queue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def sync(client: distributed.Client, function: Any, *arguments: Any) -> Any:
        if function is not asyncio.sleep:
            return awaiting.sync(client, function, *arguments)
        waits.extend(arguments)
        empty.cluster.scale(3)
        return empty.wait_for_workers(3, timeout=60)

    monkeypatch.setattr(connect, "sync", sync)
    with ThreadPoolExecutor(1) as pool:
        chosen = pool.submit(connect.roster, empty, None)
        assert heard.get(timeout=60).startswith("1 worker wanted, 0 found")
        empty.cluster.scale(1)
        assert len(chosen.result(60)) == 3
    assert waits == [1.0]
    assert heard.get(timeout=60) == "going on with 3 workers of 3 that joined"


def test_nobody_joins(empty: distributed.Client, heard: queue.Queue[str]) -> None:
    """The call's own deadline bounds the wait if it is given, else the configuration."""
    words = r"1 worker wanted, 0 found after {} s .*start it with n_workers=1, or call client.cluster.scale\(1\)"
    with dask.config.set({"dbfs.workers-timeout": "60s"}), pytest.raises(NoWorkersError, match=words.format("0.3")):
        dbfs.load([(0, 1)], client=empty, deadline=0.3)
    with dask.config.set({"dbfs.workers-timeout": "0.2s"}), pytest.raises(NoWorkersError, match=words.format("0.2")):
        dbfs.load([(0, 1)], client=empty)
    assert "waiting 0.3 s for more; the cluster has 0: start it with" in heard.get(timeout=60)


def test_a_cluster_with_too_few_workers_is_waited_for_as_long_as_the_caller_says(client: distributed.Client) -> None:
    with pytest.raises(NoWorkersError, match=r"9 workers wanted, 4 found after 0\.3 s"):
        dbfs.load("path:n=5", client=client, ranks=9, deadline=0.3)
    with pytest.raises(NoWorkersError, match="9 workers wanted, the cluster has 4: start"):
        dbfs.load("path:n=5", client=client, ranks=9)

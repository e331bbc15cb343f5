"""Waits of a thread for a client's event loop end with the loop."""

import asyncio
import concurrent.futures
import gc
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import distributed
import pytest

import dbfs
from dbfs.cluster import awaiting
from dbfs.cluster.awaiting import sync, sync_to_end
from dbfs.engines.resident import ResidentEngine
from dbfs.errors import ClientError, RunCancelledError
from tests.support.runs import ENDLESS, Background


async def late(error: type[Exception] | None = None) -> int:
    await asyncio.sleep(0.7)
    if error is not None:
        raise error
    return 7


@pytest.mark.parametrize("wait", [sync, sync_to_end])
def test_a_client_closed_by_another_thread(client: distributed.Client, wait: Callable[..., Any]) -> None:
    other = distributed.Client(client.scheduler.address, set_as_default=False)
    begun, ends = threading.Event(), []

    async def for_ever() -> None:
        begun.set()
        await asyncio.sleep(3600)

    def call() -> None:
        try:
            wait(other, for_ever)
        except ClientError as error:
            ends.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert begun.wait(10)
    other.close()
    thread.join(10)
    assert len(ends) == 1
    with pytest.raises(ClientError, match="was closed"):
        wait(other, late)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="run"),
        pytest.param({"progress": lambda _: None}, id="watched", marks=pytest.mark.full),
        pytest.param({"engine": "taskgraph"}, id="tasks", marks=pytest.mark.full),
    ],
)
def test_a_client_closed_in_a_run_of_another_thread(client: distributed.Client, options: dict[str, Any]) -> None:
    with distributed.Client(client.scheduler.address, set_as_default=False) as other:
        run = Background(dbfs.load(f"path:n={ENDLESS}", client=other, ranks=2), **options)
        other.close()
        error = run.join()
    assert isinstance(error, ClientError), error
    assert "connect and load again" in str(error)


def test_a_run_that_the_scheduler_cancels_before_the_clients_loop_ends(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with distributed.Client(client.scheduler.address, set_as_default=False) as other:
        graph = dbfs.load("path:n=9", client=other, ranks=1)

        def cancelled(*_: object) -> Iterator[object]:
            other.close()
            yield from ()
            raise RunCancelledError("run 7: its client left")

        monkeypatch.setattr(ResidentEngine, "traverse", cancelled)
        with pytest.raises(ClientError, match="connect and load again"):
            graph.bfs(0)


def test_a_loop_that_ended_before_the_coroutine_began(recwarn: pytest.WarningsRecorder) -> None:
    loop = asyncio.new_event_loop()
    client: Any = SimpleNamespace(
        loop=SimpleNamespace(asyncio_loop=loop), scheduler=SimpleNamespace(address="tcp://a:1")
    )
    with pytest.raises(ClientError, match="was closed"):
        awaiting.outcome(awaiting.begin(late, loop), client)
    loop.close()
    gc.collect()
    assert not [one for one in recwarn if "never awaited" in str(one.message)]


def test_a_coroutine_that_ends_with_a_look(client: distributed.Client) -> None:
    """The wait takes too long, and is over when the caller looks."""

    class Late(concurrent.futures.Future[int]):
        def result(self, timeout: float | None = None) -> int:
            if self.done():
                return super().result()
            self.set_result(7)
            raise TimeoutError

    assert awaiting.outcome(Late(), client) == 7


@pytest.mark.full
def test_a_wait_longer_than_a_look(client: distributed.Client) -> None:
    assert sync(client, late) == 7
    # The coroutine's own error, which is also that of a wait that took too long.
    with pytest.raises(TimeoutError):
        sync(client, late, TimeoutError)

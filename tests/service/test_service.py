"""The service on the scheduler: names, the queue of runs, cancelling, and what happens when someone leaves."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import pytest
from distributed.comm import CommClosedError

import dbfs
from dbfs.assembly import Graph
from dbfs.base.units import format_bytes
from dbfs.cluster.gang import Gang, joined_workers
from dbfs.edges.readers import from_file
from dbfs.errors import (
    DeadlineExceededError,
    FormatError,
    GraphNotFoundError,
    GraphTooLargeError,
    InvalidOptionError,
    MissingFileError,
    NameTakenError,
    ResultReleasedError,
    RunCancelledError,
    RunNotFoundError,
    StaleRunError,
    VersionMismatchError,
    WorkerLostError,
)
from dbfs.service.client import ServiceClient
from dbfs.service.messages import Enqueue, SchedulerMessage
from dbfs.service.worker_calls import WorkerCalls
from dbfs_workers.serving.messages import JoinGang, LeaveGang, WorkerMessage
from dbfs_workers.serving.rpc import PickledValue
from dbfs_workers.serving.turns.messages import EndTurn, OpenDoor
from tests.support.graphs import GRAPHS
from tests.support.runs import ENDLESS, Background, kill_rank_1_mid_run, ranks_end_runs
from tests.support.waiting import eventually

pytestmark = pytest.mark.alone

TCP_IN_FULL = ["shared_memory", pytest.param("tcp", marks=pytest.mark.full)]


@pytest.fixture
def mortal() -> Iterator[distributed.Client]:
    """A cluster of the test's own, to be harmed."""
    with dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None) as client:
        yield client


@pytest.fixture(params=TCP_IN_FULL)
def exchange(request: pytest.FixtureRequest) -> Iterator[str]:
    with dask.config.set({"dbfs.exchange": request.param}):
        yield request.param


def test_a_named_graph_is_everybodys(client: distributed.Client, leaves_nothing: None) -> None:
    graph = dbfs.load("path:n=20", client=client, name="street")
    with distributed.Client(client.scheduler.address, set_as_default=False) as other:
        opened = dbfs.open("street", client=other)
        assert opened.bfs(0, validate=True).depth == 19
        listed = {status.name: status for status in dbfs.graphs(client=other)}["street"]
        assert (listed.n, listed.m, listed.ranks, listed.runs) == (20, 38, 4, 1)
        assert listed.bytes_per_rank == graph.nbytes
        assert listed.exchange == "shared_memory"
        assert abs(listed.created - datetime.now(UTC)) < timedelta(minutes=1)
    unseen = graph.bfs(19)
    assert unseen.reached == 20
    dbfs.open("street", client=client).unload()
    with pytest.raises(GraphNotFoundError, match="unloaded"):
        graph.bfs(0)
    with pytest.raises(GraphNotFoundError, match="unloaded, which released the labels"):
        unseen.distances()
    graph.unload()
    assert "street" not in [status.name for status in dbfs.graphs(client=client)]


def test_names_that_are_not_there_or_taken(client: distributed.Client, leaves_nothing: None) -> None:
    with pytest.raises(GraphNotFoundError, match="no graph is named 'web'; no graph in the cluster has a name"):
        dbfs.open("web", client=client)
    with dbfs.load("path:n=5", client=client, name="a"), dbfs.load("path:n=5", client=client, name="b"):
        with pytest.raises(GraphNotFoundError, match="no graph is named 'web'; the names are 'a', 'b'"):
            dbfs.open("web", client=client)
        with pytest.raises(NameTakenError, match="a graph named 'a' exists already"):
            dbfs.load("path:n=6", client=client, name="a")
    with dbfs.load("path:n=7", client=client, name="a") as again:
        assert again.n == 7


def test_a_graph_that_is_loaded_is_no_file(client: distributed.Client, leaves_nothing: None) -> None:
    with dbfs.load("path:n=5", client=client, name="street"):
        with pytest.raises(MissingFileError, match=r"street: no such file; .* is loaded: dbfs.open\('street'\)"):
            dbfs.load("street", client=client)
        with pytest.raises(MissingFileError, match="no such file$"):
            dbfs.load("road", client=client)


def test_a_graph_is_replaced_by_name(client: distributed.Client, leaves_nothing: None) -> None:
    with pytest.raises(InvalidOptionError, match="replace=True needs name="):
        dbfs.load("path:n=5", client=client, replace=True)
    with pytest.raises(InvalidOptionError, match="replace must be True, False or 'first', not 'last'"):
        dbfs.load("path:n=5", client=client, name="street", replace="last")
    old = dbfs.load(f"path:n={ENDLESS}", client=client, name="street", replace=True)
    run = Background(old)
    with dbfs.load("path:n=30", client=client, name="street", replace=True) as new:
        assert isinstance(run.join(), RunCancelledError)
        assert [status.n for status in dbfs.graphs(client=client)] == [30]
        assert new.bfs(0).depth == 29
        with pytest.raises(GraphNotFoundError, match="unloaded"):
            old.bfs(0)
    # The name of a graph that another client loaded without one is no name to replace.
    with dbfs.load("path:n=5", client=client) as nameless:
        with pytest.raises(NameTakenError):
            dbfs.load("path:n=6", client=client, name=nameless.name, replace=True)


def test_a_failed_build_leaves_the_graph_that_it_would_replace(
    client: distributed.Client, tmp_path: Path, leaves_nothing: None
) -> None:
    (tmp_path / "bad.txt").write_text("0 1\nx y\n")
    with dbfs.load("path:n=5", client=client, name="street") as old:
        with pytest.raises(FormatError):
            dbfs.load(tmp_path / "bad.txt", client=client, name="street", replace=True)
        assert old.bfs(0).depth == 4
        assert dbfs.open("street", client=client).n == 5
        with pytest.raises(FormatError):
            dbfs.load(tmp_path / "bad.txt", client=client, name="street", replace="first")
        with pytest.raises(GraphNotFoundError, match="unloaded"):
            old.bfs(0)


def test_a_graph_that_fits_only_without_the_old_one(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, leaves_nothing: None
) -> None:
    new = "path:n=5000"
    needed = dbfs.estimate(new, ranks=2).peak_bytes

    def free(gang: Gang, function: object, doing: str) -> list[tuple[int, float]]:
        held = [max(status.bytes_per_rank) for status in dbfs.graphs(client=client) if status.name == "street"]
        # The workers have no limits, and divide what their machine has.
        return [(gang.p * (needed - sum(held)), 0.9)] * gang.p

    with dbfs.load("path:n=1000", client=client, name="street", ranks=2) as old:
        monkeypatch.setattr(Gang, "run", free)
        taken = format_bytes(max(old.nbytes))
        with pytest.raises(GraphTooLargeError, match=f"graph to replace, {taken} per rank; replace='first' .* unloads"):
            dbfs.load(new, client=client, name="street", ranks=2, replace=True)
        with pytest.raises(GraphTooLargeError) as alone:
            dbfs.load(new, client=client, name="avenue", ranks=2)
        assert "to replace" not in str(alone.value)
        assert old.bfs(0).depth == 999
        with dbfs.load(new, client=client, name="street", ranks=2, replace="first") as loaded:
            assert loaded.n == 5000


def test_a_name_is_free_again_after_a_failed_build(client: distributed.Client, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("0 1\nx y\n")
    with pytest.raises(dbfs.errors.FormatError):
        dbfs.load(tmp_path / "bad.txt", client=client, name="mine")

    def load() -> Graph | None:
        with contextlib.suppress(NameTakenError):
            return dbfs.load("path:n=3", client=client, name="mine")
        return None

    eventually(load, lambda graph: graph is not None).unload()


def test_nameless_graphs_go_with_the_last_reference(client: distributed.Client, leaves_nothing: None) -> None:
    graph = dbfs.load("path:n=8", client=client)
    result = graph.bfs(0)
    del graph
    assert result.distances().tolist() == list(range(8))
    del result


def test_a_named_graph_outlives_its_client_and_a_nameless_one_does_not(
    client: distributed.Client, older: set[datetime]
) -> None:
    with distributed.Client(client.scheduler.address, set_as_default=False) as other:
        dbfs.load("path:n=9", client=other, name="stays")
        goes = dbfs.load("path:n=10", client=other)
        assert len([status for status in dbfs.graphs(client=client) if status.created not in older]) == 2
        del goes
    eventually(
        lambda: [status.name for status in dbfs.graphs(client=client) if status.created not in older],
        lambda names: names == ["stays"],
    )
    dbfs.open("stays", client=client).unload()


@pytest.mark.full
@pytest.mark.parametrize("exchange", TCP_IN_FULL, indirect=True)
def test_threads_traverse_two_graphs_on_the_same_workers(client: distributed.Client, exchange: str) -> None:
    wrong: list[object] = []
    with dbfs.load("path:n=40", client=client, ranks=3) as one, dbfs.load("grid2d:side=8", client=client) as two:

        def work(graph: Graph, depth: int) -> None:
            for _ in range(15):
                found = graph.bfs(0)
                if found.depth != depth or found.distances().max() != depth:
                    wrong.append(found)

        threads = [threading.Thread(target=work, args=case) for case in [(one, 39), (two, 14)] * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        assert not any(thread.is_alive() for thread in threads)
    assert not wrong


@pytest.mark.full
def test_two_processes_traverse_one_graph(client: distributed.Client, tmp_path: Path) -> None:
    script = tmp_path / "traverse.py"
    script.write_text(
        "import sys, distributed, numpy, dbfs\n"
        "client = distributed.Client(sys.argv[1])\n"
        "graph = dbfs.open('shared', client=client)\n"
        "expected = numpy.load(sys.argv[2])\n"
        "for source in range(100):\n"
        "    assert (graph.bfs(source).distances() == expected[source]).all()\n"
        "print('right')\n"
    )
    with dbfs.load("uniform:n=100,m=250", client=client, name="shared") as graph:
        np.save(tmp_path / "expected.npy", np.array([r.distances() for r in graph.bfs_many(range(100))]))
        command = [sys.executable, str(script), client.scheduler.address, str(tmp_path / "expected.npy")]
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        assert [process.communicate(timeout=100)[0] for process in both] == ["right\n", "right\n"]
        assert dbfs.graphs(client=client)[-1].runs == 201


def test_a_run_is_cancelled_and_the_gang_serves_the_next(client: distributed.Client, exchange: str) -> None:
    with dbfs.load(f"path:n={ENDLESS}", client=client, ranks=2) as graph:
        first = Background(graph)
        waiting = threading.Thread(target=lambda: second.append(graph.bfs(0, max_depth=5)))
        second: list[object] = []
        waiting.start()
        running, queued = eventually(lambda: dbfs.runs(client=client), lambda runs: len(runs) == 2)
        assert (running.status.running, queued.status.running) == (True, False)
        assert running.status.graph == graph.name
        running.cancel()
        error = first.join()
        assert isinstance(error, RunCancelledError)
        assert "cancelled: a client called run.cancel() or dbfs cancel" in str(error)
        waiting.join(60)
        assert second[0].reached == 6  # type: ignore[attr-defined]
        with pytest.raises(RunNotFoundError, match="waits or is under way"):
            running.cancel()


def test_a_waiting_run_can_be_cancelled(client: distributed.Client) -> None:
    with dbfs.load(f"path:n={ENDLESS}", client=client, ranks=2) as graph:
        first = Background(graph)
        caught: list[BaseException] = []

        def wait_for_a_turn() -> None:
            try:
                graph.bfs(0)
            except RunCancelledError as error:
                caught.append(error)

        waiting = threading.Thread(target=wait_for_a_turn)
        waiting.start()
        running, queued = eventually(lambda: dbfs.runs(client=client), lambda runs: len(runs) == 2)
        queued.cancel()
        waiting.join(30)
        assert "waiting for its turn" in str(caught[0])
        running.cancel()
        assert isinstance(first.join(), RunCancelledError)


def test_a_deadline_names_rank_level_and_phase_and_the_gang_serves_on(
    client: distributed.Client, exchange: str, leaves_nothing: None
) -> None:
    with dbfs.load(f"path:n={ENDLESS}", client=client, ranks=3) as graph:
        with (
            ranks_end_runs(client),
            pytest.raises(DeadlineExceededError, match=r"rank \d, level \d+, \w"),
        ):
            graph.bfs(0, direction="bottom-up", deadline=0.5)
        assert graph.bfs(0, max_depth=9, validate=True).reached == 10


@pytest.mark.full
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("exchange", TCP_IN_FULL, indirect=True)
def test_a_worker_killed_mid_run(mortal: distributed.Client, exchange: str, batch: bool) -> None:
    graph = dbfs.load(f"path:n={ENDLESS}", client=mortal, rebuild="never")
    kill_rank_1_mid_run(graph, batch=batch)
    with pytest.raises(WorkerLostError, match="lost rank 1.*load the graph again"):
        graph.bfs(0)
    assert dbfs.graphs(client=mortal)[0].lost == (1,)
    mortal.wait_for_workers(2, timeout=30)
    with dbfs.load("path:n=50", client=mortal) as again:
        assert again.bfs(0, validate=True).depth == 49


@pytest.mark.full
def test_a_graph_that_lost_a_worker_can_be_unloaded(mortal: distributed.Client) -> None:
    with dbfs.load("path:n=50", client=mortal) as graph:
        result = graph.bfs(0)
        victim = graph.gang.addresses[1]
        os.kill(mortal.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)
        eventually(lambda: dbfs.graphs(client=mortal)[0].lost)
    assert dbfs.graphs(client=mortal) == []
    with pytest.raises(WorkerLostError, match="fetching labels .* lost rank 1"):
        result.distances()


def test_labels_dropped_with_a_run_that_fails_are_forgotten(client: distributed.Client) -> None:
    with dbfs.load(f"path:n={ENDLESS}", client=client, ranks=2) as graph:
        graph.bfs(0, max_depth=3).release()
        with pytest.raises(DeadlineExceededError):
            graph.bfs(0, direction="bottom-up", deadline=0.2)
        wait_until_none_are_kept(graph)


def test_dropped_labels_are_forgotten_without_another_run(client: distributed.Client) -> None:
    with dbfs.load("path:n=50", client=client, ranks=2) as graph:
        # Those of the second turn are dropped when the first flush is over.
        for _ in range(2):
            # The end of a result would drop its labels as well.
            results = [graph.bfs(source) for source in range(3)]
            for result in results:
                result.release()
                # Nothing is left for the end of the result to drop.
                assert not result._dropping.alive
            wait_until_none_are_kept(graph)


def wait_until_none_are_kept(graph: Graph) -> None:
    client, workers = graph.gang.client, list(graph.gang.addresses)
    eventually(
        lambda: client.run(labels_kept, graph.record.graph_id, workers=workers), lambda kept: not any(kept.values())
    )


def labels_kept(graph_id: str, dask_worker: distributed.Worker) -> int:
    return len(dask_worker.plugins["dbfs"].members[graph_id].kept)


@pytest.mark.full
def test_a_stopped_worker_does_not_hold_the_run_past_its_deadline(mortal: distributed.Client, exchange: str) -> None:
    graph = dbfs.load(f"path:n={ENDLESS}", client=mortal)
    victim = graph.gang.addresses[1]
    pid = mortal.run(os.getpid, workers=[victim])[victim]
    run = Background(graph, deadline=3)
    os.kill(pid, signal.SIGSTOP)
    try:
        error = run.join()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert isinstance(error, DeadlineExceededError)
    assert graph.bfs(0, max_depth=4, validate=True).reached == 5


@pytest.mark.full
def test_a_client_that_vanishes_frees_the_gang(client: distributed.Client, tmp_path: Path) -> None:
    script = tmp_path / "vanish.py"
    script.write_text(
        "import sys, distributed, dbfs\n"
        "client = distributed.Client(sys.argv[1])\n"
        "print('started', flush=True)\n"
        "dbfs.open('long', client=client).bfs(0, direction='bottom-up')\n"
    )
    with dbfs.load(f"path:n={ENDLESS}", client=client, ranks=2, name="long") as graph:
        command = [sys.executable, str(script), client.scheduler.address]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        eventually(lambda: dbfs.runs(client=client))
        process.kill()
        process.wait()
        eventually(lambda: not dbfs.runs(client=client))
        assert graph.bfs(0, max_depth=3).reached == 4


def test_unloading_ends_the_runs(client: distributed.Client, leaves_nothing: None) -> None:
    graph = dbfs.load(f"path:n={ENDLESS}", client=client, ranks=2)
    run = Background(graph)
    graph.unload()
    error = run.join()
    assert isinstance(error, RunCancelledError)
    assert "unloaded" in str(error)
    with pytest.raises(ResultReleasedError):
        graph.bfs(0)


def test_bottom_up_needs_in_edges(client: distributed.Client, exchange: str) -> None:
    n, src, dst = GRAPHS["dense random"]()
    with dbfs.load(dbfs.from_arrays(src, dst, n=n, directed=True), client=client) as graph:
        with pytest.raises(InvalidOptionError, match="in_edges=True"):
            graph.bfs(0, direction="bottom-up")
        assert set(graph.bfs(0, validate=True).levels["direction"]) == {"top-down"}
    with dbfs.load(dbfs.from_arrays(src, dst, n=n, directed=True), client=client, in_edges=True) as graph:
        assert "bottom-up" in set(graph.bfs(0, validate=True).levels["direction"])


def test_degree_order_keeps_the_callers_ids(client: distributed.Client, tmp_path: Path) -> None:
    (tmp_path / "star.txt").write_text("".join(f"900 {v}\n" for v in range(10, 60)) + "10 7\n")
    with dbfs.load(tmp_path / "star.txt", client=client, ranks=3, order="degree") as graph:
        result = graph.bfs(7, predecessors=True, validate=True, targets=[55])
        assert result.sources == (7,)
        assert result.path_to(55) == [7, 10, 900, 55]
        assert graph.order is not None
        assert graph.order.position[graph.vertex(900)] == 0


def test_an_estimate_says_what_a_graph_takes(client: distributed.Client, tmp_path: Path) -> None:
    edges = dbfs.uniform(n=50_000, m=600_000)
    with dbfs.load(edges, client=client, ranks=2) as graph:
        expected = dbfs.estimate(edges, ranks=2)
        assert abs(expected.partition_bytes - max(graph.nbytes)) < 0.02 * expected.partition_bytes
        assert expected.peak_bytes > expected.partition_bytes
        assert "columns" in str(expected)
    (tmp_path / "edges.txt").write_text("0 1\n")
    with pytest.raises(dbfs.errors.EdgeInputError, match="known only after reading"):
        dbfs.estimate(from_file(tmp_path / "edges.txt"), ranks=2)


def test_an_exchange_that_is_not_there(client: distributed.Client) -> None:
    with dask.config.set({"dbfs.exchange": "pigeons"}), pytest.raises(InvalidOptionError, match="not one of auto"):
        dbfs.load("path:n=3", client=client)


def test_runs_of_strangers_are_refused(client: distributed.Client) -> None:
    with pytest.raises(GraphNotFoundError, match="unloaded"):
        ServiceClient.of(client).call(Enqueue("x", client.id, "y", PickledValue(b""), 0, 1.0, holds=True))
    with dbfs.load("path:n=4", client=client) as graph:
        stranger = EndTurn("x", 1)
        with pytest.raises(StaleRunError, match="is not a rank of the graph x"):
            client.run_on_scheduler(call_worker, address=graph.gang.addresses[0], message=stranger)


@dataclass(frozen=True)
class Unknown(SchedulerMessage[None], WorkerMessage[None]):
    """A message that no server has a handler for."""


def test_a_message_without_a_handler_is_a_typed_error(client: distributed.Client) -> None:
    """As from a server without dbfs, or with an older version."""
    scheduler, worker = client.scheduler.address, next(iter(joined_workers(client)))
    with pytest.raises(VersionMismatchError, match=f"{scheduler} has no handler dbfs_unknown: its dbfs is missing or"):
        ServiceClient.of(client).call(Unknown())
    with pytest.raises(VersionMismatchError, match=f"{worker} has no handler dbfs_unknown: its dbfs is missing or"):
        client.run_on_scheduler(call_worker, address=worker, message=Unknown())


async def call_worker(dask_scheduler: distributed.Scheduler, address: str, message: WorkerMessage[Any]) -> Any:
    return await WorkerCalls(dask_scheduler).call(address, message, 9.0)


def test_dbfs_is_installed_though_a_worker_leaves_meanwhile(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask reports the connection to such a worker as closed."""
    tried = []
    register = distributed.Client.register_plugin

    async def once(self: distributed.Client, *arguments: Any) -> Any:
        tried.append(arguments)
        if len(tried) == 1:
            raise CommClosedError("the worker left")
        return await register(self, *arguments)

    monkeypatch.setattr(distributed.Client, "register_plugin", once)
    with distributed.Client(client.scheduler.address, set_as_default=False) as other:
        assert isinstance(dbfs.graphs(client=other), list)
    assert len(tried) == 2


def test_messages_of_an_earlier_attempt_are_refused(client: distributed.Client) -> None:
    """They come late, from a time before the worker was stopped; the gang has lines and an exchange since then."""

    def send(message: WorkerMessage[Any]) -> None:
        client.run_on_scheduler(call_worker, address=address, message=message)

    with dbfs.load("path:n=50", client=client, ranks=2) as graph:
        address = graph.gang.addresses[1]
        graph.bfs_many([0, 1])
        for message in (LeaveGang(graph.record.graph_id, 0), OpenDoor(graph.record.graph_id, b"0" * 32, 0)):
            with pytest.raises(StaleRunError, match="of epoch 0"):
                send(message)
        assert graph.bfs_many([0, 1])[0].reached == 50
    stripe, key = graph.record.stripe, graph.record.partition_keys[1]
    addresses = graph.record.addresses
    with pytest.raises(StaleRunError, match="of epoch 1, in a gang of epoch"):
        send(JoinGang(graph.record.graph_id, 1, key, stripe, addresses, "cpu", "host", None, (0, 0), 1))

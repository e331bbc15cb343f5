"""What operators of a cluster see: the page and the metrics, the scheduler's log, and a scheduler that is lost."""

import json
import os
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import pytest
from click.testing import CliRunner

import dbfs
from dbfs.base.build import build
from dbfs.cli import main
from dbfs.cli.doctor import _differences
from dbfs.cluster.gang import joined_workers
from dbfs.errors import ClientError, RunCancelledError, SchedulerLostError, WorkerLostError
from tests.support.operated import Operated, operated
from tests.support.runs import ENDLESS, Background
from tests.support.waiting import eventually

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    with operated(tmp_path_factory.mktemp("operated"), LOGGING__DBFS="debug") as started:
        yield started


@pytest.fixture
def connected(cluster: Operated) -> Iterator[distributed.Client]:
    with dbfs.connect(cluster.address, n_workers=2) as client:
        yield client


@pytest.mark.full
def test_the_page_and_the_metrics_are_there_before_a_client(cluster: Operated) -> None:
    deadline = time.monotonic() + 30
    while (code := cluster.status("/dbfs")[0]) != 200:
        assert time.monotonic() < deadline, code
        time.sleep(0.1)
    assert "dask_dbfs_graphs 0.0" in cluster.status("/metrics")[1]


@pytest.mark.full
def test_each_worker_serves_metrics_at_a_port_of_the_range(cluster: Operated, connected: distributed.Client) -> None:
    ports = [worker["services"]["dashboard"] for worker in joined_workers(connected).values()]
    assert len(set(ports)) == 2
    for port in ports:
        assert port in cluster.metrics_ports
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert "dask_worker_threads" in answer.read().decode()


@pytest.mark.full
def test_the_log_has_a_line_for_each_graph_and_run(cluster: Operated, connected: distributed.Client) -> None:
    mine = rf"{re.escape(connected.id)} \(says: \S+@\S+, [^)]+\)"
    with dbfs.load("path:n=50", client=connected, name="street") as graph:
        graph.bfs_many([0, 1])
    with dbfs.load(f"path:n={ENDLESS}", client=connected) as graph:
        run = Background(graph)
        dbfs.runs(client=connected)[0].cancel()
        assert isinstance(run.join(), RunCancelledError)
    graph_log, run_log = r"dbfs\.graphs - INFO - ", r"dbfs\.service\.log - DEBUG - "
    two = rf"run \w{{8}} \(2 traversals of 'street' for {mine}\)"
    patterns = [
        rf"{graph_log}graph 'street' \(\w{{8}}\) loaded in [\d.]+ m?s by {mine}: 50 vertices, 98 .* 2 ranks, cpu",
        rf"{run_log}{two} started after [\d.]+ [mµ]s in the queue",
        rf"{run_log}{two} finished in [\d.]+ m?s, traversing for [\d.]+ [mµ]?s",
        rf"{graph_log}graph 'street' \(\w{{8}}\) unloaded after [\d.]+ m?s and 1 run: {mine} unloaded it",
        rf"{graph_log}graph '.*' \(\w{{8}}\) loaded in .* by {mine}: {ENDLESS:,} vertices",
        rf"{run_log}run \w{{8}} \(1 traversal of .*\) started",
        r"dbfs\.service\.log - INFO - run \w{8} \(1 traversal of .*\): a client requests to cancel it",
        r"dbfs\.service\.log - INFO - run \w{8} \(1 traversal of .*\) cancelled after .* cancelled: a client called",
        rf"{graph_log}graph '.*' \(\w{{8}}\) unloaded after .* and 1 run: ",
    ]
    lines = cluster.lines()
    assert len(lines) == len(patterns), lines
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.search(pattern, line), (line, pattern)


@pytest.mark.full
def test_the_log_names_a_lost_worker_and_a_lost_scheduler_is_an_error_of_its_own(tmp_path: Path) -> None:
    with operated(tmp_path) as cluster, dbfs.connect(cluster.address, n_workers=2) as client:
        graph = dbfs.load(f"path:n={ENDLESS}", client=client, rebuild="never")
        # A lease's run, which rank 0 notes.
        graph.bfs_many([0, 1], max_depth=3)
        run, victim = Background(graph), graph.gang.addresses[1]
        os.kill(client.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)
        assert isinstance(run.join(), WorkerLostError)
        # The scheduler gets rank 0's note of a leased run after the client gets the error.
        lines = eventually(lambda: "\n".join(cluster.lines()), lambda lines: " failed after " in lines)
        assert re.search(rf"WARNING - worker {victim} left: graph '.*' \(\w{{8}}\) lost rank 1", lines)
        assert re.search(r"WARNING - run \w{8} \(1 traversal of .*\) failed after [\d.]+ m?s: WorkerLostError: ", lines)
        graph = dbfs.load(f"path:n={ENDLESS}", client=client, ranks=1)
        run = Background(graph)
        cluster.scheduler.kill()
        # The run's deadline is minutes away; ``join`` waits 20 s.
        error = run.join()
        assert isinstance(error, SchedulerLostError), error
        assert not isinstance(error, WorkerLostError)
        assert re.search(rf"lost the connection to the scheduler at {cluster.address}; connect to", str(error))
        client.close()
        with pytest.raises(ClientError, match="is closed; connect and load again"):
            graph.unload()


@pytest.mark.full
@pytest.mark.parametrize("after", [0.0, pytest.param(0.3, marks=pytest.mark.long)])
def test_the_taskgraph_engine_notices_a_killed_scheduler(tmp_path: Path, after: float) -> None:
    with operated(tmp_path) as cluster, dbfs.connect(cluster.address, n_workers=2) as client:
        graph = dbfs.load(f"path:n={ENDLESS}", client=client)
        killed: list[float] = []

        def kill_once(_: object) -> None:
            if not killed:
                killed.append(time.monotonic() + after)
                threading.Timer(after, cluster.scheduler.kill).start()

        with pytest.raises(SchedulerLostError, match=f"lost the connection to the scheduler at {cluster.address}"):
            graph.bfs(0, engine="taskgraph", progress=kill_once)
        # Dask's own attempts to connect again take 30 s.
        assert time.monotonic() - killed[0] < 10
        for engine in ("taskgraph", "resident"):
            with pytest.raises(SchedulerLostError, match="lost the connection to the scheduler"):
                graph.bfs(0, engine=engine)
        assert time.monotonic() - killed[0] < 10
        client.close()


@pytest.mark.full
def test_doctor_describes_a_cluster(cluster: Operated, connected: distributed.Client) -> None:
    before = cluster.lines()
    answer = CliRunner().invoke(main, ["doctor", "--scheduler", cluster.address])
    assert answer.exit_code == 0, answer.output
    assert f"Workers of {cluster.address}" in answer.stdout
    assert "A graph on 2 ranks gets the backend cpu and the exchange shared_memory." in answer.stdout
    report = json.loads(CliRunner().invoke(main, ["doctor", "--scheduler", cluster.address, "--json"]).stdout)
    assert [worker["rank"] for worker in report["workers"]] == [0, 1]
    assert {worker["address"] for worker in report["workers"]} == set(joined_workers(connected))
    for worker in report["workers"]:
        assert (worker["threads"], worker["gpu"], worker["memory_limit"] > 0) == (1, None, True)
        assert worker["versions"]["dbfs"] == build()
    assert (report["backend"], report["exchange"], report["advice"]) == ("cpu", "shared_memory", [])
    assert dbfs.graphs(client=connected) == []
    assert cluster.lines()[len(before) :] == []


@pytest.mark.full
def test_doctor_names_a_worker_that_does_not_answer(
    cluster: Operated, connected: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = connected.run(os.getpid)
    silent, asked = max(pids), []
    run = distributed.Client.run

    def noted(client: distributed.Client, *arguments: Any, **options: Any) -> Any:
        asked.extend(options["workers"])
        return run(client, *arguments, **options)

    monkeypatch.setattr(distributed.Client, "run", noted)
    os.kill(pids[silent], signal.SIGSTOP)
    try:
        answer = CliRunner().invoke(main, ["doctor", "--scheduler", cluster.address, "--json"])
    finally:
        os.kill(pids[silent], signal.SIGCONT)
    report = json.loads(answer.stdout)
    assert (report["backend"], report["exchange"]) == (None, None)
    assert [worker["address"] for worker in report["workers"] if worker["versions"]["dbfs"] is None] == [silent]
    first, second = report["advice"]
    assert first.startswith(f"worker {silent} ({silent}) does not answer")
    assert "a graph on all workers would wait" in second
    # Dask's own question, for the versions, is the only one that the silent worker gets.
    assert report["silent"] == [silent]
    assert set(asked) == pids.keys() - {silent}


def test_doctor_names_versions_that_differ() -> None:
    mine = {"python": "3.12.1", "dbfs": "0.2.0"}
    others = [mine, {"python": "3.12.1", "dbfs": "0.1.0"}, {"python": "3.12.1", "dbfs": None}]
    assert _differences(mine, "workers", others) == [
        "dbfs: the client has 0.2.0, 1 of the workers 0.1.0",
        "dbfs: the client has 0.2.0, 1 of the workers none",
    ]

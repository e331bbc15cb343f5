"""The commands for a running cluster, called in one process and as separate processes."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import dask
import distributed
import pytest
from click.testing import CliRunner, Result

import dbfs
from dbfs.base.records import GraphStatus
from dbfs.cli import main
from dbfs.cli.graphs import _state

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(client: distributed.Client, leaves_nothing: None) -> Invoke:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, env={"DASK_SCHEDULER_ADDRESS": client.scheduler.address})

    return run


def listed_graphs(invoke: Invoke, older: set[datetime]) -> list[dict[str, Any]]:
    """Return what ``dbfs graphs`` lists, without older graphs."""
    listed = json.loads(invoke("graphs", "--json").stdout)
    return [graph for graph in listed if datetime.fromisoformat(graph["created"]) not in older]


@pytest.fixture
def start(client: distributed.Client) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start ``dbfs ...`` as a process."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "dbfs", *arguments],
                env=os.environ | {"DASK_SCHEDULER_ADDRESS": client.scheduler.address},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_a_graph_is_loaded_listed_traversed_and_unloaded(invoke: Invoke, older: set[datetime]) -> None:
    loaded = invoke("load", "grid2d:side=6", "--name", "town", "--ranks", "3", "--order", "degree", "--json")
    assert loaded.exit_code == 0, loaded.output
    assert {"n": 36, "ranks": 3, "order": "degree"}.items() <= json.loads(loaded.stdout).items()
    road = invoke("load", "path:n=9", "--name", "road", "--order", "auto", "--traversals", "1").stdout
    assert re.match(r"road: 9 vertices.*, order given, built", road)
    listed = listed_graphs(invoke, older)
    assert [(graph["name"], graph["m"]) for graph in listed] == [("town", 120), ("road", 16)]
    result = json.loads(invoke("run", "town", "--loaded", "--source", "0", "--validate", "--json").stdout)
    assert (result["reached"], result["depth"], result["ranks"]) == (36, 10, 3)
    again = invoke("load", "path:n=8", "--name", "road", "--ranks", "1", "--replace", "--json")
    assert (again.exit_code, json.loads(again.stdout)["n"]) == (0, 8), again.output
    again = invoke("load", "path:n=7", "--name", "road", "--ranks", "1", "--replace-first", "--json")
    assert (again.exit_code, json.loads(again.stdout)["n"]) == (0, 7), again.output
    unnamed = invoke("run", "town", "--source", "0")
    assert unnamed.exit_code == 2
    assert unnamed.stderr.endswith("town: no such file; the graph of that name is loaded: add --loaded\n")
    table = invoke("graphs").stdout
    assert table.count("ready") >= 2
    assert "town" in table
    assert "road" in table
    freed = json.loads(invoke("unload", "town", "--json").stdout)
    assert freed == {"name": "town", "bytes": sum(listed[0]["bytes_per_rank"])}
    assert re.fullmatch(r"road: unloaded, [\d.]+ \w+ on 1 rank\n", invoke("unload", "road").stdout)
    assert listed_graphs(invoke, older) == []


def test_edges_come_to_a_named_graph_and_go(invoke: Invoke, tmp_path: Path, older: set[datetime]) -> None:
    assert invoke("load", "path:n=9", "--name", "road", "--mutable", "--room", "2").exit_code == 0
    closed = tmp_path / "closed.csv"
    closed.write_text("from,to\n3,4\n3,8\n")
    columns = ("--source-column", "from", "--target-column", "to")
    deleted = invoke("delete", "road", str(closed), *columns)
    assert (deleted.exit_code, deleted.stdout) == (0, "road: version 1, 1 edge deleted, 1 skipped\n"), deleted.output
    inserted = invoke("insert", "road", str(closed), *columns, "--json")
    assert json.loads(inserted.stdout) == {"name": "road", "version": 2, "edges": 2, "skipped": 0}
    refused = invoke("insert", "road", "path:n=3", "--strict")
    assert refused.exit_code == 2
    assert "edges of the batch are there already, or occur twice, 2 in all" in refused.stderr
    assert [graph["version"] for graph in listed_graphs(invoke, older)] == [2]
    assert invoke("unload", "road").exit_code == 0
    assert invoke("delete", "road", "path:n=3").exit_code == 2


def test_a_saved_result_is_named(invoke: Invoke, tmp_path: Path) -> None:
    out = tmp_path / "labels.npy"
    answer = invoke("run", "path:n=2000", "--source", "0", "--out", str(out))
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.endswith(f"{out}: wrote the distances of 2,000 vertices, 7.94 KiB\n")


def test_a_graph_that_lost_a_rank_says_so() -> None:
    status = GraphStatus("web", 9, 9, (9, 9), 2, 0.0, 0, "cpu", "tcp", (1,))
    assert _state(status) == "lost rank 1; load it again"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["unload", "web"], "no graph is named 'web'; no graph in the cluster has a name"),
        (["run", "web", "--loaded", "--source", "0"], "no graph is named 'web'"),
        (
            ["run", "web", "--loaded", "--source", "0", "--in-edges", "--ranks", "2"],
            "--loaded excludes --ranks, --in-edges: the graph",
        ),
        (["cancel", "feed"], "no run that begins with feed is waiting or running"),
        (["load", "path:n=5"], "Missing option '--name'"),
    ],
)
def test_an_unknown_name_is_an_error_of_input(invoke: Invoke, arguments: list[str], words: str) -> None:
    answer = invoke(*arguments)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert words in answer.stderr


def test_a_name_twice(invoke: Invoke, client: distributed.Client) -> None:
    with dbfs.load("path:n=5", client=client, name="twice"):
        answer = invoke("load", "path:n=6", "--name", "twice")
        assert (answer.exit_code, "a graph named 'twice' exists already" in answer.stderr) == (2, True)


def test_no_scheduler_named_or_none_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    for arguments in (["graphs"], ["runs"], ["load", "path:n=5", "--name", "a"]):
        answer = CliRunner().invoke(main, arguments)
        assert (answer.exit_code, "Missing option '--scheduler'" in answer.stderr) == (2, True)
    answer = CliRunner().invoke(main, ["run", "web", "--loaded", "--source", "0"])
    assert (answer.exit_code, "--loaded needs --scheduler, the cluster that has the graph" in answer.stderr) == (
        2,
        True,
    )
    command = [sys.executable, "-m", "dbfs", "graphs", "--scheduler", "tcp://127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.match(
        r"Error: no scheduler answered at tcp://127\.0\.0\.1:9 \(0\.\d s\): nothing listens there", done.stderr
    )
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_a_run_is_seen_and_cancelled_from_other_processes(
    invoke: Invoke, start: Callable[..., subprocess.Popen[str]]
) -> None:
    loaded = start("load", "path:n=6e6", "--name", "endless")
    assert loaded.wait(60) == 0, loaded.communicate()
    running = start("run", "endless", "--loaded", "--source", "0", "--json")
    listed: list[dict[str, Any]] = []
    while not listed or listed[0]["progress"] is None:
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
        listed = json.loads(invoke("runs", "--json").stdout)
    assert (listed[0]["graph"], listed[0]["traversals"]) == ("endless", 1)
    table = invoke("runs").stdout
    assert listed[0]["run_id"][:8] in table
    assert "1 of 1" in table
    assert "top-down" in table
    refused = invoke("cancel", listed[0]["run_id"][:6])
    assert "may cancel run" in refused.stderr
    with dask.config.set({"dbfs.service.anyone-may-stop": True}):
        cancelled = invoke("cancel", listed[0]["run_id"][:6], "--json")
    assert json.loads(cancelled.stdout) == {"run_id": listed[0]["run_id"]}
    stdout, stderr = running.communicate(timeout=30)
    assert (running.returncode, stdout) == (1, "")
    assert "cancelled: a client called run.cancel() or dbfs cancel" in stderr
    assert "Traceback" not in stderr
    assert invoke("runs", "--json").stdout.strip() == "[]"
    assert invoke("unload", "endless").exit_code == 0

"""Closed by default: nothing of a cluster on one machine answers another host, which is this test's process.

The machine is a network namespace, joined to that of the test.
"""

import os
import re
import socket
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hosts import Host, network
from tests.support.recipes import ROOT, commands
from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.alone, pytest.mark.timeout(300)]

WITHOUT_GPUS = {"CUDA_VISIBLE_DEVICES": ""}
# Edges of a path with a traversal of many seconds: for a cluster within the process, and for processes.
SMALL, LARGE = 4_000_000, 6_000_000

CONNECTED = """
    import time, dbfs
    if __name__ == "__main__":
        client = dbfs.connect({options})
        graph = dbfs.load("path:n=50", client=client)
        graph.bfs_many([0, 1])
        print("ready", flush=True)
        time.sleep(600)
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Host]:
    with network(("machine",), tmp_path) as (host,):
        yield host


def listening(host: Host) -> set[int]:
    """Ports at which processes of a host listen, as its kernel says."""
    tables = [Path(f"/proc/{host.processes[0].pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}


def answers(host: Host, port: int) -> bool:
    """Whether a port of a host takes a connection of this process."""
    try:
        socket.create_connection((host.address, port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


def check_closed(host: Host, least: int) -> None:
    """Check that a host listens at some ports, and that none of them answers; then that an open one would."""

    def closed() -> set[int]:
        ports = listening(host)
        assert not [port for port in ports if answers(host, port)]
        # Those that did not end meanwhile.
        return ports & listening(host)

    eventually(closed, lambda ports: len(ports) >= least)
    host.start("http.server", "8099", environment={})
    eventually(lambda: 8099 in listening(host))
    assert answers(host, 8099)


def test_the_recipe_for_one_machine(machine: Host) -> None:
    scheduler, worker, *_ = commands(ROOT / "configs" / "local" / "README.md")
    for words in (scheduler, worker):
        machine.start(*words, environment=WITHOUT_GPUS, own_pids=False)
    registered = r"distributed\.worker - INFO - +Registered to"
    eventually(lambda: len(re.findall(registered, machine.log())) == 4, seconds=200)
    # Of the scheduler two; of each worker its own, its nanny's, and its web server's.
    check_closed(machine, 2 + 4 * 3)


@pytest.mark.parametrize("options", ["processes=False", "n_workers=2", "n_workers=2, dashboard_address=None"])
def test_clusters_of_connect(machine: Host, tmp_path: Path, options: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(CONNECTED.format(options=options)))
    paths = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    machine.start("program", environment=WITHOUT_GPUS | {"PYTHONPATH": paths}, own_pids=False)
    eventually(lambda: "ready" in machine.log(), seconds=100)
    check_closed(machine, 2)


@pytest.mark.parametrize("edges", [SMALL, LARGE])
def test_the_cluster_of_a_command(machine: Host, edges: int) -> None:
    run = ("dbfs", "run", f"path:n={edges}", "--source", "0", "--ranks", "1")
    machine.start(*run, environment=WITHOUT_GPUS, own_pids=False)
    # Within the process two web servers; else Dask's own ports of scheduler, nanny and worker as well.
    check_closed(machine, 2 if edges == SMALL else 5)

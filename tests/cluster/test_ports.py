"""Which ports of a cluster are open to whom: as ``dbfs.cluster.ports`` says, and as the sockets themselves say."""

import os
from collections.abc import Iterator
from typing import Any

import distributed
import psutil
import pytest
from click.testing import CliRunner

import dbfs
from dbfs.cli import main
from dbfs.cli.common import connect
from dbfs.cluster import ports
from dbfs.cluster.gang import joined_workers
from dbfs_workers.serving.ports import LINES, OTHER, WEB, OpenPort, Reach
from tests.support.stalls import processes, stopped

LOOPBACK = {"127.0.0.1", "::1"}


def own_sockets() -> set[tuple[str, int]]:
    """Address and port of each socket at which this process and its children listen."""
    mine = psutil.Process()
    return {
        (connection.laddr.ip, connection.laddr.port)
        for process in (mine, *mine.children(recursive=True))
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }


def use(client: distributed.Client) -> None:
    """Open the lines of a cluster's workers."""
    with dbfs.load("path:n=50", client=client) as graph:
        graph.bfs_many([0, 1])


@pytest.mark.parametrize(
    "options",
    [
        {"processes": False},
        {"processes": False, "n_workers": 2, "dashboard_address": None},
        {"processes": False, "n_workers": 2, "protocol": "tcp://"},
        pytest.param({"n_workers": 2, "backend": "cpu"}, marks=pytest.mark.full),
        pytest.param({"n_workers": 1, "backend": "cpu", "dashboard_address": None}, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_all_ports_of_a_local_cluster_listen_on_the_loopback(options: dict[str, Any]) -> None:
    before = own_sockets()
    with dbfs.connect(**options, set_as_default=False) as client:
        use(client)
        opened = own_sockets() - before
        # The web server of the scheduler, and the lines of a worker at least.
        assert len(opened) >= 2
        assert {address for address, _ in opened} <= LOOPBACK
        found, silent = ports.of_cluster(client, list(joined_workers(client)))
        assert {(port.address, port.port) for port in found} >= opened
        assert ({port.reach for port in found}, silent) == ({Reach.MACHINE}, [])
        assert {WEB, LINES} <= {port.of for port in found}
        assert ports.advice(found) is None


@pytest.mark.parametrize("within", [True, pytest.param(False, marks=pytest.mark.full)])
def test_all_ports_of_a_commands_own_cluster_listen_on_the_loopback(within: bool) -> None:
    before = own_sockets()
    with connect(None, 1, "cpu", processes=not within) as client:
        use(client)
        opened = own_sockets() - before
    assert opened
    assert {address for address, _ in opened} <= LOOPBACK


@pytest.fixture
def wide() -> Iterator[distributed.Client]:
    """A cluster of Dask at all addresses of this machine, as ``dask worker`` without ``--host`` is."""
    with (
        distributed.LocalCluster(
            n_workers=1, processes=False, protocol="tcp", host="0.0.0.0", dashboard_address=":0", silence_logs=40
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_ports_at_all_addresses_are_told(wide: distributed.Client) -> None:
    found, _ = ports.of_cluster(wide, list(joined_workers(wide)))
    told = {port.of: port for port in found if port.reach is Reach.ALL}
    assert {"scheduler", "worker", WEB} <= told.keys()
    assert {told[of].encrypted for of in ("scheduler", "worker", WEB)} == {False}
    assert ("0.0.0.0", told["worker"].port) in own_sockets()
    line = ports.describe(found)
    assert line.startswith("open to every host that reaches the machine, without TLS: ")
    for of in ("scheduler", "worker"):
        assert str(told[of]) in line
    assert "runs code there: start them with --host 127.0.0.1" in (ports.advice(found) or "")


@pytest.mark.parametrize("hidden", [False, True], ids=["", "a parent of another user"])
def test_doctor_tells_the_ports_of_this_machine(
    wide: distributed.Client, monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    def exe(_: psutil.Process) -> str:
        raise psutil.AccessDenied

    if hidden:
        monkeypatch.setattr(psutil.Process, "exe", exe)
    scheduler = int(wide.scheduler.address.rpartition(":")[2])
    mine = [port for port in ports.of_this_machine() if port.process.endswith(f"/{os.getpid()}")]
    (dask,) = [port for port in mine if port.port == scheduler]
    assert (dask.reach, dask.encrypted) == (Reach.ALL, False)
    assert "scheduler" in dask.of
    web = {port.of for port in mine if port.port == wide.cluster.scheduler.http_server.port}
    assert web == {ports.QUIET}
    assert {(port.address, port.port) for port in mine} <= own_sockets()


def test_doctor_tells_the_ports_of_a_cluster(client: distributed.Client) -> None:
    answer = CliRunner().invoke(main, ["doctor", "--scheduler", client.scheduler.address])
    assert answer.exit_code == 0, answer.output
    assert f"scheduler {client.scheduler.address.rpartition(':')[2]}" in answer.stdout
    assert "Ports open to its machine only: " in answer.stdout
    assert "ports: " not in answer.stdout


@pytest.mark.full
@pytest.mark.alone
def test_a_stopped_worker_does_not_hold_up_the_ports_of_the_others() -> None:
    with processes(2) as found_by_rank:
        workers = sorted(joined_workers(found_by_rank.client), key=lambda one: (len(one), one))
        with stopped(found_by_rank.pids["rank 1"]):
            found, silent = ports.of_cluster(found_by_rank.client, workers)
        assert silent == [workers[1]]
        assert {port.of for port in found} >= {"scheduler", "worker"}
        assert f"not told by {workers[1]}" in ports.describe(found, silent)


@pytest.mark.parametrize(
    ("address", "reach"),
    [
        ("127.0.0.1", Reach.MACHINE),
        ("127.3.2.1", Reach.MACHINE),
        ("::1", Reach.MACHINE),
        ("::ffff:127.0.0.1", Reach.MACHINE),
        ("0.0.0.0", Reach.ALL),
        ("::", Reach.ALL),
        ("::ffff:0.0.0.0", Reach.ALL),
        ("10.0.0.7", Reach.NETWORK),
        ("fe80::1%eth0", Reach.NETWORK),
    ],
)
def test_who_reaches_an_address(address: str, reach: Reach) -> None:
    assert OpenPort("host/1", "worker", address, 9000, False).reach is reach


def port(of: str, address: str, encrypted: bool | None, number: int = 9000) -> OpenPort:
    """A port of one process."""
    return OpenPort("node/7", of, address, number, encrypted)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], None),
        ([port("worker", "127.0.0.1", False), port(WEB, "127.0.0.1", False)], None),
        ([port("worker", "10.0.0.7", True)], None),
        ([port("worker", "10.0.0.7", True), port(WEB, "0.0.0.0", False)], "no password"),
        ([port("nanny", "10.0.0.7", False)], "runs code there"),
        ([port(ports.QUIET, "10.0.0.7", None)], "no password"),
        ([port(LINES, "10.0.0.7", False), port(OTHER, "0.0.0.0", None)], None),
    ],
)
def test_advice_is_for_ports_that_do_harm(found: list[OpenPort], words: str | None) -> None:
    advice = ports.advice(found)
    assert advice is None if words is None else words in (advice or "")


def test_the_line_puts_the_most_open_ports_first_and_counts_many() -> None:
    many = [port("worker", "10.0.0.7", True, 9000 + number) for number in range(7)]
    found = [port("scheduler", "127.0.0.1", False, 8786), *many, port(WEB, "::", False, 8787)]
    assert ports.describe(found, ["tcp://10.0.0.8:1"]) == (
        "open to every host that reaches the machine, without TLS: web server node:8787; "
        "open to every host that reaches the address, by TLS: "
        "worker 10.0.0.7:9000 10.0.0.7:9001 10.0.0.7:9002 10.0.0.7:9003 and 3 more; "
        "open to its machine only: scheduler 8786; not told by tcp://10.0.0.8:1"
    )
    assert ports.describe([]) == "none of Dask"

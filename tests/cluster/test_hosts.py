"""Two hosts of two workers each, with separate addresses and process ids: the same results, and typed errors."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dask
import distributed
import numpy as np
import pytest
import yaml

import dbfs
from dbfs.cluster import ports
from dbfs.cluster.gang import joined_workers
from dbfs.errors import DbfsError, DeadlineExceededError, ExchangeUnavailableError, WorkerLostError
from dbfs_workers.serving.ports import LINES, WEB, Reach
from tests.support import oracle
from tests.support.graphs import GRAPHS
from tests.support.hosts import Host, ip, network
from tests.support.losses import nothing_is_left
from tests.support.runs import ENDLESS, Background
from tests.support.waiting import eventually

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[2]
CONFIGS, EXAMPLES = ROOT / "configs", ROOT / "examples"


@contextlib.contextmanager
def cluster(
    logs: Path, environment: dict[str, str], *, scheme: str = "tcp", own_pids: bool = True
) -> Iterator[tuple[distributed.Client, list[Host]]]:
    """A client of a scheduler on one host and two workers on each of two other hosts, and these two hosts."""
    with network(("scheduler", "left", "right"), logs) as (first, *others):
        address = f"{scheme}://{first.address}:8786"
        closed = ("--dashboard-address", "127.0.0.1:0")
        first.start("dask", "scheduler", "--interface", "bridge", *closed, environment=environment, own_pids=own_pids)
        for host in others:
            options = ("--interface", "eth0", "--nworkers", "2", "--nthreads", "1", "--preload", "dbfs.preload")
            host.start("dask", "worker", address, *closed, *options, environment=environment, own_pids=own_pids)
        # A client that is refused at first waits for a random time, at worst beyond its own deadline.
        eventually(lambda: "Scheduler at:" in first.log())
        with distributed.Client(address, timeout=30, set_as_default=False) as client:
            client.wait_for_workers(4, timeout=60)
            yield client, others


def check_traversals(client: distributed.Client, exchange: str) -> None:
    """Check both engines against the oracle on graphs with ranks on both hosts, and the exchange that was chosen."""
    for name in ("two components", "hub", "dense random", "isolated vertices"):
        n, src, dst = GRAPHS[name]()
        matrix = oracle.adjacency(n, src, dst, directed=False)
        graph = dbfs.load(dbfs.from_arrays(src, dst, n=n, directed=False), client=client)
        assert (graph.ranks, graph.exchange) == (4, exchange)
        for engine, direction in (("resident", "top-down"), ("resident", "bottom-up"), ("taskgraph", "auto")):
            result = graph.bfs(10, predecessors=True, engine=engine, direction=direction, validate=True)
            assert result.engine == engine
            expected = oracle.distances(matrix, [10])
            np.testing.assert_array_equal(result.distances(), expected)
            oracle.assert_valid_parents(matrix, expected, result.predecessors(), [10])
        graph.unload()
    with dbfs.load(dbfs.from_arrays(src, dst, n=n, directed=False), client=client, layout="2d") as graph:
        assert (graph.layout, graph.exchange) == ("2d", exchange)
        result = graph.bfs(10, predecessors=True, validate=True)
        np.testing.assert_array_equal(result.distances(), oracle.distances(matrix, [10]))


def check_ports(client: distributed.Client, scheme: str, hosts: set[str]) -> None:
    """Check that Dask and the lines listen at the named interfaces, by TLS or not, and web servers on the loopback."""
    found, silent = ports.of_cluster(client, list(joined_workers(client)))
    assert not silent
    assert {port.reach for port in found if port.of == WEB} == {Reach.MACHINE}
    for of in ("scheduler", "worker", "nanny", LINES):
        at = [port for port in found if port.of == of]
        assert {(port.reach, port.encrypted) for port in at} == {(Reach.NETWORK, scheme == "tls")}, of
        assert of == "scheduler" or {port.address for port in at} == hosts
    assert (ports.advice(found) is None) == (scheme == "tls")


def run_example(scheduler: str, environment: dict[str, str]) -> str:
    """Run the example for a cluster as a process, and return its output."""
    command = [sys.executable, EXAMPLES / "multi_node.py", "--scheduler", scheduler, "--ranks", "4", "--scale", "10"]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lose(client: distributed.Client, host: Host, harm: Callable[[], None]) -> BaseException:
    """Lose the host of half of the ranks during a run, and return the run's error."""
    graph = dbfs.load("path:n=3e6", client=client, rebuild="never")
    errors: list[BaseException] = []

    def traverse() -> None:
        try:
            graph.bfs(0)
        except BaseException as error:
            errors.append(error)

    run = threading.Thread(target=traverse, daemon=True)
    run.start()
    while not any(run.status.running for run in dbfs.runs(client=client)):
        assert run.is_alive(), errors
        time.sleep(0.02)
    harm()
    run.join(40)
    assert not run.is_alive(), "the run hangs"
    with pytest.raises(WorkerLostError, match=rf"lost rank \d \(\w+://{host.address}:\d+\)"):
        graph.bfs(0)
    return errors[0]


@pytest.fixture(params=["tcp", "tls"])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A scheme, and the environment variables that schedulers and workers need for it."""
    if request.param == "tcp":
        yield "tcp", {"DASK_CONFIG": str(CONFIGS / "cluster.yaml")}
        return
    if shutil.which("openssl") is None:
        pytest.skip("certificates need openssl")
    subprocess.run([CONFIGS / "tls" / "certificates.sh", tmp_path / "tls"], check=True, capture_output=True)
    settings = yaml.safe_load((tmp_path / "tls" / "tls.yaml").read_text())
    with dask.config.set(distributed=dask.config.merge(dask.config.config, settings)["distributed"]):
        yield "tls", {"DASK_CONFIG": str(tmp_path / "tls")}


@pytest.mark.full
def test_two_hosts_and_one_of_them_killed(secured: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    scheme, environment = secured
    with cluster(tmp_path, environment, scheme=scheme) as (client, (left, right)):
        addresses = joined_workers(client)
        assert {address.rpartition(":")[0] for address in addresses} == {
            f"{scheme}://{left.address}",
            f"{scheme}://{right.address}",
        }
        with dask.config.set({"dbfs.exchange": "shared_memory"}), pytest.raises(ExchangeUnavailableError):
            dbfs.load("path:n=9", client=client)
        check_traversals(client, "shared_memory+tcp")
        check_ports(client, scheme, {left.address, right.address})
        assert "hosts: 2, backend: cpu, exchange: shared_memory+tcp" in run_example(
            client.scheduler.address, environment
        )
        error = lose(client, right, right.kill)
        assert isinstance(error, WorkerLostError)
        assert "lost rank" in str(error)
        # The scheduler may see the end of the host's workers one after another.
        while len(joined_workers(client)) > 2:
            time.sleep(0.02)
        # The remaining workers share memory.
        with dbfs.load("grid2d:side=9", client=client) as graph:
            assert (graph.ranks, graph.exchange) == (2, "shared_memory")
            assert graph.bfs(0, validate=True).depth == 16


@pytest.mark.full
def test_a_host_whose_cable_is_pulled(tmp_path: Path) -> None:
    # No connection is closed, so Dask notices only the silence, after the shortest timeout that it allows.
    settings = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "11s"}
    with cluster(tmp_path, settings) as (client, (_, right)):
        error = lose(client, right, right.unplug)
        assert isinstance(error, WorkerLostError)
        assert "lost rank" in str(error)


@pytest.mark.full
@pytest.mark.parametrize("engine", ["resident", "taskgraph"])
def test_workers_that_are_cut_off_from_each_other(engine: str, tmp_path: Path) -> None:
    """Calls end with an error that names a rank while the link is down, and are right when the link is back."""
    with network(("scheduler", "left", "right"), tmp_path) as (first, left, right):
        address = f"tcp://{first.address}:8786"
        first.start("dask", "scheduler", "--interface", "bridge", "--no-dashboard", environment={})
        for host in (left, right):
            options = ("--interface", "eth0", "--nworkers", "1", "--nthreads", "1", "--no-dashboard")
            host.start("dask", "worker", address, *options, environment={})
        eventually(lambda: "Scheduler at:" in first.log())
        with distributed.Client(address, timeout=30, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            n, src, dst = GRAPHS["dense random"]()
            graph = dbfs.load(dbfs.from_arrays(src, dst, n=n, directed=False), client=client)
            expected = oracle.distances(oracle.adjacency(n, src, dst, directed=False), [10])
            endless = dbfs.load(dbfs.path(ENDLESS), client=client)
            assert np.array_equal(graph.bfs(10, engine=engine).distances(), expected)
            running = Background(endless, engine=engine, deadline=8)
            left.reach(right, reached=False)
            errors = [running.join()]
            loading = {"deadline": 4, "client": client}
            for call in (graph.bfs, endless.bfs, graph.bfs):
                errors.append(failed(lambda call=call: call(10, engine=engine, deadline=4)))
            errors.append(failed(lambda: dbfs.load("kronecker:scale=8", **loading)))
            for error in errors:
                assert isinstance(error, DeadlineExceededError | WorkerLostError | ExchangeUnavailableError)
                assert re.search(r"rank [01]\b", str(error)), error
            assert dbfs.runs(client=client) == []
            left.reach(right, reached=True)
            for _ in range(3):
                assert np.array_equal(graph.bfs(10, engine=engine, deadline=120).distances(), expected)
            assert len(joined_workers(client)) == 2
            graph.unload()
            endless.unload()
            eventually(lambda: nothing_is_left(client))


def failed(call: Callable[[], object]) -> BaseException:
    """Return the error of a call."""
    with pytest.raises(DbfsError) as raised:
        call()
    return raised.value


@pytest.mark.full
def test_two_networks_on_one_machine(tmp_path: Path) -> None:
    # The workers see each other's processes, so they may share memory, whatever their addresses are.
    with cluster(tmp_path, {}, own_pids=False) as (client, _):
        check_traversals(client, "shared_memory")


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            "loopback",
            r"the scheduler can't connect to the worker at 127\.0\.0\.1, port {port}: .*--interface or --host$",
        ),
        (
            "another network",
            r"the scheduler can't connect to the worker at 198\.19\.7\.2, port {port}: .*open the port",
        ),
        ("closed", r"rank \d \(tcp://[\d.:]+\) can't connect to rank \d at [\d.]+, port \d+: .*open the port"),
        ("closed lines", r"no line to 198\.19\.7\.2:\d+: .*dbfs\.lines\.interface"),
    ],
)
def test_workers_that_can_not_be_reached(fault: str, words: str, tmp_path: Path) -> None:
    settings = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s"}
    with network(("scheduler", "left", "right"), tmp_path) as (first, left, right):
        address = f"tcp://{first.address}:8786"
        # A network that only this host has.
        for change in ("link add eth1 type bridge", "addr add 198.19.7.2/24 dev eth1", "link set dev eth1 up"):
            ip("-n", right.namespace, *change.split())
        first.start("dask", "scheduler", "--interface", "bridge", "--no-dashboard", environment=settings)
        listening = {"loopback": "lo", "another network": "eth1"}.get(fault, "eth0")
        lines = {"DASK_DBFS__LINES__INTERFACE": "eth1"} if fault == "closed lines" else {}
        for host, interface, more in ((left, "eth0", {}), (right, listening, lines)):
            options = ("--interface", interface, "--nworkers", "1", "--nthreads", "1", "--no-dashboard")
            host.start("dask", "worker", address, *options, environment=settings | more)
        if fault == "closed":
            for host, other in ((left, right), (right, left)):
                ip("-n", host.namespace, "route", "add", "blackhole", f"{other.address}/32")
        eventually(lambda: "Scheduler at:" in first.log())
        with distributed.Client(address, timeout=30, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            port = next(each.rpartition(":")[2] for each in joined_workers(client) if left.address not in each)
            with pytest.raises(ExchangeUnavailableError, match=words.format(port=port)):
                dbfs.load("path:n=9", client=client, ranks=2).bfs(0)

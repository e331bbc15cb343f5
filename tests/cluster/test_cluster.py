import asyncio
import inspect
import logging
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import unittest.mock
import urllib.request
from pathlib import Path
from typing import Any

import dask
import distributed
import psutil
import pytest

import dbfs
from dbfs import config
from dbfs.cluster import local
from dbfs.cluster.connect import current_client, roster
from dbfs.cluster.gang import joined_workers
from dbfs.errors import (
    ClientError,
    InvalidOptionError,
    InvalidOptionTypeError,
    NoWorkersError,
    SchedulerLostError,
)
from dbfs_workers.base import interrupts
from dbfs_workers.base.jit import Kernel, int64, kernel
from tests.support.waiting import PATIENCE, eventually


def test_too_few_workers(client: distributed.Client, caplog: pytest.LogCaptureFixture) -> None:
    """A local cluster has as many workers as it was told; in others more may join."""
    with pytest.raises(NoWorkersError, match=r"9 workers wanted, the cluster has 4: start .* n_workers=9, or call"):
        dbfs.load("path:n=5", client=client, ranks=9)
    with distributed.Client(client.scheduler.address, set_as_default=False) as remote:
        with pytest.raises(NoWorkersError, match=r"9 workers wanted, 4 found after 0\.2 s"):
            roster(remote, 9, timeout=0.2)
        told = "9 workers wanted, 4 found; waiting 0.2 s for more; workers may be starting: "
        assert caplog.messages[-1].startswith(told)
        with pytest.raises(TimeoutError), dask.config.set({"dbfs.workers-timeout": "200 ms"}):
            dbfs.load("path:n=5", client=remote, ranks=5)


def test_a_job_that_starts_several_workers_is_waited_for(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = {name: {"group": ["-0", "-1", "-2"]} for name in range(3)}
    monkeypatch.setattr(client.cluster, "worker_spec", jobs)
    with pytest.raises(NoWorkersError, match=r"9 workers wanted, 4 found after 0\.2 s"):
        roster(client, 9, timeout=0.2)
    with pytest.raises(NoWorkersError, match="10 workers wanted, the cluster has 9"):
        roster(client, 10)


def test_the_roster_is_every_worker_in_a_fixed_order(client: distributed.Client) -> None:
    everyone = roster(client, None)
    assert len(everyone) == 4
    assert roster(client, 2) == everyone[:2]
    assert set(everyone) == set(joined_workers(client))


def test_dasks_own_updates_do_not_hide_workers(client: distributed.Client) -> None:
    """A client of Dask replaces its copy of the scheduler's answer by one without workers, every two seconds."""
    over = threading.Event()

    async def update() -> None:
        while not over.is_set():
            await client._update_scheduler_info()

    updates = asyncio.run_coroutine_threadsafe(update(), client.loop.asyncio_loop)
    try:
        assert [len(joined_workers(client)) for _ in range(200)] == [4] * 200
    finally:
        over.set()
        updates.result(10)


def test_workers_block_interrupts_of_the_terminal(client: distributed.Client) -> None:
    blocked = client.run(lambda: signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    assert list(blocked.values()) == [True] * 4
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_workers_within_the_process() -> None:
    with dbfs.connect(n_workers=3, processes=False, dashboard_address=None) as within:
        assert {address.partition(":")[0] for address in roster(within, None)} == {"inproc"}
        with dbfs.load("grid2d:side=30", client=within) as graph:
            assert (graph.ranks, graph.exchange, graph.backend) == (3, "shared_memory", "cpu")
            assert graph.bfs(0, validate=True).depth == 58
    with pytest.raises(InvalidOptionError, match="needs a process for each worker"):
        dbfs.connect(processes=False, backend="cuda")
    with pytest.raises(InvalidOptionError, match="processes: only for a new local cluster"):
        dbfs.connect("tcp://127.0.0.1:1", processes=False)
    assert inspect.signature(dbfs.connect).parameters["processes"].default is None


def test_a_load_without_a_client_starts_a_cluster_and_says_so() -> None:
    program = """
        import dbfs
        graph = dbfs.load([("a", "b"), ("b", "c")], ranks=2, name="first")
        dbfs.load("path:n=9", ranks=1, name="second")
        print(graph.ranks, graph.bfs("a").depth, *(status.name for status in dbfs.graphs()))
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert run.stdout == "2 2 first second\n"
    assert run.stderr.startswith("there is no Dask client: dbfs.load starts a cluster within this process")
    assert run.stderr.count("\n") == 1


def test_a_task_starts_no_cluster(client: distributed.Client) -> None:
    with pytest.raises(ClientError, match="no Dask client"):
        client.submit(_load_without_a_client, pure=False).result(timeout=30)


def _load_without_a_client() -> int:
    # The workers of the suite are threads of its own process, which has a client.
    with unittest.mock.patch.object(distributed.Client, "current", side_effect=ValueError):
        return dbfs.load("path:n=5").n


INTERRUPTED_AT_ITS_START = """
import distributed, os, psutil, signal, threading, time
import dbfs

def interrupt():
    while not [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]:
        time.sleep(0.01)
    for _ in range(TIMES):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)

if __name__ == "__main__":
    threading.Thread(target=interrupt).start()
    try:
        dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None)
    except KeyboardInterrupt:
        print("interrupted", len(distributed.SpecCluster._instances))
"""


@pytest.mark.full
@pytest.mark.parametrize("times", [1, 2])
def test_a_cluster_that_is_interrupted_at_its_start_leaves_nothing(tmp_path: Path, times: int) -> None:
    """Dask would wait ten seconds for the cluster when the program ends."""
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED_AT_ITS_START.replace("TIMES", str(times)))
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (0, "interrupted 0\n")
    # A second interrupt does not wait for the workers' start, and Dask may log the processes that it cuts off.
    assert times == 2 or run.stderr == ""


def test_an_interrupt_is_held_back_once() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), interrupts.held(second_at_once=True):
        signal.raise_signal(signal.SIGINT)
        seen.append("after the first")
        signal.raise_signal(signal.SIGINT)
        seen.append("after the second")
    with pytest.raises(KeyboardInterrupt), interrupts.held():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        seen.append("after both")
    assert seen == ["after the first", "after both"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_waits_for_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a callback of LLVM a KeyboardInterrupt would crash the process."""

    @kernel(int64, int64)
    def shifted(value):  # type: ignore[no-untyped-def]
        return value + 1

    def compile_interrupted(self: Kernel, signature: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return compile_kernel(self, signature)

    compile_kernel = Kernel.compile
    monkeypatch.setattr(Kernel, "compile", compile_interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        shifted(1)
    assert shifted(1) == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_a_heartbeat_that_the_schedulers_end_cuts_off_is_not_logged() -> None:
    from dbfs_workers.serving.quiet import wanted

    def record(text: str, *arguments: object) -> logging.LogRecord:
        return logging.LogRecord("distributed.worker", logging.ERROR, "worker.py", 1, text, arguments, None)

    assert not wanted(record("Failed to communicate with scheduler during heartbeat."))
    assert not wanted(record("Compute Failed\n%s %s %s %s", "key", "run", "task", "WorkerLostError('x')"))
    assert wanted(record("Compute Failed\n%s %s %s %s", "key", "run", "task", "ValueError('x')"))
    assert wanted(record("Unexpected exception during heartbeat. Closing worker."))


def listening(process: psutil.Process) -> set[str]:
    """Hosts of the addresses at which a process and its children listen."""
    each = [process, *process.children(recursive=True)]
    ports = [port for one in each for port in one.net_connections() if port.status == psutil.CONN_LISTEN]
    return {port.laddr.ip for port in ports}


def test_a_large_process_does_not_pause_its_workers() -> None:
    # Dask would pause a worker with a memory limit at this share of the limit: here, at once.
    with (
        dask.config.set({"distributed.worker.memory.pause": 1e-6}),
        dbfs.connect(n_workers=2, processes=False, dashboard_address=None) as within,
    ):
        assert dbfs.load("path:n=9", client=within).bfs(0, deadline=30).depth == 8


def test_clusters_whose_dashboards_want_one_port_start_in_silence(recwarn: pytest.WarningsRecorder) -> None:
    with dbfs.connect(n_workers=1, processes=False) as one, dbfs.connect(n_workers=1, processes=False) as other:
        ports = {client.cluster.scheduler.http_server.port for client in (one, other)}
    assert len(ports) == 2
    assert not [warning for warning in recwarn if "Port" in str(warning.message)]


@pytest.mark.parametrize("options", [{}, {"dashboard_address": None}], ids=["dashboard", "no dashboard"])
def test_the_web_servers_within_the_process_are_on_the_loopback(options: dict[str, Any]) -> None:
    with dbfs.connect(n_workers=2, processes=False, **options) as within:
        cluster = within.cluster
        servers = [cluster.scheduler.http_server, *(worker.http_server for worker in cluster.workers.values())]
        assert [server.address for server in servers] == ["127.0.0.1"] * 3
        assert within.dashboard_link == f"http://127.0.0.1:{servers[0].port}/status"
    with dbfs.connect(n_workers=1, processes=False, dashboard_address=":0") as within:
        assert within.cluster.scheduler.http_server.address == "0.0.0.0"
        assert "//0.0.0.0" not in within.dashboard_link


@pytest.mark.full
@pytest.mark.parametrize("dies", [True, False])
def test_a_cluster_closes_though_a_process_outlives_dasks_wait(
    dies: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local, "_DYING_SECONDS", PATIENCE if dies else 0)
    with dbfs.connect(n_workers=1, backend="cpu", dashboard_address=None, processes=True) as client:
        (nanny,) = client.cluster.workers.values()
        process = psutil.Process(nanny.pid)

        async def kill(*arguments: object, **keywords: object) -> None:
            if dies:
                process.kill()
            raise TimeoutError

        monkeypatch.setattr(nanny.process, "kill", kill)
    # Dask tells at any time of connections of other tests that Python has collected.
    said = [record.getMessage() for record in caplog.records if record.name.startswith("dbfs")]
    if dies:
        assert not process.is_running()
        assert not said
    else:
        assert said == [f"the process {process.pid} of worker 0 was killed, and is still there 0 s later"]
        process.kill()
        process.wait(PATIENCE)


@pytest.mark.full
@pytest.mark.matrix
@pytest.mark.parametrize("options", [{}, {"dashboard_address": None}], ids=["dashboard", "no dashboard"])
@pytest.mark.parametrize("processes", [False, True])
def test_a_local_cluster_listens_on_the_loopback(processes: bool, options: dict[str, Any]) -> None:
    # In a process of its own, because clusters of other tests listen in this one.
    program = f"""
        import sys, time
        import dbfs
        if __name__ == "__main__":
            with dbfs.connect(n_workers=1, backend="cpu", processes={processes}, **{options}) as client:
                print(client.dashboard_link, flush=True)
                sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        link = running.stdout.readline()
        assert listening(psutil.Process(running.pid)) == {"127.0.0.1"}
        assert link.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(link.replace("status", "metrics")) as answer:
            assert b"dask_scheduler_clients" in answer.read()
        running.communicate("")
    assert running.returncode == 0


# The system's own, which the tests with names of two addresses replace.
_ADDRESSES = socket.getaddrinfo


@pytest.mark.parametrize("host", ["127.0.0.1", "both"])
def test_no_scheduler_there(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """The name of a machine may have an address of each version of IP, as localhost often has."""

    def addresses(name: str, *arguments: Any, **options: Any) -> list[Any]:
        names = ("::1", "127.0.0.1") if name == "both" else (name,)
        return [found for each in names for found in _ADDRESSES(each, *arguments, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    words = rf"at tcp://{host}:9 \(0\.\d s\): nothing listens there; .* its port right"
    with pytest.raises(NoWorkersError, match=words):
        dbfs.connect(f"tcp://{host}:9", timeout=30)


def test_a_port_of_something_else(client: distributed.Client) -> None:
    worker = min(joined_workers(client))
    with pytest.raises(NoWorkersError, match=f"^{worker} is the address of a worker or a nanny of Dask, not"):
        dbfs.connect(worker, timeout=30)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: server.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.6\r\n"))
        thread.start()
        with pytest.raises(NoWorkersError, match="what listens at tcp://.* does not answer as a scheduler"):
            dbfs.connect(f"tcp://127.0.0.1:{server.getsockname()[1]}", timeout=30)
        thread.join()


def test_an_address_that_is_none() -> None:
    with pytest.raises(InvalidOptionError, match="'nonsense'; expected a scheduler's address such as tcp://HOST:8786"):
        dbfs.connect("nonsense")


def test_a_scheduler_with_tls_takes_encrypted_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"processes": False, "n_workers": 0, "dashboard_address": None, "host": "127.0.0.1"}
    security = distributed.Security.temporary()
    texts = {"ca-file": security.tls_ca_file, "cert": security.tls_client_cert, "key": security.tls_client_key}
    for name, text in texts.items():
        (tmp_path / name).write_text(str(text))
    ends = {f"client.{name}": str(tmp_path / name) for name in ("cert", "key")}
    settings = {"ca-file": str(tmp_path / "ca-file"), **ends}
    tls = {f"distributed.comm.tls.{name}": path for name, path in settings.items()}
    with distributed.LocalCluster(protocol="tls://", security=security, **options) as cluster:
        encrypted = cluster.scheduler_address
        plain = encrypted.replace("tls", "tcp")
        with pytest.raises(NoWorkersError, match=f"{plain} does not answer .* with TLS has the address {encrypted}"):
            dbfs.connect(plain, timeout=5)
        # The scheduler's thread may log the failed handshake after the client's has gone on.
        eventually(lambda: "handshake" in caplog.text)
        caplog.clear()
        # No worker joins, but the connection stands, and the scheduler's log has no failed handshake.
        with dask.config.set(tls), pytest.raises(NoWorkersError, match="1 worker wanted, 0 found"):
            dbfs.connect(encrypted, timeout=0.5)
        assert "handshake" not in caplog.text
    with distributed.LocalCluster(protocol="tcp://", **options) as cluster, dask.config.set(tls):
        plain = cluster.scheduler_address
        encrypted = plain.replace("tcp", "tls")
        with pytest.raises(NoWorkersError, match=f"{encrypted} does not .* without TLS has the address {plain}"):
            dbfs.connect(encrypted, timeout=5)


@pytest.mark.parametrize(
    ("address", "settings", "words"),
    [
        ("tls://127.0.0.1:9", {}, "TLS needs certificates; name them under distributed.comm.tls in"),
        (
            "tcp://127.0.0.1:9",
            {"require-encryption": True},
            "Dask.s configuration requires encryption; expected tls://",
        ),
        ("127.0.0.1:9", {"require-encryption": True}, "Dask.s configuration requires encryption"),
        (
            "tls://127.0.0.1:9",
            {"tls.ca-file": "/no/such.pem", "tls.client.cert": "/no/such.pem"},
            "the certificates of .* can't be read: .*No such file",
        ),
    ],
)
def test_no_certificates(address: str, settings: dict[str, object], words: str) -> None:
    with dask.config.set({f"distributed.comm.{key}": value for key, value in settings.items()}):
        with pytest.raises(InvalidOptionError, match=f"^{address}: {words}"):
            dbfs.connect(address, timeout=0.5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n_workers": 0}, "n_workers must be at least 1"),
        ({"address": "tcp://127.0.0.1:9", "memory_limit": "1GB"}, "memory_limit: only for a new local cluster"),
        ({"timeout": "never"}, "not a duration"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidOptionError, match=words):
        dbfs.connect(**arguments)  # type: ignore[arg-type]


def test_ranks_below_one(client: distributed.Client) -> None:
    with pytest.raises(InvalidOptionError, match="ranks must be at least 1, not 0"):
        dbfs.load("path:n=5", client=client, ranks=0)
    with pytest.raises(InvalidOptionError, match="ranks must be at least 1, not 0"):
        dbfs.estimate(dbfs.path(5), 0)
    for ranks in (2.0, True):
        with pytest.raises(InvalidOptionTypeError, match="ranks must be an integer"):
            dbfs.load("path:n=5", client=client, ranks=ranks)  # type: ignore[arg-type]
        with pytest.raises(InvalidOptionTypeError, match="ranks must be an integer"):
            dbfs.estimate(dbfs.path(5), ranks)  # type: ignore[arg-type]


def test_an_existing_scheduler_and_an_explicit_client(client: distributed.Client) -> None:
    with dbfs.connect(client.scheduler.address) as second, dbfs.load("path:n=5", client=second) as graph:
        assert graph.ranks == 4
        assert graph.bfs(0).depth == 4
    assert client.status == "running"


def test_clients_that_cannot_serve(client: distributed.Client) -> None:
    async def asynchronous() -> None:
        async with distributed.Client(client.scheduler.address, asynchronous=True) as wrong:
            with pytest.raises(ClientError, match="the thread of the client's event loop"):
                current_client(wrong)

    asyncio.run(asynchronous())
    with distributed.Client(client.scheduler.address, set_as_default=False) as closed:
        pass
    with pytest.raises(ClientError, match="is closed; connect and load again"):
        current_client(closed)


def test_configuration_in_the_environment_form() -> None:
    with dask.config.set({"dbfs.build.max-rounds": 0}):
        assert config.count("build.max-rounds", least=0) == 0
        with pytest.raises(InvalidOptionError, match="at least 1"):
            config.count("build.max-rounds")
    with dask.config.set({"dbfs.build.max-rounds": 1.5}), pytest.raises(InvalidOptionError, match="whole number"):
        config.count("build.max-rounds")


@pytest.mark.parametrize(
    ("cores", "given", "shares"),
    [
        (2, (None, None), (1, 2)),
        (7, (None, None), (1, 7)),
        (8, (None, None), (2, 4)),
        (16, (None, None), (4, 4)),
        (16, (3, None), (3, 5)),
        (16, (32, None), (32, 1)),
        (16, (None, 8), (2, 8)),
        (2, (None, 8), (1, 8)),
        (16, (2, 1), (2, 1)),
    ],
)
def test_workers_share_all_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, given: tuple[int | None, int | None], shares: tuple[int, int]
) -> None:
    monkeypatch.setattr(local, "CPU_COUNT", cores)
    assert local.shares(*given) == shares


def test_processes_on_few_cores_have_a_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "CPU_COUNT", 7)
    assert local.shares(None, None, processes=True) == (7, 1)


@pytest.mark.full
def test_a_local_clusters_log_keeps_off_stderr() -> None:
    program = """
        import logging, dbfs
        with dbfs.connect(n_workers=1, processes=False, backend="cpu", dashboard_address=None):
            logging.getLogger("dbfs.service.log").warning("a run failed")
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert run.stderr == ""


def test_a_client_that_lost_its_scheduler_says_so(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    words = r"^lost the connection to the scheduler at \S+; connect to a running"
    with dbfs.load("path:n=5", client=client) as graph, monkeypatch.context() as patch, client.as_current():
        patch.setattr(client, "status", "connecting")
        for call in (lambda: dbfs.load("path:n=5"), lambda: dbfs.estimate("path:n=5"), graph.components):
            with pytest.raises(SchedulerLostError, match=words):
                call()
        # An asynchronous client that was not awaited has had no scheduler yet.
        patch.setattr(client, "scheduler", None)
        with pytest.raises(ClientError, match="client is connecting; dbfs needs a running one"):
            dbfs.load("path:n=5")


def test_a_closed_client_says_what_closes_it(client: distributed.Client) -> None:
    with distributed.Client(client.scheduler.address, set_as_default=False) as second:
        graph = dbfs.load("path:n=5", client=second)
    for call in (lambda: graph.bfs(0), graph.components, lambda: dbfs.load("path:n=5", client=second)):
        with pytest.raises(ClientError, match=r"is closed; connect .* can't reach its scheduler closes by itself"):
            call()


def test_many_workers_are_told_before_they_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local, "CPU_COUNT", 2)
    monkeypatch.setattr(local, "_client", lambda *arguments: arguments)
    monkeypatch.setattr(local.kernels, "begin", lambda *arguments: arguments)
    with caplog.at_level(logging.WARNING, logger="dbfs"):
        local.start(8, "cpu", False, {}, False)
        assert not caplog.messages
        local.start(9, "cpu", False, {}, False)
    assert caplog.messages[0].startswith("9 workers on 2 cores")


@pytest.mark.parametrize(
    ("cores", "options", "scheme"),
    [
        (2, {}, "inproc"),
        pytest.param(7, {"threads_per_worker": 1}, "inproc", marks=pytest.mark.full),
        pytest.param(8, {}, "tcp", marks=pytest.mark.full),
        pytest.param(2, {"n_workers": 1}, "tcp", marks=pytest.mark.full),
        pytest.param(2, {"memory_limit": "2GiB"}, "tcp", marks=pytest.mark.full),
        pytest.param(2, {"processes": True}, "tcp", marks=pytest.mark.full),
    ],
)
def test_few_cores_have_one_worker_within_the_process(
    monkeypatch: pytest.MonkeyPatch, cores: int, options: dict[str, Any], scheme: str
) -> None:
    monkeypatch.setattr(local, "CPU_COUNT", cores)
    with dbfs.connect(backend="cpu", dashboard_address=None, **options) as started:
        assert {address.partition(":")[0] for address in roster(started, None)} == {scheme}
        assert dbfs.load("path:n=9", client=started).bfs(0, validate=True).depth == 8

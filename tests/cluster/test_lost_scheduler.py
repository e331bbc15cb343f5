"""A scheduler that is killed and started again, by the units of configs/systemd: workers, old handles, the catalog."""

import configparser
import gc
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import pytest
from click.testing import CliRunner

import dbfs
from dbfs.cli import main
from dbfs.cluster.gang import joined_workers, scheduler_id
from dbfs.errors import GraphNotFoundError, NoWorkersError, OutcomeUnknownError, SchedulerLostError
from dbfs.features.catalog import catalog
from dbfs.service.client import ServiceClient
from dbfs.service.messages import OpenGraph
from tests.support import oracle
from tests.support.waiting import PATIENCE, eventually

UNITS = Path(__file__).parents[2] / "configs" / "systemd"
BIN = str(Path(sys.executable).parent)
SRC, DST = np.random.default_rng(3).integers(0, 200, (2, 600))


class Unit:
    """A service unit, run as systemd would: with its environment, and started again whenever it ends."""

    def __init__(
        self, name: str, instance: str, settings: Mapping[str, str], log: Path, replaced: Mapping[str, str]
    ) -> None:
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        text = (UNITS / name).read_text(encoding="utf-8")
        # ConfigParser keeps one of the lines with the same key.
        self._environment = dict(re.findall(r"^Environment=(\w+)=(.*)$", text, re.MULTILINE)) | dict(settings)
        parser.read_string(text)
        service = parser["Service"]
        assert service["Restart"] == "always"
        line = service["ExecStart"].replace("/opt/dbfs/bin", BIN).replace("%i", instance).replace("%H", "host")
        for old, new in replaced.items():
            line = line.replace(old, new)
        found = re.sub(r"\$\{(\w+)\}", lambda name: self._environment[name[1]], line)
        self.command = shlex.split(found)
        self._log = log
        self._over = False
        self._start()
        self._thread = threading.Thread(target=self._keep_running)

    def _start(self) -> None:
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                self.command, env=os.environ | self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def __enter__(self) -> "Unit":
        self._thread.start()
        return self

    def _keep_running(self) -> None:
        while not self._over:
            if self.process.poll() is not None:
                self._start()
            time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._thread.join()
        # The process group, as systemd does: also a worker's nanny, and a scheduler's loading process.
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def connected(address: str) -> distributed.Client:
    """A client of a scheduler that may be starting."""

    def connect() -> distributed.Client | None:
        try:
            # As long as a client tries to connect again, on a busy machine.
            return dbfs.connect(address, n_workers=2, timeout=2 * PATIENCE, set_as_default=False)
        except NoWorkersError:
            return None

    found: distributed.Client = eventually(connect)
    return found


@pytest.fixture
def folder(client: distributed.Client, tmp_path: Path) -> Path:
    """A saved graph of two ranks."""
    with dbfs.load(dbfs.from_arrays(SRC, DST, n=200), client=client, ranks=2) as graph:
        graph.save(tmp_path / "web")
    return tmp_path / "web"


@pytest.fixture
def cluster(folder: Path, tmp_path: Path) -> Iterator[tuple[str, Unit, Path]]:
    """The address, the unit and the log of a scheduler with two workers and a catalog; one entry is bad."""
    listed, log = tmp_path / "catalog.yaml", tmp_path / "scheduler.log"
    living = f"{{folder: {tmp_path}/living, mutable: true, checkpoint: {tmp_path}/living}}"
    listed.write_text(
        f"graphs:\n  gone: {{folder: {tmp_path}/none}}\n  web: {{folder: {folder}}}\n  living: {living}\n"
    )
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    settings = {
        "DASK_CONFIG": str(UNITS.parent / "cluster.yaml"),
        "DASK_DBFS__SERVICE__CATALOG": str(listed),
        "DASK_DBFS__WRITE__FOLDERS": str(tmp_path),
        "DBFS_SCHEDULER": address,
        "CUDA_VISIBLE_DEVICES": "",
    }
    ports = {"8786": str(port), ":8787": ":0"}
    # Nannies and warm-ups would take most of the test's time.
    sooner = {"dask worker": "dask worker --no-nanny", "--preload dbfs.preload": ""}
    with (
        Unit("dbfs-scheduler.service", "", settings, log, ports) as scheduler,
        Unit("dbfs-worker@.service", "1", settings, tmp_path / "worker.log", sooner),
        Unit("dbfs-worker@.service", "2", settings, tmp_path / "worker.log", sooner),
    ):
        yield address, scheduler, log


def opened(client: distributed.Client, name: str = "web") -> dbfs.Graph | None:
    try:
        return dbfs.open(name, client=client)
    except (GraphNotFoundError, SchedulerLostError):
        return None


def check(graph: dbfs.Graph) -> None:
    expected = oracle.distances(oracle.adjacency(200, SRC, DST, directed=False), [5])
    np.testing.assert_array_equal(graph.bfs(5, validate=True).distances(), expected)


@pytest.mark.alone
@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_killed_scheduler_comes_back_with_its_catalog(cluster: tuple[str, Unit, Path]) -> None:
    address, scheduler, log = cluster
    with connected(address) as client:
        old: dbfs.Graph = eventually(lambda: opened(client))
        check(old)
        nameless = dbfs.load("path:n=50", client=client)
        result, kept = old.bfs(5), old.bfs(6)
        before, killed = set(joined_workers(client)), scheduler.process.pid
        os.kill(killed, signal.SIGKILL)
        # The scheduler may be back before the client has noticed that it was gone.
        told = f"lost the connection to the scheduler at {address}|the scheduler at {address} was started anew since"
        with pytest.raises(SchedulerLostError, match=told):
            eventually(lambda: old.bfs(5) and None)
        # The client connects again by itself, and so do workers that are started again.
        new: dbfs.Graph = eventually(lambda: opened(client))
        check(new)
        assert not before & set(joined_workers(client))
        uses = {**uses_of(old, result, kept), "a run of a graph without a name": lambda: nameless.bfs(0)}
        for use, call in uses.items():
            with pytest.raises(SchedulerLostError, match=f"scheduler at {address} was started anew since") as error:
                call()
            assert "open it by its name, dbfs.open(name)" in str(error.value), use
        check(new)
        # Of a graph that lost a rank the catalog has the files.
        victim = new.gang.addresses[0]
        os.kill(client.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)
        eventually(lambda: [status.lost for status in dbfs.graphs(client=client) if status.name == "web"] == [(0,)])
        again = CliRunner().invoke(
            main,
            ["load", "--catalog", str(cluster[2].with_name("catalog.yaml"))],
            env={"DASK_SCHEDULER_ADDRESS": address},
        )
        assert again.exit_code == 1
        assert "web: loaded on 2 ranks" in again.stdout
        check(dbfs.open("web", client=client))
    text = log.read_text()
    assert len(re.findall(r"catalog\.process - INFO - catalog \S+: web: loaded on 2 ranks", text)) == 2
    assert (
        len(re.findall(r"catalog\.process - WARNING - catalog \S+: gone: not loaded .*, line 2\): Missing", text)) == 2
    )
    eventually(lambda: loading(address) == [])


@pytest.mark.alone
@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_living_graph_comes_back_with_a_new_scheduler_at_its_last_version(
    cluster: tuple[str, Unit, Path], tmp_path: Path
) -> None:
    """Each update that was answered is there, once, and so is that which was under way, or not at all."""
    address, scheduler, log = cluster
    with connected(address) as client:
        options: dict[str, Any] = {"mutable": True, "room": 100_000, "checkpoint": tmp_path / "living"}
        with dask.config.set({"dbfs.write.folders": [str(tmp_path)]}):
            old = dbfs.load(dbfs.from_arrays(SRC, DST, n=200), client=client, name="living", **options)
        first = old.insert_vertices(2, batch_id="first").ids
        made, some = [*first], threading.Event()

        def change() -> None:
            with pytest.raises((SchedulerLostError, OutcomeUnknownError)):
                while True:
                    # What is made twice would leave a vertex without edges.
                    (new,) = old.insert_vertices(1).ids
                    old.insert_edges([(5, new)])
                    made.append(new)
                    if len(made) > 9:
                        some.set()

        changing = threading.Thread(target=change)
        changing.start()
        assert some.wait(PATIENCE)
        os.kill(scheduler.process.pid, signal.SIGKILL)
        changing.join()
        new: dbfs.Graph = eventually(lambda: opened(client, "living"))
        answered = 1 + 2 * (len(made) - 2)
        assert new.version - answered in (0, 1, 2)
        assert new.insert_vertices(2, batch_id="first").ids == first
        # The log goes on.
        new.insert_edges([(5, each) for each in first])
        victim = new.gang.addresses[0]
        os.kill(client.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)
        result = new.bfs(5, validate=True)
        joined = np.flatnonzero(result.distances()[200:] == 1) + 200
        assert [*joined][: len(made)] == made
        assert len(joined) <= len(made) + 1
        assert new.version - answered in (1, 2, 3)
    assert re.search(r"catalog\.process - INFO - catalog \S+: living: loaded on 2 ranks", log.read_text())


def uses_of(graph: dbfs.Graph, result: dbfs.BFSResult, kept: dbfs.BFSResult) -> dict[str, Callable[[], Any]]:
    """Calls of a graph and of two of its results, which reach ranks by several ways."""
    return {
        "a run": lambda: graph.bfs(5),
        "a run of tasks": lambda: graph.bfs(5, engine="taskgraph"),
        "labels": lambda: result.distances(),
        "published labels": lambda: kept.published_labels(),
        "edges": lambda: graph.neighbors(5),
        "components": lambda: graph.components(),
        "unloading": lambda: graph.unload(),
    }


def test_an_old_handle_tells_a_new_scheduler_which_a_client_has_installed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {"scheduler_port": free_port(), "protocol": "tcp://", "dashboard_address": None, "processes": False}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, **options) as first:
        client = distributed.Client(first.scheduler_address, set_as_default=False)
        graph = dbfs.load("path:n=9", client=client, name="web")
        result, kept = graph.bfs_many([3, 4])
        dropped = dbfs.load("path:n=8", client=client)
    with client, distributed.LocalCluster(n_workers=1, threads_per_worker=1, **options):
        # Dask's client connects again by itself.
        eventually(lambda: client.status == "running" and scheduler_id(client) != graph.gang._scheduler)
        # Its finalizer sends a message that the new scheduler does not know yet.
        del dropped
        gc.collect()
        for use, call in uses_of(graph, result, kept).items():
            with pytest.raises(SchedulerLostError, match="was started anew since the graph was loaded"):
                pytest.fail(f"{use}: {call()!r}")
        # The new scheduler has no preload.
        assert dbfs.graphs(client=client) == []
        assert dbfs.load("path:n=7", client=client, name="web").bfs(0, validate=True).depth == 6
        assert dbfs.open("web", client=client).bfs(6, validate=True).depth == 6
        assert "No handler" not in caplog.text


def test_a_new_scheduler_may_answer_before_the_client_has_noticed_it(client: distributed.Client) -> None:
    service = ServiceClient.of(client)
    with pytest.raises(GraphNotFoundError, match="nowhere"):
        service.call(OpenGraph("nowhere"))
    answering, service._scheduler = service._scheduler, "Scheduler-before"
    try:
        with pytest.raises(SchedulerLostError, match="was started anew since the graph was loaded"):
            service.call(OpenGraph("nowhere"))
    finally:
        service._scheduler = answering


def loading(address: str) -> list[int]:
    """Processes that load a catalog into a scheduler."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--catalog" in words and address.encode() in words:
            found.append(int(file.parent.name))
    return found


@pytest.mark.alone
@pytest.mark.full
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_process_that_loads_a_catalog_ends_with_its_scheduler(folder: Path, tmp_path: Path, how: int) -> None:
    (tmp_path / "catalog.yaml").write_text(f"graphs: {{web: {{folder: {folder}}}}}")
    port = free_port()
    command = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dashboard-address", "127.0.0.1:0", "--preload", "dbfs.preload"]
    settings = os.environ | {"DASK_DBFS__SERVICE__CATALOG": str(tmp_path / "catalog.yaml")}
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, env=settings, stderr=log) as scheduler:
        try:
            # Without workers it waits.
            eventually(lambda: "1 worker wanted, 0 found" in (tmp_path / "log").read_text())
            assert len(loading(f"tcp://127.0.0.1:{port}")) == 1
        finally:
            scheduler.send_signal(how)
    eventually(lambda: loading(f"tcp://127.0.0.1:{port}") == [])


@pytest.mark.full
@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.name)
def test_units_are_as_systemd_and_dask_understand_them(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    line = re.search(r"^ExecStart=/opt/dbfs/bin/dask (scheduler|worker) (.*)$", text, re.MULTILINE)
    assert line is not None
    options = re.findall(r"(?<=\s)--[\w-]+", f" {line[2]}")
    asked = subprocess.run([f"{BIN}/dask", line[1], "--help"], capture_output=True, text=True, check=True)
    assert [option for option in options if not re.search(rf"{option}\b", asked.stdout)] == []
    named = set(re.findall(r"\$\{(\w+)\}", text))
    assert named <= set(re.findall(r"^Environment=(\w+)=", text, re.MULTILINE))
    if (systemd := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd is not installed: the options were checked, the unit's own keys were not")
    copy = tmp_path / unit.name.replace("@", "@1")
    copy.write_text(text.replace("/opt/dbfs/bin", BIN), encoding="utf-8")
    told = subprocess.run([systemd, "verify", copy], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")


def test_the_catalog_of_the_recipe_has_keys_that_catalogs_have() -> None:
    entries, refused = catalog.read(UNITS / "catalog.yaml")
    # This machine has no such folders. An unknown key would be told first.
    assert (len(entries), len(refused)) == (0, 2)
    assert all("no such file" in step.words for step in refused)

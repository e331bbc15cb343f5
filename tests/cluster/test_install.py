"""dbfs on clusters that others started: where it is installed, and where it is not."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import distributed
import pytest

import dbfs
from dbfs.base.build import build
from dbfs.cluster import kernels
from dbfs.errors import ClientError, VersionMismatchError
from dbfs_workers.base import compiling
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
OWN = re.escape(build())


@contextlib.contextmanager
def started(
    *, scheduler: str = "", worker: str = "", log: int | IO[str] = subprocess.DEVNULL
) -> Iterator[distributed.Client]:
    """A client of a scheduler and a worker in processes of their own, each after the code given; the worker's log."""
    quiet = ("--no-dashboard", "--dashboard-address", ":0", "--host", "127.0.0.1")
    command = [sys.executable, "-m", "dask", "scheduler", "--port", "0", *quiet]
    preload = ["--preload", scheduler] if scheduler else []
    with subprocess.Popen([*command, *preload], stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr is not None
        address = next(line.split()[-1] for line in first.stderr if "Scheduler at:" in line)
        command = [sys.executable, "-m", "dask", "worker", address, "--no-nanny", *quiet]
        preload = ["--preload", worker] if worker else []
        with subprocess.Popen([*command, *preload], stderr=log) as second:
            try:
                with distributed.Client(address, timeout=30, set_as_default=False) as client:
                    client.wait_for_workers(1, timeout=30)
                    yield client
            finally:
                second.kill()
                first.kill()


def claiming(version: str | None) -> str:
    """Code after which a process of Dask's says it has that version of dbfs."""
    return (
        "import distributed.versions as versions; "
        "versions._version_cached = lambda name, known=versions._version_cached: "
        f"{version!r} if name == 'dbfs' else known(name)"
    )


def test_a_cluster_that_serves(client: distributed.Client) -> None:
    dbfs.install(client)
    assert client.run_on_scheduler(lambda dask_scheduler: "dbfs" in dask_scheduler.plugins)
    assert all(client.run(lambda dask_worker: "dbfs" in dask_worker.plugins).values())
    with pytest.raises(ClientError):
        dbfs.install("tcp://127.0.0.1:8786")  # type: ignore[arg-type]


@pytest.mark.full
def test_a_worker_joins_and_then_compiles_as_its_log_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    few = tmp_path / "few.py"
    # All kernels take a minute.
    few.write_text(
        "import dbfs.preload as preload\nfrom dbfs.cluster import kernels\n"
        "kernels.first_kernels = lambda *_: ()\n"
        "kernels.every_kernel = lambda: ['dbfs_workers.search.partition.kernels.rows']\n"
        "dask_setup = preload.dask_setup\n"
    )
    log = tmp_path / "worker.log"
    with log.open("w") as stderr, started(worker=str(few), log=stderr) as client:
        # Both are said once the worker is a part of the cluster.
        lines = eventually(log.read_text, lambda text: "kernels compiled in" in text)
        joined, begun, done = (
            lines.index(words) for words in ("Registered to", "compiling kernels beside", "kernels compiled in")
        )
        assert max(joined, begun) < done
        assert dbfs.load("path:n=9", client=client).bfs(0, validate=True).depth == 8
    assert not list(tmp_path.rglob("*.lock"))


@pytest.mark.full
@pytest.mark.parametrize(
    ("where", "version", "words"),
    [
        ("scheduler", None, rf"client has dbfs {OWN}, but the scheduler tcp://\S+ has none; install"),
        pytest.param(
            "worker",
            "0.0.9",
            rf"client has dbfs {OWN}, but the worker tcp://\S+ has 0\.0\.9; install",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_cluster_without_dbfs_or_with_another_version(where: str, version: str | None, words: str) -> None:
    refused(where, claiming(version), words)


@pytest.mark.full
@pytest.mark.parametrize("where", ["scheduler", "worker"])
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import dbfs.base.build as build; build.COMMIT = '1c524c1a9b02'", r"\+g1c524c1a9b02"),
        ("import sys; sys.modules['dbfs.base.build'] = None", ""),
    ],
    ids=["of another commit", "without a commit"],
)
def test_a_cluster_of_the_same_version_and_another_build(where: str, code: str, told: str) -> None:
    words = (
        rf"client has dbfs {OWN}, but the {where} tcp://\S+ has {re.escape(dbfs.__version__)}{told}; install dbfs {OWN}"
    )
    refused(where, code, words)


def refused(where: str, code: str, words: str) -> None:
    with started(**{where: code}) as client:
        for call in (dbfs.install, lambda client: dbfs.load("path:n=5", client=client)):
            with pytest.raises(VersionMismatchError, match=words):
                call(client)


def test_every_kernel_is_compiled_before_work_comes() -> None:
    modules = set()
    for folder, root in (("dbfs", ROOT), ("workers/dbfs_workers", ROOT / "workers")):
        for file in (ROOT / folder).rglob("*.py"):
            if "\n@kernel(" in file.read_text(encoding="utf-8"):
                modules.add(".".join(file.relative_to(root).with_suffix("").parts))
    assert modules
    names, found = ({each.name for each in compiling.found(wanted)} for wanted in (modules, kernels.every_kernel()))
    assert names == found

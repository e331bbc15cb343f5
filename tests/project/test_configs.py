"""The files in configs/: run where possible, otherwise checked against the schemas of the programs that read them."""

import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import dask
import distributed
import pytest
import yaml

import dbfs
from dbfs.cluster import ports
from dbfs.cluster.gang import joined_workers
from dbfs.cluster.local import _WORKER_THREADS, MEMORY
from dbfs_workers.base.memory_room import usable_share
from dbfs_workers.serving.ports import Reach
from tests.support.recipes import commands, every_command, option

# Dask's clusters leave such a coroutine behind.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine 'Event.wait' was never awaited:RuntimeWarning")

CONFIGS = Path(__file__).parents[2] / "configs"
SCRIPTS = sorted(CONFIGS.glob("*/*.sh"))
MANIFESTS = sorted((CONFIGS / "kubernetes").glob("*.yaml"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_scripts_parse(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    assert os.access(script, os.X_OK)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_scripts_pass_shellcheck(script: Path) -> None:
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([shellcheck, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_folder_has_its_page() -> None:
    listed = (CONFIGS / "README.md").read_text()
    for folder in (path for path in CONFIGS.iterdir() if path.is_dir()):
        assert (folder / "README.md").is_file()
        assert f"({folder.name}/README.md)" in listed


def test_cluster_settings_are_settings_that_dask_has() -> None:
    def check(settings: dict[str, Any], known: dict[str, Any]) -> None:
        for key, value in settings.items():
            assert key in known
            if isinstance(value, dict):
                check(value, known[key])

    check(yaml.safe_load((CONFIGS / "cluster.yaml").read_text()), dask.config.config)


def test_every_command_of_dask_names_where_it_listens() -> None:
    found = list(every_command())
    assert {page for page, _ in found} >= {f"configs/{name}/README.md" for name in ("local", "machines", "tls")}
    assert {page for page, _ in found} >= {"cluster.yaml", "gpu-workers.yaml", "job.sh"}
    for page, words in found:
        assert option(words, "--host") or option(words, "--interface"), (page, words)
        host = (option(words, "--dashboard-address") or "").rpartition(":")[0]
        # The pods' network policy says who reaches their dashboards.
        assert host == ("0.0.0.0" if page.endswith(".yaml") else "127.0.0.1"), (page, words)


def test_every_recipe_has_the_measured_number_of_threads() -> None:
    for page, words in every_command():
        if "worker" in words and "cuda" not in words:
            assert option(words, "--nthreads") == str(_WORKER_THREADS), (page, words)
    over_ssh = (CONFIGS / "ssh" / "cluster.py").read_text()
    assert set(re.findall(r'"nthreads": (\d+)', over_ssh)) == {str(_WORKER_THREADS)}
    assert f"with {_WORKER_THREADS} threads for each {_WORKER_THREADS} cores" in (CONFIGS / "README.md").read_text()


def test_a_command_without_its_host_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```\ndask worker tcp://127.0.0.1:8786 --nthreads 1  # here\n```\nSee `dask worker --host`.\n")
    (words,) = commands(page)
    assert (option(words, "--host"), option(words, "--nthreads")) == (None, "1")


def test_local_clusters_have_the_memory_settings_of_the_recipes() -> None:
    recipe = yaml.safe_load((CONFIGS / "cluster.yaml").read_text())
    assert {key: dask.config.get(key, config=recipe) for key in MEMORY} == MEMORY
    # Dask pauses a worker above what dbfs fills, and ends the worker above that.
    share, pause, terminate = dask.config.get("dbfs.build.memory-share"), *MEMORY.values()
    assert usable_share(share, pause) == share < pause < terminate < 1


@pytest.mark.full
def test_a_cluster_over_ssh(tmp_path: Path) -> None:
    pytest.importorskip("asyncssh")
    from tests.support.ssh_server import ssh_server

    start = runpy.run_path(str(CONFIGS / "ssh" / "cluster.py"))["cluster"]
    hosts = ("127.0.0.1",) * 3
    with (
        ssh_server(tmp_path) as connect_options,
        start(hosts, 1, "lo", connect_options=connect_options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=30)
        found, silent = ports.of_cluster(client, list(joined_workers(client)))
        assert ({port.reach for port in found}, silent) == ({Reach.MACHINE}, [])
        with dbfs.load("grid2d:side=9", client=client) as graph:
            assert (graph.ranks, graph.exchange) == (2, "shared_memory")
            assert graph.bfs(0, validate=True).depth == 16


@pytest.mark.full
@pytest.mark.parametrize("scheme", [pytest.param("tcp", marks=pytest.mark.long), "tls"])
def test_the_slurm_job_with_a_stand_in_for_srun(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, scheme: str
) -> None:
    srun = tmp_path / "srun"
    # Slurm starts the task on every node and ends it; here this machine is every node.
    srun.write_text(
        '#!/usr/bin/env bash\n[ "$1 $2" = "--ntasks-per-node=1 --cpus-per-task=1" ] && shift 2\n'
        'for _ in $(seq "$SLURM_JOB_NUM_NODES"); do setsid "$@" & done\n'
        "trap 'for task in $(jobs -p); do kill -9 -- -$task; done' TERM\nwait\n"
    )
    srun.chmod(0o755)
    settings = {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_PER_TASK": "1",
        "DBFS_INTERFACE": "lo",
    }
    if scheme == "tls":
        if shutil.which("openssl") is None:
            pytest.skip("certificates need openssl")
        folder = tmp_path_factory.mktemp("tls")
        subprocess.run([CONFIGS / "tls" / "certificates.sh", folder], check=True, capture_output=True)
        settings["DASK_CONFIG"] = str(folder)
    command = 'echo "$DASK_SCHEDULER_ADDRESS" >&2; dbfs run path:n=40 --source 0 --validate --json; '
    command += "dbfs run path:n=40 --source -1"
    done = subprocess.run(
        [CONFIGS / "slurm" / "job.sh", "bash", "-c", command],
        cwd=tmp_path,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = json.loads(done.stdout)
    assert (found["ranks"], found["depth"], found["validated"]) == (2, 39, True)
    assert "source -1 is not in path:n=40" in done.stderr
    assert re.search(rf"^{scheme}://127\.0\.0\.1:\d+$", done.stderr, re.MULTILINE)
    # The port that the scheduler's own log names.
    (port,) = re.findall(r"ssh -L 8787:127\.0\.0\.1:(\d+) \S+, then", done.stderr)
    assert f"http://127.0.0.1:{port}/status" in done.stderr
    unnamed = subprocess.run(
        [CONFIGS / "slurm" / "job.sh", "true"],
        env=os.environ | settings | {"DBFS_INTERFACE": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert unnamed.returncode != 0 and "names the network between the nodes" in unnamed.stderr
    # The job has the exit code of its command, and leaves no files.
    assert done.returncode == 2
    assert [file.name for file in tmp_path.iterdir()] == ["srun"]


def test_the_slurm_job_of_dask_jobqueue(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    pytest.importorskip("dask_jobqueue")
    # Its import makes Ctrl-C a SystemExit, which other tests would meet.
    signal.signal(signal.SIGINT, before)
    make = runpy.run_path(str(CONFIGS / "slurm" / "jobqueue.py"))["cluster"]
    with make(queue="compute", interface="lo", scheduler_options={"dashboard_address": "127.0.0.1:0"}) as cluster:
        script = cluster.job_script()
    job = tmp_path / "job.sh"
    job.write_text(script)
    subprocess.run(["bash", "-n", job], check=True)
    for words in (
        "#SBATCH -p compute",
        "#SBATCH --cpus-per-task=16",
        "--nworkers 4",
        "--nthreads 4",
        "--preload dbfs.preload",
    ):
        assert words in script
    assert "--interface lo" in script and "--dashboard-address 127.0.0.1:0" in script


def test_the_wheel_has_no_benchmarks_and_no_tests() -> None:
    settings = tomllib.loads((CONFIGS.parent / "pyproject.toml").read_text())
    # No other key that would add files; the hook adds the commit.
    assert settings["tool"]["hatch"]["build"] == {
        "hooks": {"custom": {}},
        "targets": {"wheel": {"packages": ["dbfs", "workers/dbfs_workers", "dbfs_networkx_info.py"]}},
    }

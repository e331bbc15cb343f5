import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import distributed
import numpy as np
import pandas as pd
import psutil
import pytest
from click.testing import CliRunner, Result

import dbfs
from dbfs.building.build import BuildOptions
from dbfs.cli import exit_code, main
from dbfs.cli.common import check_writable, fits_within_process
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.resolve import edge_list
from dbfs.errors import (
    GraphNotFoundError,
    GraphTooLargeError,
    InvalidOptionError,
    MissingFileError,
    NoWorkersError,
    ValidationError,
    WorkerLostError,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def invoke(client: distributed.Client):  # type: ignore[no-untyped-def]
    def run(*arguments: str):  # type: ignore[no-untyped-def]
        return CliRunner().invoke(main, ["run", *arguments, "--scheduler", client.scheduler.address])

    return run


def test_json_has_counts_and_levels(invoke) -> None:  # type: ignore[no-untyped-def]
    answer = invoke("grid2d:side=5", "--source", "0", "--validate", "--json", "--predecessors")
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert (found["n"], found["m"], found["reached"], found["depth"], found["validated"]) == (25, 80, 25, 8, True)
    assert [level["discovered"] for level in found["levels"]] == [2, 3, 4, 5, 4, 3, 2, 1, 0]
    assert found["ranks"] == 4


@pytest.mark.full
def test_edges_from_standard_input(invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    words = ["run", "-", "--format", "csv", "--from", "alice", "--to", "carol", "--ranks", "1"]
    answer = CliRunner().invoke(main, words, input="who,whom\nalice,bob\nbob,carol\n")
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.startswith("standard input: 3 vertices, ")
    assert answer.stdout.endswith("\npath: 2 edges: alice bob carol\n")
    answer = CliRunner().invoke(main, ["convert", "-", str(tmp_path / "out.mtx")], input="1 2\n2 x\n")
    assert re.search(r"/proc/\d+/fd/\d+, line 2: '2 x'", answer.stderr)
    assert "cluster's workers can't read" in invoke("-", "--source", "1").stderr
    # Python has a folder of its own there.
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith("pymp-")} <= {"dask-scratch-space"}


def test_a_path_to_an_id(invoke, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    table = tmp_path / "follows.csv"
    table.write_text("who,whom\nalice,bob\nbob,carol\ncarol,dave\nerin,frank\n")
    answer = invoke(str(table), "--from", "alice", "--to", "carol")
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.endswith("\npath: 2 edges: alice bob carol\n")
    found = json.loads(invoke(str(table), "--from", "alice", "--to", "dave", "--json").stdout)
    assert found["path"] == ["alice", "bob", "carol", "dave"]
    assert invoke(str(table), "--from", "alice", "--to", "erin").stdout.endswith("\npath: there is none\n")


def test_a_run_prints_the_graph_and_its_levels(invoke) -> None:  # type: ignore[no-untyped-def]
    answer = invoke("path:n=100", "--source", "7", "--ranks", "2", "--max-depth", "50")
    assert answer.exit_code == 0, answer.output
    assert "100 vertices, 99 undirected edges (198 stored), 0 self-loops, 0 duplicates, 2 ranks" in answer.stdout
    assert "Levels from source 7" in answer.stdout
    assert "..." in answer.stdout


@pytest.mark.parametrize("predecessors", [False, True])
def test_labels_are_saved(invoke, tmp_path: Path, predecessors: bool) -> None:  # type: ignore[no-untyped-def]
    edges = tmp_path / "gaps.txt"
    edges.write_text("10 20\n20 30\n99 99\n")
    flags = ["--predecessors"] if predecessors else []
    for out, count in ((tmp_path / "labels.npy", 4), (tmp_path / "labels.parquet", 3), (tmp_path / "labels.csv", 3)):
        answer = invoke(str(edges), "--source", "30", "--out", str(out), *flags)
        assert answer.exit_code == 0, answer.output
        assert f"{out}: wrote the distances{' and predecessors' * predecessors} of {count} vertices, " in answer.stdout
    labels = np.load(tmp_path / "labels.npy")
    table = pd.read_parquet(tmp_path / "labels.parquet")
    assert table["vertex"].tolist() == [10, 20, 30]
    assert table["distance"].tolist() == [2, 1, 0]
    assert table.astype(float).equals(pd.read_csv(tmp_path / "labels.csv").astype(float))
    if predecessors:
        assert labels["distance"].tolist() == [2, 1, 0, -1]
        assert labels["predecessor"].tolist() == [1, 2, 2, -1]
        assert table["predecessor"].tolist()[:2] == [20, 30]
        assert table["predecessor"].isna().tolist() == [False, False, True]
    else:
        assert labels.dtype == np.int32
        assert labels.tolist() == [2, 1, 0, -1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["path:n=5", "--source", "5"], "source 5 is not in path:n=5: vertices are 0..4"),
        (["path:n=5", "--source", "-1"], "source -1 is not in path:n=5"),
        (["path:n=5", "--source", "0", "--to", "5"], "target 5 is not in path:n=5: vertices are 0..4"),
        (["path:n=5", "--source", "x"], "source must be an integer, not 'x'"),
        (["path:n=5", "--source", "0", "--out", "labels.txt"], "must end in .parquet, .csv or .npy"),
        (["path:n=5", "--source", "0", "--out", "/no/such/folder/x.npy"], "there is no folder /no/such/folder"),
        (["pth:n=5", "--source", "0"], "unknown generator"),
        (["no-such-file.mtx", "--source", "0"], "no-such-file.mtx"),
        (["path:n=5", "--source", "0", "--ranks", "0"], "'--ranks': 0 is not in the range x>=1"),
        (["path:n=5", "--source", "0", "--engine", "warp"], "'warp' is not one of"),
        (["path:n=5"], "Missing option '--source'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(invoke, arguments: list[str], words: str) -> None:  # type: ignore[no-untyped-def]
    answer = invoke(*arguments)
    assert answer.exit_code == 2
    assert words in answer.stderr
    assert "Traceback" not in answer.output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["pth:n=5", "--source", "0"], 2, "unknown generator"),
        (["no-such-file.mtx", "--source", "0"], 2, "no-such-file.mtx"),
        (["path:n=5", "--source", "5"], 2, "source 5 is not in path:n=5: vertices are 0..4"),
        (["path:n=5", "--source", "0", "--max-depth", "-1"], 2, "-1 is not in the range"),
        (["path:n=5", "--source", "0", "--directed"], 2, "path:n=5 is undirected"),
        (["path:n=5", "--source", "0", "--out", "/proc/labels.npy"], 1, "--out /proc/labels.npy: can't be written"),
    ],
)
def test_checks_come_before_a_cluster_is_started(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, words: str
) -> None:
    monkeypatch.setattr(dbfs, "connect", None)
    answer = CliRunner().invoke(main, ["run", *arguments])
    assert (answer.exit_code, answer.stderr.count("Error: ")) == (code, 1), answer.output
    assert words in answer.stderr


def test_a_check_of_the_file_to_write_leaves_it_as_it_was(tmp_path: Path) -> None:
    check_writable("--out", tmp_path / "new.npy")
    assert not (tmp_path / "new.npy").exists()
    (tmp_path / "old.npy").write_bytes(b"old")
    check_writable("--out", tmp_path / "old.npy")
    assert (tmp_path / "old.npy").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("scheduler", "backend", "edges", "within"),
    [
        (None, "auto", dbfs.path(2**22 + 1), True),
        (None, "cpu", dbfs.path(5), True),
        (None, "auto", dbfs.path(2**22 + 2), False),
        (None, "cuda", dbfs.path(5), False),
        ("tcp://127.0.0.1:8786", "auto", dbfs.path(5), False),
        (None, "auto", None, False),
    ],
)
def test_small_graphs_stay_within_the_process(
    scheduler: str | None, backend: str, edges: EdgeList | None, within: bool
) -> None:
    assert fits_within_process(scheduler, backend, edges) is within


def test_a_file_without_a_header_is_small_by_its_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "edges.txt"
    file.write_text("0 1\n")
    assert fits_within_process(None, "auto", edge_list(file))
    monkeypatch.setattr("dbfs.cli.common.SMALL_EDGES", 0)
    assert not fits_within_process(None, "auto", edge_list(file))


@pytest.mark.parametrize(("edges", "processes"), [("path:n=9", False), ("path:n=5e6", True)])
def test_a_run_starts_processes_for_large_graphs_only(
    monkeypatch: pytest.MonkeyPatch, edges: str, processes: bool
) -> None:
    given: dict[str, object] = {}

    def connect(**arguments: object) -> None:
        given.update(arguments)
        raise NoWorkersError("none")

    monkeypatch.setattr(dbfs, "connect", connect)
    assert CliRunner().invoke(main, ["run", edges, "--source", "0"]).exit_code == 1
    assert (given["processes"], given["backend"]) == (processes, "auto" if processes else "cpu")


def test_an_interrupt_has_the_exit_code_of_shells(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dbfs, "connect", interrupted)
    answer = CliRunner().invoke(main, ["run", "path:n=5", "--source", "0"])
    assert (answer.exit_code, answer.stderr) == (130, "Error: interrupted\n")


def has_memory_of_ranks(pid: int) -> bool:
    """Return whether a child of a process maps memory that the ranks of a graph share."""
    with contextlib.suppress(psutil.Error):
        maps = (file for child in psutil.Process(pid).children() for file in child.memory_maps())
        return any(file.path.startswith("/memfd:dbfs-") for file in maps)
    return False


@pytest.mark.full
def test_an_interrupt_is_one_line() -> None:
    command = [sys.executable, "-m", "dbfs", "run", "path:n=2e7", "--source", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0) as run:
        # A terminal interrupts the workers as well, which build by now and have seconds of a traversal before them.
        end = time.monotonic() + 60
        while time.monotonic() < end and not has_memory_of_ranks(run.pid):
            time.sleep(0.05)
        os.killpg(run.pid, signal.SIGINT)
        stdout, stderr = run.communicate(timeout=150)
    assert (run.returncode, stdout, stderr) == (130, "", "Error: interrupted\n")


def test_exit_codes() -> None:
    codes = {
        InvalidOptionError: 2,
        MissingFileError: 2,
        GraphTooLargeError: 2,
        GraphNotFoundError: 2,
        WorkerLostError: 1,
        NoWorkersError: 1,
        ValidationError: 3,
    }
    assert {error: exit_code(error("x")) for error in codes} == codes


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield (*path, name)


@pytest.mark.parametrize("path", list(commands(main)), ids=" ".join)
def test_every_command_has_an_example_and_json(path: tuple[str, ...]) -> None:
    answer = CliRunner().invoke(main, [*path, "--help"])
    assert answer.exit_code == 0, answer.output
    words = " ".join(["dbfs", *path])
    assert f"Example: {words}" in answer.output or f"Examples:\n    {words}" in answer.output
    assert "--json" in answer.output


def test_help_lists_generators_and_exit_codes() -> None:
    assert "grid3d:side=100" in CliRunner().invoke(main, ["run", "--help"]).output
    answer = CliRunner().invoke(main, ["--help"])
    assert re.findall(r"^ +(\d)  ", answer.output, re.MULTILINE) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("words", "place", "completed"),
    [
        ("dbfs run g --dir", 3, ["plain,--directed", "plain,--direction"]),
        *(
            pytest.param(*row, marks=pytest.mark.full)
            for row in (
                # Bash cuts words at colons.
                ("dbfs generate corpus : cag", 4, ["plain,cage15"]),
                ("dbfs run k", 2, ["file,k", "plain,kronecker:"]),
                ("dbfs load grid", 2, ["file,grid", "plain,grid2d:", "plain,grid3d:"]),
                ("dbfs estimate corpus:cag", 2, ["file,corpus:cag", "plain,corpus:cage15"]),
            )
        ),
    ],
)
def test_shell_completion(words: str, place: int, completed: list[str]) -> None:
    code = "from dbfs.cli import main; main(prog_name='dbfs')"
    asked = {"_DBFS_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == completed


@pytest.mark.full
def test_without_a_checkout_the_benchmarks_are_said_to_be_elsewhere(tmp_path: Path) -> None:
    for folder in ("dbfs", "workers/dbfs_workers"):
        (tmp_path / Path(folder).name).symlink_to(ROOT / folder)
    # Other projects install folders of this name.
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("raise AssertionError")
    command = [sys.executable, "-m", "dbfs"]
    alone = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False}
    for words in (["levels"], ["--help"]):
        done = subprocess.run([*command, "bench", *words], env=os.environ | {"PYTHONPATH": str(tmp_path)}, **alone)
        assert (done.returncode, done.stdout) == (2, "")
        assert re.fullmatch(r"Error: dbfs bench: .* a clone of dbfs: run pip install -e \. there\n", done.stderr)
    asked = {"_DBFS_COMPLETE": "bash_complete", "COMP_WORDS": "dbfs bench ", "COMP_CWORD": "2"}
    code = "from dbfs.cli import main; main(prog_name='dbfs')"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)} | asked
    done = subprocess.run([sys.executable, "-c", code], env=environment, **alone)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")


@pytest.mark.full
def test_in_a_checkout_the_benchmarks_come_before_packages_of_their_name(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("raise AssertionError")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "workers")])}
    command = [sys.executable, "-m", "dbfs", "bench", "levels", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Example: dbfs bench levels" in done.stdout


def test_dask_has_it_as_a_command_of_its_own() -> None:
    command = [sys.executable, "-m", "dask", "bfs", "estimate", "path:n=100", "--ranks", "2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["ranks"] == 2


def test_estimates_of_a_generator_and_of_files(tmp_path: Path) -> None:
    def estimate(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["estimate", *arguments])

    found = json.loads(estimate("grid2d:side=1000", "--ranks", "4", "--order", "degree", "--json").stdout)
    needed = dbfs.estimate(dbfs.grid2d(1000), 4, BuildOptions(order="degree"))
    assert found["peak"] == needed.peak_bytes
    assert found["build"] == needed.build
    on_gpus = json.loads(estimate("grid2d:side=1000", "--ranks", "4", "--backend", "cuda", "--json").stdout)
    assert on_gpus["peak"] == dbfs.estimate(dbfs.grid2d(1000), 4, backend="cuda").peak_bytes
    assert "windows" in on_gpus["run"]
    assert "degree order" in estimate("grid2d:side=1000", "--ranks", "1", "--order", "degree").stdout
    (tmp_path / "headed.graph").write_text("3 2\n2\n1 3\n2\n")
    assert json.loads(estimate(str(tmp_path / "headed.graph"), "--ranks", "1", "--json").stdout)["peak"] > 0
    (tmp_path / "headless.txt").write_text("10 20\n")
    answer = estimate(str(tmp_path / "headless.txt"), "--ranks", "1")
    assert (answer.exit_code, "known only after reading it" in answer.stderr) == (2, True)


@pytest.mark.full
def test_a_local_cluster_in_a_process_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "labels.npy"
    command = [sys.executable, "-m", "dbfs", "run", "path:n=9", "--source", "4", "--ranks", "2", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert np.load(out).tolist() == [4, 3, 2, 1, 0, 1, 2, 3, 4]
    # On a busy machine Dask says that a worker took long to close.
    assert [line for line in done.stderr.splitlines() if "distributed.nanny - WARNING" not in line] == []


def test_importing_is_light() -> None:
    """Clients describe edges; only workers, which read them, need kernels."""
    code = (
        "import sys, dbfs, dbfs.cli, dbfs.edges.readers; dbfs.kronecker(10).cut(100);"
        "heavy = 'numba', 'cupy', 'pandas', 'pyarrow', 'scipy', 'dbfs.edges.writers';"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

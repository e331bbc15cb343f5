"""CPU kernels compiled ahead: in the order of calls, once per machine, and never in the middle of a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dbfs.cluster.kernels import every_kernel
from dbfs_workers.base import compiling, jit
from dbfs_workers.base.errors import ResourceError

ROOT = Path(__file__).parents[2]


def run(code: str, cache: Path) -> subprocess.Popen[str]:
    """Start a process with a folder of its own for compiled kernels."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_kernel_comes_after_those_that_it_calls() -> None:
    kernels = compiling.found(every_kernel())
    places = {kernel.name: place for place, kernel in enumerate(kernels)}
    calls = [(kernel, called) for kernel in kernels for called in kernel.called]
    assert (
        "dbfs_workers.search.exchange.kernels.barrier:cross",
        "dbfs_workers.search.exchange.kernels.barrier:wait",
    ) in {(kernel.name, called.name) for kernel, called in calls}
    assert all(places[called.name] < places[kernel.name] for kernel, called in calls)


@pytest.mark.full
def test_processes_of_a_machine_compile_a_kernel_once(tmp_path: Path) -> None:
    count = f"len(list(Path({str(tmp_path)!r}).rglob('*.nbc')))"
    wanted = ["dbfs_workers.search.exchange.kernels.barrier"]
    code = f"from dbfs_workers.base.compiling import *; prepare({wanted}); print({count})"
    processes = [run(code, tmp_path) for _ in range(3)]
    counts = [int(process.communicate(timeout=300)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert counts == [len(compiling.found(["dbfs_workers.search.exchange.kernels.barrier"]))] * 3


@pytest.mark.full
def test_a_crew_whose_processes_die_leaves_the_work_to_the_caller(tmp_path: Path) -> None:
    code = (
        "import dbfs_workers.base.compiling as c; c._WORK = 'import os; os._exit(1)'; "
        "c.prepare(['dbfs_workers.search.partition.kernels.first_labels']); print('done')"
    )
    process = run(code, tmp_path)
    assert process.communicate(timeout=300)[0] == "done\n"


@pytest.mark.full
@pytest.mark.matrix
@pytest.mark.parametrize(
    "options",
    ["", ", mutable=True", ", layout='2d'"],
    ids=["given", "mutable", "grid"],
)
@pytest.mark.parametrize("exchange", ["auto", "tcp"])
def test_no_run_waits_for_the_compiler(options: str, exchange: str) -> None:
    """After a graph is loaded, its runs and updates compile and load nothing."""
    code = f"""
import dask, dbfs, dbfs_workers.base.jit as jit
dask.config.set({{"dbfs.exchange": {exchange!r}}})
with dbfs.connect(processes=False, n_workers=2, backend="cpu", dashboard_address=None) as client:
    graph = dbfs.load("kronecker:scale=10", client=client, ranks=2{options})
    ready, late = jit.Kernel.ready, []
    def watched(kernel):
        late.extend([] if kernel.signatures else [kernel.name])
        ready(kernel)
    jit.Kernel.ready = watched
    for direction in ("auto", "top-down", "bottom-up"):
        graph.bfs(1, direction=direction)
        graph.bfs(1, direction=direction, predecessors=True)
    if {"mutable" in options}:
        result = graph.bfs(1, predecessors=True)
        graph.insert_edges([(0, 1023)])
        result.update()
    print(late)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_folder_that_others_can_write_holds_no_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder = Path(jit.own_folder())
    assert folder.stat().st_mode & 0o777 == 0o700
    assert jit.own_folder() == str(folder)
    folder.chmod(0o770)
    with pytest.raises(ResourceError, match="NUMBA_CACHE_DIR"):
        jit.own_folder()
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(ResourceError):
        jit.own_folder()


def test_kernels_are_kept_elsewhere_if_the_packages_are_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kernel: jit.Kernel) -> None:
        refused.append(kernel)
        if len(refused) == 1:
            raise RuntimeError("cannot cache function: no locator available")
        enable(kernel)

    refused: list[jit.Kernel] = []
    enable = jit.Kernel.enable_caching
    monkeypatch.setattr(jit.Kernel, "enable_caching", refuse)
    monkeypatch.setattr(jit.numba.config, "CACHE_DIR", "")
    made = jit.kernel(jit.int64, jit.int64)(lambda value: value + 1)
    assert made(1) == 2
    assert refused[1].stats.cache_path.startswith(jit.own_folder())

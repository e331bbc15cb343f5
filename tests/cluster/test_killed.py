"""What stays on disk after processes of dbfs are killed: nothing, or what the next start removes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dbfs.edges.writers.target import Target
from tests.support.waiting import eventually

pytestmark = pytest.mark.alone

# Files that Dask keeps for good, beside a folder for each worker.
DASKS = {"dask-scratch-space", "dask-scratch-space/global.lock", "dask-scratch-space/purge.lock"}

CLUSTER = """
import sys, dbfs
if __name__ == "__main__":
    client = dbfs.connect(n_workers=1, threads_per_worker=1, backend="cpu", dashboard_address=None)
    graph = dbfs.load("path:n=50", client=client)
    graph.bfs(0)
    print("ready", flush=True)
    sys.stdin.read()
    client.close()
"""
WRITER = """
import sys
from pathlib import Path
from dbfs.edges.writers.target import Target
with Target.at(Path(sys.argv[1])).opened("") as sink:
    sink.write(b"half")
    print("ready", flush=True)
    sys.stdin.read()
"""
COMMAND = """
import sys, dbfs.cli.common as common
from dbfs.cli import main
copied = common._standard_input
def ready():
    path = copied()
    print("ready", path.read_bytes(), flush=True)
    import time; time.sleep(600)
common._standard_input = ready
main(["run", "-", "--source", "1"])
"""


def start(folder: Path, code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a program whose temporary files are in a folder."""
    script = folder.parent / "program.py"
    script.write_text(code)
    environment = os.environ | {"TMPDIR": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(
        [sys.executable, str(script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )


def ready(process: subprocess.Popen[bytes]) -> bytes:
    """Return what the program prints once it is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(b"ready"), line
    return line


def left(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_killed_program_leaves_what_its_next_start_removes(tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    for ends in (False, True):
        with start(folder, CLUSTER) as process:
            ready(process)
            assert left(folder) > DASKS
            # The second program has removed the folder of the first one's worker.
            assert sum(path.is_dir() for path in folder.glob("*/worker-*")) == 1
            if ends:
                process.communicate()
            else:
                process.send_signal(signal.SIGKILL)
    assert eventually(lambda: left(folder), lambda found: found <= DASKS) <= DASKS


@pytest.mark.full
def test_a_killed_command_leaves_no_copy_of_its_input(tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    with start(folder, COMMAND) as process:
        assert process.stdin is not None
        process.stdin.write(b"1 2\n")
        process.stdin.close()
        assert ready(process) == b"ready b'1 2\\n'\n"
        process.send_signal(signal.SIGKILL)
    assert not left(folder)


@pytest.mark.full
def test_an_unfinished_file_of_a_killed_program_is_removed_by_the_next_one(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    killed = start(folder, WRITER, str(folder / "killed.csv"))
    ready(killed)
    (part,) = folder.iterdir()
    alive = start(folder, WRITER, str(folder / "alive.csv"))
    ready(alive)
    (other,) = set(folder.iterdir()) - {part}
    killed.kill()
    killed.communicate()
    long_ago = time.time() - 3600
    os.utime(other, (long_ago, long_ago))
    with Target.at(folder / "new.csv").opened("") as sink:
        sink.write(b"new")
    # A file that is a few seconds old may belong to a program that has not locked it yet.
    assert set(folder.iterdir()) == {part, other, folder / "new.csv"}
    os.utime(part, (long_ago, long_ago))
    with Target.at(folder / "new.csv").opened("") as sink:
        sink.write(b"newer")
    assert set(folder.iterdir()) == {other, folder / "new.csv"}
    alive.communicate()
    assert sorted(path.name for path in folder.iterdir()) == ["alive.csv", "new.csv"]
    assert (folder / "alive.csv").read_bytes() == b"half"

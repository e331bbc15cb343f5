"""How programs end: without a line on stderr, whether they close, leave or fail; and scripts without a guard."""

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from distributed.comm import CommClosedError

from dbfs.cluster.main_guard import _guarded
from dbfs.errors import DbfsError, MainGuardError
from dbfs.service.client import _send
from dbfs.service.messages import DropLabels

WORK = """
graph = dbfs.load("kronecker:scale=8", client=client)
result = graph.bfs(1, predecessors=True, validate=True)
print(result.distances().size)
dbfs.load("path:n=9", client=client, name="kept").bfs(0)
"""


def ended(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script to its end."""
    file = folder / "script.py"
    file.write_text(script)
    return subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=100, check=False)


def guarded(body: str) -> str:
    """Return a script that runs the body behind the guard."""
    return 'import dbfs\n\nif __name__ == "__main__":\n' + "".join(f"    {line}\n" for line in body.splitlines())


@pytest.mark.matrix
@pytest.mark.parametrize(
    "last",
    [
        pytest.param("", id="left", marks=pytest.mark.full),
        pytest.param("client.close()", id="closed", marks=pytest.mark.full),
        pytest.param("client.shutdown()", id="shut down", marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.full)])
def test_an_example_ends_silently(tmp_path: Path, processes: bool, last: str) -> None:
    done = ended(tmp_path, guarded(f"client = dbfs.connect(n_workers=2, processes={processes})\n{WORK}\n{last}"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "256\n", "")


@pytest.mark.full
@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_client_of_dask_ends_silently(tmp_path: Path, processes: bool) -> None:
    # A free port: Dask itself warns if the dashboard's usual one is taken.
    options = f'n_workers=2, threads_per_worker=1, processes={processes}, dashboard_address=":0"'
    client = f"from distributed import Client\nclient = Client({options})"
    done = ended(tmp_path, guarded(f"{client}\n{WORK}"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "256\n", "")


@pytest.mark.full
@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_wait_that_the_end_of_the_loop_cuts_off_is_silent(tmp_path: Path, processes: bool) -> None:
    # Dask's loop of messages waits like this. Now and then the wait times out just before the event loop ends.
    body = f"""
import asyncio, datetime
from tornado.locks import Event

async def lose_a_wait():
    Event().wait(datetime.timedelta(0))
    await asyncio.sleep(0.1)

client = dbfs.connect(n_workers=1, processes={processes})
client.sync(lose_a_wait)
client.run(lose_a_wait)
client.close()
"""
    done = ended(tmp_path, guarded(body))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("error", [CommClosedError("Stream is closed"), RuntimeError("ConnectionPool is closed")])
def test_a_message_without_an_answer_is_silent_if_the_end_cuts_it_off(error: Exception) -> None:
    # Tornado logs what a callback of its loop raises: a cluster that closed just after a result was dropped.
    async def cut_off(**_: bytes) -> None:
        raise error

    asyncio.run(_send(SimpleNamespace(dbfs_drop_labels=cut_off), DropLabels("graph", ())))


@pytest.mark.full
def test_a_program_that_fails_prints_its_own_error_only(tmp_path: Path) -> None:
    done = ended(tmp_path, guarded(f"client = dbfs.connect(n_workers=2, processes=False)\n{WORK}\n1 / 0"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert done.stderr.count("Traceback") == 1
    assert "distributed" not in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_bad_line_is_one_error(tmp_path: Path, processes: bool) -> None:
    (tmp_path / "bad.txt").write_text("1 2\n2 x\n")
    body = f"""
client = dbfs.connect(n_workers=2, processes={processes})
try:
    dbfs.load({str(tmp_path / "bad.txt")!r}, client=client)
except dbfs.errors.FormatError as error:
    print(error)
"""
    done = ended(tmp_path, guarded(body))
    assert (done.returncode, done.stderr) == (0, "")
    assert "line 2" in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.full
def test_a_script_without_the_guard_is_one_sentence(tmp_path: Path) -> None:
    done = ended(tmp_path, f"import dbfs\n\nclient = dbfs.connect(n_workers=2)\n{WORK}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert f"{tmp_path / 'script.py'}, line 3: dbfs.connect starts worker processes" in done.stderr
    assert 'if __name__ == "__main__":' in done.stderr


@pytest.mark.full
def test_a_script_without_the_guard_may_keep_its_workers_within(tmp_path: Path) -> None:
    done = ended(tmp_path, f"import dbfs\n\nclient = dbfs.connect(n_workers=2, processes=False)\n{WORK}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "256\n", "")


def test_a_missing_guard_is_an_error_of_dbfs() -> None:
    assert issubclass(MainGuardError, DbfsError)
    assert MainGuardError("words").code == "words"


@pytest.mark.parametrize(
    ("script", "line", "passes"),
    [
        ("import dbfs\ndbfs.connect()\n", 2, False),
        ("import dbfs\nwith dbfs.connect() as client:\n    client.close()\n", 2, False),
        ("import dbfs\nif True:\n    dbfs.connect()\n", 3, False),
        ('import dbfs\nif __name__ == "__main__":\n    dbfs.connect()\n', 3, True),
        ('import dbfs\nif "__main__" == __name__ and True:\n    dbfs.connect()\n', 3, True),
        ('import sys\nif __name__ != "__main__":\n    sys.exit()\nmain()\n', 4, True),
        ('main() if __name__ == "__main__" else None\n', 1, True),
        ("this is no Python\n", 1, True),
    ],
)
def test_which_statements_are_guarded(tmp_path: Path, script: str, line: int, passes: bool) -> None:
    file = tmp_path / "script.py"
    file.write_text(script)
    assert _guarded(str(file), line) is passes
    assert _guarded(str(tmp_path / "none.py"), line)


@pytest.mark.parametrize("way", ["-c", *(pytest.param(way, marks=pytest.mark.full) for way in ("-m", "exec"))])
def test_what_no_worker_imports_needs_no_guard(tmp_path: Path, way: str) -> None:
    check = "from dbfs.cluster.main_guard import require_main_guard\nrequire_main_guard()\n"
    package = tmp_path / "package"
    package.mkdir()
    (package / "__main__.py").write_text(check)
    arguments = {"-c": ["-c", check], "-m": ["-m", "package"], "exec": ["-c", f"exec({check!r})"]}[way]
    subprocess.run([sys.executable, *arguments], cwd=tmp_path, timeout=30, check=True)

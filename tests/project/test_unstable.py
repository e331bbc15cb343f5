"""The second run of failed tests, by pytest on a module of tests: what a run forgives and lists, what it refuses."""

import re
from pathlib import Path

import pytest

from tests.support.suites import run_suite
from tests.support.unstable import MOST

pytestmark = pytest.mark.full

SPREAD = pytest.mark.parametrize("spread", [("-n", "2", "--dist", "worksteal"), ()], ids=["xdist", "one-process"])

# ``calls`` counts its calls over all processes.
HEAD = """
import os, time
import pytest

def calls():
    with open("calls", "a+") as file:
        file.write("x")
        file.seek(0)
        return len(file.read())

def test_other():
    pass
"""

FAILS_ONCE = {
    "call": """
def test_it():
    assert calls() > 1, "it failed"
""",
    "set-up": """
@pytest.fixture
def once():
    assert calls() > 1, "it failed"

def test_it(once):
    pass
""",
    "call-and-teardown": """
@pytest.fixture
def once():
    yield
    assert calls() > 2, "it failed"

def test_it(once):
    assert calls() > 2, "it failed"
""",
}
# At its second call, the test does not pass.
FAILS_TWICE = {
    "fails": "assert False",
    "crashes": "os._exit(0)",
    "is-skipped": "pytest.skip()",
}
# At its first call, the test does what is no failure of a test only.
FAULTS = {
    "crash": "os._exit(3)",
    "timeout": "time.sleep(60)",
    "interrupt": "raise KeyboardInterrupt",
    "internal-error": "raise SystemError",
}


def run(folder: Path, tests: str, *options: str) -> tuple[int, str]:
    return run_suite(folder, HEAD + tests, *options)


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text())


@pytest.mark.matrix
@SPREAD
@pytest.mark.parametrize("way", FAILS_ONCE)
def test_a_test_that_fails_once_is_listed_with_its_first_failure(
    tmp_path: Path, way: str, spread: tuple[str, ...]
) -> None:
    code, output = run(tmp_path, FAILS_ONCE[way], *spread)
    assert code == 0
    _, listed = output.split("enter them in tests/unstable.md")
    assert "first failure of test_suite.py::test_it\n" in listed
    assert "AssertionError: it failed" in listed
    assert re.match(r"=+ 1 passed, 1 unstable in ", listed.splitlines()[-1])
    # Nothing else shows a failure.
    assert "FAILED" not in output
    assert "FAILURES" not in output


def test_the_second_run_is_of_the_failed_row_alone(tmp_path: Path) -> None:
    # As of a matrix: alone, the row lacks the mark by which the run selects it.
    (tmp_path / "conftest.py").write_text(
        "import pytest\n@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_collection_modifyitems(items):\n    for item in items[1:]: item.add_marker('full')\n"
    )
    rows = """
@pytest.mark.parametrize("value", ["a", "b::c [d]"])
def test_it(value):
    assert value == "a" or calls() > 1
"""
    code, output = run(tmp_path, rows, "-m", "full", "-k", "test_it")
    assert code == 0
    assert "1 passed, 1 deselected, 1 unstable in " in output
    assert "first failure of test_suite.py::test_it[b::c [d]]\n" in output


def test_a_later_run_shows_the_list_of_the_run_before(tmp_path: Path) -> None:
    run(tmp_path, FAILS_ONCE["call"])
    code, output = run(tmp_path, FAILS_ONCE["call"])
    assert code == 0
    assert "first failure of test_suite.py::test_it\n" in output
    assert re.match(r"=+ 2 passed in ", output.splitlines()[-1])


@pytest.mark.matrix
@SPREAD
@pytest.mark.parametrize("second", FAILS_TWICE)
def test_a_test_that_does_not_pass_alone_fails_the_run(tmp_path: Path, second: str, spread: tuple[str, ...]) -> None:
    test = f"def test_it():\n    if calls() > 1: {FAILS_TWICE[second]}\n    assert False, 'it failed'"
    code, output = run(tmp_path, test, *spread)
    assert code == 1
    assert calls(tmp_path) == 2
    assert "FAILED test_suite.py::test_it - AssertionError: it failed" in output
    assert re.match(r"=+ 1 failed, 1 passed in ", output.splitlines()[-1])


@pytest.mark.matrix
@SPREAD
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_the_run_at_once(tmp_path: Path, fault: str, spread: tuple[str, ...]) -> None:
    # An error in this hook is an internal error of pytest.
    (tmp_path / "conftest.py").write_text(
        "def pytest_exception_interact(call):\n    if call.excinfo.type is SystemError: raise call.excinfo.value\n"
    )
    suite = f"""
def test_that_fails_once():
    assert calls() > 2

@pytest.mark.timeout(1)
def test_it():
    if calls() == 2: {FAULTS[fault]}
"""
    # One process of xdist keeps the order of the tests.
    code, output = run(tmp_path, suite, *(("-n", "1") if spread else ()))
    assert code not in (0, 5)
    assert calls(tmp_path) == 2
    assert "first failure of" not in output


@SPREAD
def test_a_module_that_is_not_collected_fails_the_run_at_once(tmp_path: Path, spread: tuple[str, ...]) -> None:
    (tmp_path / "test_broken.py").write_text("import no_such_module")
    code, output = run(tmp_path, FAILS_ONCE["call"], "--continue-on-collection-errors", *spread)
    assert code == 1
    assert calls(tmp_path) == 1
    assert "no test ran again" in output


def test_a_worker_that_crashes_between_tests_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import os\ndef pytest_sessionfinish():\n    os.environ.get('PYTEST_XDIST_WORKER') == 'gw0' and os._exit(3)\n"
    )
    code, output = run(tmp_path, "", "-n", "1")
    assert code == 1
    assert "no test ran again: worker gw0 crashed" in output


def test_many_failures_are_a_fault(tmp_path: Path) -> None:
    tests = f"@pytest.mark.parametrize('row', range({MOST + 1}))\ndef test_it(row):\n    assert calls() > {MOST + 1}\n"
    code, output = run(tmp_path, tests)
    assert code == 1
    assert calls(tmp_path) == MOST + 1
    assert f"no test ran again: more than {MOST} tests failed" in output

"""Fixtures of many tests. The sizes of the suite: ``tests.support.sizes``.

The tests of a size share one cluster of four workers. Tests that kill workers start a cluster of their own.

The shared cluster's workers are threads, which start in a tenth of the time and take half of the CPU. Messages still go
over TCP. With ``--worker-processes`` the workers are processes, as at the end of ``make test-all``.
"""

import gc
import signal
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import distributed
import hypothesis
import pytest

import dbfs

# Before the first import of a helper: a failed assertion there shows its values, as one in a test does.
pytest.register_assert_rewrite("tests.support")

from dbfs.assembly import Graph  # noqa: E402
from tests.support.gpus import four_on_one_gpu  # noqa: E402
from tests.support.processes import fork_workers  # noqa: E402
from tests.support.runs import ENDLESS  # noqa: E402
from tests.support.sizes import (  # noqa: E402, F401 - hooks of pytest
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_terminal_summary,
)

fork_workers()

# A shell starts background jobs that ignore Ctrl-C, and the programs that tests start and interrupt would inherit that.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples of each test in one round of make fuzz.
hypothesis.settings.register_profile("fuzz", max_examples=300, deadline=None)
# Everywhere else the examples of a test are the same in each run: a change is accepted or refused for what it does.
hypothesis.settings.register_profile("same", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("same")

SHARED_DATA = Path(__file__).parents[1].parent / "shared" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for workers in processes."""
    parser.addoption(
        "--worker-processes",
        action="store_true",
        help="the workers of the shared cluster are processes; without this option, threads",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what a collection of tests makes, and modules, out of Python's collections of garbage: each looks at all."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def client(pytestconfig: pytest.Config) -> Iterator[distributed.Client]:
    """The cluster that tests share: four workers on the CPU."""
    processes = pytestconfig.getoption("--worker-processes")
    with dbfs.connect(
        n_workers=4, backend="cpu", dashboard_address=None, processes=processes, protocol="tcp://"
    ) as client:
        yield client


@pytest.fixture(scope="module")
def gpus() -> Iterator[distributed.Client]:
    """A cluster with a worker for each GPU."""
    with dbfs.connect(dashboard_address=None, memory_limit=0) as client:
        yield client


@pytest.fixture(scope="module")
def sharing() -> Iterator[distributed.Client]:
    """A cluster of four workers that share the first GPU."""
    with four_on_one_gpu() as client:
        yield client


@pytest.fixture
def other(client: distributed.Client) -> Iterator[distributed.Client]:
    """A second client of the cluster."""
    with distributed.Client(client.scheduler.address, set_as_default=False) as second:
        yield second


@pytest.fixture(scope="module")
def endless(client: distributed.Client) -> Iterator[Graph]:
    """A graph whose traversals last until a test ends them: see ``tests.support.runs.ENDLESS``."""
    with dbfs.load(f"path:n={ENDLESS}", client=client, ranks=2) as graph:
        yield graph


@pytest.fixture
def older(client: distributed.Client) -> set[datetime]:
    """Times of creation of the graphs of earlier tests: of a fixture, or not yet freed by Python."""
    return {status.created for status in dbfs.graphs(client=client)}


@pytest.fixture
def leaves_nothing(client: distributed.Client) -> Iterator[None]:
    """Fail the test if keys of its tasks stay on the cluster."""

    def keys() -> set[str]:
        return set(client.run_on_scheduler(lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks]))

    before = keys()
    yield
    # The release of futures reaches the scheduler a little later, on a busy machine by seconds. Results that are in the
    # frames of an exception wait for a collection.
    end = time.monotonic() + 30
    while (left := keys() - before) and time.monotonic() < end:
        gc.collect()
        time.sleep(0.1)
    assert not left


@pytest.fixture
def shared_data() -> Path:
    """The folder of real graphs. A test that uses it is skipped if the folder is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no real graphs at {SHARED_DATA}")
    return SHARED_DATA

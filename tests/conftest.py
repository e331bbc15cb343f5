"""Fixtures of many tests, and the two sizes of the suite.

The tests of a size share one cluster of four workers. Tests that kill workers start a cluster of their own.

The first size (``make test``) is every test without the mark ``full``, and covers every feature once. Of a parametrised
test with the mark ``matrix`` it runs a diagonal: as many rows as the longest axis has values, while shorter axes start
over, so that every value of every axis occurs. The other rows get the mark ``full``. The diagonal leaves out values
that have this mark themselves.

The shared cluster's workers are threads, which start in a tenth of the time and take half of the CPU. Messages still go
over TCP. With ``--worker-processes`` the workers are processes, as at the end of ``make test-all``.
"""

import gc
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import distributed
import hypothesis
import pytest

import dbfs

# Before the first import of a helper: a failed assertion there shows its values, as one in a test does.
pytest.register_assert_rewrite("tests.support")

from dbfs.graph.graph import Graph  # noqa: E402
from tests.support.processes import fork_workers  # noqa: E402
from tests.support.runs import ENDLESS  # noqa: E402

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the rows of a matrix that are not on its diagonal, before pytest selects by marks."""
    matrices: dict[object, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("matrix") and not is_full(item):
            # Rows that need a GPU have a diagonal of their own, as elsewhere they are skipped.
            matrices[item.parent, item.originalname, item.get_closest_marker("gpu") is None].append(item)
    for rows in matrices.values():
        points = [coordinates(row) for row in rows]
        axes = [list(dict.fromkeys(values)) for values in zip(*points, strict=True)]
        longest = max(len(values) for values in axes)
        # Shorter axes run backwards: the first, plainest ways of a list of ways meet the most ranks.
        axes = [values if len(values) == longest else values[::-1] for values in axes]
        diagonal = {tuple(values[step % len(values)] for values in axes) for step in range(longest)}
        for row, point in zip(rows, points, strict=True):
            if point not in diagonal:
                row.add_marker("full")


def is_full(item: pytest.Item) -> bool:
    """Return whether a test is of the second size only."""
    return item.get_closest_marker("full") is not None


def coordinates(row: pytest.Function) -> tuple[tuple[int, ...], ...]:
    """Return the row's value on each axis, as identities: one axis a ``parametrize``, and one a fixture with params."""
    values = {name: id(value) for name, value in row.callspec.params.items()}
    axes = [mark.args[0] for mark in row.iter_markers("parametrize")]
    names = [axis.replace(" ", "").split(",") if isinstance(axis, str) else axis for axis in axes]
    of_test = [tuple(values.pop(name) for name in axis) for axis in names]
    return (*of_test, *((value,) for value in values.values()))


@pytest.fixture(scope="session")
def client(pytestconfig: pytest.Config) -> Iterator[distributed.Client]:
    """The cluster that tests share: four workers on the CPU."""
    processes = pytestconfig.getoption("--worker-processes")
    with dbfs.connect(
        n_workers=4, backend="cpu", dashboard_address=None, processes=processes, protocol="tcp://"
    ) as client:
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
def older(client: distributed.Client) -> set[float]:
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
    for _ in range(200):
        left = keys() - before
        if not left:
            return
        gc.collect()
        time.sleep(0.1)
    assert not left


@pytest.fixture
def shared_data() -> Path:
    """The folder of real graphs. A test that uses it is skipped if the folder is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no real graphs at {SHARED_DATA}")
    return SHARED_DATA

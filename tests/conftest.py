"""One local cluster of four workers for all tests that need one; those that kill workers start their own."""

import time
from collections.abc import Iterator
from pathlib import Path

import distributed
import pytest

import dbfs

SHARED_DATA = Path(__file__).parents[1].parent / "shared" / "data"


@pytest.fixture(scope="session")
def client() -> Iterator[distributed.Client]:
    with dbfs.connect(n_workers=4, backend="cpu", dashboard_address=None) as client:
        yield client


@pytest.fixture
def leaves_nothing(client: distributed.Client) -> Iterator[None]:
    """Fails the test if it leaves keys on the cluster."""

    def keys() -> set[str]:
        return set(client.run_on_scheduler(lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks]))

    before = keys()
    yield
    # Released futures reach the scheduler a little later.
    for _ in range(50):
        left = keys() - before
        if not left:
            return
        time.sleep(0.1)
    assert not left


@pytest.fixture
def shared_data() -> Path:
    """The folder of real graphs; tests that use it skip where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no real graphs at {SHARED_DATA}")
    return SHARED_DATA

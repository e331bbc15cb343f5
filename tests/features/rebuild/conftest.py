"""Fixtures of the tests that lose workers."""

from collections.abc import Iterator

import distributed
import pytest

import dbfs
from tests.support.losses import WORKERS, mortal_cluster, nothing_is_left, replace_lost
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def mortal() -> Iterator[distributed.Client]:
    """A cluster whose workers tests may lose."""
    with mortal_cluster(WORKERS) as client:
        # A load starts the service, which must be there after a test that does not use the cluster as well.
        dbfs.load("path:n=2", client=client).unload()
        yield client


@pytest.fixture
def leaves_nothing_behind(mortal: distributed.Client) -> Iterator[None]:
    """All workers are there before a test, and nothing of its graphs and runs after it."""
    replace_lost(mortal, WORKERS)
    yield
    eventually(lambda: nothing_is_left(mortal))
    assert mortal.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.plugins["dbfs"]._queue.runs)) == 0

"""Results of tasks that Dask can't write to a disk stay in memory until Dask drops them, and let others be written."""

from collections.abc import Iterator

import distributed
import pytest

import dbfs
from dbfs.cluster.gang import joined_workers
from dbfs_workers.building import delivering
from dbfs_workers.building.delivering import Collection, open_collection
from dbfs_workers.building.numbering import RankIds
from dbfs_workers.search.partition.stripe import Stripe
from tests.support.edge_files import write


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[distributed.Client]:
    """One worker in this process that may write results to a disk."""
    with dbfs.connect(
        n_workers=1, backend="cpu", processes=False, memory_limit="64 GiB", dashboard_address=None
    ) as client:
        # A load installs the service on the worker.
        dbfs.load(write(tmp_path_factory.mktemp("small"), "a.txt", "1 2\n"), client=client).unload()
        yield client


def spill(dask_worker: distributed.Worker) -> list[int]:
    """Write all results to the disk, and return the sizes; -1 ends the list if a result could not be written."""
    sizes = list[int]()
    while dask_worker.data.fast and -1 not in sizes:
        sizes.append(dask_worker.data.evict())
    return sizes


def spilled(dask_worker: distributed.Worker) -> int:
    return len(dask_worker.data.slow)


@pytest.mark.parametrize(
    ("function", "arguments"), [(RankIds, ()), (open_collection, ("token", 0, Stripe(10, 1, 0), 2))]
)
def test_a_spilled_result_is_the_same_object(small, function, arguments):
    (worker,) = joined_workers(small)
    made = small.submit(function, *arguments, pure=False)
    place = small.submit(id, made, pure=False).result()
    other = small.submit(bytes, 100, pure=False)
    distributed.wait([made, other])
    assert -1 not in small.run(spill)[worker]
    assert small.run(spilled)[worker] >= 2
    assert small.submit(id, made, pure=False).result() == place
    assert list(delivering._spilled) == [made.key]
    del made
    small.submit(int, pure=False).result()
    while delivering._spilled:
        small.run(int)


def test_a_worker_that_closes_keeps_no_object():
    with dbfs.connect(
        n_workers=1, backend="cpu", processes=False, memory_limit="64 GiB", dashboard_address=None
    ) as client:
        dbfs.load("path:n=2", client=client).unload()
        made = client.submit(RankIds, pure=False)
        distributed.wait(made)
        client.run(spill)
        assert list(delivering._spilled) == [made.key]
    assert delivering._spilled == {}


def test_an_object_made_outside_a_task_is_not_pickled():
    with pytest.raises(TypeError, match="Collection made outside a task can't be pickled"):
        Collection("token", 0, Stripe(10, 1, 0), 1).__reduce__()

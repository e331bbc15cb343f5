"""Clusters that lose workers, in one process: a worker that is closed leaves as a dead one does."""

from collections.abc import Iterator
from contextlib import contextmanager

import distributed

import dbfs
from dbfs.cluster.gang import joined_workers
from tests.support.waiting import eventually

WORKERS = 3
"""Workers of the clusters that lose some."""


@contextmanager
def mortal_cluster(workers: int) -> Iterator[distributed.Client]:
    """Start a cluster whose workers are threads of this process."""
    with dbfs.connect(
        n_workers=workers, backend="cpu", dashboard_address=None, processes=False, protocol="tcp://"
    ) as client:
        yield client


def lose(client: distributed.Client, *addresses: str, replaced: bool = True) -> None:
    """Have workers leave at once, without a word to their graphs; others take their places unless told otherwise."""
    cluster, count = client.cluster, len(joined_workers(client))
    for worker in [each for each in cluster.workers.values() if each.address in addresses]:
        cluster.sync(worker.close, executor_wait=False, nanny=False)
    eventually(lambda: not {*addresses} & {*joined_workers(client)})
    if replaced:
        replace_lost(client, count)


def replace_lost(client: distributed.Client, count: int, *, port: int = 0) -> None:
    """Start workers until there are so many; at a port, if one is given."""

    async def start() -> None:
        cluster = client.cluster
        while len(cluster.scheduler.workers) < count:
            worker = await distributed.Worker(
                cluster.scheduler_address, nthreads=1, host=f"tcp://127.0.0.1:{port}", dashboard=False
            )
            cluster.workers[worker.address] = worker

    client.cluster.sync(start)
    eventually(lambda: len(joined_workers(client)) >= count)


def nothing_is_left(client: distributed.Client) -> bool:
    """Return whether the scheduler keeps no data of graphs and no reservations."""

    def left(dask_scheduler: distributed.Scheduler) -> int:
        service = dask_scheduler.plugins["dbfs"]
        return len(service.graphs) + len(service.reserved) + len(dask_scheduler.clients["dbfs"].wants_what)

    return bool(client.run_on_scheduler(left) == 0)

"""Workers of one machine that pretend to be on several hosts, for tests and for ``dbfs bench hosts``."""

import contextlib
from collections.abc import Iterator

import distributed

import dbfs
from dbfs.cluster.connect import roster
from dbfs_workers.serving.rpc import NAME


@contextlib.contextmanager
def pretended_hosts(client: distributed.Client, of_ranks: tuple[int, ...]) -> Iterator[None]:
    """Have the workers of the first ranks pretend to be on these hosts. Installs dbfs on the cluster."""
    dbfs.install(client)
    for address, host in zip(roster(client, len(of_ranks)), of_ranks, strict=True):
        client.run(_pretend, f"host {host}", workers=[address])
    try:
        yield
    finally:
        client.run(_pretend, "auto")


def _pretend(host: str, dask_worker: distributed.Worker) -> None:
    dask_worker.plugins[NAME].host = host

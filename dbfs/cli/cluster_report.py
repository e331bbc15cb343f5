"""The report on a running cluster: its workers, and the backend and exchange of a graph on all of them."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import distributed

import dbfs
from dbfs.cluster.awaiting import sync
from dbfs.cluster.connect import roster
from dbfs.cluster.gang import run_on
from dbfs.cluster.workers import joined_workers
from dbfs.errors import DbfsError
from dbfs_workers.gpus import own_gpu

_PACKAGES = ("dbfs", "dask", "distributed", "numba", "numpy")


@dataclass(frozen=True)
class WorkerReport:
    """A worker.

    Attributes:
        rank: its rank in a graph on all workers.
        address: its address.
        threads: number of its threads.
        memory_limit: bytes that it may use; 0 for no limit.
        gpu: its GPU; None without a GPU or CuPy, or if it has another version of dbfs.
        versions: versions of Python and of packages, by name; None for a package that is not installed.
    """

    rank: int
    address: str
    threads: int
    memory_limit: int
    gpu: str | None
    versions: dict[str, str | None]


@dataclass(frozen=True)
class ClusterReport:
    """A cluster.

    Attributes:
        scheduler: the scheduler's address.
        versions: the scheduler's versions, as for a worker.
        workers: the workers by rank.
        backend: backend of a small graph that was loaded on all workers; None if it could not be loaded.
        exchange: exchange of that graph.
        advice: one line for each thing to improve.
    """

    scheduler: str
    versions: dict[str, str | None]
    workers: tuple[WorkerReport, ...]
    backend: str | None
    exchange: str | None
    advice: tuple[str, ...]


def examine_cluster(client: distributed.Client) -> ClusterReport:
    """Describe a client's cluster. Loads a small graph on all workers, and unloads it."""
    found = sync(client, functools.partial(client.get_versions, packages=list(_PACKAGES)))
    addresses = roster(client, None)
    infos = joined_workers(client)
    mine, scheduler = _versions(found["client"]), _versions(found["scheduler"])
    versions = {address: _versions(info) for address, info in found["workers"].items() if address in addresses}
    same = [address for address in addresses if versions[address]["dbfs"] == mine["dbfs"]]
    gpus = run_on(client, own_gpu, workers=same) if same else {}
    workers = tuple(
        WorkerReport(
            rank=rank,
            address=address,
            threads=infos[address]["nthreads"],
            memory_limit=infos[address]["memory_limit"] or 0,
            gpu=gpus.get(address),
            versions=versions[address],
        )
        for rank, address in enumerate(addresses)
    )
    backend = exchange = None
    advice = [*_differences(mine, "scheduler", [scheduler]), *_differences(mine, "workers", versions.values())]
    try:
        with dbfs.load(f"path:n={64 * len(workers)}", client=client, ranks=len(workers), progress=False) as graph:
            backend, exchange = graph.backend, graph.exchange
    except DbfsError as error:
        advice.append(f"no graph can be loaded: {error}")
    threads = sum(worker.threads > 1 for worker in workers)
    if threads:
        advice.append(f"workers with several threads: {threads}. Most levels use one: start one worker per core")
    unlimited = sum(worker.memory_limit == 0 for worker in workers)
    if unlimited:
        advice.append(f"workers without a memory limit: {unlimited}. There a graph that is too large is not refused")
    return ClusterReport(client.scheduler.address, scheduler, workers, backend, exchange, tuple(advice))


def _versions(info: dict[str, Any]) -> dict[str, str | None]:
    host = {name: value for name, value in info["host"].items() if name == "python"}
    return {**host, **{name: info["packages"].get(name) for name in _PACKAGES}}


def _differences(mine: dict[str, str | None], where: str, others: Any) -> list[str]:
    """Describe the versions that differ from the client's, one line each with the number of processes."""
    different = Counter(
        (name, version) for versions in others for name, version in versions.items() if version != mine[name]
    )
    return [
        f"{name}: the client has {mine[name]}, {count} of the {where} {version or 'none'}"
        for (name, version), count in sorted(different.items(), key=str)
    ]

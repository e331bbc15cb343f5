"""ClusterState: the workers, graphs and runs of a cluster at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import distributed
from dask.utils import format_bytes

from dbfs.cluster.connect import current_client
from dbfs.records import GraphStatus, RunStatus
from dbfs.service.client import ServiceClient


@dataclass(frozen=True)
class WorkerState:
    """A worker.

    Attributes:
        address: as Dask names it.
        memory: bytes of its process.
        memory_limit: bytes it may take; 0 for no limit.
    """

    address: str
    memory: int
    memory_limit: int


@dataclass(frozen=True)
class ClusterState:
    """A cluster at one moment.

    Attributes:
        scheduler: its address.
        dashboard: address of Dask's dashboard; empty where there is none.
        workers: in the order in which they become ranks.
        graphs: in the order in which they were loaded.
        runs: of the resident engine, that wait or are under way, in the order in which they came.
    """

    scheduler: str
    dashboard: str
    workers: tuple[WorkerState, ...]
    graphs: tuple[GraphStatus, ...]
    runs: tuple[RunStatus, ...]

    def __repr__(self) -> str:
        held = format_bytes(sum(sum(graph.bytes_per_rank) for graph in self.graphs))
        running = sum(run.running for run in self.runs)
        return (
            f"<dbfs.ClusterState of {self.scheduler}: workers: {len(self.workers)}, "
            f"graphs: {len(self.graphs)} ({held}), runs under way: {running}, waiting: {len(self.runs) - running}>"
        )

    def _repr_html_(self) -> str:
        from dbfs.display.notebook.html import state_html

        return state_html(self)


def cluster_state(*, client: distributed.Client | None = None) -> ClusterState:
    """What a cluster holds and does now; shown as tables in a notebook.

    Raises:
        ClientError: there is no usable client.
    """
    client = current_client(client)
    service = ServiceClient.of(client)
    # n_workers=-1: Dask lists only five workers otherwise.
    workers: Mapping[str, Mapping[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    return ClusterState(
        scheduler=client.scheduler.address,
        dashboard=client.dashboard_link or "",
        workers=tuple(
            WorkerState(
                address=address,
                memory=workers[address]["metrics"].get("memory", 0),
                memory_limit=workers[address]["memory_limit"] or 0,
            )
            for address in sorted(workers, key=lambda address: (len(address), address))
        ),
        graphs=tuple(service.graphs()),
        runs=tuple(service.runs()),
    )

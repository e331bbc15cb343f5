"""ClusterState: the workers, graphs and runs of a cluster at one moment."""

from __future__ import annotations

from dataclasses import dataclass

import distributed

from dbfs.base.calls import public
from dbfs.base.records import GraphStatus, RunStatus, WorkerStatus
from dbfs.base.units import format_bytes
from dbfs.cluster.awaiting import awaitable, unchanged
from dbfs.cluster.connect import current_client
from dbfs.graph.html import rendered
from dbfs.service.client import ServiceClient
from dbfs.service.messages import ListGraphs, ListRuns, ListWorkers


@dataclass(frozen=True)
class ClusterState:
    """A cluster at one moment.

    Attributes:
        scheduler: the scheduler's address.
        dashboard: address of Dask's dashboard; empty if it is off.
        workers: workers in the order in which they become ranks.
        graphs: graphs in the order in which they were loaded.
        runs: runs that wait or are under way, in the order of arrival.
    """

    scheduler: str
    dashboard: str
    workers: tuple[WorkerStatus, ...]
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
        return rendered("state", "dbfs.display.notebook", state=self)


@public
@awaitable(unchanged)
def cluster_state(*, client: distributed.Client | None = None) -> ClusterState:
    """Return the workers, graphs and runs of a cluster; a notebook shows them as tables.

    Raises:
        ClientError: there is no usable client.
    """
    client = current_client(client)
    service = ServiceClient.of(client)
    return ClusterState(
        scheduler=client.scheduler.address,
        dashboard=client.dashboard_link or "",
        workers=tuple(service.call(ListWorkers())),
        graphs=tuple(service.call(ListGraphs())),
        runs=tuple(service.call(ListRuns())),
    )

"""Metrics of the service, in the registry that the scheduler's ``/metrics`` prints; names begin with ``dask_dbfs``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import prometheus_client
from distributed.http.prometheus import PrometheusCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from dbfs.service.entries import GraphEntry
    from dbfs.service.scheduler import SchedulerService

Family = GaugeMetricFamily | CounterMetricFamily


class Collector(PrometheusCollector):  # type: ignore[misc]  # distributed is untyped
    """The process's one collector. It reports the scheduler that started last, as Dask's own collectors do.

    Attributes:
        service: the service that it reports; None before the first and after the last scheduler.
    """

    def __init__(self) -> None:
        super().__init__(None)
        self.subsystem = "dbfs"
        self.service: SchedulerService | None = None

    def collect(self) -> Iterator[Family]:
        """Yield all metrics; prometheus_client calls this for each request."""
        service = self.service
        if service is None:
            return
        yield from self._graphs(service)
        yield from self._under_way(service)
        history = service.history
        runs = CounterMetricFamily(self.build_name("runs"), "Runs that are over, by outcome", labels=["outcome"])
        for outcome, count in history.outcomes.items():
            runs.add_metric([outcome], count)
        yield runs
        yield CounterMetricFamily(self.build_name("traversals"), "Traversals made", value=history.traversals)
        yield CounterMetricFamily(self.build_name("edges"), "Directed edges traversed", value=history.edges)
        yield CounterMetricFamily(
            self.build_name("traversal"), "Time that traversals took", value=history.seconds, unit="seconds"
        )

    def _graphs(self, service: SchedulerService) -> Iterator[Family]:
        graphs = list(service.graphs.values())
        yield GaugeMetricFamily(self.build_name("graphs"), "Graphs in the cluster", value=len(graphs))
        vertices = GaugeMetricFamily(self.build_name("graph_vertices"), "Vertices of a graph", labels=["graph"])
        edges = GaugeMetricFamily(self.build_name("graph_edges"), "Directed edges stored", labels=["graph"])
        size = GaugeMetricFamily(
            self.build_name("graph"), "Bytes of a rank's partition", labels=["graph", "rank"], unit="bytes"
        )
        lost = GaugeMetricFamily(self.build_name("graph_ranks_lost"), "Ranks whose workers are lost", labels=["graph"])
        version = GaugeMetricFamily(self.build_name("graph_version"), "Version of a graph", labels=["graph"])
        updated = CounterMetricFamily(
            self.build_name("graph_updated"), "Edges and vertices inserted and deleted", labels=["graph"]
        )
        rate = GaugeMetricFamily(
            self.build_name("graph_updates_per_second"),
            "Edges and vertices inserted and deleted in each of the last ten seconds",
            labels=["graph"],
        )
        free = GaugeMetricFamily(
            self.build_name("graph_free_pages"),
            "Pages of a graph that updates changed which hold no row",
            labels=["graph"],
        )
        for name, same in _by_name(service).items():
            # Graphs that were loaded without a name have their edges' name, which several may share.
            vertices.add_metric([name], sum(graph.record.stripe.n for graph in same))
            edges.add_metric([name], sum(info.m_local for graph in same for info in graph.record.infos))
            lost.add_metric([name], sum(len(graph.lost) for graph in same))
            version.add_metric([name], max(graph.record.version for graph in same))
            updated.add_metric([name], sum(graph.record.updated for graph in same))
            rate.add_metric([name], sum(graph.changes_per_second for graph in same))
            free.add_metric([name], sum(info.free_pages for graph in same for info in graph.record.infos))
            for rank in range(max(graph.record.stripe.p for graph in same)):
                nbytes = sum(graph.record.infos[rank].nbytes for graph in same if rank < graph.record.stripe.p)
                size.add_metric([name, str(rank)], nbytes)
        yield from (vertices, edges, size, lost, version, updated, rate, free)

    def _under_way(self, service: SchedulerService) -> Iterator[Family]:
        running = [run for run in service.runs if run.started is not None]
        active = GaugeMetricFamily(self.build_name("runs_active"), "Runs by state", labels=["state"])
        active.add_metric(["running"], len(running))
        active.add_metric(["waiting"], len(service.runs) - len(running))
        yield active
        level = GaugeMetricFamily(self.build_name("run_level"), "Level of the run under way", labels=["graph"])
        frontier = GaugeMetricFamily(
            self.build_name("run_frontier_vertices"), "Vertices in the frontier of that level", labels=["graph"]
        )
        reached = GaugeMetricFamily(
            self.build_name("run_reached_vertices"), "Vertices reached so far", labels=["graph"]
        )
        bottom_up = GaugeMetricFamily(self.build_name("run_bottom_up"), "1 in a bottom-up level", labels=["graph"])
        # Each graph has one run under way at most. Of graphs that share a name, the last run in the queue counts.
        for name, progress in {run.graph.record.name: run.progress for run in running if run.progress}.items():
            level.add_metric([name], progress.level)
            frontier.add_metric([name], progress.frontier)
            reached.add_metric([name], progress.reached)
            bottom_up.add_metric([name], progress.direction == "bottom-up")
        yield from (level, frontier, reached, bottom_up)


def _by_name(service: SchedulerService) -> dict[str, list[GraphEntry]]:
    named: dict[str, list[GraphEntry]] = {}
    for graph in service.graphs.values():
        named.setdefault(graph.record.name, []).append(graph)
    return named


_collector: Collector | None = None


def register(service: SchedulerService) -> None:
    """Report this scheduler's service from now on."""
    global _collector
    if _collector is None:
        _collector = Collector()
        prometheus_client.REGISTRY.register(_collector)
    _collector.service = service


def forget(service: SchedulerService) -> None:
    """Stop reporting a service, whose scheduler closes."""
    if _collector is not None and _collector.service is service:
        _collector.service = None

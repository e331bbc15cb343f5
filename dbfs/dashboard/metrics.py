"""Metrics of the service, in the registry that the scheduler's ``/metrics`` prints; names begin with ``dask_dbfs``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import prometheus_client
from distributed.http.prometheus import PrometheusCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from dbfs.base.records import WorkerState

if TYPE_CHECKING:
    from dbfs.service.entries import GraphEntry
    from dbfs.service.feature import Records

Family = GaugeMetricFamily | CounterMetricFamily


class Collector(PrometheusCollector):  # type: ignore[misc]  # distributed is untyped
    """The process's one collector. It reports the scheduler that started last, as Dask's own collectors do.

    Attributes:
        records: those of the service that it reports; None before the first and after the last scheduler.
    """

    def __init__(self) -> None:
        super().__init__(None)
        self.subsystem = "dbfs"
        self.records: Records | None = None

    def collect(self) -> Iterator[Family]:
        """Yield all metrics; prometheus_client calls this for each request."""
        records = self.records
        if records is None:
            return
        states = Counter(worker.state for worker in records.watch.statuses(records.scheduler.workers))
        workers = GaugeMetricFamily(self.build_name("workers"), "Workers by state", labels=["state"])
        for state in WorkerState:
            workers.add_metric([state], states[state])
        yield workers
        yield from self._graphs(records)
        yield from self._under_way(records)
        yield from self._told(records)
        history = records.history
        runs = CounterMetricFamily(self.build_name("runs"), "Runs that are over, by outcome", labels=["outcome"])
        for outcome, count in history.outcomes.items():
            runs.add_metric([outcome], count)
        yield runs
        yield CounterMetricFamily(self.build_name("traversals"), "Traversals made", value=history.traversals)
        yield CounterMetricFamily(self.build_name("edges"), "Directed edges traversed", value=history.edges)
        yield CounterMetricFamily(
            self.build_name("traversal"), "Time that traversals took", value=history.seconds, unit="seconds"
        )

    def _graphs(self, records: Records) -> Iterator[Family]:
        yield GaugeMetricFamily(self.build_name("graphs"), "Graphs in the cluster", value=len(records.graphs))
        gauges = {
            "graph_vertices": "Vertices of a graph",
            "graph_edges": "Directed edges stored",
            "graph_ranks_lost": "Ranks whose workers are lost",
            "graph_version": "Version of a graph",
            "graph_updates_per_second": "Edges and vertices inserted and deleted in each of the last ten seconds",
            "graph_free_pages": "Pages of a graph that updates changed which hold no row",
        }
        of_graph = {name: GaugeMetricFamily(self.build_name(name), gauges[name], labels=["graph"]) for name in gauges}
        updated = CounterMetricFamily(
            self.build_name("graph_updated"), "Edges and vertices inserted and deleted", labels=["graph"]
        )
        size = GaugeMetricFamily(
            self.build_name("graph"), "Bytes of a rank's partition", labels=["graph", "rank"], unit="bytes"
        )
        for name, same in _by_name(records).items():
            # Graphs that were loaded without a name have their edges' name, which several may share.
            infos = [info for graph in same for info in graph.record.infos]
            values = {
                "graph_vertices": sum(graph.record.stripe.n for graph in same),
                "graph_edges": sum(info.m_local for info in infos),
                "graph_ranks_lost": sum(len(graph.lost) for graph in same),
                "graph_version": max(graph.record.version for graph in same),
                "graph_updates_per_second": sum(graph.changes_per_second for graph in same),
                "graph_free_pages": sum(info.free_pages for info in infos),
            }
            for metric, value in values.items():
                of_graph[metric].add_metric([name], value)
            updated.add_metric([name], sum(graph.record.updated for graph in same))
            for rank in range(max(graph.record.stripe.p for graph in same)):
                nbytes = sum(graph.record.infos[rank].nbytes for graph in same if rank < graph.record.stripe.p)
                size.add_metric([name, str(rank)], nbytes)
        yield from of_graph.values()
        yield from (updated, size)

    def _told(self, records: Records) -> Iterator[Family]:
        notes = records.notes
        for name, what, counts in (("loads", "Loads", notes.loads), ("saves", "Saves", notes.saves)):
            family = CounterMetricFamily(
                self.build_name(name), f"{what} by outcome: {next(iter(counts))}, or the error", labels=["outcome"]
            )
            for outcome, count in counts.items():
                family.add_metric([outcome], count)
            yield family
        yield CounterMetricFamily(
            self.build_name("saved"), "Bytes of the files of all saves", value=notes.saved_bytes, unit="bytes"
        )
        refused, why = records.queue.refusals.count, "Runs for which the queue had no place"
        yield CounterMetricFamily(self.build_name("queue_refusals"), why, value=refused)

    def _under_way(self, records: Records) -> Iterator[Family]:
        running = [run for run in records.runs if run.started is not None]
        active = GaugeMetricFamily(self.build_name("runs_active"), "Runs by state", labels=["state"])
        active.add_metric(["running"], len(running))
        active.add_metric(["waiting"], len(records.runs) - len(running))
        yield active
        gauges = {
            "run_level": "Level of the run under way",
            "run_frontier_vertices": "Vertices in the frontier of that level",
            "run_reached_vertices": "Vertices reached so far",
            "run_bottom_up": "1 in a bottom-up level",
        }
        families = [GaugeMetricFamily(self.build_name(name), gauges[name], labels=["graph"]) for name in gauges]
        # Each graph has one run under way at most. Of graphs that share a name, the last run in the queue counts.
        for name, at in {run.graph.record.name: run.progress for run in running if run.progress}.items():
            values = (at.level, at.frontier, at.reached, at.direction == "bottom-up")
            for family, value in zip(families, values, strict=True):
                family.add_metric([name], value)
        yield from families


def _by_name(records: Records) -> dict[str, list[GraphEntry]]:
    named: dict[str, list[GraphEntry]] = {}
    for graph in records.graphs.values():
        named.setdefault(graph.record.name, []).append(graph)
    return named


_collector: Collector | None = None


def register(records: Records) -> None:
    """Report this scheduler's service from now on."""
    global _collector
    if _collector is None:
        _collector = Collector()
        prometheus_client.REGISTRY.register(_collector)
    _collector.records = records


def forget(records: Records) -> None:
    """Stop reporting a service, whose scheduler closes."""
    if _collector is not None and _collector.records is records:
        _collector.records = None

"""The measurement of one graph in the benchmarks over many graphs: rates, inspected edges and redundant work."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import distributed

import dbfs
from benchmarks.plan import Settings
from dbfs.graph.graph import Graph
from dbfs.graph.result import BFSResult


@dataclass(frozen=True)
class Rates:
    """Measurements of one graph in one direction, from the same sources for all directions.

    Attributes:
        graph: the generator's spec or the file.
        n: number of vertices.
        m: number of directed edges stored.
        ranks: number of ranks.
        direction: direction of the levels: top-down, bottom-up, or auto.
        depth: mean depth over the sources.
        distance_mteps: directed edges traversed per second of level time, in millions, when only distances are
            recorded: the edges of all sources divided by the sum of their median times.
        predecessor_mteps: the same, when predecessors are also recorded.
        milliseconds: mean level time of a traversal that records only distances.
        inspected: inspected edges divided by the edges of the traversed components. 1 if each edge is expanded once,
            less if bottom-up levels skip edges. None if some levels were not counted.
        redundancy: vertices that the ranks kept after filtering, divided by vertices discovered. 1 if no vertex was
            found twice; more if several ranks found a vertex in the same level, or if a rank found a vertex that its
            owner had discovered earlier. Led levels keep nothing twice. None if the backend does not count the vertices
            that ranks send.
        build_seconds: time of the graph's build.
        backend: backend of the graph.
        exchange: how the ranks exchanged.
    """

    graph: str
    n: int
    m: int
    ranks: int
    direction: str
    depth: float
    distance_mteps: float
    predecessor_mteps: float
    milliseconds: float
    inspected: float | None
    redundancy: float | None
    build_seconds: float
    backend: str
    exchange: str


def measure(
    client: distributed.Client, graph: str, ranks: int, settings: Settings, directions: Sequence[str]
) -> Iterator[tuple[Rates, BFSResult]]:
    """Build a graph once, traverse it in each direction, and yield the rates and a traversal from the first source.

    The labels of that traversal are released; its reports of the levels remain.
    """
    layout: dict[str, Any] = {"order": settings.order, "in_edges": settings.in_edges, "backend": settings.backend}
    with dbfs.load(graph, client=client, ranks=ranks, progress=False, **layout) as loaded:
        sources = loaded.sample_sources(settings.sources)
        for direction in directions:
            yield _measure(loaded, graph, sources, settings.repeats, direction)


def _measure(graph: Graph, spec: str, sources: Sequence[int], repeats: int, direction: str) -> tuple[Rates, BFSResult]:
    for predecessors in (False, True):
        # Warm-up: the first run allocates the state that the next runs share.
        graph.bfs(sources[0], direction=direction, predecessors=predecessors, progress=False).release()
    plain = [_median(graph, source, repeats, direction, predecessors=False) for source in sources]
    parents = [_median(graph, source, repeats, direction, predecessors=True) for source in sources]
    edges, seconds = sum(result.edges for result in plain), sum(result.seconds for result in plain)
    rates = Rates(
        graph=spec,
        n=graph.n,
        m=graph.m,
        ranks=graph.ranks,
        direction=direction,
        depth=statistics.fmean(result.depth for result in plain),
        distance_mteps=edges / seconds / 1e6,
        predecessor_mteps=edges / sum(result.seconds for result in parents) / 1e6,
        milliseconds=seconds / len(plain) * 1e3,
        inspected=_inspected(plain),
        redundancy=_redundancy(plain, graph.ranks),
        build_seconds=graph.build_seconds,
        backend=graph.backend,
        exchange=graph.exchange,
    )
    return rates, plain[0]


def _median(graph: Graph, source: int, repeats: int, direction: str, *, predecessors: bool) -> BFSResult:
    """Return the traversal of median time; of an even number, the faster of the two in the middle."""
    results = []
    for _ in range(repeats):
        results.append(graph.bfs(source, direction=direction, predecessors=predecessors, progress=False))
        results[-1].release()
    return sorted(results, key=lambda result: result.seconds)[(repeats - 1) // 2]


def _inspected(results: Sequence[BFSResult]) -> float | None:
    if any(sum(report.levels for report in result.reports) < result.depth for result in results):
        return None
    inspected = sum(report.edges for result in results for report in result.reports)
    return inspected / max(1, sum(result.edges for result in results))


def _redundancy(results: Sequence[BFSResult], ranks: int) -> float | None:
    reports = [report for result in results for report in result.reports]
    top_down = [report for report in reports if report.direction == "top-down"]
    if ranks > 1 and top_down and not any(report.sent for report in top_down):
        return None
    kept = sum(report.edges - report.filtered for report in reports)
    return kept / max(1, sum(report.discovered for report in reports))

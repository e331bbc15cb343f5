"""Rates over many graphs and numbers of ranks: the corpus of Merrill 2012, and the scaling of Krajecki 2016.

A strong series runs one graph on more and more ranks. In a weak series the graph grows with the number of ranks. The
corpus is a strong series of each graph: Merrill's tables 1 and 2 have graphs and rates, figure 10 the redundant work,
figure 11 several ranks beside one, and figure 3 the frontiers by level.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import distributed

import dbfs
from benchmarks.plan import Section, Settings
from benchmarks.runner import Column, Started
from dbfs.errors import PlanError
from dbfs.graph.graph import Graph
from dbfs.graph.result import BFSResult
from dbfs_workers.text import counted

STRONG, WEAK = "strong", "weak"


def short_name(graph: str) -> str:
    """Return a graph's name for tables and plots: ``europe.osm /64`` for a corpus graph, a file without its folder."""
    if Path(graph).is_file():
        return Path(graph).name
    return graph.removeprefix("corpus:").replace(",scale-down=", " /") if graph.startswith("corpus:") else graph


@dataclass(frozen=True)
class Series:
    """Graphs by number of ranks, ascending; ``kind`` is ``STRONG`` or ``WEAK``."""

    name: str
    kind: str
    graphs: dict[int, str]


@dataclass(frozen=True)
class RatesPlan:
    """A plan of ``bench_rates``: the series, and how each graph is measured."""

    series: tuple[Series, ...]
    settings: Settings

    @property
    def ranks(self) -> int:
        """Largest number of ranks."""
        return max(max(series.graphs) for series in self.series)

    @classmethod
    def corpus(cls, path: Path) -> RatesPlan:
        """Read a plan of graphs from a YAML file.

        Raises:
            PlanError: the file is not a plan; the message names the key and what would be right.
        """
        section = Section.read(path)
        graphs, ranks = section.graphs("graphs"), section.counts("ranks")
        plan = cls(tuple(Series(graph, STRONG, dict.fromkeys(ranks, graph)) for graph in graphs), section.settings())
        section.end()
        return plan

    @classmethod
    def scaling(cls, path: Path) -> RatesPlan:
        """Read a plan of strong and weak series from a YAML file; errors as for ``corpus``."""
        whole = Section.read(path)
        series = []
        for section in whole.sections(STRONG):
            name, graph = section.text("name"), section.graph("graph")
            series.append(Series(name, STRONG, dict.fromkeys(section.ranks("ranks"), graph)))
            section.end()
        for section in whole.sections(WEAK):
            series.append(Series(section.text("name"), WEAK, section.graphs_by_ranks("graphs")))
            section.end()
        plan = cls(tuple(series), whole.settings())
        whole.end()
        if not series:
            raise PlanError(f"{path}: strong and weak are missing; give at least one of them, a list of series")
        return plan


@dataclass(frozen=True)
class Rates:
    """Measurements of one graph on one number of ranks in one direction, from the same sources for all directions.

    Attributes:
        n: number of vertices.
        m: number of directed edges stored.
        degree: mean degree.
        depth: mean depth over the sources.
        distance_mteps: directed edges traversed per second of level time, in millions, when only distances are
            recorded: the edges of all sources divided by the sum of their median times.
        predecessor_mteps: the same, when predecessors are also recorded.
        milliseconds: mean level time of a traversal that records only distances.
        speedup: distance rate divided by that on the smallest number of ranks of the series.
        efficiency: ``speedup`` divided by the growth of the number of ranks; 1 if the rate of each rank stays the same.
        inspected: inspected edges divided by the edges of the traversed components. 1 if each edge is expanded once,
            less if bottom-up levels skip edges. None if some levels were not counted.
        redundancy: vertices that the ranks kept after filtering, divided by vertices discovered. 1 if no vertex was
            found twice; more if several ranks found a vertex in the same level, or if a rank found a vertex that its
            owner had discovered earlier. Led levels keep nothing twice. None if the backend does not count the vertices
            that ranks send.
    """

    series: str
    kind: str
    graph: Annotated[str, Column(form=short_name)]
    n: Annotated[int, Column("vertices", ",")]
    m: Annotated[int, Column("directed\nedges", ",")]
    degree: Annotated[float, Column("mean\ndegree", ".1f")]
    ranks: Annotated[int, Column()]
    direction: Annotated[str, Column()]
    depth: Annotated[float, Column("search\ndepth", ",.0f")]
    distance_mteps: Annotated[float, Column("dist.", ",.1f", "directed MTEPS, recording distances")]
    predecessor_mteps: Annotated[float, Column("pred.", ",.1f", "the same, recording predecessors as well")]
    milliseconds: Annotated[float, Column("ms", ",.2f")]
    speedup: Annotated[float, Column("over\n1st", ".2f", "dist. / dist. of the fewest ranks of the series")]
    efficiency: Annotated[float, Column("efficiency", ".2f")]
    inspected: Annotated[float | None, Column("inspected", ".2f", "edges inspected / edges of the component")]
    redundancy: Annotated[float | None, Column("kept", ".2f", "vertices after filtering / vertices discovered")]
    build_seconds: Annotated[float, Column("build\ns", ".2f")]
    backend: str
    exchange: str


@dataclass(frozen=True)
class Frontier:
    """Sizes of the vertex frontier and of the edge frontier, by level, of a traversal whose levels are all top-down."""

    graph: str
    source: int
    vertices: tuple[int, ...]
    edges: tuple[int, ...]

    @classmethod
    def of(cls, graph: Graph, spec: str, source: int) -> Frontier:
        """Traverse a graph. Only top-down levels gather the edge frontier of Merrill 2012."""
        reports = graph.bfs(source, direction="top-down", progress=False).reports
        return cls(spec, source, tuple(level.frontier for level in reports), tuple(level.edges for level in reports))


def bench_rates(
    client: distributed.Client, plan: RatesPlan, started: Started, frontiers: list[Frontier] | None = None
) -> Iterator[Rates]:
    """Measure every series of a plan on its numbers of ranks, in every direction of the plan.

    Args:
        client: client of a cluster with at least as many workers as the plan's largest number of ranks.
        plan: what to measure.
        started: called with the name of each series and its number of ranks, before they are measured.
        frontiers: takes the frontiers of each series on its largest number of ranks.
    """
    settings = plan.settings
    layout: dict[str, Any] = {"order": settings.order, "in_edges": settings.in_edges, "backend": settings.backend}
    for series in plan.series:
        first: dict[str, tuple[float, int]] = {}
        for ranks, spec in series.graphs.items():
            started(f"{short_name(series.name)}, {counted(ranks, 'rank')}")
            with dbfs.load(spec, client=client, ranks=ranks, progress=False, **layout) as graph:
                sources = graph.sample_sources(settings.sources)
                for direction in settings.directions:
                    yield _measure(graph, spec, series, sources, settings.repeats, direction, first)
                if frontiers is not None and ranks == max(series.graphs):
                    frontiers.append(Frontier.of(graph, spec, sources[0]))


def _measure(
    graph: Graph,
    spec: str,
    series: Series,
    sources: Sequence[int],
    repeats: int,
    direction: str,
    first: dict[str, tuple[float, int]],
) -> Rates:
    """Measure a graph; ``first`` has the rate on the fewest ranks, and their number, by direction."""
    for predecessors in (False, True):
        # Warm-up: the first run allocates the state that the next runs share.
        graph.bfs(sources[0], direction=direction, predecessors=predecessors, progress=False).release()
    plain = [_median(graph, source, repeats, direction, predecessors=False) for source in sources]
    parents = [_median(graph, source, repeats, direction, predecessors=True) for source in sources]
    edges, seconds = sum(result.edges for result in plain), sum(result.seconds for result in plain)
    rate = edges / seconds / 1e6
    least, fewest = first.setdefault(direction, (rate, graph.ranks))
    return Rates(
        series=series.name,
        kind=series.kind,
        graph=spec,
        n=graph.n,
        m=graph.m,
        degree=graph.m / graph.n,
        ranks=graph.ranks,
        direction=direction,
        depth=statistics.fmean(result.depth for result in plain),
        distance_mteps=rate,
        predecessor_mteps=edges / sum(result.seconds for result in parents) / 1e6,
        milliseconds=seconds / len(plain) * 1e3,
        speedup=rate / least,
        efficiency=rate / least * fewest / graph.ranks,
        inspected=_inspected(plain),
        redundancy=_redundancy(plain, graph.ranks),
        build_seconds=graph.build_seconds,
        backend=graph.backend,
        exchange=graph.exchange,
    )


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

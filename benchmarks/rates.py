"""Rates over many graphs and numbers of ranks: the corpus of Merrill 2012, and the scaling of Krajecki 2016.

A strong series runs one graph on more and more ranks. In a weak series the graph grows with the number of ranks. The
corpus is a strong series of each graph: Merrill's tables 1 and 2 have graphs and rates, figure 7 the redundant work,
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
from benchmarks import plan
from benchmarks.plan import Settings
from benchmarks.runner import Column, Started
from dbfs.assembly import BFSResult, Graph
from dbfs.errors import PlanError
from dbfs_workers.base.spec import DIRECTIONS
from dbfs_workers.base.text import counted

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


@dataclass(frozen=True, kw_only=True)
class CorpusPlan(Settings):
    """A plan of ``dbfs bench corpus``: each graph is a strong series."""

    graphs: Annotated[tuple[str, ...], plan.graphs]
    ranks: Annotated[tuple[int, ...], plan.counts]

    @property
    def series(self) -> list[Series]:
        """The series."""
        return [Series(graph, STRONG, dict.fromkeys(self.ranks, graph)) for graph in self.graphs]


@dataclass(frozen=True, kw_only=True)
class Strong:
    """A strong series in a plan."""

    name: Annotated[str, plan.text]
    graph: Annotated[str, plan.graph]
    ranks: Annotated[tuple[int, ...], plan.ranks]


@dataclass(frozen=True, kw_only=True)
class Weak:
    """A weak series in a plan."""

    name: Annotated[str, plan.text]
    graphs: Annotated[dict[int, str], plan.graphs_by_ranks]


@dataclass(frozen=True, kw_only=True)
class ScalingPlan(Settings):
    """A plan of ``dbfs bench scaling``."""

    strong: Annotated[tuple[Strong, ...], plan.parts(Strong)] = ()
    weak: Annotated[tuple[Weak, ...], plan.parts(Weak)] = ()

    def __post_init__(self) -> None:
        if not self.series:
            raise PlanError("strong and weak are missing; give at least one of them, a list of series")

    @property
    def series(self) -> list[Series]:
        """The series, the strong ones first."""
        strong = [Series(one.name, STRONG, dict.fromkeys(one.ranks, one.graph)) for one in self.strong]
        return [*strong, *(Series(one.name, WEAK, one.graphs) for one in self.weak)]


@dataclass(frozen=True)
class Rates:
    """Measurements of one graph on one number of ranks in one direction, from the same sources for all directions.

    Attributes:
        direction: the direction of the engine's levels, or a strategy.
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
        grid: the grid of the ranks of a 2-D partition, such as ``2x2``; empty in 1-D.
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
    grid: str = ""


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
    client: distributed.Client,
    settings: CorpusPlan | ScalingPlan,
    started: Started,
    frontiers: list[Frontier] | None = None,
) -> Iterator[Rates]:
    """Measure every series of a plan on its numbers of ranks, in every direction and by every strategy of the plan.

    Args:
        client: client of a cluster with at least as many workers as the plan's largest number of ranks.
        settings: the plan.
        started: called with the name of each series and its number of ranks, before they are measured.
        frontiers: takes the frontiers of each series on its largest number of ranks.
    """
    loading: dict[str, Any] = {"order": settings.order, "in_edges": settings.in_edges, "backend": settings.backend}
    loading["layout"] = settings.layout
    for series in settings.series:
        first: dict[str, tuple[float, int]] = {}
        for ranks, spec in series.graphs.items():
            started(f"{short_name(series.name)}, {counted(ranks, 'rank')}")
            with dbfs.load(spec, client=client, ranks=ranks, progress=False, **loading) as graph:
                sources = graph.sample_sources(settings.sources)
                for direction in (*settings.directions, *settings.strategies):
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
    plain, parents = (_medians(graph, sources, repeats, direction, predecessors) for predecessors in (False, True))
    edges, seconds = sum(result.edges for result in plain), sum(result.seconds for result in plain)
    rate = edges / seconds / 1e6
    least, fewest = first.setdefault(direction, (rate, graph.ranks))
    reports = [report for result in plain for report in result.reports]
    uncounted = any(sum(report.levels for report in result.reports) < result.depth for result in plain)
    sent = [report.sent for report in reports if report.direction == "top-down"]
    unsent = graph.ranks > 1 and sent and not any(sent)
    kept = sum(report.edges - report.filtered for report in reports)
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
        inspected=None if uncounted else sum(report.edges for report in reports) / max(1, edges),
        redundancy=None if unsent else kept / max(1, sum(report.discovered for report in reports)),
        build_seconds=graph.build_seconds,
        backend=graph.backend,
        exchange=graph.exchange,
        grid="" if graph.grid is None else str(graph.grid),
    )


def _medians(graph: Graph, sources: Sequence[int], repeats: int, direction: str, predecessors: bool) -> list[BFSResult]:
    """Return the traversal of median time from each source; of an even number, the faster of the two in the middle."""
    how: dict[str, Any] = {"direction" if direction in DIRECTIONS else "strategy": direction}

    def traverse(source: int) -> BFSResult:
        result = graph.bfs(source, predecessors=predecessors, progress=False, **how)
        result.release()
        return result

    # The first run allocates the state that the next runs share.
    traverse(sources[0])
    runs = ([traverse(source) for _ in range(repeats)] for source in sources)
    return [sorted(of, key=lambda result: result.seconds)[(repeats - 1) // 2] for of in runs]

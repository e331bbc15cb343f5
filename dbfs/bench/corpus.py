"""Merrill 2012's benchmark corpus on this hardware: its tables 1 and 2, and its figures 3, 10 and 11.

Table 1 are the graphs and their search depths, table 2 and figure 10 the rates with distances and with predecessors and
the redundant work, figure 11 the rates of several ranks next to those of one, figure 3 the frontiers by level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import distributed

from dbfs.bench.plan import Section, Settings
from dbfs.bench.rates import Rates, measure

FRONTIER_DIRECTION = "top-down"
"""Merrill's frontiers: what a bottom-up level looks at is not the edge frontier."""


@dataclass(frozen=True)
class CorpusPlan:
    """What to measure.

    Attributes:
        graphs: generators' specs and files.
        ranks: numbers of ranks, ascending.
        settings: how.
    """

    graphs: tuple[str, ...]
    ranks: tuple[int, ...]
    settings: Settings

    @classmethod
    def read(cls, path: Path) -> CorpusPlan:
        """A plan's file.

        Raises:
            PlanError: it is not one; the message has the key and what would be right.
        """
        section = Section.read(path)
        plan = cls(section.graphs("graphs"), section.counts("ranks"), section.settings())
        section.end()
        return plan


@dataclass(frozen=True)
class Frontier:
    """One traversal by level, every level top-down.

    Attributes:
        graph: the generator's spec or the file.
        source: where it started.
        vertices: the vertex frontier of each level.
        edges: the edge frontier.
    """

    graph: str
    source: int
    vertices: tuple[int, ...]
    edges: tuple[int, ...]


@dataclass(frozen=True)
class CorpusReport:
    """What was measured.

    Attributes:
        rates: by graph, then ranks, then direction, as in the plan.
        frontiers: one a graph.
    """

    rates: tuple[Rates, ...]
    frontiers: tuple[Frontier, ...]

    def speedup(self, rates: Rates) -> float | None:
        """The distance rate over that of one rank, in the same direction; None where one rank was not measured."""
        for one in self.rates:
            if (one.graph, one.direction, one.ranks) == (rates.graph, rates.direction, 1):
                return rates.distance_mteps / one.distance_mteps
        return None


def short_name(graph: str) -> str:
    """A graph as tables and plots call it: ``europe.osm /64`` for a corpus graph, a file without its folder."""
    if Path(graph).is_file():
        return Path(graph).name
    return graph.removeprefix("corpus:").replace(",scale-down=", " /") if graph.startswith("corpus:") else graph


def bench_corpus(
    client: distributed.Client, plan: CorpusPlan, started: Callable[[str], None] | None = None
) -> CorpusReport:
    """Measure every graph of a plan on every number of ranks.

    Args:
        client: of a cluster with as many workers as the plan's largest number of ranks.
        plan: what to measure.
        started: told of each graph and number of ranks.
    """
    rates: list[Rates] = []
    frontiers: list[Frontier] = []
    for graph in plan.graphs:
        for ranks in plan.ranks:
            if started is not None:
                started(f"{short_name(graph)}, {ranks} rank{'s' * (ranks > 1)}")
            last = ranks == plan.ranks[-1]
            directions = _directions(plan.settings.directions, with_frontier=last)
            for measured, result in measure(client, graph, ranks, plan.settings, directions):
                if measured.direction in plan.settings.directions:
                    rates.append(measured)
                if last and measured.direction == FRONTIER_DIRECTION:
                    vertices = tuple(report.frontier for report in result.reports)
                    edges = tuple(report.edges for report in result.reports)
                    frontiers.append(Frontier(graph, result.sources[0], vertices, edges))
    return CorpusReport(tuple(rates), tuple(frontiers))


def _directions(wanted: Sequence[str], *, with_frontier: bool) -> list[str]:
    extra = [FRONTIER_DIRECTION] if with_frontier and FRONTIER_DIRECTION not in wanted else []
    return [*wanted, *extra]

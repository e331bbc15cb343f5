"""The benchmark corpus of Merrill 2012 on this hardware: tables 1 and 2, and figures 3, 10 and 11 of the paper.

Table 1 lists the graphs and their search depths. Table 2 and figure 10 show the rates with distances and with
predecessors, and the redundant work. Figure 11 compares the rates of several ranks with those of one. Figure 3 shows
the frontiers by level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import distributed

from benchmarks.plan import Section, Settings
from benchmarks.rates import Rates, measure

FRONTIER_DIRECTION = "top-down"
"""Direction of the traversals that record frontiers: only top-down levels gather the edge frontier of Merrill 2012."""


@dataclass(frozen=True)
class CorpusPlan:
    """A plan of ``bench_corpus``.

    Attributes:
        graphs: specs of generators, and files.
        ranks: numbers of ranks, ascending.
        settings: how each graph is measured.
    """

    graphs: tuple[str, ...]
    ranks: tuple[int, ...]
    settings: Settings

    @classmethod
    def read(cls, path: Path) -> CorpusPlan:
        """Read a plan from a YAML file.

        Raises:
            PlanError: the file is not a plan; the message names the key and what would be right.
        """
        section = Section.read(path)
        plan = cls(section.graphs("graphs"), section.counts("ranks"), section.settings())
        section.end()
        return plan


@dataclass(frozen=True)
class Frontier:
    """The frontiers of one traversal whose levels are all top-down.

    Attributes:
        graph: the generator's spec or the file.
        source: vertex id of the source.
        vertices: size of the vertex frontier, by level.
        edges: size of the edge frontier, by level.
    """

    graph: str
    source: int
    vertices: tuple[int, ...]
    edges: tuple[int, ...]


@dataclass(frozen=True)
class CorpusReport:
    """Results of ``bench_corpus``.

    Attributes:
        rates: by graph, then number of ranks, then direction, in the plan's order.
        frontiers: one for each graph.
    """

    rates: tuple[Rates, ...]
    frontiers: tuple[Frontier, ...]

    def speedup(self, rates: Rates) -> float | None:
        """Return the distance rate divided by one rank's in the same direction; None if one rank was not measured."""
        for one in self.rates:
            if (one.graph, one.direction, one.ranks) == (rates.graph, rates.direction, 1):
                return rates.distance_mteps / one.distance_mteps
        return None


def short_name(graph: str) -> str:
    """Return a graph's name for tables and plots: ``europe.osm /64`` for a corpus graph, a file without its folder."""
    if Path(graph).is_file():
        return Path(graph).name
    return graph.removeprefix("corpus:").replace(",scale-down=", " /") if graph.startswith("corpus:") else graph


def bench_corpus(
    client: distributed.Client, plan: CorpusPlan, started: Callable[[str], None] | None = None
) -> CorpusReport:
    """Measure every graph of a plan on every number of ranks.

    Args:
        client: client of a cluster with at least as many workers as the plan's largest number of ranks.
        plan: what to measure.
        started: called with the name of each graph and its number of ranks, before they are measured.
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

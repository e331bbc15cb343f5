"""Strong and weak scaling over ranks, as in Krajecki 2016.

A strong series runs one graph on more and more ranks. In a weak series the graph grows with the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import distributed

from benchmarks.plan import Section, Settings
from benchmarks.rates import Rates, measure
from dbfs.errors import PlanError

STRONG, WEAK = "strong", "weak"


@dataclass(frozen=True)
class Series:
    """One line of the plot.

    Attributes:
        name: name of the series.
        kind: ``STRONG`` or ``WEAK``.
        graphs: graph by number of ranks, in ascending order.
    """

    name: str
    kind: str
    graphs: dict[int, str]


@dataclass(frozen=True)
class ScalingPlan:
    """A plan of ``bench_scaling``.

    Attributes:
        series: the strong series, then the weak ones.
        settings: how each graph is measured.
    """

    series: tuple[Series, ...]
    settings: Settings

    @property
    def ranks(self) -> int:
        """Largest number of ranks."""
        return max(max(series.graphs) for series in self.series)

    @classmethod
    def read(cls, path: Path) -> ScalingPlan:
        """Read a plan from a YAML file.

        Raises:
            PlanError: the file is not a plan; the message names the key and what would be right.
        """
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
class ScalingPoint:
    """Measurements of a series on one number of ranks, in one direction.

    Attributes:
        series: name of the series.
        kind: ``strong`` or ``weak``.
        rates: the measurements.
        speedup: distance rate divided by that on the smallest number of ranks of the series.
        efficiency: ``speedup`` divided by the growth of the number of ranks; 1 if the rate of each rank stays the same.
    """

    series: str
    kind: str
    rates: Rates
    speedup: float
    efficiency: float


def bench_scaling(
    client: distributed.Client, plan: ScalingPlan, started: Callable[[str], None] | None = None
) -> Iterator[ScalingPoint]:
    """Measure every series on its numbers of ranks, in every direction of the plan.

    Args:
        client: client of a cluster with at least as many workers as the plan's largest number of ranks.
        plan: the series to measure.
        started: called with the name of each series and its number of ranks, before they are measured.
    """
    for series in plan.series:
        first: dict[str, Rates] = {}
        for ranks, graph in series.graphs.items():
            if started is not None:
                started(f"{series.name}, {ranks} rank{'s' * (ranks > 1)}")
            for rates, _ in measure(client, graph, ranks, plan.settings, plan.settings.directions):
                base = first.setdefault(rates.direction, rates)
                speedup = rates.distance_mteps / base.distance_mteps
                yield ScalingPoint(series.name, series.kind, rates, speedup, speedup * base.ranks / ranks)

"""Strong and weak scaling over ranks, as in Krajecki 2016: one graph on more ranks, and one that grows with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import distributed

from dbfs.bench.plan import Section, Settings
from dbfs.bench.rates import Rates, measure
from dbfs.errors import PlanError

STRONG, WEAK = "strong", "weak"


@dataclass(frozen=True)
class Series:
    """One line of the plot.

    Attributes:
        name: what it is called.
        kind: ``STRONG`` or ``WEAK``.
        graphs: by number of ranks, ascending.
    """

    name: str
    kind: str
    graphs: dict[int, str]


@dataclass(frozen=True)
class ScalingPlan:
    """What to measure.

    Attributes:
        series: the strong ones first.
        settings: how.
    """

    series: tuple[Series, ...]
    settings: Settings

    @property
    def ranks(self) -> int:
        """The largest number of ranks."""
        return max(max(series.graphs) for series in self.series)

    @classmethod
    def read(cls, path: Path) -> ScalingPlan:
        """A plan's file.

        Raises:
            PlanError: it is not one; the message has the key and what would be right.
        """
        whole = Section.read(path)
        series = []
        for section in whole.sections(STRONG):
            name, graph = section.text("name"), section.graph("graph")
            series.append(Series(name, STRONG, dict.fromkeys(section.counts("ranks"), graph)))
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
    """A series on one number of ranks.

    Attributes:
        series: its name.
        kind: ``strong`` or ``weak``.
        rates: what was measured.
        speedup: distance rate over that of the series' least number of ranks.
        efficiency: that over the growth of the ranks: 1 where each rank is as fast as before.
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
        client: of a cluster with as many workers as the plan's largest number of ranks.
        plan: what to measure.
        started: told of each graph and number of ranks.
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

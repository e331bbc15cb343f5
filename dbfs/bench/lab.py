"""The laboratory's comparison: the rate, the redundant work and the memory of each strategy on each graph.

Rates are directed edges per second, as in Merrill 2012. A strategy without culling may overflow its queue; that is a
result as well (Merrill 2012, section 4), and has a row without a rate.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import distributed

import dbfs
from dbfs.bench.plan import Section
from dbfs.errors import InvalidOptionError, PlanError, QueueOverflowError
from dbfs.graph.graph import Graph
from dbfs.lab import STRATEGIES, parse
from dbfs.records import BACKENDS

BASELINE = "sequential"
"""The strategy that the others' speed-ups are over, as in Merrill 2012, table 2."""


@dataclass(frozen=True)
class LabPlan:
    """A plan of ``bench_lab``.

    Attributes:
        graphs: specs of generators, and files.
        strategies: strategies with their options, as ``Graph.bfs`` takes them.
        sources: number of random sources of each graph.
        predecessors: whether predecessors are recorded.
        backend: backend of the strategies that run on any: cuda or cpu.
    """

    graphs: tuple[str, ...]
    strategies: tuple[str, ...]
    sources: int
    predecessors: bool
    backend: str

    @classmethod
    def read(cls, path: Path) -> LabPlan:
        """Read a plan from a YAML file.

        Raises:
            PlanError: the file is not a plan, or has an unknown strategy; the message names the key and what would be
                right.
        """
        section = Section.read(path)
        plan = cls(
            section.graphs("graphs"),
            section.texts("strategies"),
            section.count("sources", 10),
            section.flag("predecessors", False),
            section.choice("backend", BACKENDS, "cuda"),
        )
        section.end()
        for at, strategy in enumerate(plan.strategies):
            try:
                parse(strategy)
            except InvalidOptionError as error:
                raise PlanError(f"{path}: strategies[{at}]: {error}") from error
        return plan


@dataclass(frozen=True)
class LabRate:
    """Measurements of one strategy on one graph: a traversal from each source.

    Attributes:
        graph: the generator's spec or the file.
        n: number of vertices.
        m: number of directed edges stored.
        strategy: the strategy with its options.
        backend: where it ran.
        depth: mean depth.
        mteps: median of the rates: directed edges of the component per second of level time, in millions.
        low, high: the lowest and the highest of the rates.
        milliseconds: median level time.
        expansion: edges looked at, divided by the edges of the components: Merrill's redundant expansion factor. Less
            than 1 if levels run bottom-up.
        counters: the strategy's counters (docs/laboratory.md), summed over the sources; except ``bytes``, of one.
        error: why there are no measurements: a queue that overflowed; else empty.
    """

    graph: str
    n: int
    m: int
    strategy: str
    backend: str
    depth: float = 0.0
    mteps: float = 0.0
    low: float = 0.0
    high: float = 0.0
    milliseconds: float = 0.0
    expansion: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    error: str = ""


def speedup(rates: Sequence[LabRate], rate: LabRate) -> float | None:
    """Return a rate divided by that of ``BASELINE`` on the same graph; None if either was not measured."""
    for one in rates:
        if (one.graph, one.strategy) == (rate.graph, BASELINE) and one.mteps and rate.mteps:
            return rate.mteps / one.mteps
    return None


def bench_lab(
    client: distributed.Client, plan: LabPlan, started: Callable[[str], None] | None = None
) -> Iterator[LabRate]:
    """Measure each strategy of a plan on each graph.

    Args:
        client: client of a cluster; with GPUs, if a strategy needs one.
        plan: what to measure.
        started: called with the names of graph and strategy before each measurement.

    Raises:
        InvalidOptionError: a strategy does not run on the plan's backend.
    """
    for spec in plan.graphs:
        by_backend: dict[str, list[str]] = {}
        for strategy in plan.strategies:
            device = STRATEGIES[parse(strategy).strategy].device
            by_backend.setdefault("cpu" if device == "cpu" else plan.backend, []).append(strategy)
        for backend, strategies in by_backend.items():
            with dbfs.load(spec, client=client, ranks=1, backend=backend, progress=False) as graph:
                sources = graph.sample_sources(plan.sources)
                for strategy in strategies:
                    if started is not None:
                        started(f"{spec}, {strategy}")
                    yield _measure(graph, spec, strategy, sources, predecessors=plan.predecessors)


def _measure(graph: Graph, spec: str, strategy: str, sources: Sequence[Any], *, predecessors: bool) -> LabRate:
    what: dict[str, Any] = {"graph": spec, "n": graph.n, "m": graph.m, "strategy": strategy, "backend": graph.backend}
    rates, seconds, depths = [], [], []
    edges, looked_at = 0, 0
    counters: Counter[str] = Counter()
    try:
        # The first traversal compiles kernels and takes memory from the device.
        for source in (sources[0], *sources):
            result = graph.bfs(source, strategy=strategy, predecessors=predecessors, progress=False)
            rates.append(result.edges / result.seconds / 1e6)
            seconds.append(result.seconds)
            depths.append(result.depth)
            if len(rates) > 1:
                edges += result.edges
                looked_at += sum(report.edges for report in result.reports)
                counters.update(result.counters)
                if "bytes" in counters:
                    counters["bytes"] = result.counters["bytes"]
            result.release()
    except QueueOverflowError as error:
        return LabRate(**what, error=str(error))
    return LabRate(
        **what,
        depth=statistics.fmean(depths[1:]),
        mteps=statistics.median(rates[1:]),
        low=min(rates[1:]),
        high=max(rates[1:]),
        milliseconds=statistics.median(seconds[1:]) * 1e3,
        expansion=looked_at / max(1, edges),
        counters=dict(counters),
    )

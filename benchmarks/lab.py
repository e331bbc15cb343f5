"""The laboratory's comparison: the rate, the redundant work and the memory of each strategy on each graph.

Rates are directed edges per second, as in Merrill 2012. A strategy without culling may overflow its queue; that is a
result as well (Merrill 2012, section 4), and has a row without a rate.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Annotated, Any

import click
import distributed

import dbfs
from benchmarks import options
from benchmarks import plan as plans
from benchmarks.lab_results import BENCHMARK, MOST_LEVELS, LabRate
from benchmarks.lab_tables import lab_tables
from benchmarks.runner import Results, Started, begun, connect, machine
from dbfs.assembly import Graph
from dbfs.base import progress
from dbfs.base.records import BACKENDS
from dbfs.cli.common import scheduler_option
from dbfs.errors import DeadlineExceededError, QueueOverflowError
from dbfs.lab import STRATEGIES, parse

SLOWEST = 30.0
"""Seconds that a plan of short times allows one traversal, the compilation before the first one included."""


def _recorded(value: Any, where: str) -> Any:
    """Take true or false, or the text both."""
    return (False, True) if value == "both" else (plans.flag(value, where),)


@dataclass(frozen=True)
class LabPlan:
    """A plan of ``bench_lab``.

    Attributes:
        graphs: specs of generators, and files.
        strategies: strategies with their options, as ``Graph.bfs`` takes them.
        sources: number of random sources of each graph.
        first_vertex: whether every traversal starts at the graph's first vertex, as Tödling's do, ``sources`` times.
        ranks: numbers of ranks, ascending; the strategies for one rank run on 1.
        layout: how the edges lie on the ranks, as ``load`` takes it: 1d, 2d, or 2d:1xp for a row of all ranks.
        seconds: time after which a strategy takes no further source of a graph; it always takes one.
        predecessors: whether predecessors are recorded: true, false, or both for one after the other.
        backend: backend of the strategies that run on any: cuda or cpu.
    """

    graphs: Annotated[tuple[str, ...], plans.graphs]
    strategies: Annotated[tuple[str, ...], plans.strategies]
    sources: Annotated[int, plans.count] = 10
    predecessors: Annotated[tuple[bool, ...], _recorded] = (False,)
    backend: Annotated[str, plans.one_of(BACKENDS)] = "cuda"
    seconds: Annotated[int, plans.count] = 600
    first_vertex: Annotated[bool, plans.flag, "first-vertex"] = False
    ranks: Annotated[tuple[int, ...], plans.counts] = (1,)
    layout: Annotated[str, plans.layout] = "1d"


@click.command()
@options.plan
@options.memory
@scheduler_option
@options.json
def lab(plan: str, memory_limit: str, scheduler: str | None, file: str | None) -> None:
    """Measure the strategies of the laboratory on the graphs of a plan.

    Results are rates, speed-up over one core, redundant expansion, the duplicates that culling dropped, and memory. The
    plans small, full (the graphs of Merrill 2012) and todling (the graphs of Tödling 2019) need one GPU; the small one
    takes about two minutes. Each row is written to the file of --json as it is measured. A run that was cut goes on,
    graph by graph, if the code, the machine and the plan are the same.

    Example: dbfs bench lab --plan small --json lab.json
    """
    chosen = plans.read(LabPlan, plans.find("lab", plan))
    of_graph = len(chosen.ranks) * len(chosen.strategies) * len(chosen.predecessors)
    with (
        Results(BENCHMARK, file) as results,
        connect(max(chosen.ranks), chosen.backend, memory_limit, scheduler) as client,
        progress.bar("bench lab", len(chosen.graphs) * of_graph) as bar,
    ):
        results.facts |= {"machine": machine(client, chosen.backend), "plan": plan}
        saved = results.of_cut_run("rates", LabRate)
        rows = Counter(rate.graph for rate in saved)
        whole = {graph for graph in rows if rows[graph] == of_graph}
        rest = replace(chosen, graphs=tuple(graph for graph in chosen.graphs if graph not in whole))
        measured = bench_lab(client, rest, begun(bar))
        results.take("rates", chain((rate for rate in saved if rate.graph in whole), measured), lab_tables)


def bench_lab(client: distributed.Client, plan: LabPlan, started: Started = lambda _: None) -> Iterator[LabRate]:
    """Measure each strategy of a plan on each graph.

    Args:
        client: client of a cluster; with GPUs, if a strategy needs one.
        plan: the graphs and strategies to measure.
        started: called with the names of graph and strategy before each measurement.

    Raises:
        InvalidOptionError: a strategy does not run on the plan's backend.
    """
    by_backend: dict[str, list[str]] = {}
    for strategy in plan.strategies:
        device = STRATEGIES[parse(strategy).strategy].device
        by_backend.setdefault("cpu" if device == "cpu" else plan.backend, []).append(strategy)
    # Of a directed graph, matrix-vector and the engine's bottom-up levels read the in-edges.
    options: dict[str, Any] = {"layout": plan.layout, "in_edges": True, "progress": False}
    for spec, ranks in product(plan.graphs, plan.ranks):
        for backend, strategies in by_backend.items():
            with dbfs.load(spec, client=client, ranks=ranks, backend=backend, **options) as graph:
                first = graph.python_ids([0]) * plan.sources
                sources = first if plan.first_vertex else graph.sample_sources(plan.sources)
                for strategy, predecessors in product(strategies, plan.predecessors):
                    started(f"{spec}, {strategy}")
                    yield _measure(graph, spec, strategy, sources, plan, predecessors)


def _measure(
    graph: Graph, spec: str, strategy: str, sources: Sequence[Any], plan: LabPlan, predecessors: bool
) -> LabRate:
    what: dict[str, Any] = {"graph": spec, "n": graph.n, "m": graph.m, "strategy": strategy, "backend": graph.backend}
    what |= {"predecessors": predecessors, "ranks": graph.ranks, "grid": "" if graph.grid is None else str(graph.grid)}
    allocations: list[float] = []
    copy = 0.0
    results: list[tuple[float, float, int]] = []
    edges, looked_at = 0, 0
    levels: list[int] = []
    counters: Counter[str] = Counter()
    phases: Counter[str] = Counter()
    deadline = max(SLOWEST, plan.seconds)
    began = time.perf_counter()
    try:
        # The first traversal compiles kernels and takes memory from the device.
        for source in (sources[0], *sources):
            if len(results) > 1 and time.perf_counter() - began > plan.seconds:
                break
            result = graph.bfs(source, strategy=strategy, predecessors=predecessors, deadline=deadline, progress=False)
            results.append((result.edges / result.seconds / 1e6, result.seconds, result.depth))
            allocations.append(result.setup_seconds or 0.0)
            if len(results) == 2:
                levels = [report.frontier for report in result.reports]
                copying = time.perf_counter()
                result.distances()
                copy = time.perf_counter() - copying
            if len(results) > 1:
                edges += result.edges
                looked_at += sum(report.edges for report in result.reports)
                counters.update(result.counters)
                for of_rank in (each for report in result.reports for each in report.phase_seconds):
                    phases.update(of_rank)
                if "bytes" in counters:
                    counters["bytes"] = result.counters["bytes"]
            else:
                began = time.perf_counter()
            result.release()
    except QueueOverflowError as error:
        return LabRate(**what, missing="overflow", error=str(error))
    except DeadlineExceededError as error:
        return LabRate(**what, missing="slow", error=str(error))
    step, total = -(-len(levels) // MOST_LEVELS), phases.total() if graph.ranks > 1 else 0
    rates, seconds, depths = (list(column) for column in zip(*results[1:], strict=True))
    return LabRate(
        **what,
        sources=len(rates),
        depth=statistics.fmean(depths),
        mteps=statistics.median(rates),
        low=min(rates),
        high=max(rates),
        milliseconds=statistics.median(seconds) * 1e3,
        allocation=statistics.median(allocations[1:]) * 1e3,
        copy=copy * 1e3,
        expansion=looked_at / max(1, edges),
        counters=dict(counters),
        shares={name: seconds / total for name, seconds in phases.items()} if total else {},
        frontier=tuple(levels[::step]),
        step=step,
    )

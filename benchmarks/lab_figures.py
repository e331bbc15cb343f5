"""The figures of the laboratory: what Merrill 2012 and Tödling 2019 compare, from the results of ``dbfs bench lab``.

Each function returns a figure of matplotlib. A strategy that the results lack on a graph leaves its place empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.lab_results import LabRate, LabReport
from benchmarks.rates import short_name
from dbfs.lab import parse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#808080")
# The counters that a neighbour may end in, in the order in which a kernel looks.
_ENDS = {
    "bitmask_culled": "bitmask",
    "label_culled": "labels",
    "warp_culled": "warp",
    "history_culled": "history",
    "claim_culled": "claims",
    "labelled": "labelled",
}

WAYS = ("expand-contract", "contract-expand", "two-phase", "hybrid")
"""Merrill 2012, section 5."""
GATHERING = ("two-phase:gathering=serial", "two-phase:gathering=warp", "two-phase:gathering=scan", "two-phase")
"""Merrill 2012, section 4.1: the default gathering is all three together."""
CULLING = ("two-phase:culling=none", "two-phase:culling=warp", "two-phase:culling=history", "two-phase")
"""Merrill 2012, section 4.2, with claims."""
STATUS = ("two-phase:status=labels", "two-phase:status=bitmask", "expand-contract:status=bitmask", "two-phase")
"""Merrill 2012, section 4.2, and an exact claim, which is not in the paper."""
DUPLICATES = (
    "expand-contract",
    "expand-contract:status=bitmask",
    "two-phase:status=bitmask",
    "two-phase:status=labels",
)
"""Queues without duplicates, and with what the status lookup and the culling let pass (Merrill 2012, section 4)."""
QUADRATIC = ("masks", "warp-centric", "matrix-vector", "status-array", "expand-contract")
"""Merrill 2012, section 5.6, beside a strategy with a queue."""
QUEUES = (
    "status-array",
    "status-scan",
    "atomic-queue",
    "degree-classes",
    "child-kernels",
    "device-loop",
    "hierarchical",
)
"""Tödling 2019."""
BEST = ("resident", "hybrid", "degree-classes", "hierarchical", "device-loop", "scipy", "sequential")
"""The project's engine beside the best of each family, and one core."""


def figures(report: LabReport) -> dict[str, Figure]:
    """Return all figures by name."""
    return {
        "rates": rates(report, BEST),
        "ways": relative(report, WAYS, "two-phase"),
        "gathering": relative(report, GATHERING, "two-phase"),
        "culling": relative(report, CULLING, "two-phase"),
        "status": relative(report, STATUS, "two-phase"),
        "expansion": expansion(report, STATUS),
        "frontiers": frontiers(report, DUPLICATES),
        "neighbours": neighbours(report, "two-phase"),
        "quadratic": relative(report, QUADRATIC, "expand-contract"),
        "queues": relative(report, QUEUES, "atomic-queue"),
        "levels": levels(report, QUEUES),
        "memory": memory(report),
    }


def rates(report: LabReport, strategies: Sequence[str]) -> Figure:
    """Draw the median rates, with the lowest and the highest."""
    return _bars(report, strategies, lambda rate: rate.mteps / 1e3, "directed GTEPS", spread=True)


def relative(report: LabReport, strategies: Sequence[str], base: str) -> Figure:
    """Draw the rates relative to that of ``base`` on the same graph."""
    bases = {rate.graph: rate.mteps for rate in report.rates if rate.strategy == base}

    def over(rate: LabRate) -> float:
        return rate.mteps / bases[rate.graph] if bases.get(rate.graph) else 0.0

    return _bars(report, strategies, over, f"rate over that of {base}", line=1.0)


def expansion(report: LabReport, strategies: Sequence[str]) -> Figure:
    """Draw the redundant expansion: edges looked at, divided by the edges of the component. 1 is none."""
    return _bars(report, strategies, lambda rate: rate.expansion, "redundant expansion factor", line=1.0)


def levels(report: LabReport, strategies: Sequence[str]) -> Figure:
    """Draw the time of a level."""
    return _bars(report, strategies, lambda rate: rate.milliseconds * 1e3 / (rate.depth + 1), "µs a level")


def frontiers(report: LabReport, strategies: Sequence[str]) -> Figure:
    """Draw the vertices that strategies expand by level, duplicates included, from one source of each graph."""
    graphs = list(dict.fromkeys(rate.graph for rate in report.rates))
    figure = _figure(8.0, 2.6 * -(-len(graphs) // 2) + 0.4)
    axes = figure.subplots(-(-len(graphs) // 2), 2, squeeze=False)
    for ax in axes.flat[len(graphs) :]:
        ax.set_axis_off()
    for ax, graph in zip(axes.flat, graphs, strict=False):
        for strategy, colour in zip(strategies, _COLOURS, strict=False):
            for rate in report.rates:
                if (rate.graph, rate.strategy) == (graph, strategy) and rate.frontier:
                    at = rate.step * np.arange(len(rate.frontier))
                    ax.plot(at, rate.frontier, color=colour, label=strategy, linewidth=1.2)
        ax.set_yscale("log")
        ax.set_title(short_name(graph), fontsize="small", loc="left")
        ax.tick_params(labelsize="small")
        ax.grid(axis="y", alpha=0.3)
    figure.supxlabel("level", fontsize="small")
    figure.supylabel("vertices expanded", fontsize="small")
    handles = {text: line for ax in axes.flat for line, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, loc="outside upper right", ncols=2, frameon=False, fontsize="small")
    return figure


def memory(report: LabReport) -> Figure:
    """Draw the bytes that a strategy takes for each vertex, by strategy: labels, queues and marks, on each graph."""
    measured = [rate for rate in report.rates if "bytes" in rate.counters]
    strategies = list(
        dict.fromkeys(rate.strategy for rate in measured if rate.strategy == parse(rate.strategy).strategy)
    )
    graphs = list(dict.fromkeys(rate.graph for rate in measured))
    figure = _figure(8.0, 1.2 + 0.28 * len(strategies))
    ax = figure.subplots()
    for index, graph in enumerate(graphs):
        mine = {rate.strategy: rate.counters["bytes"] / rate.n for rate in measured if rate.graph == graph}
        rows = [row for row, strategy in enumerate(strategies) if strategy in mine]
        values = [mine[strategies[row]] for row in rows]
        ax.plot(values, rows, "osD^vP*X"[index % 8], color=_COLOURS[index % len(_COLOURS)], label=short_name(graph))
    ax.set_yticks(range(len(strategies)), strategies, fontsize="small")
    ax.set_ylim(len(strategies) - 0.5, -0.5)
    ax.set_xscale("log")
    ax.set_xlabel("bytes a vertex: labels, queues and marks")
    ax.grid(alpha=0.3)
    figure.legend(loc="outside upper right", ncols=3, frameon=False, fontsize="small")
    return figure


def neighbours(report: LabReport, strategy: str) -> Figure:
    """Draw where the neighbours that a strategy gathered ended: what dropped them, or that they got a label."""
    mine = [rate for rate in report.rates if rate.strategy == strategy and rate.counters.get("edges")]
    figure = _figure(8.0, 1.2 + 0.3 * len(mine))
    ax = figure.subplots()
    left = np.zeros(len(mine))
    for (counter, word), colour in zip(_ENDS.items(), _COLOURS, strict=False):
        shares = np.array([100 * rate.counters.get(counter, 0) / rate.counters["edges"] for rate in mine])
        ax.barh(range(len(mine)), shares, left=left, color=colour, label=word)
        left += shares
    ax.set_yticks(range(len(mine)), [short_name(rate.graph) for rate in mine], fontsize="small")
    ax.set_ylim(len(mine) - 0.5, -0.5)
    ax.set_xlabel(f"of 100 neighbours that {strategy} gathered")
    figure.legend(loc="outside upper right", ncols=len(_ENDS), frameon=False, fontsize="small")
    return figure


def _bars(
    report: LabReport,
    strategies: Sequence[str],
    value: Callable[[LabRate], float],
    axis: str,
    *,
    line: float | None = None,
    spread: bool = False,
) -> Figure:
    """Draw a bar for each strategy on each graph; a word in its place if there is no rate."""
    found = {(rate.graph, rate.strategy): rate for rate in report.rates}
    graphs = list(dict.fromkeys(rate.graph for rate in report.rates))
    shown = [name for name in strategies if any((graph, name) in found for graph in graphs)]
    height = 0.84 / max(1, len(shown))
    figure = _figure(8.0, 1.4 + 0.17 * len(graphs) * max(2, len(shown)))
    ax = figure.subplots()
    for index, strategy in enumerate(shown):
        mine = [(row, found[graph, strategy]) for row, graph in enumerate(graphs) if (graph, strategy) in found]
        at = np.array([row for row, _ in mine]) - 0.42 + height * (index + 0.5)
        values = [0.0 if rate.missing else value(rate) for _, rate in mine]
        colour = _COLOURS[index % len(_COLOURS)]
        ax.barh(at, values, height=height * 0.92, color=colour, label=strategy)
        for place, (_, rate) in zip(at, mine, strict=True):
            if rate.missing:
                ax.annotate(f" {rate.missing}", (0, place), (2, 0), ("axes fraction", "data"), "offset points",
                            fontsize="x-small", color=colour, va="center")  # fmt: skip
            elif spread:
                ax.plot([rate.low / 1e3, rate.high / 1e3], [place, place], color="#404040", linewidth=0.8)
    ax.set_xscale("log")
    if line is not None:
        ax.axvline(line, color="#808080", linewidth=0.8)
    ax.set_yticks(range(len(graphs)), [short_name(graph) for graph in graphs], fontsize="small")
    ax.set_ylim(len(graphs) - 0.5, -0.5)
    ax.set_xlabel(axis)
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)
    if shown:
        figure.legend(loc="outside upper right", ncols=4, frameon=False, fontsize="small")
    return figure


def _figure(width: float, height: float) -> Figure:
    # Not a figure of pyplot, which would keep every figure in memory to show it.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")

"""The figures of the benchmarks over many graphs, as PNG files."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import lab_figures
from benchmarks.corpus import CorpusReport, Frontier, short_name
from benchmarks.lab_results import LabReport
from benchmarks.rates import Rates
from benchmarks.scaling import STRONG, WEAK, ScalingPoint
from dbfs.display.plots import EDGES, VERTICES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from benchmarks.saved import Results

_DPI = 120
_COLOURS = (VERTICES, EDGES, "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_MARKERS = "osD^vP"


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw the figures of a benchmark's results into a folder, and return their paths.

    The corpus has ``frontiers.png`` (Merrill 2012, figure 3), ``rates.png`` (figure 10) and, if several numbers of
    ranks were measured, ``ranks.png`` (figure 11). Scaling has ``scaling.png``: speed-up (strong) and efficiency (weak)
    by number of ranks. The laboratory has those of ``lab_figures``.
    """
    if isinstance(results, LabReport):
        return _save(lab_figures.figures(results), folder)
    if not isinstance(results, CorpusReport):
        return _save({"scaling": _scaling(results)}, folder)
    drawn = {"frontiers": _frontiers(results.frontiers), "rates": _rates(results.rates)}
    if len({rates.ranks for rates in results.rates}) > 1:
        drawn["ranks"] = _ranks(results)
    return _save(drawn, folder)


def _save(drawn: dict[str, Figure], folder: Path) -> list[Path]:
    paths = [folder / f"{name}.png" for name in drawn]
    for path, figure in zip(paths, drawn.values(), strict=True):
        figure.savefig(path, dpi=_DPI)
    return paths


def _figure(width: float, height: float) -> Figure:
    # Not a figure of pyplot, which would keep every figure in memory to show it.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _frontiers(frontiers: Sequence[Frontier]) -> Figure:
    across = min(4, len(frontiers))
    down = -(-len(frontiers) // across)
    figure = _figure(3.3 * across, 2.4 * down + 0.4)
    axes = figure.subplots(down, across, squeeze=False)
    for ax in axes.flat[len(frontiers) :]:
        ax.set_axis_off()
    for ax, frontier in zip(axes.flat, frontiers, strict=False):
        levels = np.arange(len(frontier.vertices))
        marker = "o" if levels.size <= 40 else ""
        for values, colour, label in (
            (frontier.edges, EDGES, "edge frontier"),
            (frontier.vertices, VERTICES, "vertex frontier"),
        ):
            shown = np.where(np.array(values) > 0, values, np.nan)
            ax.plot(levels, shown, color=colour, label=label, linewidth=1.2, marker=marker, markersize=2.5)
        ax.set_yscale("log")
        ax.set_ylim(bottom=0.7)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_title(short_name(frontier.graph), fontsize="small", loc="left")
        ax.tick_params(labelsize="small")
        ax.grid(axis="y", alpha=0.3)
    figure.supxlabel("level", fontsize="small")
    figure.supylabel("vertices, directed edges", fontsize="small")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False, fontsize="small")
    return figure


def _rates(rates: Sequence[Rates]) -> Figure:
    """Draw the rates on the largest number of ranks, and the share of redundant work there."""
    most = max(one.ranks for one in rates)
    shown = [one for one in rates if one.ranks == most]
    graphs = list(dict.fromkeys(one.graph for one in shown))
    directions = list(dict.fromkeys(one.direction for one in shown))
    figure = _figure(9.0, 1.4 + 0.24 * len(graphs) * len(directions))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 1.4])
    height = 0.84 / (2 * len(directions))
    rows = np.arange(len(graphs))
    unit, scale = ("GTEPS", 1e-3) if max(one.distance_mteps for one in shown) >= 2000 else ("MTEPS", 1.0)
    for index, direction in enumerate(directions):
        mine = {one.graph: one for one in shown if one.direction == direction}
        for label, values in (
            ("distances", [mine[graph].distance_mteps for graph in graphs]),
            ("predecessors", [mine[graph].predecessor_mteps for graph in graphs]),
        ):
            at = 2 * index + (label == "predecessors")
            left.barh(
                rows - 0.42 + height * (at + 0.5),
                np.array(values) * scale,
                height=height * 0.92,
                color=_COLOURS[index],
                alpha=1.0 if label == "distances" else 0.45,
                label=f"{direction}, {label}",
            )
        known = [(row, mine[graph].redundancy) for row, graph in enumerate(graphs)]
        points = [(value, row) for row, value in known if value is not None]
        if points:
            right.plot(*zip(*points, strict=True), _MARKERS[index], color=_COLOURS[index], label=direction)
    least = min(min(one.distance_mteps, one.predecessor_mteps) for one in shown) * scale
    left.set_xscale("log")
    # A logarithmic axis has no zero, so the bars begin at a power of ten that leaves the shortest bar visible.
    left.set_xlim(left=10.0 ** np.floor(np.log10(0.7 * least)))
    left.set_yticks(rows, [short_name(graph) for graph in graphs], fontsize="small")
    left.set_ylim(len(graphs) - 0.5, -0.5)
    left.set_xlabel(f"directed {unit}, {most} rank{'s' * (most > 1)}")
    right.axvline(1, color="#808080", linewidth=0.8)
    right.set_xlabel("vertices kept / discovered")
    for ax in (left, right):
        ax.grid(axis="x", alpha=0.3)
        ax.set_axisbelow(True)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=4, frameon=False, fontsize="small")
    return figure


def _ranks(report: CorpusReport) -> Figure:
    """Draw the rates relative to those of one rank, in one panel for each direction."""
    directions = list(dict.fromkeys(rates.direction for rates in report.rates))
    ranks = sorted({rates.ranks for rates in report.rates})
    graphs = list(dict.fromkeys(rates.graph for rates in report.rates))
    figure = _figure(4.6 * len(directions), 1.4 + 0.27 * len(graphs) * len(ranks) ** 0.5)
    axes = figure.subplots(1, len(directions), sharey=True, sharex=True, squeeze=False)
    height = 0.84 / len(ranks)
    for ax, direction in zip(axes[0], directions, strict=True):
        for index, count in enumerate(ranks):
            speedups = {
                rates.graph: report.speedup(rates)
                for rates in report.rates
                if (rates.ranks, rates.direction) == (count, direction)
            }
            rows = np.arange(len(graphs)) - 0.42 + height * (index + 0.5)
            values = [speedups.get(graph) or 0.0 for graph in graphs]
            label = f"{count} rank{'s' * (count > 1)}"
            ax.barh(rows, values, height=height * 0.92, color=_COLOURS[index % len(_COLOURS)], label=label)
        ax.axvline(1, color="#808080", linewidth=0.8)
        ax.set_title(direction, fontsize="small", loc="left")
        ax.set_xlabel("rate over one rank's")
        ax.grid(axis="x", alpha=0.3)
        ax.set_axisbelow(True)
    axes[0, 0].set_yticks(range(len(graphs)), [short_name(graph) for graph in graphs], fontsize="small")
    axes[0, 0].set_ylim(len(graphs) - 0.5, -0.5)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=len(ranks), frameon=False, fontsize="small")
    return figure


def _scaling(points: Sequence[ScalingPoint]) -> Figure:
    kinds = [kind for kind in (STRONG, WEAK) if any(point.kind == kind for point in points)]
    figure = _figure(5.0 * len(kinds), 3.8)
    for ax, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        mine = [point for point in points if point.kind == kind]
        ranks = sorted({point.rates.ranks for point in mine})
        lines = dict.fromkeys((point.series, point.rates.direction) for point in mine)
        for (series, direction), colour, marker in zip(
            lines, itertools.cycle(_COLOURS), itertools.cycle(_MARKERS), strict=False
        ):
            line = [point for point in mine if (point.series, point.rates.direction) == (series, direction)]
            at = [point.rates.ranks for point in line]
            values = [point.speedup if kind == STRONG else point.efficiency for point in line]
            ax.plot(at, values, color=colour, marker=marker, label=f"{series}, {direction}")
        _ideal(ax, kind, ranks)
        ax.set_xscale("log", base=2)
        ax.set_xticks(ranks, [str(count) for count in ranks])
        ax.minorticks_off()
        ax.set_xlabel("ranks")
        ax.set_ylabel("speed-up" if kind == STRONG else "efficiency: rate per rank over the first's")
        ax.set_title(f"{kind} scaling", fontsize="medium", loc="left")
        ax.grid(alpha=0.3)
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False, fontsize="small")
    return figure


def _ideal(ax: Axes, kind: str, ranks: Sequence[int]) -> None:
    values = [count / ranks[0] for count in ranks] if kind == STRONG else [1.0] * len(ranks)
    ax.plot(ranks, values, color="#808080", linestyle="--", linewidth=1, label="ideal")

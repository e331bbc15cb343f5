"""The figures of the benchmarks over many graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.pictures import COLOURS, MARKERS, Lines, charts, figure
from benchmarks.rates import STRONG, WEAK, Frontier, Rates, short_name
from dbfs.display.plots import EDGES, VERTICES
from dbfs_workers.base.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def corpus_figures(rates: Sequence[Rates], frontiers: Sequence[Frontier]) -> dict[str, Figure]:
    """Return the figures of Merrill 2012 by name: frontiers (3), rates (10), and ranks (11) if there are several."""
    drawn = {"frontiers": _frontiers(frontiers), "rates": _rates(rates)}
    if len({one.ranks for one in rates}) > 1:
        drawn["ranks"] = _ranks(rates)
    return drawn


def _frontiers(frontiers: Sequence[Frontier]) -> Figure:
    across = min(4, len(frontiers))
    down = -(-len(frontiers) // across)
    drawn = figure(3.3 * across, 2.4 * down + 0.4)
    axes = drawn.subplots(down, across, squeeze=False)
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
    drawn.supxlabel("level", fontsize="small")
    drawn.supylabel("vertices, directed edges", fontsize="small")
    _legend(drawn, axes[0, 0], 2)
    return drawn


def _rates(rates: Sequence[Rates]) -> Figure:
    """Draw the rates on the largest number of ranks, and the share of redundant work there."""
    most = max(one.ranks for one in rates)
    shown = [one for one in rates if one.ranks == most]
    graphs, directions = _graphs(shown), list(dict.fromkeys(one.direction for one in shown))
    drawn = figure(9.0, 1.4 + 0.24 * len(graphs) * len(directions))
    left, right = drawn.subplots(1, 2, sharey=True, width_ratios=[3, 1.4])
    unit, scale = ("GTEPS", 1e-3) if max(one.distance_mteps for one in shown) >= 2000 else ("MTEPS", 1.0)
    for index, direction in enumerate(directions):
        mine = [one for one in shown if one.direction == direction]
        for at, alpha, what in ((0, 1.0, "distance"), (1, 0.45, "predecessor")):
            values = [getattr(one, f"{what}_mteps") * scale for one in mine]
            label = f"{direction}, {what}s"
            _bars(left, values, 2 * index + at, 2 * len(directions), COLOURS[index], label, alpha)
        points = [(one.redundancy, row) for row, one in enumerate(mine) if one.redundancy is not None]
        if points:
            right.plot(*zip(*points, strict=True), MARKERS[index], color=COLOURS[index], label=direction)
    least = min(min(one.distance_mteps, one.predecessor_mteps) for one in shown) * scale
    left.set_xscale("log")
    # A logarithmic axis has no zero, so the bars begin at a power of ten that leaves the shortest bar visible.
    left.set_xlim(left=10.0 ** np.floor(np.log10(0.7 * least)))
    _name(left, graphs)
    left.set_xlabel(f"directed {unit}, {counted(most, 'rank')}")
    right.axvline(1, color="#808080", linewidth=0.8)
    right.set_xlabel("vertices kept / discovered")
    right.grid(axis="x", alpha=0.3)
    _legend(drawn, left, 4)
    return drawn


def _ranks(rates: Sequence[Rates]) -> Figure:
    """Draw the rates relative to those on the fewest ranks, in one panel for each direction."""
    directions = list(dict.fromkeys(one.direction for one in rates))
    ranks, graphs = sorted({one.ranks for one in rates}), _graphs(rates)
    drawn = figure(4.6 * len(directions), 1.4 + 0.27 * len(graphs) * len(ranks) ** 0.5)
    axes = drawn.subplots(1, len(directions), sharey=True, sharex=True, squeeze=False)[0]
    for ax, direction in zip(axes, directions, strict=True):
        for index, number in enumerate(ranks):
            values = [one.speedup for one in rates if (one.ranks, one.direction) == (number, direction)]
            _bars(ax, values, index, len(ranks), COLOURS[index % len(COLOURS)], counted(number, "rank"))
        ax.axvline(1, color="#808080", linewidth=0.8)
        ax.set_title(direction, fontsize="small", loc="left")
        ax.set_xlabel("rate over that of the fewest ranks")
        _name(ax, graphs)
    _legend(drawn, axes[0], len(ranks))
    return drawn


def _graphs(rates: Sequence[Rates]) -> list[str]:
    return list(dict.fromkeys(one.graph for one in rates))


def _bars(ax: Axes, values: Sequence[float], index: int, of: int, colour: str, label: str, alpha: float = 1.0) -> None:
    """Draw a bar in each graph's row, the ``index``-th of the ``of`` bars there."""
    height = 0.84 / of
    at = np.arange(len(values)) - 0.42 + height * (index + 0.5)
    ax.barh(at, values, height=height * 0.92, color=colour, alpha=alpha, label=label)


def _name(ax: Axes, graphs: Sequence[str]) -> None:
    """Write the graphs beside their rows."""
    ax.set_yticks(range(len(graphs)), [short_name(graph) for graph in graphs], fontsize="small")
    ax.set_ylim(len(graphs) - 0.5, -0.5)
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)


def _legend(drawn: Figure, ax: Axes, across: int) -> None:
    handles, labels = ax.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper right", ncols=across, frameon=False, fontsize="small")


def scaling_figures(rates: Sequence[Rates]) -> dict[str, Figure]:
    """Return the figure of speed-up (strong) and efficiency (weak) by number of ranks."""
    lines: dict[str, Lines] = {}
    for one in rates:
        of = lines.setdefault(one.kind, {}).setdefault(f"{one.series}, {one.direction}", [])
        of.append((one.ranks, one.speedup if one.kind == STRONG else one.efficiency))
    titles = {STRONG: "speed-up", WEAK: "efficiency: rate per rank over the first's"}
    shown = [(f"{kind} scaling", "ranks", titles[kind], lines[kind]) for kind in titles if kind in lines]
    return {"scaling": charts("Scaling over ranks", *shown)}

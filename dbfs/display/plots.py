"""Plots of results and graphs by matplotlib, which is imported only when a plot is drawn.

Each method draws on the given axes, or on a new figure, and returns the axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import part_of
from dbfs.base.records import short_name
from dbfs.display.notebook.html import frontier, graph_html
from dbfs.errors import MissingPackageError
from dbfs.graph.counts import vertices_in_words
from dbfs.graph.graph import Graph, R
from dbfs.graph.html import Card
from dbfs.graph.result import BFSResult
from dbfs_workers.base.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dbfs.engines import LevelReport

# Blue, vermilion, sky blue and green of Okabe and Ito's palette, distinct for colour-blind readers, in print and on
# dark backgrounds.
VERTICES, EDGES = "#0072b2", "#d55e00"
_PHASES = {
    "search": "#0072b2",
    "expand": "#0072b2",
    "filter-partition": "#56b4e9",
    "bottom-up": "#0072b2",
    "exchange": "#d0d0d0",
    "contract": "#009e73",
}
# The underscore keeps a phase out of the legend: a strip marks bottom-up levels, and the legend names the strip.
_PHASE_WORDS = {"exchange": "exchange and wait", "bottom-up": "_bottom-up"}
_WAITING = "exchange"
BOTTOM_UP = "bottom-up"
_BOTTOM_UP_SHADE: dict[str, Any] = {"color": "#808080", "alpha": 0.15, "linewidth": 0}

_MARKED_LEVELS = 60
_MOST_STRETCHES = 32
_MOST_BARS, _MOST_LABELLED_BARS = 24, 10


@part_of("Graph")
class ShownGraph(Graph[R]):
    """How a graph looks: in plots, and in a notebook."""

    def plot_degrees(self, ax: Axes | None = None) -> Axes:
        """Plot the number of vertices of each degree (``degree_counts``), on logarithmic scales if degrees vary much.

        Args:
            ax: axes to draw on; None for a new figure.

        Raises:
            MissingPackageError: matplotlib is not installed. Other errors as for ``degree_counts``.
        """
        ax = _axes(ax, 7.0, 3.6)
        degrees, counts = self.degree_counts()
        mean = self.m / self.n if self.n else 0.0
        kind = "out-degree" if self.directed else "degree"
        if self.max_degree <= _MOST_BARS:
            bars = ax.bar(degrees, counts, width=0.8, color=VERTICES)
            _whole_ticks(ax)
            if counts.size and counts.max() > 100 * counts.min():
                ax.set_yscale("log")
                ax.set_ylim(0.7, 4.0 * int(counts.max()))
            elif counts.size:
                ax.set_ylim(top=1.12 * int(counts.max()))
            if counts.size <= _MOST_LABELLED_BARS:
                ax.bar_label(bars, fmt="{:,.0f}", fontsize="small", padding=2)
            ax.set_axisbelow(True)
        else:
            isolated, some = int(counts[degrees == 0].sum()), degrees > 0
            or_more = np.cumsum(counts[some][::-1])[::-1]
            ax.plot(degrees[some], or_more, color=EDGES, linewidth=1.4, label="of this degree or more")
            ax.plot(degrees[some], counts[some], ".", color=VERTICES, markersize=3, alpha=0.5, label="of this degree")
            ax.axvline(mean, color="#808080", linewidth=1, linestyle="--", label="mean")
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_ylim(bottom=0.7)
            ax.legend(
                frameon=False,
                fontsize="small",
                title=f"{isolated:,} of degree 0 not shown" if isolated else None,
                title_fontsize="small",
            )
        _name_axes(ax, kind, "vertices")
        ax.grid(axis="y", alpha=0.3)
        _headline(ax, self.name, f"{vertices_in_words(self)}, mean {kind} {mean:,.2f}, largest {self.max_degree:,}")
        return ax

    def _repr_html_(self) -> str:
        return graph_html(self)


@part_of("BFSResult")
class ShownResult(BFSResult):
    """How a result looks: in plots, and in a notebook."""

    def plot_frontier(self, ax: Axes | None = None) -> Axes:
        """Plot the vertex frontier and the edge frontier by level, on a logarithmic scale (Merrill 2012, figure 3).

        The vertex frontier is the number of vertices expanded; the edge frontier is the number of edges inspected for
        them. Bottom-up levels are shaded. Their edges are inspected from unvisited vertices and are not those of the
        frontier; ``bfs(..., direction="top-down")`` inspects the frontier's edges in every level.

        Args:
            ax: axes to draw on; None for a new figure.

        Raises:
            MissingPackageError: matplotlib is not installed.
        """
        ax = _axes(ax, 7.0, 3.6)
        reports = self.reports
        levels = [report.level for report in reports]
        marked = len(levels) <= _MARKED_LEVELS
        for values, what, colour, marker in (
            # Of a report of several levels, their mean.
            ([report.edges / report.levels for report in reports], "edge frontier", EDGES, "s"),
            ([report.frontier / report.levels for report in reports], "vertex frontier", VERTICES, "o"),
        ):
            # A level may inspect no edge, and 0 has no logarithm.
            positive = [value or math.nan for value in values]
            ax.plot(
                levels, positive, color=colour, label=what, marker=marker if marked else "", markersize=4, linewidth=1.4
            )
        for number, (first, last) in enumerate(_bottom_up_stretches(reports)):
            label = "bottom-up: edges inspected" if number == 0 else None
            ax.axvspan(first - 0.5, last + 0.5, label=label, **_BOTTOM_UP_SHADE)
        ax.set_yscale("log")
        # At least one decade, because matplotlib's ticks of a shorter one are many.
        ax.set_ylim(0.7, max(20.0, ax.get_ylim()[1]))
        ax.set_xlim(-0.5, max(sum(report.levels for report in reports) - 0.5, 0.5))
        _whole_ticks(ax)
        _name_axes(ax, "level", "size of the frontier")
        ax.grid(axis="y", alpha=0.3)
        _headline(ax, self.graph.name, f"from {_sources(self)}: {self.reached:,} reached, depth {self.depth:,}")
        ax.legend(frameon=False, fontsize="small")
        return ax

    def plot_levels(self, ax: Axes | None = None) -> Axes:
        """Plot the time of each phase on each rank, level by level; imbalance and waiting become visible.

        The x axis is wall time. Each rank has a row, coloured by phase. Blank parts are time outside of the phases (in
        the taskgraph engine: Dask's). Bottom-up levels have a strip on the upper edge. More than 32 levels are drawn
        in at most 32 groups. Arguments and errors as for ``plot_frontier``.
        """
        ranks, reports = self.graph.ranks, self.reports
        ax = _axes(ax, 8.0, 1.4 + 0.36 * min(max(ranks, 2), 16))
        # The unit keeps numbers readable: 123 µs instead of 0.000123 s.
        unit, scale = ("µs", 1e6) if self.seconds < 1e-3 else ("ms", 1e3) if self.seconds < 1 else ("s", 1.0)
        ends = np.cumsum([report.seconds for report in reports]) * scale
        starts = np.concatenate([[0.0], ends[:-1]])
        # The levels take 0 s if the clock is too coarse for the run.
        whole = float(ends[-1]) if reports and ends[-1] else 1.0
        stretches = _stretches(ends)
        left = np.repeat([[starts[first] for first, _ in stretches]], ranks, axis=0)
        for phase in reports[0].phase_seconds[0] if reports else ():
            times = np.array([[rank[phase] for rank in report.phase_seconds] for report in reports]) * scale
            widths = np.array([times[first:last].sum(axis=0) for first, last in stretches]).T
            if widths.any():
                rows = np.repeat(np.arange(ranks), len(stretches))
                words = _PHASE_WORDS.get(phase, phase)
                ax.barh(rows, widths.ravel(), left=left.ravel(), height=0.8, color=_PHASES[phase], label=words)
            left = left + widths
        label = "bottom-up level"
        for first, last in stretches:
            ax.axvline(starts[first], color="#404040", linewidth=0.6, alpha=0.6)
            if all(report.direction == BOTTOM_UP for report in reports[first:last]):
                # A strip on the upper edge, because the bars would hide a shade behind them.
                strip: dict[str, Any] = {"color": ax.spines["top"].get_edgecolor(), "linewidth": 5}
                place = ax.get_xaxis_transform()
                where = [starts[first], ends[last - 1]], [1, 1]
                ax.plot(*where, transform=place, solid_capstyle="butt", label=label, **strip)
                label = ""
        _level_ticks(ax, reports, stretches, starts, ends)
        ax.set_xlim(0, whole)
        ax.set_ylim(ranks - 0.5, -0.5)
        ax.set_yticks(range(0, ranks, -(-ranks // 16)))
        ax.set_ylabel("rank")
        ax.set_xlabel(f"time in {unit}", loc="left")
        busy = f"; the busiest rank of each level works {_imbalance(reports):.2f} times the mean" if ranks > 1 else ""
        _headline(
            ax, self.graph.name, f"{counted(len(reports), 'level')} in {whole:.3g} {unit} ({self.engine}){busy}", pad=18
        )
        if reports:
            _legend_beside_label(ax)
        return ax

    def _card(self) -> Card:
        return super()._card()._replace(chart=frontier(self.reports))


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        words = f"plots need matplotlib ({error}); pip install '.[plots]' in a clone of dbfs"
        raise MissingPackageError(words) from error
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def _headline(ax: Axes, title: str, below: str, pad: float = 6) -> None:
    """Write two lines above the axes, the second one smaller."""
    # A name with dollar signs is no formula.
    ax.set_title(f"{short_name(title, 70)}\n", loc="left", fontsize="medium", pad=pad, parse_math=False)
    ax.annotate(
        below, (0, 1), (0, pad), xycoords="axes fraction", textcoords="offset points", fontsize="small", alpha=0.75
    )


def _name_axes(ax: Axes, x: str, y: str) -> None:
    """Name the axes; in a grid of plots with the same names, only the lowest x axis and the leftmost y axis."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    cell = ax.get_subplotspec()
    if cell is None:
        return
    for other in ax.figure.axes:
        place = other.get_subplotspec()
        if other is ax or place is None or place.get_gridspec() is not cell.get_gridspec():
            continue
        if place.colspan == cell.colspan and other.get_xlabel() == x:
            (ax if cell.rowspan.start < place.rowspan.start else other).set_xlabel("")
        if place.rowspan == cell.rowspan and other.get_ylabel() == y:
            (ax if cell.colspan.start > place.colspan.start else other).set_ylabel("")


def _legend_beside_label(ax: Axes) -> None:
    """Put the legend to the right of the x label, which stands on the left, in as many columns as fit.

    The offset of the label's end from the corner of the axes is in inches and so independent of the size of the axes:
    the legend, which starts there, never overlaps the label. One row of legend adds no height; low axes have none to
    spare.
    """
    from matplotlib.transforms import ScaledTranslation

    # This call computes the position of the label.
    ax.xaxis.get_tightbbox()
    label, dpi = ax.xaxis.label.get_window_extent(), ax.figure.dpi
    right, down = (label.x1 - ax.bbox.x0) / dpi + 0.15, (label.y1 - ax.bbox.y0) / dpi
    corner = ax.transAxes + ScaledTranslation(right, down, ax.figure.dpi_scale_trans)
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, 0), "bbox_transform": corner}
    cell = ax.get_subplotspec()
    # Space to the right of the last column of axes is free, and layouts give it to these axes.
    end = ax.figure.bbox.x1 if cell is not None and cell.is_last_col() else ax.bbox.x1
    look: dict[str, Any] = {"frameon": False, "fontsize": "small", "columnspacing": 1.0, "handlelength": 1.0}
    for columns in range(max(1, len(ax.get_legend_handles_labels()[1])), 0, -1):
        legend = ax.legend(ncols=columns, borderpad=0.1, borderaxespad=0, **look, **place)
        if legend.get_window_extent().x1 <= end:
            break


def _sources(result: BFSResult) -> str:
    return str(result.sources[0]) if len(result.sources) == 1 else f"{len(result.sources)} sources"


def _whole_ticks(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.xaxis.set_major_formatter("{x:,.0f}")


def _level_ticks(
    ax: Axes,
    reports: Sequence[LevelReport],
    stretches: Sequence[tuple[int, int]],
    starts: NDArray[np.float64],
    ends: NDArray[np.float64],
) -> None:
    """Write level numbers above the axes: above each level as far as they fit, or about ten if levels share a bar."""
    ticks: list[float] = []
    words: list[str] = []
    free = 0.0
    space = (0.01 if len(stretches) == len(reports) else 0.06) * ends[-1] if reports else 0.0
    for first, last in stretches:
        word = f"{reports[first].level:,}"
        half = 0.008 * (len(word) + 1) * ends[-1]
        at = (starts[first] + ends[first]) / 2 if last == first + 1 else starts[first]
        if at - half >= free or not ticks:
            ticks.append(at)
            words.append(word)
            free = at + half + space
    top = ax.secondary_xaxis("top")
    top.set_xticks(ticks, words, fontsize="small")
    top.tick_params(length=0, pad=1)
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "right", "va": "bottom"}
    ax.annotate("level", (0, 1), (-5, 1), fontsize="small", **place)


def _bottom_up_stretches(reports: Sequence[LevelReport]) -> list[tuple[int, int]]:
    """Return the first and the last level of each sequence of bottom-up levels."""
    stretches: list[tuple[int, int]] = []
    for report in reports:
        if report.direction == BOTTOM_UP:
            last = report.level + report.levels - 1
            if stretches and stretches[-1][1] == report.level - 1:
                stretches[-1] = (stretches[-1][0], last)
            else:
                stretches.append((report.level, last))
    return stretches


def _stretches(ends: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Group levels into at most ``_MOST_STRETCHES`` stretches of about equal time, so that bars stay distinct.

    A level that takes longer than two stretches would is one of its own.

    Returns:
        [first, last) of each stretch; of each level, if there are few.
    """
    if ends.size <= _MOST_STRETCHES:
        return [(level, level + 1) for level in range(ends.size)]
    cuts = np.searchsorted(ends, np.linspace(0, ends[-1], _MOST_STRETCHES + 1)[1:-1]) + 1
    after, cuts_inside = np.unique(cuts, return_counts=True)
    # Several cuts inside a level are one cut after the level, so the cut before the level does not exceed the number.
    edges = np.unique(np.concatenate([[0], after, after[cuts_inside > 1] - 1, [ends.size]])).tolist()
    return list(itertools.pairwise(edges))


def _imbalance(reports: Sequence[LevelReport]) -> float:
    """Return the imbalance of work without waiting: the sum of each level's largest time over the sum of its means."""
    work = np.array(
        [
            [sum(time for phase, time in rank.items() if phase != _WAITING) for rank in report.phase_seconds]
            for report in reports
        ]
    )
    mean = work.mean(axis=1).sum() if work.size else 0.0
    return float(work.max(axis=1).sum() / mean) if mean else 1.0

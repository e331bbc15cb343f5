"""HTML by Jinja templates, as in Dask, with small SVG charts. Names given by users are escaped.

The charts are fast enough for a repr, and drawn in the text's own colour and two others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dbfs.graph.counts import edges_in_words
from dbfs.graph.html import rendered
from dbfs.graph.striped import StripedGraph

if TYPE_CHECKING:
    from dbfs.engines import LevelReport


def graph_html(graph: StripedGraph) -> str:
    """Return a graph's counts and its edges by rank as HTML."""
    chart = bars([info.m_local for info in graph.record.infos], "directed edges by rank")
    return rendered("graph", __package__, graph=graph, edges=edges_in_words(graph), chart=chart)


# Blue and vermilion with a contrast of at least 3 to both white and near black.
VERTICES, EDGES = "#2f86c9", "#dd6b20"

_WIDTH, _HEIGHT = 330, 130
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 8, 18, 18
_POINTS = 200
# Bars that differ by less than this share of the largest say nothing: a pixel of the chart's height.
_LEAST_DIFFERENCE = 0.02
_SMALL = 'font-size="10" fill="currentColor" fill-opacity="0.75"'


def frontier(reports: Sequence[LevelReport]) -> str:
    """Draw vertex and edge frontiers by level on a logarithmic scale, bottom-up levels shaded; empty without levels."""
    if not reports:
        return ""
    stretches = _stretches(reports)
    # Of a report of several levels, their mean.
    edges = [max(report.edges // report.levels for report in stretch) for stretch in stretches]
    vertices = [max(report.frontier // report.levels for report in stretch) for stretch in stretches]
    decades = max(1, math.ceil(math.log10(max(*edges, *vertices, 2))))
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    step = wide / len(stretches)

    def x(at: float) -> str:
        return f"{_LEFT + step * (at + 0.5):.1f}"

    def y(value: float) -> str:
        return f"{_TOP + high * (1 - math.log10(max(value, 1)) / decades):.1f}"

    parts = []
    for at, stretch in enumerate(stretches):
        if stretch[0].direction == "bottom-up":
            parts.append(
                f'<rect x="{x(at - 0.5)}" y="{_TOP}" width="{step:.1f}" height="{high}" '
                'fill="currentColor" fill-opacity="0.1"/>'
            )
    for exponent in range(0, decades + 1, -(-decades // 4)):
        parts.append(
            f'<path d="M{_LEFT} {y(10**exponent)}h{wide}" stroke="currentColor" stroke-opacity="0.15"/>'
            f'<text x="{_LEFT - 5}" y="{y(10**exponent)}" dy="3" text-anchor="end" {_SMALL}>10<tspan dy="-4" '
            f'font-size="8">{exponent}</tspan></text>'
        )
    for values, colour in ((edges, EDGES), (vertices, VERTICES)):
        points = " ".join(f"{x(at)},{y(value)}" for at, value in enumerate(values) if value)
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6" stroke-linejoin="round"/>'
        )
        if len(stretches) <= _POINTS // 5:
            parts.extend(
                f'<circle cx="{x(at)}" cy="{y(value)}" r="2" fill="{colour}"/>'
                for at, value in enumerate(values)
                if value
            )
    last, base = reports[-1].level + reports[-1].levels - 1, _HEIGHT - 5
    parts.append(f'<text x="{x(0)}" y="{base}" text-anchor="middle" {_SMALL}>0</text>')
    if last:
        # A number centred on a point near the edge would be cut off.
        anchor = "middle" if step > 30 else "end"
        right = len(stretches) - (1.0 if step > 30 else 0.5)
        parts.append(f'<text x="{x(right)}" y="{base}" text-anchor="{anchor}" {_SMALL}>{last:,}</text>')
    parts.append(f'<text x="{_LEFT + wide / 2:.0f}" y="{base}" text-anchor="middle" {_SMALL}>level</text>')
    parts.append(_legend([(VERTICES, "vertex frontier"), (EDGES, "edge frontier")], _LEFT))
    return _svg(_HEIGHT, parts, "vertex and edge frontier by level")


def bars(values: Sequence[int], what: str) -> str:
    """Draw a bar for each rank, from 0 up; empty for a single rank, and for bars of the same height to the eye."""
    if len(values) < 2 or max(values) - min(values) <= _LEAST_DIFFERENCE * max(values):
        return ""
    height, top = 90, 18
    wide, high = _WIDTH - 2 * _RIGHT, height - top - 16
    step, largest = wide / len(values), max(values)
    parts = [f'<text x="{_RIGHT}" y="11" {_SMALL}>{what}</text>']
    for rank, value in enumerate(values):
        tall = high * value / largest
        parts.append(
            f'<rect x="{_RIGHT + step * (rank + 0.1):.1f}" y="{top + high - tall:.1f}" width="{step * 0.8:.1f}" '
            f'height="{tall:.1f}" fill="{VERTICES}"><title>rank {rank}: {value:,}</title></rect>'
        )
        if len(values) <= 16 or rank % (len(values) // 8) == 0:
            parts.append(
                f'<text x="{_RIGHT + step * (rank + 0.5):.1f}" y="{height - 4}" text-anchor="middle" {_SMALL}>'
                f"{rank}</text>"
            )
    return _svg(height, parts, what)


def _stretches(reports: Sequence[LevelReport]) -> list[Sequence[LevelReport]]:
    """Group levels into at most ``_POINTS`` stretches of equal length."""
    size = -(-len(reports) // _POINTS)
    return [reports[at : at + size] for at in range(0, len(reports), size)]


def _legend(entries: Sequence[tuple[str, str]], left: float) -> str:
    parts = []
    for colour, word in entries:
        parts.append(f'<rect x="{left}" y="5" width="10" height="3" fill="{colour}"/>')
        parts.append(f'<text x="{left + 14}" y="10" {_SMALL}>{word}</text>')
        left += 100
    return "".join(parts)


def _svg(height: int, parts: Sequence[str], title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" role="img" aria-label="{title}">'
        f"{''.join(parts)}</svg>"
    )

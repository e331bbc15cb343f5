"""Line charts as SVG text, without matplotlib, so that any machine can draw the pages' figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 440, 330, 74, 44, 16, 52
_LEGEND = 18


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        name: its name in the legend.
        x, y: its points; all above 0.
        dashed: whether the line is dashed.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart with two logarithmic axes.

    Attributes:
        title: its title.
        across, up: titles of the axes.
        lines: the lines. Those of one place in two charts have one colour.
    """

    title: str
    across: str
    up: str
    lines: Sequence[Line]


def draw(title: str, charts: Sequence[Chart]) -> str:
    """Return an SVG picture with charts beside each other; ``title`` says what the picture shows."""
    height = _HEIGHT + _LEGEND * max(len(chart.lines) for chart in charts)
    width = _WIDTH * len(charts)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-labelledby="title" font-family="system-ui, sans-serif" font-size="12" fill="#1f2937">',
        f'<title id="title">{escape(title)}</title>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for index, chart in enumerate(charts):
        parts += [f'<g transform="translate({index * _WIDTH} 0)">', *_chart(chart), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _chart(chart: Chart) -> list[str]:
    xs = sorted({x for line in chart.lines for x in line.x})
    ys = [y for line in chart.lines for y in line.y]
    low, high = floor(log10(min(ys))), ceil(log10(max(ys)))
    high = max(high, low + 1)
    span = log10(xs[-1] / xs[0]) or 1.0

    def across(x: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * log10(x / xs[0]) / span, 1)

    def up(y: float) -> float:
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (log10(y) - low) / (high - low), 1)

    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [f'<text x="{_LEFT}" y="26" font-weight="600">{escape(chart.title)}</text>']
    for power in range(low, high + 1):
        at = up(10.0**power)
        parts.append(f'<line x1="{_LEFT}" y1="{at}" x2="{right}" y2="{at}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4}" text-anchor="end">{_number(10.0**power)}</text>')
    written = -_WIDTH * 1.0
    for x in xs:
        at = across(x)
        parts.append(f'<line x1="{at}" y1="{bottom}" x2="{at}" y2="{bottom + 4}" stroke="#1f2937"/>')
        # Numbers side by side need room.
        if at - written >= 7.5 * len(_number(x)) + 6:
            parts.append(f'<text x="{at}" y="{bottom + 18}" text-anchor="middle">{_number(x)}</text>')
            written = at
    middle = (_LEFT + right) / 2
    parts.append(f'<text x="{middle}" y="{bottom + 38}" text-anchor="middle">{escape(chart.across)}</text>')
    side = (_TOP + bottom) / 2
    parts.append(
        f'<text x="14" y="{side}" text-anchor="middle" transform="rotate(-90 14 {side})">{escape(chart.up)}</text>'
    )
    for index, line in enumerate(chart.lines):
        colour = _COLOURS[index % len(_COLOURS)]
        dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
        points = [(across(x), up(y)) for x, y in zip(line.x, line.y, strict=True)]
        path = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points]
        at = _HEIGHT + _LEGEND * index
        parts.append(
            f'<line x1="{_LEFT}" y1="{at}" x2="{_LEFT + 26}" y2="{at}" stroke="{colour}" stroke-width="2"{dashes}/>'
        )
        parts.append(f'<text x="{_LEFT + 34}" y="{at + 4}">{escape(line.name)}</text>')
    return parts


def _number(value: float) -> str:
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:g}{unit}" if value >= 1e4 else f"{value:,.0f}"
    return f"{value:g}"

"""The figures of the pages on scaling: strong and weak scaling in both layouts, and the model beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.layouts import LayoutCost
from benchmarks.line_chart import Chart, Line, draw
from benchmarks.scale_gpus import Prediction
from benchmarks.scale_model import TimeModel
from dbfs.building.build import LAYOUTS

_NAMES = {"1d": "1-D", "2d": "2-D"}

Value = Callable[[LayoutCost], float | None]


def write(points: Sequence[LayoutCost], model: TimeModel, predicted: Sequence[Prediction], folder: Path) -> list[Path]:
    """Write ``strong.svg``, ``weak.svg`` and ``scale.svg`` into a folder; return their paths."""
    drawn = {"strong": _strong(points), "weak": _weak(points), "scale": _scale(points, model, predicted)}
    paths = [folder / f"{name}.svg" for name in drawn]
    for path, text in zip(paths, drawn.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def strong_series(points: Sequence[LayoutCost]) -> list[LayoutCost]:
    """Return the points of the largest graph, with predecessors, by number of ranks."""
    largest = max(points, key=lambda point: point.m).graph
    return sorted(_kept(points, lambda point: point.graph == largest), key=lambda point: point.ranks)


def weak_series(points: Sequence[LayoutCost]) -> list[LayoutCost]:
    """Return the points with as many vertices a rank as the smallest graph has, with predecessors, by ranks."""
    least = min(point.n for point in points)
    return sorted(_kept(points, lambda point: point.n == least * point.ranks), key=lambda point: point.ranks)


def _kept(points: Sequence[LayoutCost], wanted: Callable[[LayoutCost], bool]) -> list[LayoutCost]:
    return [point for point in points if point.predecessors and wanted(point)]


def _lines(points: Sequence[LayoutCost], value: Value, suffix: str = "", *, dashed: bool = False) -> list[Line]:
    """Return a line for each layout, without the points that have no value or the value 0."""
    lines = []
    for layout in LAYOUTS:
        at = [(point.ranks, value(point)) for point in points if point.layout == layout]
        shown = [(x, y) for x, y in at if y]
        if shown:
            lines.append(Line(_NAMES[layout] + suffix, [x for x, _ in shown], [y for _, y in shown], dashed))
    return lines


def _strong(points: Sequence[LayoutCost]) -> str:
    series = strong_series(points)
    first = series[0].milliseconds
    return draw(
        f"Strong scaling of {series[0].graph} on CPU ranks: bytes sent, memory and time by number of ranks",
        [
            Chart("Bytes sent, all ranks together", "ranks", "bytes", _lines(series, lambda p: p.bytes_sent)),
            Chart("State and bins of a rank", "ranks", "bytes", _lines(series, lambda p: p.state_bytes)),
            Chart("Time over one rank's", "ranks", "ratio", _lines(series, lambda p: p.milliseconds / first)),
        ],
    )


def _weak(points: Sequence[LayoutCost]) -> str:
    series = weak_series(points)
    first = series[0].milliseconds
    return draw(
        f"Weak scaling with {series[0].n:,} vertices a rank on CPU ranks: bytes sent and time by number of ranks",
        [
            Chart("Bytes sent by a rank", "ranks", "bytes", _lines(series, lambda p: p.bytes_sent / p.ranks)),
            Chart("Time over one rank's", "ranks", "ratio", _lines(series, lambda p: p.milliseconds / first)),
        ],
    )


def _scale(points: Sequence[LayoutCost], model: TimeModel, predicted: Sequence[Prediction]) -> str:
    series = strong_series(points)
    times = _lines(series, lambda p: p.milliseconds, ", measured")
    times += _lines(series, model.predict, ", model", dashed=True)
    scale = predicted[0].scale
    return draw(
        f"The model beside measured times of {series[0].graph}, and its predictions for Kronecker {scale} on GPUs",
        [
            Chart(f"{series[0].graph} on CPU ranks", "ranks", "milliseconds", times),
            Chart(
                f"Kronecker {scale}: bytes that a GPU sends",
                "GPUs",
                "bytes",
                _by_gpus(predicted, lambda one: one.load.near + one.load.far),
            ),
            Chart(
                f"Kronecker {scale}: time of a traversal",
                "GPUs",
                "milliseconds",
                _by_gpus(predicted, lambda one: one.times.total * 1e3),
            ),
        ],
    )


def _by_gpus(predicted: Sequence[Prediction], value: Callable[[Prediction], float]) -> list[Line]:
    lines = []
    for layout in LAYOUTS:
        mine = [one for one in predicted if one.layout == layout]
        lines.append(Line(_NAMES[layout], [one.gpus for one in mine], [value(one) for one in mine]))
    return lines

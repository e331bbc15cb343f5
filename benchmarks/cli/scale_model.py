"""``dbfs bench scale-model``: a model of a level, fitted to measured points, and its predictions for many GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbfs.cli.common import check_writable, json_option, print_json, print_results, writing
from dbfs.units import format_bytes

if TYPE_CHECKING:
    from benchmarks.layouts import LayoutCost
    from benchmarks.scale_gpus import GpuModel, Prediction, SmallGraph
    from benchmarks.scale_model import Errors, Trial


@click.command()
@click.argument("measured", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--scale", type=click.IntRange(1, 60), default=36, show_default=True, help="Kronecker scale to predict.")
@click.option(
    "--gpus",
    type=click.IntRange(2),
    multiple=True,
    default=(8, 64, 256, 1024),
    show_default=True,
    help="Number of GPUs to predict for; repeat for several.",
)
@click.option(
    "--counted",
    type=click.IntRange(10, 22),
    default=18,
    show_default=True,
    help="Scale of the Kronecker graph whose levels are counted.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Also write the figures (SVG) to this folder.",
)
@json_option
def scale_model(
    measured: Path, scale: int, gpus: tuple[int, ...], counted: int, out: Path | None, as_json: bool
) -> None:
    """Fit a model of a level to measured points, and predict traversals on many GPUs.

    MEASURED is the JSON of dbfs bench layouts. The counts of the levels are exact; the times are a fit, which is
    printed with its errors. The command measures nothing.

    Example: dbfs bench scale-model docs/performance/layouts.json
    """
    from benchmarks.layouts import read
    from benchmarks.scale_figures import write
    from benchmarks.scale_gpus import GpuModel, SmallGraph, predictions
    from benchmarks.scale_model import try_model

    if out is not None:
        check_writable("--out", out / "scale.svg")
    points = read(measured)
    trial = try_model(points)
    small = SmallGraph(counted, sources=3)
    model = GpuModel.fit(small)
    predicted = predictions(model, small, scale, sorted(set(gpus)))
    if out is not None:
        with writing("--out", out):
            write(points, trial.model, predicted, out)
    if as_json:
        print_json({"cpu": asdict(trial), "gpu": asdict(model), "predictions": [_fields(one) for one in predicted]})
        return
    _print_scaling(points)
    _print_cpu(trial)
    _print_growth(points)
    _print_gpus(model, small)
    _print_predictions(predicted)


def _print(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    print_results(title, columns, rows, [], as_json=False)


def _print_scaling(points: Sequence[LayoutCost]) -> None:
    """Print strong and weak scaling."""
    from benchmarks.scale_figures import strong_series, weak_series

    columns = ("graph", "ranks", "layout", "levels", "bytes sent", "of 1d's", "state and bins of a rank", "time")
    for kind, series in (("Strong", strong_series(points)), ("Weak", weak_series(points))):
        first = series[0].milliseconds
        rows = [
            (
                *(one.graph, str(one.ranks), one.layout, f"{one.levels:.2f}", format_bytes(round(one.bytes_sent))),
                f"{one.ratio:.2f}" if one.bytes_sent else "",
                "" if one.state_bytes is None else format_bytes(one.state_bytes),
                f"{one.milliseconds / first:.2f}",
            )
            for one in series
        ]
        _print(f"{kind} scaling with predecessors; time over the first row's", columns, rows)


def _print_cpu(trial: Trial) -> None:
    """Print the fit on CPU ranks."""
    from benchmarks.scale_model import COSTS

    costs = [(what, f"{seconds * 1e9:,.2f}") for what, seconds in zip(COSTS, trial.model.seconds, strict=True)]
    _print("Costs on CPU ranks, fitted", ("what", "ns"), costs)
    rows = [("fitted", *_errors(trial.fitted))]
    if trial.held_out is not None:
        rows.append(("held out", *_errors(trial.held_out)))
    _print("Relative errors of the times", ("points", "number", "median", "largest"), rows)


def _errors(errors: Errors) -> tuple[str, ...]:
    return str(errors.points), f"{errors.median:.0%}", f"{errors.largest:.0%}"


def _print_growth(points: Sequence[LayoutCost]) -> None:
    """Print the bytes of the largest graph beside those of the smallest, multiplied by the ratio of their sizes."""
    smallest, largest = min(point.n for point in points), max(point.n for point in points)
    rows = []
    for point in points:
        if point.n == largest and point.bytes_sent and point.predecessors:
            same = (point.layout, point.predecessors, point.ranks)
            small = next(one for one in points if (one.layout, one.predecessors, one.ranks, one.n) == (*same, smallest))
            scaled = small.bytes_sent * largest / smallest
            sizes = format_bytes(round(point.bytes_sent)), format_bytes(round(scaled))
            rows.append((point.layout, str(point.ranks), *sizes, f"{scaled / point.bytes_sent - 1:+.0%}"))
    title = f"Bytes sent of {largest:,} vertices, and of {smallest:,} times {largest // smallest}"
    _print(title, ("layout", "ranks", "measured", "multiplied", "error"), rows)


def _print_gpus(model: GpuModel, counted: SmallGraph) -> None:
    """Print the fit on GPUs of one host, beside the rates."""
    from benchmarks.scale_gpus import FITTED_GPUS, MEASURED

    costs = (
        ("a crossing of one GPU", f"{model.alone * 1e9:,.0f}"),
        ("a crossing of several", f"{model.crossing * 1e9:,.0f}"),
        ("an edge looked at", f"{model.edge * 1e9:.4f}"),
    )
    _print("Costs on GPUs of one host, fitted", ("what", "ns"), costs)
    rows = []
    for rate in MEASURED:
        load = counted.load(rate.scale, rate.gpus, "1d", predecessors=False)
        ratio = rate.seconds / model.predict(load, rate.gpus).total
        used = "fitted" if rate.gpus in FITTED_GPUS else "held out"
        rows.append(
            (
                str(rate.scale),
                str(rate.gpus),
                used,
                f"{rate.gteps:,}",
                f"{rate.gteps * ratio:,.0f}",
                f"{ratio - 1:+.0%}",
            )
        )
    _print("Directed GTEPS on GPUs", ("Kronecker", "GPUs", "point", "measured", "model", "error"), rows)


def _print_predictions(predicted: Sequence[Prediction]) -> None:
    """Print the predicted costs."""
    rows = [
        (
            *(
                str(one.gpus),
                one.layout,
                f"{one.load.messages:,.0f}",
                format_bytes(round(one.load.near + one.load.far)),
            ),
            format_bytes(one.memory),
            *(f"{seconds * 1e3:,.1f}" for seconds in (one.times.crossings, one.times.sending, one.times.edges)),
            *(f"{one.times.total * 1e3:,.0f}", f"{one.gteps:,.0f}"),
        )
        for one in predicted
    ]
    columns = ("GPUs", "layout", "messages", "bytes sent", "memory", "ms: crossings", "bytes", "edges", "all", "GTEPS")
    _print(f"Kronecker {predicted[0].scale} with predecessors, of the busiest GPU", columns, rows)


def _fields(one: Prediction) -> dict[str, Any]:
    return {**asdict(one), "seconds": one.times.total, "gteps": one.gteps}

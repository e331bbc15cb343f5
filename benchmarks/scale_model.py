"""A model of a traversal on more ranks than any machine at hand has; docs/design/scale.md has the sources of figures.

Counts are exact: ``level_counts`` computes from the edges what the ranks count. Only the cost of each event is fitted,
by least squares of the relative errors, with no cost below zero: on CPU ranks to measured points, on GPUs to rates of
one host. Counts for a large Kronecker graph are those of a small one on as many ranks, multiplied by the ratio of the
sizes: bottom-up levels send bitmaps, whose bytes are the same share of n at any scale, and the shares of the other
levels change slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import product
from math import ceil, log2
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from benchmarks import options, pictures
from benchmarks.layouts import LayoutCost, bytes_text, read
from benchmarks.level_counts import Level, LevelCounts
from benchmarks.runner import Column, Results, table
from dbfs.assembly import BuildOptions
from dbfs.base.units import format_bytes
from dbfs.building.memory import Estimate, estimate_bytes
from dbfs.edges.generate.kronecker import kronecker
from dbfs.errors import InvalidOptionError
from dbfs.features.grid.layout import LAYOUTS
from dbfs_workers.features.grid.grid import Grid
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FITTED_RANKS = (1, 2, 4, 16)
"""Numbers of CPU ranks whose points the costs are fitted to."""
COSTS = (
    "a crossing of one rank",
    "a crossing of several, times the ranks that share a core",
    "an edge looked at",
    "a byte sent",
    "a row and level",
)
GPU_COSTS = ("a crossing of one GPU", "a crossing of several", "an edge looked at")
"""A crossing includes the work of a level that does not grow with the graph."""
FITTED_GPUS = (1, 4)
MEASURED = (
    *((24, gpus, gteps) for gpus, gteps in ((1, 2016), (2, 2208), (4, 2603), (8, 2875))),
    *((26, gpus, gteps) for gpus, gteps in ((1, 3222), (2, 4508), (4, 6100), (8, 6465))),
    *((scale, 2, gteps) for scale, gteps in ((27, 5474), (28, 6548), (29, 5700))),
)
"""Scale, GPUs and directed GTEPS of Kronecker graphs by degree, without predecessors (docs/performance/gpu.md)."""
EDGE_FACTOR, GPUS_PER_HOST = 16, 8
# Bytes per second: what a GPU reads from its peers on the host, measured; a GPU's own adapter of 400 Gb/s. Seconds of a
# small write into a GPU's memory on another host.
NVLINK, INFINIBAND, LATENCY = 336e9, 50e9, 1.5e-6


def fit(amounts: Sequence[Sequence[float]], seconds: Sequence[float], known: Sequence[float]) -> list[float]:
    """Return the cost of each event, given its amounts in each measurement, and the seconds of which cost is known."""
    counted, measured = np.array(amounts), np.array(seconds)
    scale = counted.max(axis=0)
    scale[scale == 0] = 1.0
    costs, _ = nnls(counted / scale / measured[:, None], 1 - np.array(known) / measured)
    return list((costs / scale).tolist())


def cpu_amounts(point: LayoutCost) -> NDArray[np.float64]:
    """Return how much of each of ``COSTS`` a traversal takes, on the busiest core; ranks that share one take turns."""
    used, alone = min(point.ranks, point.cores), point.ranks == 1
    # A bottom-up level reads the visited bits of the rank's rows, and a rank of the 2-D layout has those of its row.
    rows = Grid.of(point.ranks).columns if point.layout == "2d" else 1
    # About: see ``levels.loop`` and ``levels.grid_levels``. Before the first bottom-up level the ranks of 1d measure
    # the frontier.
    striped = point.levels + (point.bottom_up_levels > 0)
    crossings = striped if point.layout == "1d" else 2 * point.levels + 2 * point.predecessors
    work = np.array([point.edges, point.bytes_sent, point.n * (1 + rows * point.bottom_up_levels)]) / used
    return np.array([crossings * alone, crossings * (not alone) * point.ranks / used, *work])


def cpu_milliseconds(costs: Sequence[float], point: LayoutCost) -> float:
    """Return the milliseconds of a point by its counts."""
    return float(cpu_amounts(point) @ np.array(costs) * 1e3)


def fit_cpu(points: Sequence[LayoutCost]) -> list[float]:
    """Return ``COSTS`` in seconds, fitted to the points on ``FITTED_RANKS``.

    Raises:
        InvalidOptionError: there are fewer points than costs.
    """
    fitted = [point for point in points if point.ranks in FITTED_RANKS]
    if len(fitted) < len(COSTS):
        raise InvalidOptionError(
            f"a fit needs at least {len(COSTS)} measurements on {', '.join(map(str, FITTED_RANKS))} ranks, not "
            f"{len(fitted)}; measure with dbfs bench layouts, --graph and --ranks repeated"
        )
    seconds = [point.milliseconds / 1e3 for point in fitted]
    return fit([cpu_amounts(point).tolist() for point in fitted], seconds, [0.0] * len(fitted))


class Load(NamedTuple):
    """The work of the busiest rank: means over the sources. Bytes are sent to its own host (near) and others (far)."""

    crossings: float
    messages: float
    edges: float
    near: float
    far: float


class SmallGraph:
    """A Kronecker graph of 2^scale vertices whose counts, multiplied, are the load of a larger one."""

    def __init__(self, scale: int, sources: int) -> None:
        self._scale, self._n = scale, 2**scale
        pieces = [piece.read() for piece in kronecker(scale, EDGE_FACTOR).cut(EDGE_FACTOR * self._n)]
        self._src, self._dst = (np.concatenate(of) for of in zip(*pieces, strict=True))
        ends = self._src[self._src != self._dst]
        self._sources = np.random.default_rng(0).choice(ends, sources).tolist()
        self._runs = cache(self._traverse)

    def _traverse(self, ranks: int, layout: str, predecessors: bool) -> list[list[Level]]:
        counts = LevelCounts(self._n, self._src, self._dst, ranks, layout, "degree")
        return [counts.traverse(source, predecessors=predecessors) for source in self._sources]

    def load(self, scale: int, ranks: int, layout: str, *, predecessors: bool) -> Load:
        """Return the load of a graph of 2^scale vertices."""
        runs, larger = self._runs(ranks, layout, predecessors), 2.0 ** (scale - self._scale)
        levels = [level for run in runs for level in run]
        sent = [
            (int(sent.max()) * larger, share_on_host(layout, ranks, by_column=kind == "frontier"))
            for level in levels
            for kind, sent in level.sent.items()
        ]
        return Load(
            sum(level.crossings for level in levels) / len(runs),
            sum(sum(level.messages.values()) for level in levels) / len(runs),
            sum(int(level.edges.max()) for level in levels) * larger / len(runs),
            sum(share * nbytes for nbytes, share in sent) / len(runs),
            sum((1 - share) * nbytes for nbytes, share in sent) / len(runs),
        )


def share_on_host(layout: str, ranks: int, *, by_column: bool) -> float:
    """Return the share of a rank's peers that are on its host, of the peers in its column or its row of the grid."""
    grid = Grid.of(ranks) if layout == "2d" else Grid(1, ranks)
    every = [grid.column_of(rank) if by_column else grid.row_of(rank) for rank in range(ranks)]
    peers = ranks * (len(every[0]) - 1)
    near = sum(peer // GPUS_PER_HOST == rank // GPUS_PER_HOST for rank, of in enumerate(every) for peer in of) - ranks
    return near / peers if peers else 1.0


def fit_gpus(counted: SmallGraph) -> list[float]:
    """Return ``GPU_COSTS`` in seconds, fitted to the rates on ``FITTED_GPUS``."""
    amounts, seconds, sending = [], [], []
    for scale, gpus, gteps in MEASURED:
        if gpus in FITTED_GPUS:
            load = counted.load(scale, gpus, "1d", predecessors=False)
            amounts.append([load.crossings * (gpus == 1), load.crossings * (gpus > 1), load.edges])
            seconds.append(2.0 * EDGE_FACTOR * 2.0**scale / gteps / 1e9)
            sending.append(load.near / NVLINK)
    return fit(amounts, seconds, sending)


def gpu_seconds(costs: Sequence[float], load: Load, gpus: int) -> tuple[float, float, float]:
    """Return the seconds of crossings, of bytes and of edges. Their sum is the time: none is hidden behind another."""
    alone, crossing, edge = costs
    # A barrier between hosts goes up a tree and down again.
    between = 2 * ceil(log2(-(-gpus // GPUS_PER_HOST))) * LATENCY
    each = (alone if gpus == 1 else crossing) + between
    return load.crossings * each, max(load.near / NVLINK, load.far / INFINIBAND), load.edges * edge


class _AnySizeStripe(Stripe):
    """A stripe that may have more vertices than 32-bit internal ids can number. Only its sizes are used."""

    def __post_init__(self) -> None:
        pass


def memory(scale: int, ranks: int, layout: str) -> Estimate:
    """Return the estimate of a Kronecker graph's bytes on each rank, as ``dbfs.estimate`` has it, of any size."""
    stripe, edges = _AnySizeStripe(2**scale, ranks), 2 * EDGE_FACTOR * 2**scale
    return estimate_bytes(
        stripe, edges, 0, in_edges=layout == "2d", ordered=False, layout=BuildOptions(layout=layout).laid_out(ranks)
    )


@dataclass(frozen=True)
class Scaled(LayoutCost):
    """A point of a series; the time is over that of the first point."""

    time: Annotated[float, Column("", ".2f", "over the first row's; with predecessors")] = 1.0


def series(points: Sequence[LayoutCost], kind: str) -> list[Scaled]:
    """Return the points with predecessors of the largest graph (``strong``), or as many vertices a rank (``weak``)."""
    largest, least = max(points, key=lambda point: point.m).graph, min(point.n for point in points)
    kept = [
        point
        for point in sorted(points, key=lambda point: point.ranks)
        if point.predecessors and (point.graph == largest if kind == "strong" else point.n == least * point.ranks)
    ]
    return [Scaled(**asdict(point), time=point.milliseconds / kept[0].milliseconds) for point in kept]


@dataclass(frozen=True)
class Cost:
    """The fitted cost of an event, in seconds."""

    what: Annotated[str, Column()]
    seconds: Annotated[float, Column("ns", ",.4f", times=1e9)]


@dataclass(frozen=True)
class Errors:
    """Median and largest relative errors of the times of some points."""

    points: Annotated[str, Column()]
    number: Annotated[int, Column()]
    median: Annotated[float, Column("", ".0%")]
    largest: Annotated[float, Column("", ".0%")]


@dataclass(frozen=True)
class Growth:
    """Bytes sent of the largest graph beside those of the smallest, multiplied by the ratio of their sizes."""

    layout: Annotated[str, Column()]
    ranks: Annotated[int, Column()]
    measured: Annotated[float, Column(form=bytes_text)]
    multiplied: Annotated[float, Column(form=bytes_text)]
    error: Annotated[float, Column("", "+.0%")]


@dataclass(frozen=True)
class GpuRate:
    """A measured rate in directed GTEPS beside the model's."""

    scale: Annotated[int, Column("Kronecker")]
    gpus: Annotated[int, Column("GPUs")]
    point: Annotated[str, Column()]
    measured: Annotated[float, Column("", ",")]
    model: Annotated[float, Column("", ",.0f")]
    error: Annotated[float, Column("", "+.0%")]


@dataclass(frozen=True)
class Prediction:
    """The predicted cost of a traversal with predecessors, of the busiest GPU; times are seconds.

    Attributes:
        memory: bytes of the partition, state, bins and labels.
        gteps: billions of input edges a second, as Graph500 counts them.
    """

    scale: int
    gpus: Annotated[int, Column("GPUs")]
    layout: Annotated[str, Column()]
    messages: Annotated[float, Column("", ",.0f")]
    bytes_sent: Annotated[float, Column("bytes sent", bytes_text)]
    memory: Annotated[int, Column(form=format_bytes)]
    crossings: Annotated[float, Column("ms:\ncrossings", ",.1f", times=1e3)]
    sending: Annotated[float, Column("\nbytes", ",.1f", times=1e3)]
    edges: Annotated[float, Column("\nedges", ",.1f", times=1e3)]
    seconds: Annotated[float, Column("\nall", ",.0f", times=1e3)]
    gteps: Annotated[float, Column("GTEPS", ",.0f")]


@click.command()
@click.argument("measured", type=click.Path(dir_okay=False, path_type=Path))
@options.value("--scale", 36, "Kronecker scale to predict.", click.IntRange(1, 60))
@options.value("--gpus", (8, 64, 256, 1024), "GPUs to predict for; may be repeated.", click.IntRange(2), multiple=True)
@options.value("--counted", 18, "Scale of the Kronecker graph whose levels are counted.", click.IntRange(10, 22))
@options.folder("Also write the figures (SVG) to this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def scale_model(
    measured: Path, scale: int, gpus: tuple[int, ...], counted: int, out: Path | None, as_json: bool
) -> None:
    """Fit a model of a level to measured points, and predict traversals on many GPUs.

    MEASURED is the JSON of dbfs bench layouts. The counts of the levels are exact; the times are a fit, which is
    printed with its errors. The command measures nothing.

    Example: dbfs bench scale-model docs/performance/layouts.json
    """
    folder = None if out is None else pictures.folder(out)
    points = read(measured)
    costs, small = fit_cpu(points), SmallGraph(counted, sources=3)
    gpu_costs = fit_gpus(small)
    shown = ("graph", "ranks", "layout", "levels", "bytes_sent", "ratio", "state_bytes", "time")
    with Results("scale-model", "-" if as_json else None) as results:
        results.take("strong", series(points, "strong"), lambda rows: [table("Strong scaling", rows, shown)])
        results.take("weak", series(points, "weak"), lambda rows: [table("Weak scaling", rows, shown)])
        results.take("cpu", map(Cost, COSTS, costs), "Costs on CPU ranks, fitted")
        results.take("errors", errors(costs, points), "Relative errors of the times")
        results.take("growth", growth(points), "Bytes sent of the largest graph, and of the smallest, multiplied")
        results.take("gpu", map(Cost, GPU_COSTS, gpu_costs), "Costs on GPUs of one host, fitted")
        results.take("rates", gpu_rates(gpu_costs, small), "Directed GTEPS on GPUs")
        predicted = predictions(gpu_costs, small, scale, sorted(set(gpus)))
        found = results.take("predictions", predicted, f"Kronecker {scale} with predecessors, of the busiest GPU")
    if folder is not None:
        pictures.save(drawn(points, costs, found), folder, "svg")


def errors(costs: Sequence[float], points: Sequence[LayoutCost]) -> Iterator[Errors]:
    """Yield the errors over the points that the costs are fitted to, and over all others, if there are others."""
    for name, held_out in (("fitted", False), ("held out", True)):
        mine = [point for point in points if (point.ranks not in FITTED_RANKS) == held_out]
        if mine:
            sizes = [abs(cpu_milliseconds(costs, point) / point.milliseconds - 1) for point in mine]
            yield Errors(name, len(mine), median(sizes), max(sizes))


def growth(points: Sequence[LayoutCost]) -> Iterator[Growth]:
    """Yield the growth with predecessors of each layout and number of ranks that send bytes."""
    smallest, largest = min(point.n for point in points), max(point.n for point in points)
    for point in points:
        if point.n == largest and point.bytes_sent and point.predecessors:
            same = (point.layout, True, point.ranks, smallest)
            small = next(one for one in points if (one.layout, one.predecessors, one.ranks, one.n) == same)
            scaled = small.bytes_sent * largest / smallest
            yield Growth(point.layout, point.ranks, point.bytes_sent, scaled, scaled / point.bytes_sent - 1)


def gpu_rates(costs: Sequence[float], counted: SmallGraph) -> Iterator[GpuRate]:
    """Yield the rates of ``MEASURED`` beside the model's."""
    for scale, gpus, gteps in MEASURED:
        load = counted.load(scale, gpus, "1d", predecessors=False)
        model = 2.0 * EDGE_FACTOR * 2.0**scale / sum(gpu_seconds(costs, load, gpus)) / 1e9
        used = "fitted" if gpus in FITTED_GPUS else "held out"
        yield GpuRate(scale, gpus, used, gteps, model, model / gteps - 1)


def predictions(costs: Sequence[float], counted: SmallGraph, scale: int, gpus: Sequence[int]) -> Iterator[Prediction]:
    """Yield the predicted cost of a Kronecker graph on each number of GPUs, in both layouts."""
    for ranks, layout in product(gpus, LAYOUTS):
        load, needed = counted.load(scale, ranks, layout, predecessors=True), memory(scale, ranks, layout)
        taken = gpu_seconds(costs, load, ranks)
        total = needed.partition_bytes + sum(needed.run.values())
        rate = EDGE_FACTOR * 2.0**scale / sum(taken) / 1e9
        sent = load.near + load.far
        yield Prediction(scale, ranks, layout, load.messages, sent, total, *taken, sum(taken), rate)


def drawn(points: Sequence[LayoutCost], costs: Sequence[float], found: Sequence[Prediction]) -> dict[str, Figure]:
    """Return the figures of the pages on scaling."""
    strong, weak, scale = series(points, "strong"), series(points, "weak"), f"Kronecker {found[0].scale}"
    graph, time = strong[0].graph, "Time over one rank's"
    measured, model = _lines(strong, lambda one: one.milliseconds), _lines(strong, partial(cpu_milliseconds, costs))
    beside = {f"{name}, measured": line for name, line in measured.items()}
    beside |= {f"{name}, model": line for name, line in model.items()}
    return {
        "strong": pictures.charts(
            f"Strong scaling of {graph} on CPU ranks: bytes sent, memory and time by number of ranks",
            ("Bytes sent, all ranks together", "ranks", "bytes", _lines(strong, lambda one: one.bytes_sent)),
            ("State and bins of a rank", "ranks", "bytes", _lines(strong, lambda one: one.state_bytes)),
            (time, "ranks", "ratio", _lines(strong, lambda one: one.time)),
        ),
        "weak": pictures.charts(
            f"Weak scaling with {weak[0].n:,} vertices a rank on CPU ranks: bytes sent and time by number of ranks",
            ("Bytes sent by a rank", "ranks", "bytes", _lines(weak, lambda one: one.bytes_sent / one.ranks)),
            (time, "ranks", "ratio", _lines(weak, lambda one: one.time)),
        ),
        "scale": pictures.charts(
            f"The model beside measured times of {graph}, and its predictions for {scale} on GPUs",
            (f"{graph} on CPU ranks", "ranks", "milliseconds", beside),
            (f"{scale}: bytes that a GPU sends", "GPUs", "bytes", _lines(found, lambda one: one.bytes_sent)),
            (f"{scale}: time of a traversal", "GPUs", "milliseconds", _lines(found, lambda one: one.seconds * 1e3)),
        ),
    }


def _lines(rows: Sequence[Any], value: Callable[[Any], float | None]) -> pictures.Lines:
    """Return a line for each layout by its name, without the points that have no value or the value 0."""
    found = [(f"{one.layout[0]}-D", getattr(one, "gpus", 0) or getattr(one, "ranks", 0), value(one)) for one in rows]
    names = [f"{layout[0]}-D" for layout in LAYOUTS]
    return {name: [(at, height) for mine, at, height in found if mine == name and height] for name in names}

"""``dbfs bench``: benchmarks that print what they measured."""

from __future__ import annotations

import importlib.util
import itertools
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import distributed
from dask.utils import format_bytes
from rich.console import Console

import dbfs
from dbfs.build.build import ORDERS
from dbfs.cli.common import check_folder, connect, json_option, print_json, print_results, scheduler_option
from dbfs.display import progress
from dbfs.errors import InvalidOptionError, MissingPackageError

if TYPE_CHECKING:
    from rich.table import Table

    from dbfs.bench.saved import Results

ranks_option = click.option("--ranks", type=click.IntRange(1), default=4, show_default=True)
memory_option = click.option(
    "--memory-limit", default="auto", show_default=True, help="Of each local worker, in Dask's words; 0: none."
)
plan_option = click.option("--plan", default="small", show_default=True, help="small, full, or a YAML file.")
folder_option = click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Write JSON and figures (PNG) into this folder."
)


@click.group()
def bench() -> None:
    """Measure this machine.

    Example: dbfs bench levels
    """


@bench.command()
@ranks_option
@click.option("--times", type=click.IntRange(1), default=50, show_default=True)
@json_option
def gang(ranks: int, times: int, as_json: bool) -> None:
    """What starting a resident run costs, from call to result, on a graph without edges.

    Example: dbfs bench gang --ranks 4
    """
    from dbfs.bench.gang import bench_gang

    with connect(None, ranks) as client:
        costs = [bench_gang(client, ranks, exchange, times) for exchange in ("shared_memory", "comm")]
    rows = [(c.exchange, f"{min(c.milliseconds):.2f}", f"{c.median:.2f}", f"{max(c.milliseconds):.2f}") for c in costs]
    print_results(
        f"Round trip of a gang, {ranks} ranks",
        ("exchange", "min ms", "median ms", "max ms"),
        rows,
        costs,
        as_json=as_json,
    )


@bench.command()
@ranks_option
@click.option("--levels", type=click.IntRange(8), default=64, show_default=True, help="Of the taskgraph engine.")
@json_option
def levels(ranks: int, levels: int, as_json: bool) -> None:
    """What a level costs, on a path graph.

    Example: dbfs bench levels --ranks 4
    """
    from dbfs.bench.levels import bench_levels

    with connect(None, ranks) as client:
        costs = list(bench_levels(client, ranks, levels))
    rows = [(c.way, str(c.ranks), f"{c.milliseconds:.3f}", f"{c.ratio:.4f}") for c in costs]
    print_results(
        "A level of a path graph", ("engine and way", "ranks", "ms a level", "ratio"), rows, costs, as_json=as_json
    )


@bench.command()
@click.option("--graph", default="kronecker:scale=20", show_default=True, help="A generator or a file.")
@click.option("--ranks", type=click.IntRange(1), default=2, show_default=True)
@click.option("--sources", type=click.IntRange(1), default=9, show_default=True, help="1 is vertex 0, else random.")
@click.option("--order", "orders", type=click.Choice(ORDERS), multiple=True, default=ORDERS, show_default=True)
@json_option
def kernels(graph: str, ranks: int, sources: int, orders: Sequence[str], as_json: bool) -> None:
    """Traversals of a graph next to SciPy's in the same run.

    Example: dbfs bench kernels --graph kronecker:scale=18 --ranks 2
    """
    from dbfs.bench.kernels import bench_kernels

    with connect(None, ranks) as client:
        times = list(bench_kernels(client, graph, ranks, sources, orders))
    rows = [(t.way, f"{t.levels:.2f}", f"{t.call:.2f}", f"{t.ratio:.1f}") for t in times]
    title = f"{graph}, {ranks} ranks, {sources} source{'s' * (sources > 1)}, medians"
    print_results(title, ("who", "levels ms", "call ms", "SciPy / call"), rows, times, as_json=as_json)


@bench.command()
@click.option("--graph", default="kronecker:scale=20", show_default=True, help="A generator.")
@ranks_option
@click.option("--sources", type=click.IntRange(1), default=5, show_default=True)
@json_option
def build(graph: str, ranks: int, sources: int, as_json: bool) -> None:
    """What building a graph takes of time and memory, and traversals by each engine.

    Example: dbfs bench build --graph kronecker:scale=18
    """
    from dbfs.bench.build import bench_build

    with connect(None, ranks) as client:
        cost = bench_build(client, graph, ranks, sources)
    rows = []
    for rank, (partition, before, peak) in enumerate(zip(cost.partition, cost.before, cost.peak, strict=True)):
        share = peak / (3 * partition + 200e6)
        rows.append((str(rank), format_bytes(partition), format_bytes(before), format_bytes(peak), f"{share:.0%}"))
    columns = ("rank", "partition", "peak before", "peak after", "of 3 partitions + 200 MB")
    print_results(
        f"{graph} on {ranks} ranks: built in {cost.build_seconds:.2f} s", columns, rows, [cost], as_json=as_json
    )
    if not as_json:
        for engine, seconds in cost.traversals.items():
            median = statistics.median(seconds) * 1e3
            click.echo(f"traversal, {engine}: median {median:.0f} ms from call to result, {sources} sources")


@bench.command()
@click.option("--gpus", type=click.IntRange(1), default=1, show_default=True)
@click.option("--sources", type=click.IntRange(1), default=5, show_default=True)
@click.option("--graph", "graphs", multiple=True, help="Only rows whose graph has this in its name; may be repeated.")
@click.option("--predecessors", is_flag=True, help="Record predecessors, too.")
@memory_option
@click.option("--out", type=click.Path(path_type=Path), help="Write the table as JSON, with the git revision.")
@json_option
def gpu(
    gpus: int,
    sources: int,
    graphs: Sequence[str],
    predecessors: bool,
    memory_limit: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Rates of the resident engine on GPUs, next to cuGraph's.

    Example: dbfs bench gpu --gpus 4 --graph "kronecker 24"
    """
    from dbfs.bench.gpu import ROWS, bench_gpu, revision

    rows = [row for row in ROWS if _wanted(row.graph, graphs)]
    with _connect(None, gpus, "cuda", memory_limit) as client:
        rates = list(bench_gpu(client, gpus, rows, sources, predecessors))
    if out is not None:
        report = {"revision": revision(), "rates": [asdict(rate) for rate in rates]}
        out.write_text(json.dumps(report, indent=2), encoding="utf-8")
    columns = ("graph", "order", "direction", "GTEPS", "worst", "ms", "over it", "depth", "build s", "cuGraph")
    cells = [
        (
            r.graph,
            r.order,
            r.direction,
            f"{r.gteps:.1f}",
            f"{r.worst:.1f}",
            f"{r.milliseconds:.3f}",
            f"{r.call:.2f}",
            str(r.depth),
            f"{r.build_seconds:.1f}",
            "" if r.cugraph is None else f"{r.cugraph:g}",
        )
        for r in rates
    ]
    kind = "distances and predecessors" if predecessors else "distances"
    print_results(f"{gpus} GPUs, {kind}, directed GTEPS, {revision()}", columns, cells, rates, as_json=as_json)


@bench.command()
@click.option("--gpus", type=click.IntRange(1), default=1, show_default=True)
@click.option("--graph", "graphs", multiple=True, help="Only graphs that have this in their name; may be repeated.")
@memory_option
@click.option("--out", type=click.Path(path_type=Path), help="Write the table as JSON, with the git revision.")
@json_option
def memory(gpus: int, graphs: Sequence[str], memory_limit: str, out: Path | None, as_json: bool) -> None:
    """What dbfs estimate says of GPUs' memory, next to what is measured.

    Nobody else may use the GPUs meanwhile.

    Example: dbfs bench memory --gpus 4 --graph "kronecker 24"
    """
    from dbfs.bench.gpu import revision
    from dbfs.bench.memory import SUBJECTS, bench_memory
    from dbfs.bench.tables import memory_table

    subjects = [subject for subject in SUBJECTS if _wanted(subject.graph, graphs)]
    if not subjects:
        names = ", ".join(dict.fromkeys(subject.graph for subject in SUBJECTS))
        raise InvalidOptionError(f"--graph {', '.join(graphs)}: no graph has this in its name; there are {names}")
    if out is not None:
        check_folder("--out", out)
    with _connect(None, gpus, "cuda", memory_limit) as client:
        uses = list(bench_memory(client, gpus, subjects))
    found = [asdict(use) for use in uses]
    if out is not None:
        out.write_text(json.dumps({"revision": revision(), "gpus": gpus, "uses": found}, indent=2), encoding="utf-8")
    if as_json:
        print_json(found)
    else:
        Console().print(memory_table(uses, f"{gpus} GPU{'s' * (gpus > 1)}, {revision()}"))


@bench.command()
@plan_option
@folder_option
@memory_option
@scheduler_option
@json_option
def corpus(plan: str, out: Path | None, memory_limit: str, scheduler: str | None, as_json: bool) -> None:
    """Merrill's graphs: rates with distances and predecessors, redundant work, frontiers.

    Rates are directed edges a second, as Merrill counts them. The small plan is for two CPU cores, the full one for
    GPUs.

    Example: dbfs bench corpus --plan small --out figures
    """
    from dbfs.bench.corpus import CorpusPlan, bench_corpus
    from dbfs.bench.plan import find
    from dbfs.bench.tables import corpus_tables

    wanted = CorpusPlan.read(find("corpus", plan))
    folder = None if out is None else _folder(out)
    with (
        _connect(scheduler, max(wanted.ranks), wanted.settings.backend, memory_limit) as client,
        progress.bar("bench corpus", len(wanted.graphs) * len(wanted.ranks)) as bar,
    ):
        report = bench_corpus(client, wanted, _counting(bar))
    _show(report, corpus_tables(report), folder, as_json=as_json)


@bench.command()
@plan_option
@folder_option
@memory_option
@scheduler_option
@json_option
def scaling(plan: str, out: Path | None, memory_limit: str, scheduler: str | None, as_json: bool) -> None:
    """Strong and weak scaling over ranks, as in Krajecki 2016.

    Example: dbfs bench scaling --plan small --out figures
    """
    from dbfs.bench.plan import find
    from dbfs.bench.scaling import ScalingPlan, bench_scaling
    from dbfs.bench.tables import scaling_tables

    wanted = ScalingPlan.read(find("scaling", plan))
    folder = None if out is None else _folder(out)
    with (
        _connect(scheduler, wanted.ranks, wanted.settings.backend, memory_limit) as client,
        progress.bar("bench scaling", sum(len(series.graphs) for series in wanted.series)) as bar,
    ):
        points = list(bench_scaling(client, wanted, _counting(bar)))
    _show(points, scaling_tables(points), folder, as_json=as_json)


@bench.command()
@click.argument("saved", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=".",
    show_default=True,
    help="The folder to write into.",
)
@json_option
def figures(saved: Path, out: Path, as_json: bool) -> None:
    """Draw the figures of SAVED, the JSON of a corpus or scaling benchmark.

    Where the benchmark ran there may be no matplotlib: dbfs bench corpus --json > corpus.json

    Example: dbfs bench figures corpus.json --out figures
    """
    from dbfs.bench.figures import draw
    from dbfs.bench.saved import read

    results = read(saved)
    drawn = [str(path) for path in draw(results, _folder(out))]
    if as_json:
        print_json(drawn)
    else:
        click.echo("\n".join(drawn))


def _wanted(graph: str, parts: Sequence[str]) -> bool:
    """Whether ``--graph`` names it, by any part of its name, or is not given."""
    return not parts or any(part in graph for part in parts)


def _connect(scheduler: str | None, ranks: int, backend: str, memory_limit: str) -> distributed.Client:
    if scheduler is not None:
        return connect(scheduler, ranks, backend)
    local: dict[str, Any] = {"dashboard_address": ":0", "memory_limit": 0 if memory_limit == "0" else memory_limit}
    return dbfs.connect(n_workers=ranks, backend=backend, **local)


def _counting(bar: progress.Bar) -> Callable[[str], None]:
    """Says what is started, and counts what was started before as done."""
    done = itertools.count()
    return lambda what: bar.set(next(done), what)


def _folder(out: Path) -> Path:
    # Before the benchmark: its figures would be lost.
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingPackageError(
            "figures need matplotlib; pip install dbfs[plots], or --json here, and dbfs bench figures where it is"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOptionError(f"--out {out}: {error.strerror}") from error
    return out


def _show(results: Results, tables: Iterable[Table], folder: Path | None, *, as_json: bool) -> None:
    from dbfs.bench.saved import to_json

    saved = to_json(results)
    if folder is not None:
        from dbfs.bench.figures import draw

        text = json.dumps(saved, indent=2)
        (folder / f"{saved['benchmark']}.json").write_text(text, encoding="utf-8")
        draw(results, folder)
    if as_json:
        print_json(saved)
        return
    console = Console()
    for table in tables:
        console.print(table, "")

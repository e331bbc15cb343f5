"""``dbfs bench corpus``, ``scaling`` and ``figures``: benchmarks over many graphs, as a plan lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from benchmarks import lab_figures, options, pictures, runner
from benchmarks.figures import corpus_figures, scaling_figures
from benchmarks.lab_results import LabRate, LabReport
from benchmarks.plan import find, read
from benchmarks.rates import CorpusPlan, Frontier, Rates, ScalingPlan, bench_rates
from benchmarks.runner import Results, begun, connect
from dbfs.base import progress
from dbfs.cli.common import check_writable, print_json, scheduler_option

_out = options.folder("Also write the results (JSON) and figures (PNG) to this folder.")


@click.command()
@options.plan
@_out
@options.memory
@scheduler_option
@options.json
def corpus(**given: Any) -> None:
    """Measure the graphs of Merrill 2012.

    The results are rates with distances and with predecessors, redundant work, and frontiers. Rates are directed edges
    per second, as Merrill counts them. The small plan suits two CPU cores; the full plan needs 4 GPUs.

    Example: dbfs bench corpus --plan small --out figures
    """
    _measure("corpus", CorpusPlan, _corpus_tables, **given)


@click.command()
@options.plan
@_out
@options.memory
@scheduler_option
@options.json
def scaling(**given: Any) -> None:
    """Measure scaling over ranks, strong and weak.

    The measurements follow Krajecki 2016.

    Example: dbfs bench scaling --plan small --out figures
    """
    _measure("scaling", ScalingPlan, _scaling_tables, **given)


def _measure(
    benchmark: str,
    kind: type[CorpusPlan | ScalingPlan],
    tables: Callable[[list[Rates]], Iterable[Table]],
    *,
    plan: str,
    out: Path | None,
    memory_limit: str,
    scheduler: str | None,
    file: str | None,
) -> None:
    chosen = read(kind, find(benchmark, plan))
    ranks = [number for series in chosen.series for number in series.graphs]
    saved = None
    if out is not None:
        saved = pictures.folder(out) / f"{benchmark}.json"
        check_writable("--out", saved)
    with (
        Results(benchmark, file, saved) as results,
        connect(max(ranks), chosen.backend, memory_limit, scheduler) as client,
        progress.bar(f"bench {benchmark}", len(ranks)) as bar,
    ):
        results.facts["machine"] = runner.machine(client, chosen.backend)
        frontiers: list[Frontier] | None = [] if benchmark == "corpus" else None
        rates = results.take("rates", bench_rates(client, chosen, begun(bar), frontiers), tables)
        if frontiers:
            results.take("frontiers", frontiers, lambda _: ())
    if out is not None:
        drawn = corpus_figures(rates, frontiers) if frontiers else scaling_figures(rates)
        pictures.save(drawn, out, "png")


def _corpus_tables(rates: list[Rates]) -> Iterable[Table]:
    """Return the table of the graphs (Merrill 2012, table 1) and the table of their rates (table 2)."""
    graphs = list({one.graph: one for one in reversed(rates)}.values())[::-1]
    yield runner.table("The graphs", graphs, ("graph", "n", "m", "degree", "depth", "build_seconds"))
    measured = ("distance_mteps", "predecessor_mteps", "speedup", "inspected", "redundancy")
    yield runner.table("Rates", rates, ("graph", "direction", "ranks", *measured))


def _scaling_tables(rates: list[Rates]) -> Iterable[Table]:
    """Return one table for each series."""
    measured = ("distance_mteps", "milliseconds", "speedup", "efficiency")
    for (series, kind), rows in groupby(rates, lambda one: (one.series, one.kind)):
        yield runner.table(f"{series} ({kind})", list(rows), ("graph", "direction", "ranks", *measured))


@click.command()
@click.argument("saved", type=click.Path(dir_okay=False, path_type=Path))
@options.value("--out", ".", "Write the figures to this folder.", click.Path(file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the paths as JSON.")
def figures(saved: Path, out: Path, as_json: bool) -> None:
    """Draw the figures of a saved benchmark.

    SAVED is the JSON of dbfs bench corpus, scaling or lab. The machine that measures needs no matplotlib: there, run
    dbfs bench corpus --json corpus.json

    Example: dbfs bench figures corpus.json --out figures
    """
    rows: dict[str, dict[str, type]] = {
        "corpus": {"rates": Rates, "frontiers": Frontier},
        "scaling": {"rates": Rates},
        "lab": {"rates": LabRate},
    }
    found = runner.read(saved, rows)
    folder = pictures.folder(out)
    if found["benchmark"] == "lab":
        drawn = lab_figures.figures(LabReport.read(saved))
    elif found["benchmark"] == "corpus":
        drawn = corpus_figures(found["rates"], found["frontiers"])
    else:
        drawn = scaling_figures(found["rates"])
    paths = [str(path) for path in pictures.save(drawn, folder, "png")]
    if as_json:
        print_json(paths)
    else:
        click.echo("\n".join(paths))

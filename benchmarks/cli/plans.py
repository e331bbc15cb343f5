"""``dbfs bench corpus``, ``scaling`` and ``figures``: benchmarks over many graphs, as a plan lists them."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from benchmarks.cli.common import advancing, connect_workers, memory_option
from dbfs import progress
from dbfs.cli.common import check_writable, json_option, print_json, scheduler_option, writing
from dbfs.errors import InvalidOptionError, MissingPackageError

if TYPE_CHECKING:
    from rich.table import Table

    from benchmarks.corpus import CorpusReport
    from benchmarks.scaling import ScalingPoint

plan_option = click.option(
    "--plan", default="small", show_default=True, help="The plan: small, full, or the path of a YAML file."
)
folder_option = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write the results (JSON) and figures (PNG) to this folder.",
)


@click.command()
@plan_option
@folder_option
@memory_option
@scheduler_option
@json_option
def corpus(plan: str, out: Path | None, memory_limit: str, scheduler: str | None, as_json: bool) -> None:
    """Measure the graphs of Merrill 2012.

    The results are rates with distances and with predecessors, redundant work, and frontiers. Rates are directed edges
    per second, as Merrill counts them. The small plan suits two CPU cores; the full plan needs 4 GPUs.

    Example: dbfs bench corpus --plan small --out figures
    """
    from benchmarks.corpus import CorpusPlan, bench_corpus
    from benchmarks.plan import find
    from benchmarks.tables import corpus_tables

    chosen = CorpusPlan.read(find("corpus", plan))
    folder = None if out is None else _results_folder(out, "corpus")
    with (
        connect_workers(scheduler, max(chosen.ranks), chosen.settings.backend, memory_limit) as client,
        progress.bar("bench corpus", len(chosen.graphs) * len(chosen.ranks)) as bar,
    ):
        report = bench_corpus(client, chosen, advancing(bar))
    _show(report, corpus_tables(report), folder, as_json=as_json)


@click.command()
@plan_option
@folder_option
@memory_option
@scheduler_option
@json_option
def scaling(plan: str, out: Path | None, memory_limit: str, scheduler: str | None, as_json: bool) -> None:
    """Measure scaling over ranks, strong and weak.

    The measurements follow Krajecki 2016.

    Example: dbfs bench scaling --plan small --out figures
    """
    from benchmarks.plan import find
    from benchmarks.scaling import ScalingPlan, bench_scaling
    from benchmarks.tables import scaling_tables

    chosen = ScalingPlan.read(find("scaling", plan))
    folder = None if out is None else _results_folder(out, "scaling")
    with (
        connect_workers(scheduler, chosen.ranks, chosen.settings.backend, memory_limit) as client,
        progress.bar("bench scaling", sum(len(series.graphs) for series in chosen.series)) as bar,
    ):
        points = list(bench_scaling(client, chosen, advancing(bar)))
    _show(points, scaling_tables(points), folder, as_json=as_json)


@click.command()
@click.argument("saved", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=".",
    show_default=True,
    help="Write the figures to this folder.",
)
@json_option
def figures(saved: Path, out: Path, as_json: bool) -> None:
    """Draw the figures of a saved benchmark.

    SAVED is the JSON of dbfs bench corpus, scaling or lab. The machine that measures needs no matplotlib: there, run
    dbfs bench corpus --json > corpus.json

    Example: dbfs bench figures corpus.json --out figures
    """
    from benchmarks.figures import draw
    from benchmarks.saved import read

    results = read(saved)
    with writing("--out", out):
        drawn = [str(path) for path in draw(results, _figures_folder(out))]
    if as_json:
        print_json(drawn)
    else:
        click.echo("\n".join(drawn))


def _results_folder(out: Path, benchmark: str) -> Path:
    """Make the folder for results and figures. Called before the benchmark, whose results a late error would lose.

    Raises:
        MissingPackageError, InvalidOptionError: see ``_figures_folder``.
        OutputError: the results can't be written there.
    """
    folder = _figures_folder(out)
    check_writable("--out", folder / f"{benchmark}.json")
    return folder


def _figures_folder(out: Path) -> Path:
    """Make the folder for figures.

    Raises:
        MissingPackageError: matplotlib is not installed.
        InvalidOptionError: the folder can't be made.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingPackageError(
            "figures need matplotlib, which is not installed; run pip install '.[plots]' in a clone of dbfs, "
            "or --json here, and dbfs bench figures on a machine that has it"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOptionError(f"--out {out}: {error.strerror}") from error
    return out


def _show(
    results: CorpusReport | list[ScalingPoint], tables: Iterable[Table], folder: Path | None, *, as_json: bool
) -> None:
    from benchmarks.saved import to_json

    saved = to_json(results)
    if folder is not None:
        from benchmarks.figures import draw

        text = json.dumps(saved, indent=2)
        with writing("--out", folder):
            (folder / f"{saved['benchmark']}.json").write_text(text, encoding="utf-8")
            draw(results, folder)
    if as_json:
        print_json(saved)
        return
    console = Console()
    for table in tables:
        console.print(table, "")

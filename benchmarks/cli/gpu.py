"""``dbfs bench gpu`` and ``memory``: rates and memory of the resident engine on this machine's GPUs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from benchmarks.cli.common import chosen, connect_workers, memory_option
from dbfs.cli.common import check_writable, json_option, print_json, print_results, writing

gpus_option = click.option("--gpus", type=click.IntRange(1), default=1, show_default=True, help="Number of GPUs.")
out_option = click.option(
    "--out", type=click.Path(path_type=Path), help="Write the table to this file as JSON, with the git revision."
)


@click.command()
@gpus_option
@click.option(
    "--sources", type=click.IntRange(1), default=5, show_default=True, help="Number of random sources of each graph."
)
@click.option("--graph", "graphs", multiple=True, help="Only graphs whose name contains this; may be repeated.")
@click.option("--predecessors", is_flag=True, help="Also record predecessors.")
@memory_option
@out_option
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
    """Measure the resident engine on GPUs, next to cuGraph.

    The rates of cuGraph are not measured: they come from an earlier measurement on 4 x H200.

    Example: dbfs bench gpu --gpus 4 --graph "kronecker 24"
    """
    from benchmarks.gpu import ROWS, bench_gpu, revision

    rows = chosen(ROWS, graphs)
    if out is not None:
        check_writable("--out", out)
    with connect_workers(None, gpus, "cuda", memory_limit) as client:
        rates = list(bench_gpu(client, gpus, rows, sources, predecessors))
    if out is not None:
        report = {"revision": revision(), "rates": [asdict(rate) for rate in rates]}
        with writing("--out", out):
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


@click.command()
@gpus_option
@click.option("--graph", "graphs", multiple=True, help="Only graphs whose name contains this; may be repeated.")
@memory_option
@out_option
@json_option
def memory(gpus: int, graphs: Sequence[str], memory_limit: str, out: Path | None, as_json: bool) -> None:
    """Measure GPU memory, next to the estimate of dbfs estimate.

    No other program may use the GPUs meanwhile.

    Example: dbfs bench memory --gpus 4 --graph "kronecker 24"
    """
    from benchmarks.gpu import revision
    from benchmarks.memory import SUBJECTS, bench_memory
    from benchmarks.tables import memory_table

    subjects = chosen(SUBJECTS, graphs)
    if out is not None:
        check_writable("--out", out)
    with connect_workers(None, gpus, "cuda", memory_limit) as client:
        uses = list(bench_memory(client, gpus, subjects))
    found = [asdict(use) for use in uses]
    if out is not None:
        report = {"revision": revision(), "gpus": gpus, "uses": found}
        with writing("--out", out):
            out.write_text(json.dumps(report, indent=2), encoding="utf-8")
    if as_json:
        print_json(found)
    else:
        Console().print(memory_table(uses, f"{gpus} GPU{'s' * (gpus > 1)}, {revision()}"))

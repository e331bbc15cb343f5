"""``dbfs bench lab``: the strategies of the laboratory, compared."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from benchmarks.cli.common import advancing, connect_workers, memory_option
from benchmarks.cli.gpu import out_option
from benchmarks.cli.plans import plan_option
from dbfs import progress
from dbfs.cli.common import check_writable, json_option, scheduler_option, writing


@click.command()
@plan_option
@memory_option
@out_option
@scheduler_option
@json_option
def lab(plan: str, memory_limit: str, out: Path | None, scheduler: str | None, as_json: bool) -> None:
    """Measure the strategies of the laboratory on the graphs of a plan.

    Results are rates, speed-up over one core, redundant expansion, the duplicates that culling dropped, and memory. The
    plans small, full (the graphs of Merrill 2012) and todling (the graphs of Tödling 2019) need one GPU; the small one
    takes about two minutes. Each row is printed, and written to --out, as it is measured.

    Example: dbfs bench lab --plan small --out lab.json
    """
    from benchmarks.lab import LabPlan, bench_lab, machine
    from benchmarks.lab_results import LabReport
    from benchmarks.lab_tables import lab_tables, line
    from benchmarks.plan import find

    chosen = LabPlan.read(find("lab", plan))
    if out is not None:
        check_writable("--out", out)
    with (
        connect_workers(scheduler, 1, chosen.backend, memory_limit) as client,
        progress.bar("bench lab", len(chosen.graphs) * len(chosen.strategies)) as bar,
    ):
        where = machine(client, chosen.backend)
        report = LabReport.of(where, [])
        for rate in bench_lab(client, chosen, advancing(bar)):
            report = LabReport.of(where, (*report.rates, rate))
            if out is not None:
                with writing("--out", out):
                    out.write_text(report.to_json(), encoding="utf-8")
            if not as_json:
                click.echo(line(rate))
    if as_json:
        click.echo(report.to_json(), nl=False)
        return
    console = Console()
    for table in lab_tables(report.rates):
        console.print(table, "")

"""``dbfs doctor``: what this machine offers, and what to install for what it lacks."""

import click
from rich import box
from rich.console import Console
from rich.table import Table

from dbfs.cli.common import json_option, print_json
from dbfs.cluster.doctor import CheckState, MachineReport, examine

STYLES = {CheckState.OK: "green", CheckState.MISSING: "yellow", CheckState.FAILED: "red"}


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check GPUs, packages, shared memory and kernels.

    A machine without a GPU is no error: the CPU backend works there. Kernels that were never compiled here are compiled
    now and cached.

    Example: dbfs doctor
    """
    report = examine()
    if as_json:
        print_json(report.to_dict())
        return
    console = Console()
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    for column in ("check", "state"):
        table.add_column(column, no_wrap=True)
    table.add_column("found", overflow="fold")
    for finding in report.findings:
        table.add_row(finding.name, f"[{STYLES[finding.state]}]{finding.state}", finding.found)
    console.print(table, highlight=False)
    if len(report.gpus) > 1:
        console.print(peers_table(report))
    advice = [finding for finding in report.findings if finding.advice]
    for finding in advice:
        console.print(f"{finding.name}: {finding.advice}", highlight=False, markup=False, soft_wrap=True)


def peers_table(report: MachineReport) -> Table:
    """Return the table of GB/s between GPUs. The GPU of a row copies from the GPU of a column."""
    table = Table(title="GB/s that a GPU copies from another", title_justify="left", box=box.SIMPLE)
    table.add_column("GPU")
    for gpu in report.gpus:
        table.add_column(str(gpu.index), justify="right")
    for gpu, access, rates in zip(report.gpus, report.peer_access, report.peer_bandwidth, strict=True):
        cells = ("" if other == gpu.index else _rate(mapped, rates[other]) for other, mapped in enumerate(access))
        table.add_row(str(gpu.index), *cells)
    return table


def _rate(mapped: bool, rate: float | None) -> str:
    if not mapped:
        return "no access"
    return "not measured" if rate is None else f"{rate:.0f}"

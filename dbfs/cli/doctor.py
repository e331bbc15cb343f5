"""``dbfs doctor``: what a machine or a cluster offers, and what it lacks; ``dbfs warm-up``: kernels compiled ahead."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dbfs.cli.cluster_report import ClusterReport, examine_cluster
from dbfs.cli.common import connect, json_option, plain, print_json
from dbfs.cluster.doctor import CheckState, MachineReport, examine
from dbfs.cluster.kernels import warm_up as compile_all
from dbfs.units import format_bytes

STYLES = {CheckState.OK: "green", CheckState.MISSING: "yellow", CheckState.FAILED: "red"}


@click.command("warm-up")
@json_option
def warm_up(as_json: bool) -> None:
    """Compile all CPU kernels, so that no first graph waits for the compiler: in images, and on machines of clusters.

    Numba keeps the kernels on disk, in the packages' folders or in the folder that NUMBA_CACHE_DIR names.

    Example: dbfs warm-up
    """
    kernels, compiled = compile_all()
    if as_json:
        print_json({"kernels": len(kernels), "compiled": compiled})
    else:
        click.echo(f"{len(kernels)} CPU kernels ready, {compiled} of them compiled now")


@click.command()
@click.option("--scheduler", help="Describe the cluster of this Dask scheduler instead.", metavar="ADDRESS")
@json_option
def doctor(scheduler: str | None, as_json: bool) -> None:
    """Check GPUs, packages, shared memory and kernels of this machine, or describe a cluster.

    A machine without a GPU is no error: the CPU backend works there. Kernels that were never compiled here are compiled
    now and cached.

    With --scheduler the command lists the cluster's workers, their versions, GPUs and memory limits, and the backend
    and the exchange of a graph on all of them. It loads and unloads a small graph to find out.

    \b
    Examples:
      dbfs doctor
      dbfs doctor --scheduler tcp://host:8786
    """
    console = Console()
    if scheduler is not None:
        with connect(scheduler, None) as client:
            cluster = examine_cluster(client)
        if as_json:
            print_json(asdict(cluster))
        else:
            _print_cluster(console, cluster)
        return
    report = examine()
    if as_json:
        print_json(report.to_dict())
        return
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    for column in ("check", "state"):
        table.add_column(column, no_wrap=True)
    table.add_column("found", overflow="fold")
    for finding in report.findings:
        table.add_row(finding.name, f"[{STYLES[finding.state]}]{finding.state}", escape(finding.found))
    console.print(table, highlight=False)
    if len(report.gpus) > 1:
        console.print(peers_table(report))
    advice = [finding for finding in report.findings if finding.advice]
    for finding in advice:
        console.print(f"{finding.name}: {finding.advice}", highlight=False, markup=False, soft_wrap=True)


def _print_cluster(console: Console, report: ClusterReport) -> None:
    if not console.is_terminal:
        # A file or a pipe has no width to fit, and cells would be cut to 80 columns.
        console.width = 200
    table = Table(title=f"Workers of {report.scheduler}", title_justify="left", box=box.SIMPLE)
    for column in ("rank", "address", "threads", "memory limit", "GPU", "dbfs", "Python", "Dask"):
        table.add_column(column, justify="right" if column in ("rank", "threads", "memory limit") else "left")
    for worker in report.workers:
        cells = (
            worker.rank,
            worker.address,
            worker.threads,
            format_bytes(worker.memory_limit) if worker.memory_limit else "none",
            worker.gpu or "none",
            worker.versions["dbfs"] or "none",
            (worker.versions["python"] or "").partition(".final")[0],
            worker.versions["distributed"] or "none",
        )
        # A worker reports of itself what it likes.
        table.add_row(*map(plain, cells))
    console.print(table)
    if report.backend is not None:
        ranks = f"{len(report.workers)} rank{'s' * (len(report.workers) > 1)}"
        gets = f"A graph on {ranks} gets the backend {report.backend} and the exchange {report.exchange}."
        console.print(gets, highlight=False, soft_wrap=True)
    for line in report.advice:
        console.print(plain(line), soft_wrap=True)


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

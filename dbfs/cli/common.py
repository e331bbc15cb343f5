"""What the commands share: options, the way to a cluster, and how results are printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click
import distributed
from rich import box
from rich.console import Console
from rich.table import Table

import dbfs
from dbfs.build.build import ORDERS
from dbfs.edges import generate
from dbfs.errors import InvalidOptionError
from dbfs.records import BACKENDS

Command = TypeVar("Command", bound=Callable[..., Any])

GRAPH_HELP = (
    "Files: Matrix Market, METIS, SNAP and plain edge lists, PACE and DIMACS .gr, each also as .gz, .xz or .bz2.\n\n"
    "\b\nGenerators:\n" + generate.describe()
)
"""Ends the help of a command that takes a GRAPH."""

# Where Dask itself looks for a scheduler's address, and where its operator for Kubernetes writes it.
_SCHEDULER: dict[str, Any] = {"metavar": "ADDRESS", "envvar": "DASK_SCHEDULER_ADDRESS", "show_envvar": True}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
cluster_option = click.option("--scheduler", required=True, help="The cluster's Dask scheduler.", **_SCHEDULER)
scheduler_option = click.option(
    "--scheduler", help="Use this Dask scheduler's workers; a local cluster if left out.", **_SCHEDULER
)
order_option = click.option(
    "--order", type=click.Choice(ORDERS), default="given", show_default=True, help="Of vertices, inside."
)
in_edges_option = click.option(
    "--in-edges", is_flag=True, help="Keep a directed graph's in-edges, too, for bottom-up levels."
)


def layout_options(command: Command) -> Command:
    """Add the options that say how a graph is built and laid out, named as the arguments of ``dbfs.load``."""
    options = (
        click.option(
            "--ranks", type=int, help="Workers that take part; all of the cluster's (locally one per core) if left out."
        ),
        click.option("--directed/--undirected", default=None, help="Override what the file's format or header says."),
        order_option,
        in_edges_option,
        click.option(
            "--backend",
            type=click.Choice(BACKENDS),
            default="auto",
            show_default=True,
            help="CPU cores, or a GPU for each rank.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def connect(scheduler: str | None, ranks: int | None, backend: str = "auto") -> distributed.Client:
    """A client of the scheduler given, or of a local cluster whose dashboard takes any free port, without a word."""
    local = {} if scheduler else {"dashboard_address": ":0"}
    return dbfs.connect(scheduler, n_workers=ranks, backend=backend, **local)


def check_folder(option: str, out: Path) -> None:
    """Refuse a file in a folder that is not there; before the work whose result would be lost."""
    if not out.parent.is_dir():
        raise InvalidOptionError(f"{option} {out}: there is no folder {out.parent}")


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2))


def print_results(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], results: Sequence[Any], *, as_json: bool
) -> None:
    """Print a table, or the dataclasses it shows as JSON. Only the first column is not of numbers."""
    if as_json:
        print_json([asdict(result) for result in results])
        return
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for column in columns:
        table.add_column(column, justify="left" if column == columns[0] else "right")
    for row in rows:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        # A file or a pipe has no width to fit, and a cell that was cut short is lost.
        console.width = 200
    console.print(table)

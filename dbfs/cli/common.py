"""Options, connections and printing that several commands share."""

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
from dbfs.building.build import ORDERS
from dbfs.edges import generate
from dbfs.errors import InvalidOptionError
from dbfs.records import BACKENDS

Command = TypeVar("Command", bound=Callable[..., Any])

GRAPH_HELP = (
    "Files: Matrix Market, METIS, SNAP and plain edge lists, PACE and DIMACS .gr, each also as .gz, .xz or .bz2.\n\n"
    "\b\nGenerators:\n" + generate.describe()
)
"""Epilogue of the help of a command that takes a GRAPH."""

# Dask itself reads a scheduler's address from this variable, and its Kubernetes operator writes it there.
_SCHEDULER: dict[str, Any] = {"metavar": "ADDRESS", "envvar": "DASK_SCHEDULER_ADDRESS", "show_envvar": True}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
cluster_option = click.option("--scheduler", required=True, help="The cluster's Dask scheduler.", **_SCHEDULER)
scheduler_option = click.option(
    "--scheduler", help="Use the workers of this Dask scheduler; a local cluster if left out.", **_SCHEDULER
)
order_option = click.option(
    "--order", type=click.Choice(ORDERS), default="given", show_default=True, help="Internal order of the vertices."
)
in_edges_option = click.option(
    "--in-edges", is_flag=True, help="Also keep a directed graph's in-edges, for bottom-up levels."
)


def layout_options(command: Command) -> Command:
    """Add the options of a graph's layout, which have the names of ``dbfs.load``'s arguments."""
    options = (
        click.option(
            "--ranks",
            type=click.IntRange(1),
            help="Number of workers; if left out, all of the cluster's (locally one for each core).",
        ),
        click.option("--directed/--undirected", default=None, help="Override the file's format or header."),
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
    """Connect to ``scheduler``, or start a local cluster if it is None.

    A local cluster's dashboard takes any free port: with Dask's fixed port, a second one would print a warning.
    """
    local = {} if scheduler else {"dashboard_address": ":0"}
    return dbfs.connect(scheduler, n_workers=ranks, backend=backend, **local)


def check_folder(option: str, out: Path) -> None:
    """Refuse a file whose folder does not exist. Called before the work, whose result a late error would lose.

    Raises:
        InvalidOptionError: the folder does not exist.
    """
    if not out.parent.is_dir():
        raise InvalidOptionError(f"{option} {out}: there is no folder {out.parent}")


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2))


def print_results(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], results: Sequence[Any], *, as_json: bool
) -> None:
    """Print a table, or its rows as JSON.

    Args:
        title: the table's.
        columns: their headings. The first column is aligned to the left, the others to the right.
        rows: the table's cells.
        results: the dataclasses behind the rows, which are printed as JSON.
        as_json: whether to print JSON.
    """
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
        # A file or a pipe has no width to fit, and cells would be cut to 80 columns.
        console.width = 200
    console.print(table)

"""``dbfs estimate``: the memory that a graph will need, computed without reading or building it."""

import click
from dask.utils import format_bytes
from rich import box
from rich.console import Console
from rich.table import Table

import dbfs
from dbfs.building.build import BuildOptions
from dbfs.cli.common import GRAPH_HELP, in_edges_option, json_option, order_option, print_json
from dbfs.edges.resolve import edge_list
from dbfs_workers.backends import BACKENDS


@click.command(epilog=GRAPH_HELP)
@click.argument("graph")
@click.option("--ranks", type=click.IntRange(1), required=True, help="Number of workers.")
@order_option
@in_edges_option
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    default="cpu",
    show_default=True,
    help="Memory to estimate: cpu for the workers', cuda for that of their GPUs.",
)
@json_option
def estimate(graph: str, ranks: int, order: str, in_edges: bool, backend: str, as_json: bool) -> None:
    """Estimate the memory that GRAPH needs on each rank.

    GRAPH is a generator or a file. Only the header of a file is read. A plain edge list has no header, so its memory
    can't be estimated.

    Example: dbfs estimate kronecker:scale=26 --ranks 4
    """
    needed = dbfs.estimate(edge_list(graph), ranks, BuildOptions(in_edges, order), backend=backend)
    stages = {"partition": needed.partition, "build": needed.build, "run": needed.run}
    if as_json:
        print_json({"graph": graph, "ranks": ranks, "backend": backend, "peak": needed.peak_bytes, **stages})
        return
    table = Table(
        title=f"{graph} on {ranks} rank{'s' * (ranks > 1)}: bytes a rank", title_justify="left", box=box.SIMPLE
    )
    for column in ("when", "what", "bytes"):
        table.add_column(column, justify="right" if column == "bytes" else "left")
    for stage, parts in stages.items():
        for what, size in parts.items():
            table.add_row(stage, what, format_bytes(size))
    table.add_section()
    table.add_row("at most", "partition, and build or run", format_bytes(needed.peak_bytes))
    Console().print(table)

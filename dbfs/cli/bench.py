"""``dbfs bench``: benchmarks that print what they measured."""

import json
import statistics
from dataclasses import asdict

import click
from dask.utils import format_bytes
from rich.console import Console
from rich.table import Table

from dbfs.cli.run import connect


@click.group()
def bench() -> None:
    """Measure this machine.

    Example: dbfs bench levels
    """


@bench.command()
@click.option("--ranks", type=click.IntRange(1), default=4, show_default=True)
@click.option("--levels", type=click.IntRange(8), default=64, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def levels(ranks: int, levels: int, as_json: bool) -> None:
    """What a level costs, on a path graph.

    Example: dbfs bench levels --ranks 4
    """
    from dbfs.bench.levels import bench_levels

    with connect(None, ranks) as client:
        costs = list(bench_levels(client, ranks, levels))
    if as_json:
        click.echo(json.dumps([asdict(cost) for cost in costs], indent=2))
        return
    table = Table(title=f"A level of a path graph, {ranks} ranks, {levels} levels", title_justify="left")
    table.add_column("engine and way")
    table.add_column("ms a level", justify="right")
    table.add_column("ratio", justify="right")
    for cost in costs:
        table.add_row(cost.way, f"{cost.milliseconds:.2f}", f"{cost.ratio:.2f}")
    Console().print(table)


@bench.command()
@click.option("--graph", default="kronecker:scale=20", show_default=True, help="A generator.")
@click.option("--ranks", type=click.IntRange(1), default=4, show_default=True)
@click.option("--sources", type=click.IntRange(1), default=5, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def build(graph: str, ranks: int, sources: int, as_json: bool) -> None:
    """What building a graph takes of time and memory, and traversals of it.

    Example: dbfs bench build --graph kronecker:scale=18
    """
    from dbfs.bench.build import bench_build

    with connect(None, ranks) as client:
        cost = bench_build(client, graph, ranks, sources)
    if as_json:
        click.echo(json.dumps(asdict(cost), indent=2))
        return
    console = Console()
    console.print(f"{graph} on {ranks} ranks: built in {cost.build_seconds:.2f} s", highlight=False)
    table = Table()
    for column in ("rank", "partition", "peak before", "peak after", "of 3 partitions + 200 MB"):
        table.add_column(column, justify="right")
    for rank, (partition, before, peak) in enumerate(zip(cost.partition, cost.before, cost.peak, strict=True)):
        share = peak / (3 * partition + 200e6)
        table.add_row(str(rank), format_bytes(partition), format_bytes(before), format_bytes(peak), f"{share:.0%}")
    console.print(table)
    console.print(
        f"traversal: median {statistics.median(cost.traversals) * 1e3:.0f} ms "
        f"({statistics.median(cost.client_seconds) * 1e3:.0f} ms from call to result), "
        f"{statistics.median(cost.mteps):.0f} MTEPS (directed), {sources} sources",
        highlight=False,
    )

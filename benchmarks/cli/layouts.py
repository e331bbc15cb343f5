"""``dbfs bench layouts``: the 1-D and the 2-D partition beside each other."""

from __future__ import annotations

import click

from benchmarks.cli.common import advancing
from dbfs import progress
from dbfs.building.build import ORDERS
from dbfs.cli.common import connect, json_option, print_json, print_results
from dbfs.units import format_bytes
from dbfs_workers.backends import BACKENDS


@click.command()
@click.option(
    "--graph",
    "graphs",
    multiple=True,
    default=("kronecker:scale=18",),
    show_default=True,
    help="A generator or a file; repeat for several.",
)
@click.option("--order", type=click.Choice(ORDERS), default="given", show_default=True, help="Order of the vertices.")
@click.option(
    "--ranks",
    type=click.IntRange(1),
    multiple=True,
    default=(16,),
    show_default=True,
    help="Number of workers; repeat for several.",
)
@click.option("--sources", type=click.IntRange(1), default=8, show_default=True, help="Number of random sources.")
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    default="cpu",
    show_default=True,
    help="cpu for workers on CPU cores, cuda for a GPU each.",
)
@json_option
def layouts(
    graphs: tuple[str, ...], order: str, ranks: tuple[int, ...], sources: int, backend: str, as_json: bool
) -> None:
    """Measure the bytes that ranks send in a traversal, with layout="1d" and with layout="2d".

    The workers are processes of this machine. Times say little with fewer cores than ranks; the bytes are
    the same on any machine. dbfs bench scale-model fits a model to the JSON.

    Example: dbfs bench layouts --ranks 4 --ranks 9
    """
    from benchmarks.layouts import bench_layouts, to_json

    with (
        connect(None, max(ranks), backend) as client,
        progress.bar("bench layouts", len(graphs) * len(ranks)) as bar,
    ):
        costs = list(bench_layouts(client, graphs, ranks, sources, order, advancing(bar), backend))
    if as_json:
        print_json(to_json(costs))
        return
    rows = [
        (
            c.graph,
            str(c.ranks),
            c.layout,
            c.exchange,
            "with" if c.predecessors else "without",
            str(c.peers),
            format_bytes(round(c.bytes_sent)),
            f"{c.ratio:.2f}",
            f"{c.milliseconds:.2f}",
            format_bytes(round(c.bytes_per_rank)),
        )
        for c in costs
    ]
    columns = (
        *("graph", "ranks", "layout", "exchange", "predecessors", "peers"),
        *("bytes sent", "of 1d's", "levels ms", "partition of a rank"),
    )
    title = f"Layouts by order {order}, {sources} source{'s' * (sources > 1)}"
    print_results(title, columns, rows, costs, as_json=False)

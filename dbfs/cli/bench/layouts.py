"""``dbfs bench layouts``: the 1-D and the 2-D partition beside each other."""

from __future__ import annotations

import click

from dbfs.building.build import ORDERS
from dbfs.cli.common import connect, json_option, print_results
from dbfs.units import format_bytes


@click.command()
@click.option("--graph", default="kronecker:scale=18", show_default=True, help="A generator or a file.")
@click.option("--order", type=click.Choice(ORDERS), default="given", show_default=True, help="Order of the vertices.")
@click.option("--ranks", type=click.IntRange(1), default=16, show_default=True, help="Number of workers.")
@click.option("--sources", type=click.IntRange(1), default=8, show_default=True, help="Number of random sources.")
@json_option
def layouts(graph: str, order: str, ranks: int, sources: int, as_json: bool) -> None:
    """Measure the bytes that ranks send in a traversal, with layout="1d" and with layout="2d".

    The workers are processes of this machine, on CPU cores. Times say little with fewer cores than ranks; the bytes are
    the same on any machine.

    Example: dbfs bench layouts --ranks 4
    """
    from dbfs.bench.layouts import bench_layouts

    with connect(None, ranks, "cpu") as client:
        costs = list(bench_layouts(client, graph, ranks, sources, order))
    rows = [
        (
            c.layout,
            "with" if c.predecessors else "without",
            str(c.peers),
            format_bytes(round(c.bytes_sent)),
            f"{c.ratio:.2f}",
            f"{c.milliseconds:.2f}",
            format_bytes(round(c.bytes_per_rank)),
        )
        for c in costs
    ]
    columns = ("layout", "predecessors", "peers", "bytes sent", "of 1d's", "levels ms", "partition of a rank")
    title = f"{graph} by {order}, {ranks} rank{'s' * (ranks > 1)}, {sources} source{'s' * (sources > 1)}"
    print_results(title, columns, rows, costs, as_json=as_json)

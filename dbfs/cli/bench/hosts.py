"""``dbfs bench hosts``: exchanges between hosts, on a local cluster."""

from __future__ import annotations

import click

from dbfs.cli.common import connect, json_option, print_results


@click.command()
@click.option("--ranks", type=click.IntRange(3), default=4, show_default=True, help="Number of workers.")
@click.option("--graph", default="kronecker:scale=20", show_default=True, help="A generator or a file.")
@click.option("--levels", type=click.IntRange(8), default=2000, show_default=True, help="Levels of the path graph.")
@click.option("--rounds", type=click.IntRange(1), default=9, show_default=True, help="Traversals of each kind.")
@json_option
def hosts(ranks: int, graph: str, levels: int, rounds: int, as_json: bool) -> None:
    """Measure exchanges between hosts, next to shared memory.

    The workers are on this machine and pretend to be on two hosts, then on one host each: they exchange by TCP. The
    ways take turns. Medians.

    Example: dbfs bench hosts --ranks 4
    """
    from dbfs.bench.hosts import bench_hosts

    with connect(None, ranks, "cpu") as client:
        costs = list(bench_hosts(client, ranks, graph, levels, rounds))
    rows = [
        (c.exchange, str(c.hosts), f"{c.level:.3f}", f"{c.level_ratio:.1f}", f"{c.graph:.2f}", f"{c.graph_ratio:.2f}")
        for c in costs
    ]
    print_results(
        f"A level of a path and {graph} by degree, {ranks} ranks",
        ("exchange", "hosts", "ms a level", "ratio", "graph ms", "ratio"),
        rows,
        costs,
        as_json=as_json,
    )

"""``dbfs bench networkx``: the backend for NetworkX beside NetworkX."""

from __future__ import annotations

import click

from dbfs.cli.common import connect, json_option, print_results
from dbfs.errors import MissingPackageError
from dbfs_workers.backends import BACKENDS


@click.command()
@click.option(
    "--scale", type=click.IntRange(7), default=15, show_default=True, help="Logarithm of the number of nodes."
)
@click.option("--ranks", type=click.IntRange(1), default=1, show_default=True, help="Number of workers.")
@click.option("--backend", type=click.Choice(BACKENDS), default="cpu", show_default=True, help="Device of the workers.")
@click.option("--times", type=click.IntRange(1), default=3, show_default=True, help="Calls of each function.")
@json_option
def networkx(scale: int, ranks: int, backend: str, times: int, as_json: bool) -> None:
    """Measure NetworkX's functions with the backend dbfs, next to NetworkX itself.

    Both take the same graph (Barabási and Albert, 8 edges for each node), in turns. The results are compared.

    Example: dbfs bench networkx --scale 14
    """
    try:
        from dbfs.bench.networkx import bench_networkx
    except ModuleNotFoundError as error:
        if error.name != "networkx":
            raise
        raise MissingPackageError("NetworkX is not installed; pip install dbfs[networkx]") from None

    with connect(None, ranks, backend, processes=backend == "cuda") as client:
        measured = list(bench_networkx(client, scale, times))
    rows = [
        (
            each.function,
            "" if each.networkx is None else f"{each.networkx * 1e3:.1f}",
            f"{each.dbfs * 1e3:.1f}",
            "" if each.ratio is None else f"{each.ratio:.1f}",
        )
        for each in measured
    ]
    title = f"2^{scale} nodes, 8 edges for each, {ranks} rank{'s' * (ranks > 1)} on {backend}"
    print_results(title, ("function", "NetworkX ms", "dbfs ms", "NetworkX / dbfs"), rows, measured, as_json=as_json)

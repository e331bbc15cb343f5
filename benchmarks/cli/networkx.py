"""``dbfs bench networkx``: the backend for NetworkX beside NetworkX."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from dbfs.cli.common import connect, json_option, print_json
from dbfs.errors import MissingPackageError
from dbfs_workers.backends import BACKENDS

if TYPE_CHECKING:
    from benchmarks.networkx import FunctionTime


@click.command()
@click.option(
    "--scale", type=click.IntRange(7), default=14, show_default=True, help="Logarithm of the number of nodes."
)
@click.option(
    "--pairs-scale",
    type=click.IntRange(7),
    default=10,
    show_default=True,
    help="The same, of the graph for functions with a traversal from each node.",
)
@click.option("--ranks", type=click.IntRange(1), default=1, show_default=True, help="Number of workers.")
@click.option("--backend", type=click.Choice(BACKENDS), default="cpu", show_default=True, help="Device of the workers.")
@click.option("--times", type=click.IntRange(1), default=2, show_default=True, help="Calls of each function.")
@json_option
def networkx(scale: int, pairs_scale: int, ranks: int, backend: str, times: int, as_json: bool) -> None:
    """Measure NetworkX's functions with the backend dbfs, next to NetworkX itself.

    Both take the same graph (Barabási and Albert, 8 edges for each node), in turns. The results are compared. Functions
    with a traversal from each node take a smaller graph, since NetworkX's time grows with the square of the nodes. Each
    row is printed as it is measured; ratio is NetworkX's time over the time of dbfs.

    Example: dbfs bench networkx --scale 14 --pairs-scale 11
    """
    try:
        from benchmarks.networkx import bench_networkx
    except ModuleNotFoundError as error:
        if error.name != "networkx":
            raise
        raise MissingPackageError("NetworkX is not installed; pip install '.[networkx]' in a clone of dbfs") from None

    measured = []
    with connect(None, ranks, backend, processes=backend == "cuda") as client:
        if not as_json:
            click.echo(_line("function", "nodes", "NetworkX ms", "dbfs ms", "ratio"))
        for each in bench_networkx(client, scale, pairs_scale, times):
            measured.append(each)
            if not as_json:
                click.echo(_row(each))
    if as_json:
        print_json([asdict(each) | {"ratio": each.ratio} for each in measured])


def _row(each: FunctionTime) -> str:
    networkx = "" if each.networkx is None else f"{each.networkx * 1e3:,.1f}"
    ratio = "" if each.ratio is None else f"{each.ratio:.1f}"
    return _line(each.function, f"2^{each.scale}", networkx, f"{each.dbfs * 1e3:,.1f}", ratio)


def _line(function: str, nodes: str, networkx: str, own: str, ratio: str) -> str:
    return f"{function:<40}{nodes:>6}{networkx:>13}{own:>11}{ratio:>8}".rstrip()

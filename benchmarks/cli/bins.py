"""``dbfs bench bins``: the taskgraph engine's levels over each of Dask's protocols, on local clusters."""

from __future__ import annotations

from collections.abc import Sequence

import click
import distributed

import dbfs
from dbfs.cli.common import json_option, print_results
from dbfs.cluster.connect import PROTOCOLS
from dbfs.cluster.local import LOOPBACK
from dbfs_workers.backends import BACKENDS
from dbfs_workers.spec import DIRECTIONS


@click.command()
@click.option("--graph", default="kronecker:scale=20", show_default=True, help="A generator or a file.")
@click.option("--ranks", type=click.IntRange(1), default=2, show_default=True, help="Number of workers.")
@click.option("--backend", type=click.Choice(BACKENDS), default="cpu", show_default=True, help="Device of the workers.")
@click.option(
    "--protocol",
    "protocols",
    type=click.Choice([protocol for protocol in PROTOCOLS if protocol != "auto"]),
    multiple=True,
    default=("tcp",),
    show_default=True,
    help="Protocol of the workers; may be repeated.",
)
@click.option(
    "--direction",
    "directions",
    type=click.Choice(DIRECTIONS),
    multiple=True,
    default=("top-down", "auto"),
    show_default=True,
    help="Direction of the levels; may be repeated.",
)
@click.option("--rounds", type=click.IntRange(1), default=9, show_default=True, help="Traversals of each kind.")
@json_option
def bins(
    graph: str,
    ranks: int,
    backend: str,
    protocols: Sequence[str],
    directions: Sequence[str],
    rounds: int,
    as_json: bool,
) -> None:
    """Measure the taskgraph engine's levels over Dask's protocols.

    The ranks send each other bins and bitmaps over Dask's connections. The times are medians. The distances must equal
    those of the resident engine.

    Example: dbfs bench bins --backend cuda --protocol tcp --protocol ucx
    """
    from benchmarks.bins import bench_bins

    def connect(protocol: str) -> distributed.Client:
        return dbfs.connect(n_workers=ranks, backend=backend, protocol=protocol, dashboard_address=f"{LOOPBACK}:0")

    costs = list(bench_bins(connect, protocols, directions, graph, ranks, rounds))
    rows = [
        (
            c.protocol,
            c.direction,
            str(c.level),
            c.way,
            f"{c.frontier:,}",
            f"{c.edges:,}",
            f"{c.megabytes:.2f}",
            f"{c.milliseconds:.2f}",
        )
        for c in costs
    ]
    print_results(
        f"{graph}, {ranks} ranks on {backend}",
        ("protocol", "direction", "level", "its direction", "frontier", "edges", "MB sent", "ms"),
        rows,
        costs,
        as_json=as_json,
    )

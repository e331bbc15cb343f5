"""``dbfs bench files``: the rates of saved graphs, labels and Matrix Market."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from benchmarks.cli.common import connect_workers, memory_option
from dbfs.cli.arguments import GraphType
from dbfs.cli.common import json_option, print_json
from dbfs.units import format_bytes
from dbfs_workers.backends import BACKENDS


@click.command()
@click.option(
    "--graph",
    type=GraphType(),
    default="kronecker:scale=20",
    show_default=True,
    help="Generator of the graph that is saved.",
)
@click.option(
    "--text",
    type=GraphType(),
    default="kronecker:scale=18",
    show_default=True,
    help="Generator of the graph that is written as Matrix Market.",
)
@click.option("--ranks", type=click.IntRange(1), default=2, show_default=True, help="Number of workers.")
@click.option("--backend", type=click.Choice(BACKENDS), default="cpu", show_default=True, help="Device of the workers.")
@click.option("--times", type=click.IntRange(1), default=3, show_default=True, help="Repeats; the fastest counts.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder for the files, which are removed at the end; by default the folder of temporary files.",
)
@memory_option
@json_option
def files(
    graph: str,
    text: str,
    ranks: int,
    backend: str,
    times: int,
    folder: Path | None,
    memory_limit: str,
    as_json: bool,
) -> None:
    """Measure how fast graphs and labels are written and read.

    A graph is saved and opened again, the labels of a traversal are written as Parquet, and one thread reads a Matrix
    Market file, next to fast_matrix_market if that is installed. Each row is printed as it is measured. The files were
    just written, so the system reads them from memory.

    Example: dbfs bench files --graph kronecker:scale=22 --ranks 2
    """
    from benchmarks.files import bench_files

    measured = []
    with (
        tempfile.TemporaryDirectory(prefix="dbfs-bench-", dir=folder) as own,
        connect_workers(None, ranks, backend, memory_limit) as client,
    ):
        for each in bench_files(client, graph, text, Path(own), backend, times):
            measured.append(each)
            if not as_json:
                rate = f"{each.rate / 1e6:,.0f} MB/s"
                click.echo(f"{each.what:<42}{format_bytes(each.nbytes):>12}{each.seconds:>9.2f} s{rate:>14}")
    if as_json:
        print_json([asdict(each) | {"rate": each.rate} for each in measured])

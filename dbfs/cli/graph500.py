"""``dbfs graph500``: the benchmark from generation to its output."""

from __future__ import annotations

import json
from pathlib import Path

import click

import dbfs
from dbfs.cli.common import check_folder, connect, json_option, print_json, scheduler_option
from dbfs.graph500.benchmark import EDGEFACTOR, ROOTS
from dbfs.records import BACKENDS


@click.command()
@click.option("--scale", type=int, required=True, help="2^SCALE vertices.")
@click.option("--edgefactor", type=int, default=EDGEFACTOR, show_default=True, help="Edges a vertex.")
@click.option("--roots", type=click.IntRange(1), default=ROOTS, show_default=True, help="Search keys.")
@click.option(
    "--ranks", type=int, help="Workers that take part; all of the cluster's (locally one per core) if left out."
)
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    default="auto",
    show_default=True,
    help="CPU cores, or a GPU for each rank.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the statistics and each search to this file, too, as JSON.",
)
@scheduler_option
@json_option
def graph500(
    scale: int,
    edgefactor: int,
    roots: int,
    ranks: int | None,
    backend: str,
    out: Path | None,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Run the Graph500 benchmark and print its statistics.

    A Kronecker graph is generated and built (kernel 1), searched from random keys (kernel 2), and every search is
    validated by the benchmark's five rules against the edges generated. A search that breaks one ends the run with
    exit code 3.

    Example: dbfs graph500 --scale 16
    """
    if out is not None:
        check_folder("--out", out)
    # What is refused shall not have started a cluster.
    dbfs.kronecker(scale, edgefactor)
    with connect(scheduler, ranks, backend) as client:
        result = dbfs.graph500(scale, edgefactor=edgefactor, roots=roots, client=client, ranks=ranks, backend=backend)
    if out is not None:
        out.write_text(json.dumps(result.to_dict(), indent=2), encoding="utf-8")
    if as_json:
        print_json(result.to_dict())
    else:
        click.echo(str(result))

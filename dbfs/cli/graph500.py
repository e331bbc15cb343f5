"""``dbfs graph500``: the Graph500 benchmark, from the generator to its statistics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import dbfs
from dbfs.building.build import ORDERS
from dbfs.cli.common import (
    backend_option,
    check_writable,
    connect,
    fits_within_process,
    json_option,
    print_answer,
    ranks_option,
    scheduler_option,
    writing,
)
from dbfs.graph500.benchmark import EDGEFACTOR, ROOTS


@click.command()
@click.option("--scale", type=int, required=True, help="The graph has 2^SCALE vertices.")
@click.option("--edgefactor", type=int, default=EDGEFACTOR, show_default=True, help="Input edges for each vertex.")
@click.option("--roots", type=click.IntRange(1), default=ROOTS, show_default=True, help="Number of search keys.")
@ranks_option
@backend_option()
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default="degree",
    show_default=True,
    help="Numbering of the vertices inside. By degree takes longer to construct, and less to search.",
)
@click.option("--sssp", is_flag=True, help="Also find shortest paths by weight from the same keys (kernel 3), on CPUs.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the statistics and each search to this file, as JSON.",
)
@scheduler_option
@json_option
def graph500(
    scale: int,
    edgefactor: int,
    roots: int,
    ranks: int | None,
    backend: str,
    order: str,
    sssp: bool,
    out: Path | None,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Run the Graph500 benchmark and print its statistics.

    The benchmark generates and builds a Kronecker graph (kernel 1), and searches it from random keys (kernel 2). It
    validates every search by its five rules against the generated edges. A search that breaks a rule ends the benchmark
    with exit code 3. --sssp adds shortest paths by the reference code's weights, validated by their rules (kernel 3).

    Example: dbfs graph500 --scale 16
    """
    if out is not None:
        check_writable("--out", out)
    # Checks the options before a cluster is started for them.
    if within := fits_within_process(scheduler, backend, dbfs.kronecker(scale, edgefactor)):
        backend = "cpu"
    with connect(scheduler, ranks, backend, processes=not within) as client:
        options: dict[str, Any] = {"edgefactor": edgefactor, "roots": roots, "backend": backend, "order": order}
        result = dbfs.graph500(scale, client=client, ranks=ranks, sssp=sssp, **options)
    if out is not None:
        with writing("--out", out):
            out.write_text(json.dumps(result.to_dict(), indent=2), encoding="utf-8")
        # On stderr, because programs read the benchmark's lines from stdout.
        click.echo(f"{out}: wrote the statistics and {len(result.searches):,} searches", err=True)
    print_answer(result.to_dict(), str(result), as_json=as_json)

"""``dbfs lab``: the strategies of the papers, by name."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

import dbfs
from dbfs.base.units import format_rate, format_seconds
from dbfs.cli.common import (
    GRAPH_HELP,
    GraphCommand,
    GraphType,
    backend_option,
    connect,
    fits_within_process,
    json_option,
    parse_id,
    print_json,
    print_results,
    scheduler_option,
)
from dbfs.edges.resolve import edge_list
from dbfs.lab import CHOICES, STRATEGIES, parse


@click.group()
def lab() -> None:
    """Traverse by the strategies of the papers, and compare them.

    Example: dbfs lab run kronecker:scale=16 --source 1 --strategy sequential
    """


@lab.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the strategies, with their options and where they run.

    Example: dbfs lab list
    """
    found = list(STRATEGIES.values())
    rows = [
        (
            each.name,
            each.family,
            f"{each.device}{f', {each.layout}' * each.grid}",
            ", ".join(each.options),
            each.source,
            each.does.rstrip("."),
        )
        for each in found
    ]
    columns = ("strategy", "family", "device", "options", "source", "what it does")
    print_results("Strategies", columns, rows, found, as_json=as_json)
    if not as_json:
        for option, choices in CHOICES.items():
            click.echo(f"{option}: {', '.join(choices)}")


@lab.command(cls=GraphCommand, epilog=GRAPH_HELP)
@click.argument("graph", type=GraphType())
@click.option("--source", required=True, help="Id to start from, as the file has it; the columns of a tuple by commas.")
@click.option("--strategy", required=True, help="Name, and options after a colon: two-phase:gathering=scan.")
@click.option("--predecessors", is_flag=True, help="Also record each vertex's parent.")
@click.option("--ranks", type=click.IntRange(1), default=1, show_default=True, help="Number of workers, in a grid.")
@backend_option("Device of the strategy resident.")
@scheduler_option
@json_option
def run(
    graph: str,
    source: str,
    strategy: str,
    predecessors: bool,
    ranks: int,
    backend: str,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Traverse GRAPH by a strategy, validate the result, and print its counters.

    A strategy for grids takes its layout, on as many ranks as --ranks says; the others take one rank.

    \b
    Examples:
      dbfs lab run kronecker:scale=16 --source 1 --strategy sequential
      dbfs lab run road.gr.xz --source 1 --strategy two-phase:culling=none
      dbfs lab run kronecker:scale=16 --source 1 --strategy row-scan --ranks 4
    """
    # Before the connection, so that a wrong name is reported at once.
    found = STRATEGIES[parse(strategy).strategy]
    backend = {"cpu": "cpu", "gpu": "cuda"}.get(found.device, backend)
    edges = edge_list(graph)
    if within := fits_within_process(scheduler, backend, edges):
        backend = "cpu"
    with ExitStack() as stack:
        client = stack.enter_context(connect(scheduler, ranks, backend, processes=not within))
        options: dict[str, Any] = {"ranks": ranks, "layout": found.layout, "backend": backend}
        built = stack.enter_context(dbfs.load(edges, client=client, **options))
        result = built.bfs(
            parse_id(source, built.id_type, "source"), strategy=strategy, predecessors=predecessors, validate=True
        )
        _print(result, strategy, as_json=as_json)


def _print(result: dbfs.BFSResult, strategy: str, *, as_json: bool) -> None:
    counts = {name: getattr(result, name) for name in ("reached", "depth", "edges", "seconds", "mteps", "counters")}
    where = {"graph": result.graph.name, "strategy": strategy, "backend": result.graph.backend}
    found = {**where, **counts, "validated": True}
    if as_json:
        print_json(found)
        return
    click.echo(
        f"{result.graph.name} by {strategy} on {result.graph.backend}: {result.reached:,} reached, depth "
        f"{result.depth:,}, {format_seconds(result.seconds)}, {format_rate(result.mteps)}; the result is valid"
    )
    for counter, value in result.counters.items():
        click.echo(f"  {counter.replace('_', ' ')}: {value:,}")
    if "edges" in result.counters and result.edges:
        click.echo(f"  redundant expansion: {result.counters['edges'] / result.edges:.3f}")

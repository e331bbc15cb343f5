"""``dbfs path``: shortest paths between two vertices."""

from __future__ import annotations

from typing import Any, Final

import click

from dbfs.cli.common import (
    GRAPH_HELP,
    GraphCommand,
    GraphType,
    edges_to_load,
    json_option,
    layout_options,
    loaded_graph,
    loaded_option,
    parse_id,
    print_json,
    reader_options,
    scheduler_option,
)
from dbfs_workers.base.text import counted, printable

_MOST: Final = 1000


@click.command(cls=GraphCommand, epilog=GRAPH_HELP)
@click.argument("graph", type=GraphType())
@click.argument("source")
@click.argument("target")
@click.option("--weight", metavar="COLUMN", help="Add up this column of the edges instead of counting them.")
@click.option("--all", "every", is_flag=True, help="Print all shortest paths, in the order of their ids.")
@click.option("--limit", type=click.IntRange(0), default=_MOST, show_default=True, help="Most paths that --all prints.")
@reader_options
@loaded_option
@layout_options
@scheduler_option
@json_option
def path(
    graph: str,
    source: str,
    target: str,
    weight: str | None,
    every: bool,
    limit: int,
    loaded: bool,
    scheduler: str | None,
    as_json: bool,
    **layout: Any,
) -> None:
    """Print a shortest path in GRAPH, a file or a generator, from the id SOURCE to the id TARGET.

    Of several shortest paths it is the first in the order of ids; by weight it is any. --all prints the others too.
    Commas separate the columns of an id that is a tuple.

    \b
    Examples:
      dbfs path road.gr.xz 1 1000
      dbfs path follows.parquet alice bob --all --source-column who --target-column whom
      dbfs path roads.parquet 7 9 --weight minutes
      dbfs path web --loaded 7 8 --scheduler tcp://host:8786
    """
    if weight is not None and every:
        raise click.UsageError("--all does not go with --weight, which finds one path")
    edges = None if loaded else edges_to_load(graph, scheduler, layout)
    if weight is not None and edges is not None:
        layout["edge_columns"] = [weight]
    with loaded_graph(graph, edges, scheduler, layout) as found:
        ends = parse_id(source, found.id_type, "source"), parse_id(target, found.id_type, "target")
        # One more path tells whether there are more.
        paths = list(found.paths(*ends, limit=limit + 1)) if every else [found.path(*ends, weight=weight)]
        steps = len(paths[0]) - 1 if paths else -1
        distance = steps if weight is None or steps < 0 else found.distance(*ends, weight=weight)
    more = every and len(paths) > limit
    if as_json:
        rest = {"paths": paths[:limit], "more": more} if every else {"path": paths[0]}
        print_json({"distance": distance} | rest)
        return
    if steps < 0:
        click.echo("path: there is none")
        return
    by = "" if weight is None else f", {printable(weight)} {distance:,}"
    for one in paths[:limit] if every else paths:
        click.echo(f"path: {counted(steps, 'edge')}{by}: {' '.join(printable(each) for each in one)}")
    if more:
        click.echo(f"there are more than {counted(limit, 'path')}; --limit prints more")

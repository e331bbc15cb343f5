"""``dbfs load``, ``graphs``, ``save``, ``unload``: named graphs in a running cluster."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console

import dbfs
from dbfs.cli.arguments import GraphCommand, GraphType
from dbfs.cli.common import (
    GRAPH_HELP,
    cluster_option,
    connect,
    edges_of,
    json_option,
    layout_options,
    plain,
    print_json,
    print_results,
    reader_options,
)
from dbfs.display import tables
from dbfs.records import GraphStatus
from dbfs.units import format_bytes, format_seconds
from dbfs_workers.text import printable


@click.command(cls=GraphCommand, epilog=GRAPH_HELP)
@click.argument("graph", type=GraphType())
@click.option("--name", required=True, help="Name of the graph in the cluster.")
@click.option("--replace", is_flag=True, help="Replace the graph that has this name, if there is one.")
@click.option("--replace-first", is_flag=True, help="The same, but unload that graph before this one is built.")
@reader_options
@layout_options
@click.option("--mutable", is_flag=True, help="Allow dbfs insert and dbfs delete.")
@click.option("--room", type=click.IntRange(0), default=0, help="Vertices that may be added later.")
@cluster_option
@json_option
def load(
    graph: str, name: str, replace: bool, replace_first: bool, scheduler: str, as_json: bool, **layout: Any
) -> None:
    """Build GRAPH on a cluster and keep it under a name.

    The graph stays until it is unloaded. Traverse it with dbfs run NAME --loaded, or with dbfs.open(NAME) in Python.
    The workers read a file themselves, so its path must be valid on all of them.

    With --replace the graph that has the name is unloaded when the new one is whole, and its runs are cancelled. With
    --replace-first both need not fit at once, and the old graph is gone even if the build fails.

    Example: dbfs load web.txt --name web --scheduler tcp://host:8786
    """
    # Read before the connection, so that a wrong name or option is reported at once.
    edges = edges_of(graph, layout, layout.pop("directed"))
    with connect(scheduler, None) as client:
        loaded = dbfs.load(edges, client=client, name=name, replace="first" if replace_first else replace, **layout)
        status = next(status for status in dbfs.graphs(client=client) if status.name == name)
    if as_json:
        print_json(asdict(status) | {"build_seconds": loaded.build_seconds})
    else:
        Console().print(plain(tables.describe(loaded)), soft_wrap=True)


@click.command()
@cluster_option
@json_option
def graphs(scheduler: str, as_json: bool) -> None:
    """List the graphs of a cluster.

    Example: dbfs graphs --scheduler tcp://host:8786
    """
    with connect(scheduler, None) as client:
        found = dbfs.graphs(client=client)
    now = datetime.now(UTC)
    columns = (
        "name",
        "vertices",
        "edges",
        "ranks",
        "per rank",
        "backend",
        "exchange",
        "runs",
        "version",
        "age",
        "state",
    )
    rows = [
        (
            status.name,
            f"{status.n:,}",
            f"{status.m:,}",
            str(status.ranks),
            format_bytes(max(status.bytes_per_rank)),
            status.backend,
            status.exchange,
            str(status.runs),
            str(status.version),
            format_seconds((now - status.created).total_seconds()),
            _state(status),
        )
        for status in found
    ]
    print_results(f"Graphs at {scheduler}", columns, rows, found, as_json=as_json)


def _state(status: GraphStatus) -> str:
    if not status.lost:
        return "ready"
    return f"lost rank{'s' * (len(status.lost) > 1)} {', '.join(map(str, status.lost))}; load it again"


@click.command()
@click.argument("name")
@click.argument("path")
@click.option("--replace", is_flag=True, help="Replace the graph that is saved in PATH, if there is one.")
@cluster_option
@json_option
def save(name: str, path: str, replace: bool, scheduler: str, as_json: bool) -> None:
    """Save a named graph in the folder PATH.

    The workers write the files themselves, so PATH must be a folder that all of them share, or a URL. Commands that
    take a GRAPH take PATH from then on: dbfs run PATH, dbfs load PATH --name NAME.

    A cluster that runs already writes only below the folders in its configuration: dbfs.write.folders.

    Example: dbfs save web /data/graphs/web.dbfs --scheduler tcp://host:8786
    """
    with connect(scheduler, None) as client:
        written = dbfs.open(name, client=client).save(path, replace=replace)
    if as_json:
        print_json({"name": name, "path": path, "bytes": written})
    else:
        click.echo(f"{printable(path)}: saved {name}, {format_bytes(written)}")


@click.command()
@click.argument("name")
@cluster_option
@json_option
def unload(name: str, scheduler: str, as_json: bool) -> None:
    """Free the memory of a named graph, and cancel its runs.

    Example: dbfs unload web --scheduler tcp://host:8786
    """
    with connect(scheduler, None) as client:
        graph = dbfs.open(name, client=client)
        freed = sum(graph.nbytes)
        graph.unload()
    if as_json:
        print_json({"name": name, "bytes": freed})
    else:
        click.echo(f"{name}: unloaded, {format_bytes(freed)} on {graph.ranks} rank{'s' * (graph.ranks > 1)}")

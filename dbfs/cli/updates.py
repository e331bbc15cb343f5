"""``dbfs insert`` and ``dbfs delete``: insert edges into a named graph in a running cluster, or delete them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

import dbfs
from dbfs.cli.arguments import GraphCommand, GraphType
from dbfs.cli.common import (
    GRAPH_HELP,
    cluster_option,
    connect,
    edges_of,
    json_option,
    print_json,
    reader_options,
)
from dbfs.edges import generate
from dbfs_workers.text import counted


def update_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments and options of a command that updates a graph."""
    for option in (
        json_option,
        cluster_option,
        click.option("--strict", is_flag=True, help="Refuse the whole batch instead of skipping an edge."),
        reader_options,
        click.argument("graph", metavar="EDGES", type=GraphType()),
        click.argument("name"),
    ):
        command = option(command)
    return command


@click.command(cls=GraphCommand, epilog=GRAPH_HELP)
@update_options
def insert(name: str, graph: str, strict: bool, scheduler: str, as_json: bool, **reading: Any) -> None:
    """Insert EDGES into a named graph, which was loaded with --mutable.

    An edge that the graph has already is skipped. The workers read a file themselves, so its path must be valid on all
    of them.

    Example: dbfs insert web new.txt --scheduler tcp://host:8786
    """
    with connect(scheduler, None) as client:
        opened = dbfs.open(name, client=client)
        update = opened.insert_edges(_edges(graph, reading, opened), strict=strict)
    _print(name, update, "inserted", as_json)


@click.command(cls=GraphCommand, epilog=GRAPH_HELP)
@update_options
def delete(name: str, graph: str, strict: bool, scheduler: str, as_json: bool, **reading: Any) -> None:
    """Delete EDGES from a named graph, which was loaded with --mutable.

    An edge that the graph lacks is skipped.

    Example: dbfs delete web closed.txt --scheduler tcp://host:8786
    """
    with connect(scheduler, None) as client:
        opened = dbfs.open(name, client=client)
        update = opened.delete_edges(_edges(graph, reading, opened), strict=strict)
    _print(name, update, "deleted", as_json)


def _edges(graph: str, reading: dict[str, Any], opened: dbfs.Graph) -> dbfs.EdgeList:
    """Return a batch of the graph's own direction; a generator's spec has a direction itself."""
    return edges_of(graph, reading, None if generate.is_spec(graph) else opened.directed)


def _print(name: str, update: dbfs.Update, done: str, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "version": update.version, "edges": update.edges, "skipped": update.skipped})
    else:
        edges = counted(update.edges, "edge")
        click.echo(f"{name}: version {update.version}, {edges} {done}, {update.skipped:,} skipped")

"""``dbfs load``, ``graphs``, ``save``, ``unload``: named graphs in a running cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

import dbfs
from dbfs import config
from dbfs.base.records import GraphStatus, RunStatus, waits_for
from dbfs.base.units import format_bytes, format_seconds
from dbfs.cli.common import (
    GRAPH_HELP,
    GraphCommand,
    GraphType,
    cluster_option,
    connect,
    edges_of,
    json_option,
    layout_options,
    plain,
    print_answer,
    print_json,
    print_results,
    reader_options,
    storage_option,
)
from dbfs.display import tables
from dbfs.edges import generate
from dbfs.errors import InvalidOptionError, RunNotFoundError
from dbfs_workers.base.text import counted, printable


@click.command(cls=GraphCommand, epilog=GRAPH_HELP)
@click.argument("graph", type=GraphType(), required=False)
@click.option("--name", help="Name of the graph in the cluster.")
@click.option(
    "--catalog", type=click.Path(), help="Load the saved graphs that this YAML file lists by name, instead of GRAPH."
)
@click.option("--replace", is_flag=True, help="Replace the graph that has this name, if there is one.")
@click.option("--replace-first", is_flag=True, help="The same, but unload that graph before this one is built.")
@reader_options
@layout_options
@click.option(
    "--edge-column", "edge_columns", metavar="NAME", multiple=True, help="Column to keep with the edges; repeat."
)
@click.option("--mutable", is_flag=True, help="Allow dbfs insert and dbfs delete.")
@click.option("--room", type=click.IntRange(0), default=0, help="Vertices that may be added later.")
@storage_option
@cluster_option
@json_option
def load(
    graph: str | None,
    name: str | None,
    catalog: str | None,
    replace: bool,
    replace_first: bool,
    scheduler: str,
    as_json: bool,
    **layout: Any,
) -> None:
    """Build GRAPH on a cluster and keep it under a name.

    The graph stays until it is unloaded. Traverse it with dbfs run NAME --loaded, or with dbfs.open(NAME) in Python.
    The workers read a file themselves, so its path must be valid on all of them.

    With --replace the graph that has the name is unloaded when the new one is whole, and its runs are cancelled. With
    --replace-first both need not fit at once, and the old graph is gone even if the build fails.

    A catalog has lines such as graphs: {web: {folder: /data/graphs/web, ranks: 4}}. Each of its graphs is loaded when
    enough workers have joined; those whose names are in use are passed over. The exit code is 1 if one can't be loaded.

    Example: dbfs load web.txt --name web --scheduler tcp://host:8786
    """
    if catalog is not None:
        _load_catalog(catalog, scheduler, as_json=as_json)
        return
    if graph is None or name is None:
        hint, kind = ("'GRAPH'", "argument") if graph is None else ("'--name'", "option")
        raise click.MissingParameter(ctx=click.get_current_context(), param_hint=hint, param_type=kind)
    # Read before the connection, so that a wrong name or option is reported at once.
    edges = edges_of(graph, layout, layout.pop("directed"))
    layout["edge_columns"] = layout["edge_columns"] or None
    with connect(scheduler, None) as client:
        loaded = dbfs.load(edges, client=client, name=name, replace="first" if replace_first else replace, **layout)
        status = next(status for status in dbfs.graphs(client=client) if status.name == name)
    if as_json:
        print_json(asdict(status) | {"order": loaded.order_name, "build_seconds": loaded.build_seconds})
    else:
        Console().print(plain(tables.describe(loaded)), soft_wrap=True)


def _load_catalog(path: str, scheduler: str, *, as_json: bool) -> None:
    from dbfs.features.catalog import catalog

    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(str(option.name)) is not ParameterSource.DEFAULT
        if given and option.name not in ("catalog", "scheduler", "as_json"):
            raise InvalidOptionError(f"--catalog excludes {option.opts[0]}: its file has the options")
    ends = list[catalog.Step]()

    def tell(step: catalog.Step) -> None:
        if not as_json or step.state == catalog.FAILED:
            click.echo(printable(f"{step.name}: {step.words}"), err=step.state == catalog.FAILED)
        if step.state != catalog.WAITS:
            ends.append(step)

    # Before the connection, so that faults are told at once.
    entries, refused = catalog.read(path)
    for step in refused:
        tell(step)
    if entries:
        # Workers may join much later than a scheduler starts.
        with dbfs.connect(scheduler, timeout=config.get("build-deadline")) as client:
            for step in catalog.load_all(entries, client, dbfs.load, dbfs.open):
                tell(step)
    if as_json:
        print_json([asdict(step) for step in ends])
    if any(step.state == catalog.FAILED for step in ends):
        raise click.exceptions.Exit(1)


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
        return waits_for(status.not_ready) or "ready"
    ranks = ", ".join(map(str, status.lost))
    return f"lost rank{'s' * (len(status.lost) > 1)} {ranks}; {status.returning or 'load it again'}"


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
    words = f"{printable(path)}: saved {name}, {format_bytes(written)}"
    print_answer({"name": name, "path": path, "bytes": written}, words, as_json=as_json)


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
    words = f"{name}: unloaded, {format_bytes(freed)} on {counted(graph.ranks, 'rank')}"
    print_answer({"name": name, "bytes": freed}, words, as_json=as_json)


@click.command()
@cluster_option
@json_option
def runs(scheduler: str, as_json: bool) -> None:
    """List the waiting and running runs of a cluster.

    Example: dbfs runs --scheduler tcp://host:8786
    """
    with connect(scheduler, None) as client:
        found = [run.status for run in dbfs.runs(client=client)]
    columns = ("run", "graph", "traversal", "state", "level", "direction", "frontier", "reached", "for")
    print_results(f"Runs at {scheduler}", columns, [_row(status) for status in found], found, as_json=as_json)


def _row(status: RunStatus) -> tuple[str, ...]:
    at = status.progress
    state, seconds = "running" if status.running else "waiting", format_seconds(status.seconds)
    state = f"{state}: {status.waits_for}" if status.waits_for else state
    if at is None:
        what = status.update or f"of {status.traversals}"
        return (status.run_id[:8], status.graph, what, state, "", "", "", "", seconds)
    traversal = f"{min(at.finished + 1, at.traversals)} of {at.traversals}"
    where = (f"{at.level:,}", at.direction, f"{at.frontier:,}", f"{at.reached:,}")
    return (status.run_id[:8], status.graph, traversal, state, *where, seconds)


@click.command()
@click.argument("run_id")
@cluster_option
@json_option
def cancel(run_id: str, scheduler: str, as_json: bool) -> None:
    """End a run before its next level. RUN_ID is the id that dbfs runs lists, or the beginning of an id.

    The caller that waits for the run gets RunCancelledError. The command is a client of its own: it may cancel the runs
    of other clients only if dbfs.service.anyone-may-stop is true in the scheduler's configuration.

    Example: dbfs cancel 3f2a --scheduler tcp://host:8786
    """
    with connect(scheduler, None) as client:
        found = [run for run in dbfs.runs(client=client) if run.status.run_id.startswith(run_id)]
        if not found:
            raise RunNotFoundError(f"no run that begins with {run_id} is waiting or running; dbfs runs lists the runs")
        if len(found) > 1:
            raise InvalidOptionError(f"{len(found)} runs have ids that begin with {run_id}; give more characters")
        found[0].cancel()
    cancelled = found[0].status.run_id
    print_answer({"run_id": cancelled}, f"{cancelled}: cancelled", as_json=as_json)


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
    _update(name, graph, reading, dbfs.Graph.insert_edges, "inserted", scheduler, strict=strict, as_json=as_json)


@click.command(cls=GraphCommand, epilog=GRAPH_HELP)
@update_options
def delete(name: str, graph: str, strict: bool, scheduler: str, as_json: bool, **reading: Any) -> None:
    """Delete EDGES from a named graph, which was loaded with --mutable.

    An edge that the graph lacks is skipped.

    Example: dbfs delete web closed.txt --scheduler tcp://host:8786
    """
    _update(name, graph, reading, dbfs.Graph.delete_edges, "deleted", scheduler, strict=strict, as_json=as_json)


def _update(
    name: str,
    graph: str,
    reading: dict[str, Any],
    change: Callable[..., dbfs.Update],
    done: str,
    scheduler: str,
    *,
    strict: bool,
    as_json: bool,
) -> None:
    with connect(scheduler, None) as client:
        opened = dbfs.open(name, client=client)
        # A batch has the graph's own direction; a generator's spec has a direction itself.
        edges = edges_of(graph, reading, None if generate.is_spec(graph) else opened.directed)
        update = change(opened, edges, strict=strict)
    found = {"name": name, "version": update.version, "edges": update.edges, "skipped": update.skipped}
    words = f"{name}: version {update.version}, {counted(update.edges, 'edge')} {done}, {update.skipped:,} skipped"
    print_answer(found, words, as_json=as_json)

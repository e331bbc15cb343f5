"""``dbfs run``: load a graph, traverse it once, and print or save the result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
import distributed
import numpy as np
from click.core import ParameterSource
from numpy.typing import NDArray
from rich.console import Console

import dbfs
from dbfs.cli.common import (
    GRAPH_HELP,
    GraphCommand,
    GraphType,
    check_writable,
    connect,
    edges_of,
    fits_within_process,
    json_option,
    layout_options,
    parse_id,
    plain,
    print_json,
    reader_options,
    scheduler_option,
    writing,
)
from dbfs.display import tables
from dbfs.edges.edge_list import EdgeList
from dbfs.engines import ENGINES
from dbfs.errors import InvalidOptionError, InvalidVertexError, MissingFileError
from dbfs.graph.graph import Graph
from dbfs.graph.result import BFSResult
from dbfs.progress import bar
from dbfs.units import format_bytes
from dbfs_workers.spec import DIRECTIONS
from dbfs_workers.storage.id_table import INTEGERS
from dbfs_workers.text import counted, printable


@click.command(cls=GraphCommand, epilog=GRAPH_HELP)
@click.argument("graph", type=GraphType())
@click.option(
    "--source",
    "--from",
    "source",
    required=True,
    help="Id to start from, as the file has it; commas separate the columns of a tuple.",
)
@click.option("--to", "target", metavar="ID", help="End at this id, and print a shortest path to it.")
@reader_options
@click.option("--loaded", is_flag=True, help="GRAPH is the name of a graph in the cluster; see dbfs load.")
@layout_options
@click.option(
    "--direction", type=click.Choice(DIRECTIONS), default="auto", show_default=True, help="Direction of the levels."
)
@click.option(
    "--engine", type=click.Choice(ENGINES), default="auto", show_default=True, help="Engine that runs the levels."
)
@click.option("--predecessors", is_flag=True, help="Also record each vertex's parent.")
@click.option("--max-depth", type=click.IntRange(0), help="Stop at this distance; farther vertices stay unreached.")
@click.option("--validate", is_flag=True, help="Check the result against the graph's edges, on the workers.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the labels to FILE.parquet or FILE.csv (reached vertices), or FILE.npy (all).",
)
@scheduler_option
@json_option
def run(
    graph: str,
    source: str,
    target: str | None,
    loaded: bool,
    direction: str,
    engine: str,
    predecessors: bool,
    max_depth: int | None,
    validate: bool,
    out: Path | None,
    scheduler: str | None,
    as_json: bool,
    **layout: Any,
) -> None:
    """Traverse GRAPH, a file or a generator, from one vertex.

    Without --scheduler, the command starts a cluster of its own. For a graph of up to 4 million edges the workers are
    threads of this process, on CPU cores, unless --backend cuda is given. For a larger graph they are processes.

    \b
    Examples:
      dbfs run kronecker:scale=16 --source 1 --validate
      dbfs run road.gr.xz --source 1 --predecessors --out labels.parquet
      dbfs run follows.parquet --source-column who --target-column whom --from alice --to bob
      dbfs run names.txt --no-header --from alice
      zcat names.csv.gz | dbfs run - --format csv --from alice
      dbfs run web --loaded --source 7 --scheduler tcp://host:8786
    """
    if out is not None:
        _check_out(out)
    edges = None
    if loaded:
        _check_loaded(scheduler, layout)
    else:
        edges = _edges(graph, scheduler, layout)
        _check_id(edges, source, layout["ids"], "source")
        if target is not None:
            _check_id(edges, target, layout["ids"], "target")
    if within := fits_within_process(scheduler, layout["backend"], edges):
        layout["backend"] = "cpu"
    with ExitStack() as stack:
        with bar("connecting"):
            client = stack.enter_context(connect(scheduler, layout["ranks"], layout["backend"], processes=not within))
        found = stack.enter_context(_graph(graph if edges is None else edges, client, layout))
        end = None if target is None else parse_id(target, found.id_type, "target")
        result = found.bfs(
            parse_id(source, found.id_type, "source"),
            predecessors=predecessors or end is not None,
            max_depth=max_depth,
            targets=end,
            direction=direction,
            engine=engine,
        )
        if validate:
            with bar("validating"):
                result.validate()
        if out is not None:
            with bar(f"writing {out}"), writing("--out", out):
                saved = save(result, out)
        _print(result, validated=validate, path=None if end is None else result.path_to(end), as_json=as_json)
        if out is not None and not as_json:
            labels = "distances and predecessors" if result.spec.predecessors else "distances"
            size = format_bytes(out.stat().st_size)
            click.echo(f"{printable(out)}: wrote the {labels} of {counted(saved, 'vertex', 'vertices')}, {size}")
        result.release()


def _edges(graph: str, scheduler: str | None, options: dict[str, Any]) -> EdgeList:
    """Return the edges of a file or a generator; a name that is no file may be that of a loaded graph."""
    try:
        return edges_of(graph, options, options.pop("directed"))
    except MissingFileError as error:
        if scheduler is None:
            raise
        with connect(scheduler, None) as client:
            if graph not in (status.name for status in dbfs.graphs(client=client)):
                raise
        raise MissingFileError(f"{error}; the graph of that name is loaded: add --loaded") from error


@contextmanager
def _graph(graph: str | EdgeList, client: distributed.Client, layout: dict[str, Any]) -> Iterator[Graph]:
    if isinstance(graph, str):
        yield dbfs.open(graph, client=client)
        return
    with dbfs.load(graph, client=client, **layout) as built:
        yield built


def save(result: BFSResult, out: Path) -> int:
    """Write a result's labels to a file; return the number of vertices in the file.

    ``.parquet`` and ``.csv``: the table of ``BFSResult.to_arrow``: the reached vertices by ascending id. In CSV
    each column of a tuple is a column. ``.npy``: all vertices in their order: int32[n] distances; if the run recorded
    predecessors, a structured array [n] of ``distance`` (int32) and ``predecessor`` (int64, a vertex).
    """
    if out.suffix != ".npy":
        table = result.to_arrow()
        if out.suffix == ".csv":
            from pyarrow import csv

            csv.write_csv(table.flatten(), out)
        else:
            import pyarrow.parquet as pq

            pq.write_table(table, out)
        return int(table.num_rows)
    labels: NDArray[Any] = result.distances()
    if result.spec.predecessors:
        both = np.empty(result.graph.n, [("distance", "<i4"), ("predecessor", "<i8")])
        both["distance"], both["predecessor"] = labels, result.predecessors()
        labels = both
    np.save(out, labels)
    return labels.size


def _check_id(edges: EdgeList, given: str, ids: str, what: str) -> None:
    # Checked before a cluster is started. Ids that have to be numbered are found only once the graph is built.
    if edges.n is None or (edges.has_names and ids == "given"):
        return
    first, number = edges.first_id if ids == "given" else 0, parse_id(given, INTEGERS, what)
    if edges.n and not first <= number < first + edges.n:
        noun = "ids" if first else "vertices"
        raise InvalidVertexError(f"{what} {number} is not in {edges.name}: {noun} are {first}..{first + edges.n - 1}")


def _check_loaded(scheduler: str | None, layout: dict[str, Any]) -> None:
    if scheduler is None:
        raise InvalidOptionError("--loaded needs --scheduler, the cluster that has the graph")
    context = click.get_current_context()
    given = [
        option.opts[0]
        for option in context.command.params
        if option.name in layout and context.get_parameter_source(option.name) is not ParameterSource.DEFAULT
    ]
    if given:
        raise InvalidOptionError(f"--loaded excludes {', '.join(given)}: the graph was laid out when it was loaded")


def _check_out(out: Path) -> None:
    # Checked before the traversal, whose result a late error would lose.
    if out.suffix not in (".parquet", ".csv", ".npy"):
        raise InvalidOptionError(f"--out {out}: the name must end in .parquet, .csv or .npy")
    check_writable("--out", out)


def _print(result: BFSResult, *, validated: bool, path: list[Any] | None, as_json: bool) -> None:
    if as_json:
        print_json({**result.summary(), "validated": validated} | ({} if path is None else {"path": path}))
        return
    console = Console()
    console.print(plain(tables.describe(result.graph)), soft_wrap=True)
    console.print(tables.results_table([result], validated=validated))
    console.print(tables.levels_table(result))
    if path is not None:
        ids = " ".join(printable(one) for one in path)
        click.echo(f"path: {counted(len(path) - 1, 'edge')}: {ids}" if path else "path: there is none")

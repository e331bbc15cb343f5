"""``dbfs run``: load a graph, traverse it once, and print or save the result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from dbfs.assembly import ENGINES, BFSResult, Graph
from dbfs.base.progress import bar
from dbfs.base.units import format_bytes
from dbfs.cli.common import (
    GRAPH_HELP,
    GraphCommand,
    GraphType,
    check_out,
    edges_to_load,
    json_option,
    layout_options,
    loaded_graph,
    loaded_option,
    parse_id,
    plain,
    print_json,
    reader_options,
    scheduler_option,
    write_table,
    writing,
)
from dbfs.display import tables
from dbfs.edges.edge_list import EdgeList
from dbfs.engines import names
from dbfs.errors import InvalidVertexError
from dbfs.features.views.conditions import columns_in
from dbfs_workers.base.spec import DIRECTIONS
from dbfs_workers.base.text import counted, printable
from dbfs_workers.ids.table import INTEGERS


@click.command(cls=GraphCommand, epilog=GRAPH_HELP)
@click.argument("graph", type=GraphType())
@click.option(
    "--source",
    "--from",
    "source",
    required=True,
    help="Id to start from, as the file has it; commas separate the columns of a tuple.",
)
@click.option(
    "--where", metavar="SQL", help="Cross only the edges whose columns pass, such as \"kind = 'road' and year < 2020\"."
)
@click.option("--to", "target", metavar="ID", help="End at this id, and print a shortest path to it.")
@click.option("--weight", metavar="COLUMN", help="Add up this column of the edges instead of counting them.")
@click.option("--max-distance", type=click.FloatRange(0), help="With --weight: farther vertices stay unreached.")
@reader_options
@loaded_option
@layout_options
@click.option(
    "--direction", type=click.Choice(DIRECTIONS), default="auto", show_default=True, help="Direction of the levels."
)
@click.option(
    "--engine",
    type=click.Choice(names(ENGINES)),
    default="auto",
    show_default=True,
    help="Engine that runs the levels.",
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
    where: str | None,
    target: str | None,
    weight: str | None,
    max_distance: float | None,
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
      dbfs run roads.parquet --from 7 --where "kind = 'road' and year < 2020"
      dbfs run roads.parquet --from 7 --to 9 --weight minutes
      zcat names.csv.gz | dbfs run - --format csv --from alice
      dbfs run web --loaded --source 7 --scheduler tcp://host:8786
    """
    check_out(out, ".parquet", ".csv", ".npy")
    _require_together(weight, max_distance, max_depth, direction, engine)
    edges = None if loaded else edges_to_load(graph, scheduler, layout)
    if edges is not None:
        _check_id(edges, source, layout["ids"], "source")
        if target is not None:
            _check_id(edges, target, layout["ids"], "target")
    if edges is not None:
        crossed = [] if where is None else columns_in(where)
        layout["edge_columns"] = list(dict.fromkeys([*crossed, *([] if weight is None else [weight])])) or None
    with loaded_graph(graph, edges, scheduler, layout) as whole, _passing(whole, where) as found:
        end = None if target is None else parse_id(target, found.id_type, "target")
        options: dict[str, Any] = {"predecessors": predecessors or end is not None, "targets": end}
        start, levels = parse_id(source, found.id_type, "source"), {"direction": direction, "engine": engine}
        result = _traversed(found, start, weight, max_distance, options, levels | {"max_depth": max_depth})
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


def _traversed(
    graph: Graph,
    source: Any,
    weight: str | None,
    max_distance: float | None,
    options: dict[str, Any],
    of_levels: dict[str, Any],
) -> Any:
    """Traverse by weight, or by levels with further options."""
    if weight is not None:
        return graph.sssp(source, weight, max_distance=max_distance, **options)
    return graph.bfs(source, **options, **of_levels)


def _require_together(
    weight: str | None, max_distance: float | None, max_depth: int | None, direction: str, engine: str
) -> None:
    """Refuse options of levels with ``--weight``, and those of weights without."""
    if weight is None:
        if max_distance is not None:
            raise click.UsageError("--max-distance goes with --weight; --max-depth is a number of edges")
        return
    given = {"--max-depth": max_depth is not None, "--direction": direction != "auto", "--engine": engine != "auto"}
    for option in [option for option, there in given.items() if there]:
        raise click.UsageError(f"{option} does not go with --weight; --max-distance is in its unit")


@contextmanager
def _passing(graph: Graph, where: str | None) -> Iterator[Graph]:
    """Yield the graph of the edges that pass a filter; the graph itself without one."""
    if where is None:
        yield graph
        return
    with graph.where(edges=where) as view:
        yield view


def save(result: BFSResult, out: Path) -> int:
    """Write a result's labels to a file; return the number of vertices in the file.

    ``.parquet`` and ``.csv``: the table of ``BFSResult.to_arrow``: the reached vertices by ascending id. ``.npy``: all
    vertices in their order: int32[n] distances; if the run recorded predecessors, a structured array [n] of
    ``distance`` (int32) and ``predecessor`` (int64, a vertex). Distances by weight have their own type.
    """
    if out.suffix != ".npy":
        return write_table(result.to_arrow(), out)
    labels: NDArray[Any] = result.distances()
    if result.spec.predecessors:
        both = np.empty(result.graph.n, [("distance", labels.dtype.newbyteorder("<")), ("predecessor", "<i8")])
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

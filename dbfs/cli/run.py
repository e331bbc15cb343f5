"""``dbfs run``: load a graph, traverse it once, print or save what was found."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import distributed
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import dbfs
from dbfs import generate, tables
from dbfs.build import ORDERS
from dbfs.engines import ENGINES
from dbfs.errors import InvalidOptionError, InvalidVertexTypeError
from dbfs.records import BACKENDS
from dbfs.result import BFSResult
from dbfs_workers.traversal import DIRECTIONS

GENERATORS_HELP = "\n\n\b\nGenerators:\n" + generate.describe()


def connect(scheduler: str | None, ranks: int | None, backend: str = "auto") -> distributed.Client:
    """A client of the scheduler given, or of a local cluster whose dashboard takes any free port, without a word."""
    local = {} if scheduler else {"dashboard_address": ":0"}
    return dbfs.connect(scheduler, n_workers=ranks, backend=backend, **local)


def stderr_progress() -> Progress:
    """A progress bar on stderr, so that stdout can be piped; off where stderr is no terminal."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


@click.command(epilog=GENERATORS_HELP)
@click.argument("graph")
@click.option("--source", required=True, help="Vertex id to start from, 0 to n-1.")
@click.option("--external-ids", is_flag=True, help="SOURCE is one of the file's own ids, where they have gaps.")
@click.option(
    "--ranks", type=int, help="Workers that take part; all of the cluster's (locally one per core) if left out."
)
@click.option("--direction", type=click.Choice(DIRECTIONS), default="auto", show_default=True, help="Of the levels.")
@click.option("--order", type=click.Choice(ORDERS), default="given", show_default=True, help="Of vertices, inside.")
@click.option("--in-edges", is_flag=True, help="Keep a directed graph's in-edges, too, for bottom-up levels.")
@click.option("--engine", type=click.Choice(ENGINES), default="auto", show_default=True)
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    default="auto",
    show_default=True,
    help="CPU cores, or a GPU for each rank.",
)
@click.option("--predecessors", is_flag=True, help="Record each vertex's parent, too.")
@click.option("--max-depth", type=int, help="Leave vertices farther than this unreached.")
@click.option("--directed/--undirected", default=None, help="Override what the file's format or header says.")
@click.option("--validate", is_flag=True, help="Check the result against the graph's edges on the workers.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Save the labels: FILE.npy or FILE.parquet."
)
@click.option("--scheduler", metavar="ADDRESS", help="Use this Dask scheduler's workers; a local cluster if left out.")
@click.option("--json", "as_json", is_flag=True, help="Print counts and levels as JSON.")
def run(
    graph: str,
    source: str,
    external_ids: bool,
    ranks: int | None,
    direction: str,
    order: str,
    in_edges: bool,
    engine: str,
    backend: str,
    predecessors: bool,
    max_depth: int | None,
    directed: bool | None,
    validate: bool,
    out: Path | None,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Traverse GRAPH, a file or a generator, from one vertex.

    Files: Matrix Market, METIS, SNAP and plain edge lists, PACE and DIMACS .gr, each also as .gz, .xz or .bz2.

    \b
    Examples:
      dbfs run kronecker:scale=16 --source 1 --validate
      dbfs run road.gr.xz --source 0 --predecessors --out labels.parquet
    """
    start = _vertex_id(source)
    if out is not None:
        _check_out(out)
    with stderr_progress() as progress:
        task = progress.add_task("connecting", total=None)
        with connect(scheduler, ranks, backend) as client:
            progress.update(task, description=f"building {graph}")
            layout: dict[str, Any] = {
                "ranks": ranks,
                "directed": directed,
                "order": order,
                "in_edges": in_edges,
                "backend": backend,
            }
            with dbfs.load(graph, client=client, **layout) as loaded:
                progress.update(task, description=f"traversing from {source}")
                result = loaded.bfs(
                    loaded.vertex(start) if external_ids else start,
                    predecessors=predecessors,
                    max_depth=max_depth,
                    direction=direction,
                    engine=engine,
                    progress=lambda level, count: progress.update(
                        task, description=f"level {level}: {count:,} vertices discovered"
                    ),
                )
                if validate:
                    progress.update(task, description="validating")
                    result.validate()
                if out is not None:
                    progress.update(task, description=f"writing {out}")
                    save(result, out, predecessors=predecessors)
                progress.stop()
                _print(result, validated=validate, as_json=as_json)
                result.release()


def save(result: BFSResult, out: Path, *, predecessors: bool) -> None:
    """Write labels in vertex order.

    ``.npy``: int32[n] distances, or with predecessors a structured array of ``distance`` and ``predecessor`` (int64).
    ``.parquet``: columns ``vertex``, ``distance``, ``predecessor`` where asked for, and ``external_id`` where the graph
    has them.
    """
    labels: dict[str, NDArray[Any]] = {"distance": result.distances()}
    if predecessors:
        labels["predecessor"] = result.predecessors()
    if out.suffix == ".npy":
        if not predecessors:
            np.save(out, labels["distance"])
            return
        table = np.empty(result.graph.n, [("distance", "<i4"), ("predecessor", "<i8")])
        for name, values in labels.items():
            table[name] = values
        np.save(out, table)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"vertex": np.arange(result.graph.n, dtype=np.int64), **labels}
    if result.graph.external_ids is not None:
        columns["external_id"] = result.graph.external_ids
    pq.write_table(pa.table(columns), out)


def _vertex_id(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidVertexTypeError(f"source must be an integer, not {text!r}") from None


def _check_out(out: Path) -> None:
    # Before the traversal: its result would be lost.
    if out.suffix not in (".npy", ".parquet"):
        raise InvalidOptionError(f"--out {out}: the name must end in .npy or .parquet")
    if not out.parent.is_dir():
        raise InvalidOptionError(f"--out {out}: there is no folder {out.parent}")


def _print(result: BFSResult, *, validated: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({**result.to_dict(), "validated": validated}, indent=2))
        return
    console = Console()
    console.print(tables.describe(result.graph), highlight=False, soft_wrap=True)
    console.print(tables.results_table([result], validated=validated))
    console.print(tables.levels_table(result))

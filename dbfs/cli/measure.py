"""``dbfs measure``: load a graph, and print or save a measure of its vertices, or of the whole graph."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import dbfs
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
    plain,
    print_json,
    reader_options,
    scheduler_option,
    table_of,
    wide_console,
    write_table,
    writing,
)
from dbfs.display import tables
from dbfs.errors import InvalidOptionError
from dbfs.features.batches import EdgeMeasure, MeanDistance, NeighbourhoodFunction, VertexMeasure
from dbfs_workers.base.text import counted, printable

_METHODS = {
    "closeness": "closeness_centrality",
    "harmonic": "harmonic_centrality",
    "betweenness": "betweenness_centrality",
    "edge-betweenness": "edge_betweenness_centrality",
    "eccentricity": "eccentricity",
    "khop-sizes": "khop_sizes",
    "diameter": "diameter",
    "radius": "radius",
    "average-path-length": "average_shortest_path_length",
    "wiener": "wiener_index",
    "neighbourhood": "neighbourhood_function",
}
_OF_VERTICES = ("closeness", "harmonic", "betweenness", "eccentricity", "khop-sizes")
_VALUES = (*_OF_VERTICES, "edge-betweenness")
_TABLES = (*_VALUES, "neighbourhood")


@click.command(cls=GraphCommand, epilog=GRAPH_HELP)
@click.argument("measure", type=click.Choice(list(_METHODS)))
@click.argument("graph", type=GraphType())
@click.option("--k", type=click.IntRange(0), help="Largest distance that khop-sizes counts.")
@click.option("--max-depth", type=click.IntRange(0), help="Longest path that a centrality counts, in edges.")
@click.option("--sample", type=int, help="Estimate from this many random vertices, with standard errors.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the sample.")
@click.option(
    "--top",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Print this many vertices or edges: the largest values.",
)
@click.option(
    "--deadline", metavar="DURATION", help="Longest time of the measure, such as 2h; dbfs.deadline if left out."
)
@click.option(
    "--checkpoint",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep what is finished in FILE, from which the same command goes on.",
)
@reader_options
@loaded_option
@layout_options
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the table of all vertices, edges, or distances, to FILE.parquet or FILE.csv.",
)
@scheduler_option
@json_option
def measure(
    measure: str,
    graph: str,
    k: int | None,
    max_depth: int | None,
    sample: int | None,
    seed: int,
    top: int,
    deadline: str | None,
    checkpoint: Path | None,
    loaded: bool,
    out: Path | None,
    scheduler: str | None,
    as_json: bool,
    **layout: Any,
) -> None:
    """Compute a MEASURE of GRAPH, a file or a generator, with NetworkX's definitions.

    \b
    closeness, harmonic    centrality of every vertex, by the distances to the vertex
    betweenness            share of the shortest paths that pass every vertex
    edge-betweenness       share of the shortest paths along every edge
    eccentricity           largest distance from every vertex
    khop-sizes             number of vertices within --k edges of every vertex
    diameter, radius       the largest, and the smallest of these
    average-path-length    mean distance of all pairs of vertices
    wiener                 sum of the distances of all pairs
    neighbourhood          pairs within each distance, and the effective diameter

    In JSON null stands for an infinite value, and for an error that the sample does not tell.

    \b
    Examples:
      dbfs measure closeness road.gr.xz --sample 512 --top 20
      dbfs measure harmonic follows.csv --out harmonic.parquet
      dbfs measure neighbourhood web --loaded --sample 512 --scheduler tcp://host:8786
    """
    check_out(out, ".parquet", ".csv")
    if out is not None and measure not in _TABLES:
        raise InvalidOptionError(f"--out is for tables, and {measure} is one number")
    method = getattr(dbfs.Graph, _METHODS[measure])
    options: dict[str, Any] = {"deadline": deadline}
    if (measure == "khop-sizes") != (k is not None):
        raise InvalidOptionError("--k is for khop-sizes, which needs it")
    if k is not None:
        options["k"] = k
    given = {"max_depth": max_depth, "sample": sample, "seed": seed, "checkpoint": checkpoint}
    for name, value in given.items():
        if name in inspect.signature(method).parameters:
            options[name] = value
        elif value is not None and name != "seed":
            raise InvalidOptionError(f"--{name.replace('_', '-')} is not for {measure}")
    edges = None if loaded else edges_to_load(graph, scheduler, layout)
    with loaded_graph(graph, edges, scheduler, layout) as found:
        measured = method(found, **options)
        if not as_json:
            Console().print(plain(tables.describe(found)), soft_wrap=True)
    if measure in _VALUES:
        _print_values(measured, top, as_json=as_json)
    elif measure == "neighbourhood":
        _print_function(measured, as_json=as_json)
    else:
        _print_number(_METHODS[measure], measured, as_json=as_json)
    if out is not None:
        with bar(f"writing {out}"), writing("--out", out):
            rows = write_table(measured.to_arrow(), out)
        if not as_json:
            what = "distance" if measure == "neighbourhood" else "value"
            click.echo(f"{printable(out)}: wrote {counted(rows, what)}, {format_bytes(out.stat().st_size)}")
            if isinstance(measured, EdgeMeasure) and measured.about.told and out.suffix == ".csv":
                click.echo(f"left out: {measured.about.told}; .parquet keeps that")


def _print_values(measured: VertexMeasure | EdgeMeasure, top: int, *, as_json: bool) -> None:
    largest = measured.to_pandas().nlargest(top, measured.name, keep="first")
    if as_json:
        rows = [{name: _json(value) for name, value in row.items()} for row in largest.to_dict("records")]
        what = "edges" if "target" in largest else "vertices"
        print_json({"measure": measured.name, "sources": measured.sources, what: rows})
        return
    sources, ids = counted(measured.sources, "source"), [*largest].index(measured.name)
    table = table_of(f"{_words(measured.name)} from {sources}: the largest", [*largest], right=[*largest][ids:])
    for row in largest.itertuples(index=False):
        table.add_row(*map(plain, row[:ids]), *(f"{value:,.6g}" for value in row[ids:]))
    wide_console().print(table)


def _print_function(measured: NeighbourhoodFunction, *, as_json: bool) -> None:
    effective, columns = measured.effective_diameter(), ("distance", "pairs", "standard error")
    if as_json:
        numbers = {"pairs": measured.pairs.tolist(), "standard_errors": measured.errors.tolist()}
        print_json({"effective_diameter": effective, "sources": measured.sources} | numbers)
        return
    table = table_of(f"Pairs within each distance from {counted(measured.sources, 'source')}", columns, right=columns)
    for distance, (pairs, error) in enumerate(zip(measured.pairs, measured.errors, strict=True)):
        table.add_row(f"{distance:,}", f"{pairs:,.0f}", f"{error:,.3g}")
    wide_console().print(table)
    click.echo(f"effective diameter: {effective:.6g}")


def _print_number(name: str, measured: MeanDistance | float | int, *, as_json: bool) -> None:
    value = measured if isinstance(measured, int) else float(measured)
    sampled, error = {}, ""
    if not isinstance(measured, float | int):
        sampled = {"standard_error": measured.error, "sources": measured.sources}
        error = f", standard error {measured.error:.3g}" if measured.error else ""
    if as_json:
        print_json({"measure": name, "value": _json(value)} | sampled)
    else:
        click.echo(f"{_words(name)}: {value:,.10g}{error}")


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _json(value: Any) -> Any:
    """Return a value for JSON, which has no infinite numbers and no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value

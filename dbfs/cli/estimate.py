"""``dbfs estimate``: the memory that a graph will need, computed without reading or building it."""

from typing import Any

import click
from rich.console import Console

import dbfs
from dbfs.base.units import format_bytes
from dbfs.cli.common import (
    GRAPH_HELP,
    GraphCommand,
    GraphType,
    edges_of,
    in_edges_option,
    json_option,
    layout_option,
    order_option,
    print_json,
    reader_options,
    storage_option,
    table_of,
)
from dbfs.edges import generate
from dbfs_workers.base.text import counted, printable
from dbfs_workers.search.backends import BACKENDS


@click.command(cls=GraphCommand, epilog=GRAPH_HELP)
@click.argument("graph", type=GraphType())
@click.option("--ranks", type=click.IntRange(1), help="Number of workers; by default those of a local cluster.")
@click.option("--hosts", type=click.IntRange(1), default=1, show_default=True, help="Number of hosts of ranks on CPUs.")
@click.option("--directed/--undirected", default=None, help="Override the file's format or header.")
@order_option
@in_edges_option
@layout_option
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    default="cpu",
    show_default=True,
    help="Memory to estimate: cpu for the workers' memory, cuda for the memory of their GPUs.",
)
@click.option(
    "--memory",
    metavar="BYTES",
    help="Memory limit of a worker, or memory of a GPU, such as 139GiB. Default: this machine's GPUs.",
)
@click.option("--mutable", is_flag=True, help="Count what updates need as well.")
@click.option("--room", type=click.IntRange(0), default=0, help="Vertices that may be added later; needs --mutable.")
@storage_option
@reader_options
@click.option("--vertices", type=click.IntRange(0), help="Number of distinct ids, for a file whose ids are numbered.")
@json_option
def estimate(
    graph: str,
    ranks: int | None,
    hosts: int,
    directed: bool | None,
    order: str | None,
    in_edges: bool,
    layout: str,
    backend: str,
    memory: str | None,
    mutable: bool,
    room: int,
    storage: str,
    vertices: int | None,
    as_json: bool,
    **reading: Any,
) -> None:
    """Estimate the memory that GRAPH needs on each rank, and whether it fits.

    GRAPH is a generator or a file. Only the header of a file is read; the edges of a plain edge list or a CSV file are
    counted in samples of its text, unless it is compressed. For an edge list, or a table with ids of its own, such as
    names in a Parquet file, give the number of distinct ids by --vertices; the first ids are read for their length.

    A graph that does not fit its GPUs at once is built in two or three bands. Each band takes less memory, and
    generates or reads all edges again.

    \b
    Examples:
      dbfs estimate kronecker:scale=26 --ranks 4 --hosts 2
      dbfs estimate kronecker:scale=30 --ranks 2 --backend cuda --memory 139GiB
      dbfs estimate kronecker:scale=24 --ranks 2 --mutable --room 100000
      dbfs estimate kronecker:scale=24 --ranks 1 --backend cuda --mutable --storage pages
      dbfs estimate follows.parquet --ranks 4 --vertices 50000000
      dbfs estimate web.txt --ranks 4 --vertices 1000000
    """
    options = dbfs.BuildOptions(in_edges, order, room=room, layout=layout, storage=storage)
    needed = dbfs.estimate(
        edges_of(graph, reading, directed),
        ranks,
        options,
        backend=backend,
        memory=memory,
        vertices=vertices,
        hosts=hosts,
        mutable=mutable,
    )
    if as_json:
        names = ("memory", "fits", "results", "bands", "passes", "peaks", "sampled_edges", "layout", "why")
        found = {"ranks": needed.ranks, "peak": needed.peak_bytes, **{name: getattr(needed, name) for name in names}}
        print_json({"graph": graph, "hosts": hosts, "backend": backend, **found, **needed.stages})
        return
    places = counted(needed.ranks, "rank") + (f" of {hosts} hosts" if hosts > 1 else "")
    table = table_of(f"{printable(graph)} on {places}: bytes per rank", ("when", "what", "bytes"), right=("bytes",))
    for stage, parts in needed.stages.items():
        for what, size in parts.items():
            table.add_row(stage, what, format_bytes(size))
    table.add_section()
    run = "run and update" if needed.update else "run"
    when = f"numbering, or partition and build or {run}" if needed.numbering else f"partition, and build or {run}"
    table.add_row("at most", when, format_bytes(needed.peak_bytes))
    console = Console()
    console.print(table)
    if needed.why:
        console.print(f"Layout {needed.layout}: {needed.why}.", highlight=False, soft_wrap=True)
    console.print(
        _verdict(needed, "generates" if generate.is_spec(graph) else "reads"), highlight=False, soft_wrap=True
    )


def _verdict(needed: dbfs.Estimate, verb: str) -> str:
    """Return whether the graph fits, and how often the build will generate or read (``verb``) all edges."""
    m = needed.sampled_edges
    sampled = "" if m is None else f" Samples of the text make about {counted(m, 'edge')}."
    often = ("once", "twice")[needed.passes - 1] if needed.passes < 3 else f"{needed.passes} times"
    cost = f"The build {verb} all edges {often}.{sampled}"
    if needed.memory is None:
        fewer = [
            f"{format_bytes(peak)} in {bands} bands"
            for bands, peak in enumerate(needed.peaks, start=1)
            if peak < needed.peak_bytes
        ]
        less = f" These figures are of a build in one band; it takes {' or '.join(fewer)}." if fewer else ""
        return f"{cost}{less} With --memory BYTES this says whether the graph fits."
    room = format_bytes(needed.memory)
    if not needed.fits:
        even = f", not even built in {needed.bands} bands" if needed.bands > 1 else ""
        return f"It does not fit {room}{even}: take more ranks, or more memory per rank."
    held = f"Clients can hold about {needed.results:,} results with predecessors at once."
    if needed.bands > 1:
        at_once = format_bytes(needed.peaks[0])
        return f"It fits {room}, built in {needed.bands} bands; one band would take {at_once}. {cost} {held}"
    return f"It fits {room}. {cost} {held}"

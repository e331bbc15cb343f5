"""The rates of the resident engine on GPUs, next to recorded rates of cuGraph.

cuGraph 26.10 was measured on 4 x H200 with NVLink, by direct calls of its library. The graphs had the same size, and
came from cuGraph's generators of the same kind. A rate of 0 stands for a graph that cuGraph refused.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated

import click
import distributed

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, chosen, connect, seconds_of
from dbfs.base.progress import track


@dataclass(frozen=True)
class Row:
    """A graph and how to traverse it; ``cugraph`` has directed GTEPS of cuGraph, by number of GPUs."""

    graph: str
    spec: str
    order: str
    direction: str
    cugraph: dict[int, float]


ROWS = (
    Row("kronecker 24", "kronecker:scale=24", "given", "auto", {1: 42, 4: 73}),
    Row("kronecker 24", "kronecker:scale=24", "given", "top-down", {1: 9.3, 4: 52}),
    Row("kronecker 24", "kronecker:scale=24", "degree", "auto", {1: 42, 4: 73}),
    Row("kronecker 24", "kronecker:scale=24", "degree", "top-down", {1: 9.3, 4: 52}),
    Row("kronecker 26", "kronecker:scale=26", "degree", "auto", {4: 0}),
    Row("rmat.2Mv.128Me", "corpus:rmat.2Mv.128Me", "given", "top-down", {1: 27}),
    Row("random.2Mv.128Me", "uniform:n=2000000,m=128000000,directed=true", "given", "top-down", {1: 33}),
    Row("grid7pt.300", "grid3d:side=300", "given", "top-down", {1: 1.3, 4: 0.27}),
    Row("grid5pt.5000", "grid2d:side=5000", "given", "top-down", {1: 0.08}),
)


@dataclass(frozen=True)
class Rate:
    """Measurements of one row: three traversals from each source, one at a time.

    Attributes:
        gteps: directed edges traversed per second of device time, in billions: the median of the traversals. Device
            time includes the reset of the state; the labels stay on the GPUs.
        worst: the lowest of these rates.
        milliseconds: median device time.
        call: median of the milliseconds from the client's call to the result, less the device time.
        depth: median depth.
        cugraph: GTEPS of cuGraph; None if unknown for this number of GPUs.
    """

    graph: Annotated[str, Column()]
    order: Annotated[str, Column()]
    direction: Annotated[str, Column()]
    predecessors: bool
    gpus: int
    gteps: Annotated[float, Column("GTEPS", ".1f")]
    worst: Annotated[float, Column("", ".1f")]
    milliseconds: Annotated[float, Column("ms", ".3f")]
    call: Annotated[float, Column("over it", ".2f")]
    depth: Annotated[int, Column()]
    build_seconds: Annotated[float, Column("build s", ".1f")]
    cugraph: Annotated[float | None, Column("cuGraph", "g")]


@click.command()
@options.gpus
@options.count("--sources", 5, "Number of random sources of each graph.")
@options.gpu_graphs
@click.option("--predecessors", is_flag=True, help="Also record predecessors.")
@options.memory
@options.json
def gpu(
    gpus: int, sources: int, graphs: Sequence[str], predecessors: bool, memory_limit: str, file: str | None
) -> None:
    """Measure the resident engine on GPUs, next to cuGraph.

    The rates of cuGraph are not measured: they come from an earlier measurement on 4 x H200.

    Example: dbfs bench gpu --gpus 4 --graph "kronecker 24"
    """
    rows = chosen(ROWS, graphs)
    with Results("gpu", file) as results, connect(gpus, "cuda", memory_limit) as client:
        kind = "distances and predecessors" if predecessors else "distances"
        rates = bench_gpu(client, gpus, rows, sources, predecessors)
        results.take("rates", rates, f"{gpus} GPUs, {kind}, directed GTEPS, {results.revision}")


def bench_gpu(
    client: distributed.Client, gpus: int, rows: Sequence[Row], sources: int, predecessors: bool
) -> Iterator[Rate]:
    """Measure rows. Rows of one graph and order must follow each other; they share a build."""
    for (spec, order), same in itertools.groupby(rows, lambda row: (row.spec, row.order)):
        with dbfs.load(spec, client=client, ranks=gpus, order=order, backend="cuda") as graph:
            drawn = graph.sample_sources(sources)
            for row in same:
                yield _rate(graph, row, gpus, drawn, predecessors)


def _rate(graph: dbfs.Graph, row: Row, gpus: int, sources: Sequence[int], predecessors: bool) -> Rate:
    graph.bfs(sources[0], direction=row.direction, predecessors=predecessors).release()
    found = []
    for source in track(sources, f"{row.graph}, {row.order}, {row.direction}"):
        for _ in range(3):
            call, result = seconds_of(graph.bfs, source, direction=row.direction, predecessors=predecessors)
            device = result.seconds + (result.setup_seconds or 0.0)
            found.append((result.edges / device / 1e9, device * 1e3, (call - device) * 1e3, result.depth))
            result.release()
    rates, times, over, depths = zip(*found, strict=True)
    return Rate(
        graph=row.graph,
        order=row.order,
        direction=row.direction,
        predecessors=predecessors,
        gpus=gpus,
        gteps=median(rates),
        worst=min(rates),
        milliseconds=median(times),
        call=median(over),
        depth=int(median(depths)),
        build_seconds=graph.build_seconds,
        cugraph=row.cugraph.get(gpus),
    )

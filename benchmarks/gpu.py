"""The rates of the resident engine on GPUs, next to recorded rates of cuGraph.

cuGraph 26.10 was measured on 4 x H200 with NVLink, by direct calls of its library. The graphs had the same size, and
came from cuGraph's generators of the same kind. A rate of 0 stands for a graph that cuGraph refused.
"""

import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import distributed

import dbfs
from dbfs.progress import track


@dataclass(frozen=True)
class Row:
    """A graph and how to traverse it.

    Attributes:
        graph: the graph's name in the literature.
        spec: the generator's spec.
        order: internal order of the vertices.
        direction: direction of the levels.
        cugraph: directed GTEPS of cuGraph, by number of GPUs.
    """

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
        graph, order, direction: see ``Row``.
        predecessors: whether predecessors were recorded.
        gpus: number of GPUs.
        gteps: directed edges traversed per second of device time, in billions: the median of the traversals. Device
            time includes the reset of the state; the labels stay on the GPUs.
        worst: the lowest of these rates.
        milliseconds: median device time.
        call: median of the milliseconds from the client's call to the result, less the device time.
        depth: median depth.
        build_seconds: time of the graph's build.
        cugraph: GTEPS of cuGraph; None if unknown for this number of GPUs.
    """

    graph: str
    order: str
    direction: str
    predecessors: bool
    gpus: int
    gteps: float
    worst: float
    milliseconds: float
    call: float
    depth: int
    build_seconds: float
    cugraph: float | None


def revision() -> str:
    """Return the git revision of the running code, or ``unknown`` outside a git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def bench_gpu(
    client: distributed.Client, gpus: int, rows: Sequence[Row], sources: int, predecessors: bool
) -> Iterator[Rate]:
    """Measure rows. Rows of one graph and order must follow each other; they share a build."""
    at = 0
    while at < len(rows):
        same = [row for row in rows[at:] if (row.spec, row.order) == (rows[at].spec, rows[at].order)]
        at += len(same)
        spec, order = same[0].spec, same[0].order
        with dbfs.load(spec, client=client, ranks=gpus, order=order, backend="cuda") as graph:
            chosen = graph.sample_sources(sources)
            for row in same:
                yield _rate(graph, row, gpus, chosen, predecessors)


def _rate(graph: dbfs.Graph, row: Row, gpus: int, sources: Sequence[int], predecessors: bool) -> Rate:
    graph.bfs(sources[0], direction=row.direction, predecessors=predecessors).release()
    rates, times, over, depths = [], [], [], []
    for source in track(sources, f"{row.graph}, {row.order}, {row.direction}"):
        for _ in range(3):
            start = time.perf_counter()
            result = graph.bfs(source, direction=row.direction, predecessors=predecessors)
            call = time.perf_counter() - start
            device = result.seconds + (result.setup_seconds or 0.0)
            over.append((call - device) * 1e3)
            rates.append(result.edges / device / 1e9)
            times.append(device * 1e3)
            depths.append(result.depth)
            result.release()
    return Rate(
        graph=row.graph,
        order=row.order,
        direction=row.direction,
        predecessors=predecessors,
        gpus=gpus,
        gteps=statistics.median(rates),
        worst=min(rates),
        milliseconds=statistics.median(times),
        call=statistics.median(over),
        depth=int(statistics.median(depths)),
        build_seconds=graph.build_seconds,
        cugraph=row.cugraph.get(gpus),
    )

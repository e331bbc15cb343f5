"""The rates of the resident engine on GPUs, next to cuGraph's on the same kind of machine.

cuGraph 26.10 was measured on 4 x H200 with NVLink, its library called directly, on graphs of the same size made by its
own kind of generator; 0 stands for a graph that it refused.
"""

import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import distributed

import dbfs
from dbfs.display.progress import track


@dataclass(frozen=True)
class Row:
    """A graph and how to traverse it.

    Attributes:
        graph: what papers call it.
        spec: the generator's.
        order: of the vertices.
        direction: of the levels.
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
    """What was measured of one row.

    Attributes:
        gpus: number of GPUs.
        gteps: median over the sources of the directed edges traversed a second of device time, in billions; the
            state's reset is counted, the labels stay on the GPUs.
        worst: of the sources.
        milliseconds: median device time.
        call: median time over device time, from the client's call to the result in hand, in milliseconds, of one
            traversal alone.
        depth: median depth.
        build_seconds: of the graph.
        cugraph: GTEPS of cuGraph, if known.
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
    """The git revision of the code that runs, or ``unknown``."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def bench_gpu(
    client: distributed.Client, gpus: int, rows: Sequence[Row], sources: int, predecessors: bool
) -> Iterator[Rate]:
    """Measure rows; those of one graph and order, which must follow each other, share its build."""
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

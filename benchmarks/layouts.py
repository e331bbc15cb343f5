"""The 1-D and the 2-D partition beside each other: bytes sent and time of a traversal, by graph and number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import click
import dask.system
import distributed

import dbfs
from benchmarks import options, runner
from benchmarks.runner import Column, Results, Started, begun, connect, milliseconds
from dbfs.assembly import BuildOptions
from dbfs.base import progress
from dbfs.base.units import format_bytes
from dbfs.errors import EdgeInputError
from dbfs.features.grid.layout import LAYOUTS
from dbfs_workers.base.text import counted
from dbfs_workers.features.grid.grid import Grid

# The fastest repeat counts, since other work on the machine only adds time.
_REPEATS = 5


def bytes_text(mean: float) -> str:
    """Return a mean number of bytes in words."""
    return format_bytes(round(mean))


@dataclass(frozen=True)
class LayoutCost:
    """The costs of a graph's traversals in one layout. Counts are means over the sources, of all ranks together.

    Attributes:
        m: directed edges stored.
        cores: CPU cores that the ranks share.
        peers: number of ranks that a rank exchanges bins and bitmaps with.
        edges: edges that the levels looked at.
        ratio: ``bytes_sent`` divided by those of ``1d``; 1 if nothing is sent.
        milliseconds: time of a traversal's levels: the median over the sources of the fastest of five.
        bytes_per_rank: mean bytes of a rank's partition.
        state_bytes: see ``_state_bytes``.
    """

    graph: Annotated[str, Column()]
    n: int
    m: int
    layout: Annotated[str, Column()]
    predecessors: Annotated[bool, Column("with\npredecessors", lambda recorded: "yes" if recorded else "no")]
    ranks: Annotated[int, Column()]
    cores: int
    peers: Annotated[int, Column()]
    levels: Annotated[float, Column("", ".2f")]
    bottom_up_levels: float
    edges: float
    bytes_sent: Annotated[float, Column("bytes\nsent", bytes_text)]
    ratio: Annotated[float, Column("of\n1d's", ".2f")]
    milliseconds: Annotated[float, Column("levels\nms", ".2f")]
    bytes_per_rank: Annotated[float, Column("partition\nof a rank", bytes_text)]
    state_bytes: Annotated[int | None, Column("state and bins\nof a rank", format_bytes)]
    backend: str = "cpu"
    exchange: Annotated[str, Column()] = "shared_memory"


@click.command()
@options.value("--graph", ("kronecker:scale=18",), "A generator or a file; repeat for several.", multiple=True)
@options.order("given")
@options.value("--ranks", (16,), "Number of workers; repeat for several.", click.IntRange(1), multiple=True)
@options.count("--sources", 8, "Number of random sources.")
@options.backend
@options.json
def layouts(
    graph: tuple[str, ...], order: str, ranks: tuple[int, ...], sources: int, backend: str, file: str | None
) -> None:
    """Measure the bytes that ranks send in a traversal, with layout="1d" and with layout="2d".

    The workers are processes of this machine. Times say little with fewer cores than ranks; the bytes are
    the same on any machine. dbfs bench scale-model fits a model to the JSON.

    Example: dbfs bench layouts --ranks 4 --ranks 9
    """
    with (
        Results("layouts", file) as results,
        connect(max(ranks), backend) as client,
        progress.bar("bench layouts", len(graph) * len(ranks)) as bar,
    ):
        costs = bench_layouts(client, graph, ranks, sources, begun(bar), order, backend)
        results.take("costs", costs, f"Layouts by order {order}, {counted(sources, 'source')}")


def bench_layouts(
    client: distributed.Client,
    graphs: Sequence[str],
    ranks: Sequence[int],
    sources: int,
    started: Started,
    order: str = "given",
    backend: str = "cpu",
) -> Iterator[LayoutCost]:
    """Measure the same traversals of each graph on each number of ranks in each layout, with and without predecessors.

    The cluster has at least as many workers on one host as the largest number of ranks.
    """
    for graph in graphs:
        for p in ranks:
            started(f"{graph}, {counted(p, 'rank')}")
            yield from _compare(client, graph, p, sources, order, backend)


def _compare(
    client: distributed.Client, spec: str, ranks: int, sources: int, order: str, backend: str
) -> Iterator[LayoutCost]:
    """Measure one graph on one number of ranks in each layout."""
    striped: dict[bool, float] = {}
    for layout in LAYOUTS:
        state = _state_bytes(spec, ranks, BuildOptions(order=order, layout=layout), backend)
        options: dict[str, Any] = {"order": order, "layout": layout, "backend": backend, "progress": False}
        with dbfs.load(spec, client=client, ranks=ranks, **options) as graph:
            drawn = graph.sample_sources(sources)
            for predecessors in (False, True):
                # The first run allocates the state that the next ones share.
                graph.bfs(drawn[0], predecessors=predecessors, progress=False).release()
                runs = [graph.bfs_many(drawn, predecessors=predecessors, progress=False) for _ in range(_REPEATS)]
                levels = [result.levels for result in runs[0]]
                sent = fmean(int(of["bytes_sent"].sum()) for of in levels)
                yield LayoutCost(
                    graph=spec,
                    n=graph.n,
                    m=graph.m,
                    layout=layout,
                    predecessors=predecessors,
                    ranks=ranks,
                    cores=int(dask.system.cpu_count()),
                    peers=count_peers(layout, ranks),
                    levels=fmean(len(of) for of in levels),
                    bottom_up_levels=fmean(int((of["direction"] == "bottom-up").sum()) for of in levels),
                    edges=fmean(int(of["edges"].sum()) for of in levels),
                    bytes_sent=sent,
                    ratio=sent / first if (first := striped.setdefault(predecessors, sent)) else 1.0,
                    milliseconds=milliseconds([min(one.seconds for one in of) for of in zip(*runs, strict=True)]),
                    bytes_per_rank=fmean(graph.nbytes),
                    state_bytes=state,
                    backend=graph.backend,
                    exchange=graph.exchange,
                )


def _state_bytes(graph: str, ranks: int, options: BuildOptions, backend: str) -> int | None:
    """Return the bytes of a rank's state and bins; None if they are known only after reading the graph."""
    try:
        run = dbfs.estimate(graph, ranks, options, backend=backend).run
    except EdgeInputError:
        return None
    return sum(run.values()) - run["labels"]


def count_peers(layout: str, ranks: int) -> int:
    """Return the number of ranks that a rank exchanges bins and bitmaps with."""
    grid = Grid.of(ranks)
    return ranks - 1 if layout == "1d" else grid.rows + grid.columns - 2


def read(path: Path) -> list[LayoutCost]:
    """Read the measurements that ``dbfs bench layouts --json`` saved; errors as for ``runner.read``."""
    costs: list[LayoutCost] = runner.read(path, {"layouts": {"costs": LayoutCost}})["costs"]
    return costs

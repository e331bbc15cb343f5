"""Traversals by the resident engine, next to SciPy's ``breadth_first_order`` on the same graph in the same run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import click
import distributed
import numpy as np
import scipy.sparse
import scipy.sparse.csgraph

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, connect, milliseconds, seconds_of
from dbfs.base.progress import track
from dbfs.building.build import ORDERS
from dbfs.edges import generate, readers
from dbfs.edges.edge_list import EdgeList
from dbfs_workers.base.text import counted


@dataclass(frozen=True)
class KernelTimes:
    """Median times of one implementation. All implementations traverse from the same sources.

    Attributes:
        levels: milliseconds of the levels; for SciPy of the whole call.
        call: milliseconds from the client's call to the result.
        ratio: SciPy's median divided by ``call``.
    """

    way: Annotated[str, Column("implementation")]
    levels: Annotated[float, Column("levels ms", ".2f")]
    call: Annotated[float, Column("call ms", ".2f")]
    ratio: Annotated[float, Column("SciPy / call", ".1f")]


@click.command()
@options.graph
@options.ranks(2)
@options.count("--sources", 9, "Number of random sources; 1 takes vertex 0 instead.")
@options.choices("--order", ORDERS, "Internal order of the vertices", ORDERS)
@options.json
def kernels(graph: str, ranks: int, sources: int, order: Sequence[str], file: str | None) -> None:
    """Measure traversals of a graph, next to SciPy's.

    dbfs and SciPy traverse the same graph from the same sources, one after the other.

    Example: dbfs bench kernels --graph kronecker:scale=18 --ranks 2
    """
    with Results("kernels", file) as results, connect(ranks) as client:
        times = bench_kernels(client, graph, ranks, sources, order)
        results.take("times", times, f"{graph}, {counted(ranks, 'rank')}, medians of {counted(sources, 'source')}")


def bench_kernels(
    client: distributed.Client, graph: str, ranks: int, sources: int, orders: Sequence[str]
) -> Iterator[KernelTimes]:
    """Measure SciPy, then the resident engine with each order of the vertices and each direction."""
    edges = generate.parse(graph) if generate.is_spec(graph) else readers.from_file(graph)
    chosen: list[int] = []
    scipy_time = 0.0
    for order in orders:
        with dbfs.load(edges, client=client, ranks=ranks, order=order) as loaded:
            if not chosen:
                chosen = [0] if sources == 1 else loaded.sample_sources(sources)
                scipy_time = milliseconds(_scipy(edges, loaded.n, chosen))
                yield KernelTimes("SciPy breadth_first_order", scipy_time, scipy_time, 1.0)
            for direction in ("top-down", "auto"):
                loaded.bfs(chosen[0], direction=direction)
                way = f"dbfs, {direction}, order {order}"
                levels, calls = [], []
                for source in track(chosen, way):
                    seconds, result = seconds_of(loaded.bfs, source, direction=direction)
                    calls.append(seconds)
                    levels.append(result.seconds)
                call = milliseconds(calls)
                yield KernelTimes(way, milliseconds(levels), call, scipy_time / call)


def _scipy(edges: EdgeList, n: int, sources: Sequence[int]) -> list[float]:
    """Return the seconds of each traversal by SciPy. Holds the whole graph in the client's memory."""
    parts = [piece.read() for piece in edges.cut(1 << 22)]
    src, dst = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    if edges.n is None:
        ids = np.unique(np.concatenate([src, dst]))
        src, dst = np.searchsorted(ids, src), np.searchsorted(ids, dst)
    if edges.symmetrise:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    matrix = scipy.sparse.coo_array((np.ones(src.size, np.float64), (src, dst)), shape=(n, n)).tocsr()
    del src, dst, parts
    taken = []
    for source in track(sources, "SciPy"):
        taken.append(seconds_of(scipy.sparse.csgraph.breadth_first_order, matrix, source, True, True)[0])
    return taken

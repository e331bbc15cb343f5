"""Traversals by the resident engine, next to SciPy's ``breadth_first_order`` on the same graph in the same run."""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import distributed
import numpy as np
import scipy.sparse
import scipy.sparse.csgraph

import dbfs
from dbfs.edges import generate, readers
from dbfs.edges.edge_list import EdgeList
from dbfs.progress import track


@dataclass(frozen=True)
class KernelTimes:
    """Times of one implementation. All implementations traverse from the same sources.

    Attributes:
        way: the implementation: SciPy, or dbfs with a direction and an order.
        levels: median milliseconds of the levels; for SciPy of the whole call.
        call: median milliseconds from the client's call to the result.
        ratio: SciPy's median divided by ``call``.
    """

    way: str
    levels: float
    call: float
    ratio: float


def bench_kernels(
    client: distributed.Client, graph: str, ranks: int, sources: int, orders: Sequence[str]
) -> Iterator[KernelTimes]:
    """Measure SciPy, then the resident engine with each order of the vertices and each direction.

    Args:
        client: client of a cluster with at least ``ranks`` workers.
        graph: the generator's spec or the file.
        ranks: number of ranks.
        sources: number of random sources; 1 takes vertex 0 instead.
        orders: internal orders of the vertices.
    """
    edges = generate.parse(graph) if generate.is_spec(graph) else readers.from_file(graph)
    chosen: list[int] = []
    scipy_time = 0.0
    for order in orders:
        with dbfs.load(edges, client=client, ranks=ranks, order=order) as loaded:
            if not chosen:
                chosen = [0] if sources == 1 else loaded.sample_sources(sources)
                taken = _scipy(edges, loaded.n, chosen)
                scipy_time = statistics.median(taken)
                yield KernelTimes("SciPy breadth_first_order", scipy_time, scipy_time, 1.0)
            for direction in ("top-down", "auto"):
                loaded.bfs(chosen[0], direction=direction)
                way = f"dbfs, {direction}, order {order}"
                levels, calls = [], []
                for source in track(chosen, way):
                    start = time.perf_counter()
                    result = loaded.bfs(source, direction=direction)
                    calls.append((time.perf_counter() - start) * 1e3)
                    levels.append(result.seconds * 1e3)
                call = statistics.median(calls)
                yield KernelTimes(way, statistics.median(levels), call, scipy_time / call)


def _scipy(edges: EdgeList, n: int, sources: Sequence[int]) -> list[float]:
    """Return the milliseconds of each traversal by SciPy. Holds the whole graph in the client's memory."""
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
        start = time.perf_counter()
        scipy.sparse.csgraph.breadth_first_order(matrix, source, directed=True, return_predecessors=True)
        taken.append((time.perf_counter() - start) * 1e3)
    return taken

"""Updates of a living graph: batches of random edges, traversals on pages and on a CSR, and repairs of a result."""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import distributed
import numpy as np

import dbfs
from dbfs.progress import track

_SOURCES = 8


@dataclass(frozen=True)
class UpdateRates:
    """The rates of one measurement; times of a call are the client's, and all rates are medians.

    Attributes:
        edges: edges of a batch.
        insert: edges inserted per second.
        delete: edges deleted per second.
        pages: seconds of a traversal on pages.
        csr: seconds of a traversal of the same version on a CSR.
        bytes_of_csr: bytes of the pages after the batches, as a multiple of the CSR's.
        bytes_compact: the same after ``compact``.
    """

    edges: int
    insert: float
    delete: float
    pages: float
    csr: float
    bytes_of_csr: float
    bytes_compact: float

    @property
    def ratio(self) -> float:
        """The rate of traversals on pages divided by their rate on a CSR."""
        return self.csr / self.pages


def bench_updates(client: distributed.Client, scale: int, edges: int, times: int, backend: str = "cpu") -> UpdateRates:
    """Insert random edges into a Kronecker graph and delete them again, and traverse the graph.

    Args:
        client: the cluster to use.
        scale: logarithm of the number of vertices.
        edges: edges of a batch.
        times: number of batches of each kind.
        backend: where the graph lies, ``cpu`` or ``cuda``, whose graphs have no pages: each version is a CSR.
    """
    generator, n = np.random.default_rng(1), 2**scale
    with dbfs.load(f"kronecker:scale={scale}", client=client, mutable=True, backend=backend) as graph:
        inserted, deleted = [], []
        for _ in track(range(times + 1), "batches"):
            src, dst = generator.integers(0, n, (2, edges))
            batch = dbfs.from_arrays(src, dst, n=n)
            inserted.append(edges / _seconds(graph.insert_edges, batch))
            deleted.append(edges / _seconds(graph.delete_edges, batch))
        sources, nbytes = graph.sample_sources(_SOURCES), sum(graph.nbytes)

        def traversal() -> float:
            # The first call makes the state of the version.
            graph.bfs_many(sources)
            return statistics.median(result.seconds for _ in range(times) for result in graph.bfs_many(sources))

        on_pages = traversal()
        graph.compact()
        compact = sum(graph.nbytes)
        graph.freeze()
        csr = sum(graph.nbytes)
        # The first batch moves the rows to pages.
        return UpdateRates(
            edges,
            statistics.median(inserted[1:]),
            statistics.median(deleted[1:]),
            on_pages,
            traversal(),
            nbytes / csr,
            compact / csr,
        )


@dataclass(frozen=True)
class RepairTimes:
    """The times of one measurement, in seconds by the client's clock.

    Attributes:
        graph: the graph.
        edges: edges of a batch.
        repair: median of ``BFSResult.update`` after a batch.
        traversal: median of a new traversal of the same version.
        speedup: median of the ratios: time of a new traversal over the time of the repair before it.
        least_speedup: the least of these ratios.
        single: by percentile (50, 99, 99.9, 100), time from the call that changes one edge to the repaired result. The
            client's heap is frozen: see ``docs/how-to/changing-graphs.md``.
    """

    graph: str
    edges: int
    repair: float
    traversal: float
    speedup: float
    least_speedup: float
    single: dict[str, float]


def bench_repairs(
    client: distributed.Client, spec: str, edges: int, times: int, singles: int, backend: str = "cpu"
) -> RepairTimes:
    """Delete edges of a result's tree and insert them again; after each batch repair the result and traverse anew.

    Args:
        client: the cluster to use.
        spec: the graph, as ``dbfs.load`` takes it. The first source drawn is the source.
        edges: edges of a batch.
        times: number of batches of each kind.
        singles: number of single edges, each deleted and inserted again.
        backend: where the graph lies, ``cpu`` or ``cuda``, where several ranks make a new traversal
            instead of each repair.
    """
    generator, repairs, traversals, single = np.random.default_rng(1), [], [], []
    with dbfs.load(spec, client=client, mutable=True, backend=backend) as graph:
        (source,) = graph.sample_sources(1)
        result = graph.bfs(source, predecessors=True)
        tree = result.tree().to_arrow()
        ends = np.stack([tree.column(name).to_numpy() for name in tree.column_names[:2]])
        for _ in track(range(times + 1), "repairs"):
            batch = ends[:, generator.choice(ends.shape[1], min(edges, ends.shape[1]), replace=False)]
            for change in (graph.delete_edges, graph.insert_edges):
                change((batch[0], batch[1]))
                repairs.append(_seconds(result.update))
                traversals.append(_seconds(lambda: graph.bfs(source, predecessors=True)))
        with _frozen_heap():
            for index in track(generator.integers(ends.shape[1], size=singles).tolist(), "single edges"):
                for change in (graph.delete_edges, graph.insert_edges):
                    start = time.perf_counter()
                    change((ends[0, [index]], ends[1, [index]]))
                    result.update()
                    single.append(time.perf_counter() - start)
    # The first batch moves the rows to pages.
    repairs, traversals = repairs[2:], traversals[2:]
    speedups = [traversal / repair for traversal, repair in zip(traversals, repairs, strict=True)]
    return RepairTimes(
        spec,
        edges,
        statistics.median(repairs),
        statistics.median(traversals),
        statistics.median(speedups),
        min(speedups),
        {f"{percent:g}": float(np.percentile(single, percent)) for percent in (50, 99, 99.9, 100)},
    )


@contextlib.contextmanager
def _frozen_heap() -> Iterator[None]:
    """Keep the objects that exist from Python's collections, each of which would stop all threads of this process."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _seconds(change: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    change(*arguments)
    return time.perf_counter() - start

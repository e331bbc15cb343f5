"""Updates of a living graph: batches of random edges, traversals on pages and on a CSR, and repairs of a result."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Annotated

import click
import distributed
import numpy as np

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, connect, seconds_of
from dbfs.base.progress import track
from dbfs_workers.base.text import counted

_SOURCES = 8


@dataclass(frozen=True)
class UpdateRates:
    """The rates of one measurement; times of a call are the client's, and all rates are medians.

    Attributes:
        insert, delete: edges inserted and deleted per second.
        pages: seconds of a traversal on pages.
        csr: seconds of a traversal of the same version on a CSR.
        ratio: the rate of traversals on pages divided by their rate on a CSR.
        bytes_of_csr: bytes of the pages after the batches, as a multiple of the CSR's.
        bytes_compact: the same after ``compact``.
    """

    edges: Annotated[int, Column("edges of\na batch", ",")]
    insert: Annotated[float, Column("inserted,\nM edges/s", ".2f", times=1e-6)]
    delete: Annotated[float, Column("deleted,\nM edges/s", ".2f", times=1e-6)]
    pages: Annotated[float, Column("traversal on\npages, ms", ".1f", times=1e3)]
    csr: Annotated[float, Column("on a\nCSR, ms", ".1f", times=1e3)]
    ratio: Annotated[float, Column("CSR /\npages", ".2f")]
    bytes_of_csr: Annotated[float, Column("bytes of\npages / CSR", ".2f")]
    bytes_compact: Annotated[float, Column("\ncompact", ".2f")]


@dataclass(frozen=True)
class RepairTimes:
    """The times of one measurement, in seconds by the client's clock.

    Attributes:
        repair: median of ``BFSResult.update`` after a batch.
        traversal: median of a new traversal of the same version.
        speedup: median of the ratios: time of a new traversal over the time of the repair before it.
        least_speedup: the least of these ratios.
        single_50, single_99, single_999, single_100: percentiles of the time from the call that changes one edge to the
            repaired result. The client's heap is frozen: see ``docs/how-to/changing-graphs.md``.
    """

    edges: Annotated[int, Column("edges of\na batch", ",")]
    repair: Annotated[float, Column("repair,\nms", ".1f", times=1e3)]
    traversal: Annotated[float, Column("new trav-\nersal, ms", ".1f", times=1e3)]
    speedup: Annotated[float, Column("new /\nrepair", ".1f")]
    least_speedup: Annotated[float, Column("\nleast", ".1f")]
    single_50: Annotated[float, Column("one edge,\np50, ms", ".1f", times=1e3)]
    single_99: Annotated[float, Column("\np99", ".1f", times=1e3)]
    single_999: Annotated[float, Column("\np99.9", ".1f", times=1e3)]
    single_100: Annotated[
        float, Column("\np100", ".1f", "from the change of one edge to the repaired result", times=1e3)
    ]


@click.command()
@options.count("--scale", 18, "Log2 of the number of vertices.", least=5)
@options.count("--edges", 1_000_000, "Edges of a batch.")
@options.ranks(2)
@options.count("--times", 5, "Batches of each kind.")
@options.value("--roads", "grid2d:side=1000", "Graph whose results are repaired.")
@options.count("--changes", 1000, "Edges of a batch there.")
@options.count("--singles", 100, "Single edges to change there.")
@options.backend
@options.json
def updates(ranks: int, backend: str, file: str | None, roads: str, scale: int, **sizes: int) -> None:
    """Measure updates of a living graph.

    Batches of random edges are inserted into a Kronecker graph and deleted again. Then the graph is traversed on its
    pages, and frozen to a CSR and traversed again. Edges of the tree of a traversal through the graph of --roads are
    deleted and inserted again; after each batch the result is repaired, and a new traversal is made.

    Example: dbfs bench updates --scale 14 --edges 100000
    """
    with Results("updates", file) as results, connect(ranks, backend) as client:
        rates = bench_updates(client, scale, sizes["edges"], sizes["times"], backend)
        results.take("updates", rates, f"kronecker:scale={scale}, {counted(ranks, 'rank')} on {backend}")
        repairs = bench_repairs(client, roads, sizes["changes"], sizes["times"], sizes["singles"], backend)
        results.take("repairs", repairs, f"{roads}, {counted(ranks, 'rank')} on {backend}")


def bench_updates(
    client: distributed.Client, scale: int, edges: int, times: int, backend: str = "cpu"
) -> Iterator[UpdateRates]:
    """Insert random edges into a Kronecker graph and delete them again, and traverse the graph.

    On ``cuda`` graphs have no pages: each version is a CSR.
    """
    generator, n = np.random.default_rng(1), 2**scale
    with dbfs.load(f"kronecker:scale={scale}", client=client, mutable=True, backend=backend) as graph:
        inserted, deleted = [], []
        for _ in track(range(times + 1), "batches"):
            src, dst = generator.integers(0, n, (2, edges))
            batch = dbfs.from_arrays(src, dst, n=n)
            inserted.append(edges / seconds_of(graph.insert_edges, batch)[0])
            deleted.append(edges / seconds_of(graph.delete_edges, batch)[0])
        sources, nbytes = graph.sample_sources(_SOURCES), sum(graph.nbytes)

        def traversal() -> float:
            # The first call makes the state of the version.
            graph.bfs_many(sources)
            return median(result.seconds for _ in range(times) for result in graph.bfs_many(sources))

        pages = traversal()
        graph.compact()
        compact = sum(graph.nbytes)
        graph.freeze()
        size, csr = sum(graph.nbytes), traversal()
        # The first batch moves the rows to pages.
        rates = median(inserted[1:]), median(deleted[1:])
        yield UpdateRates(edges, *rates, pages, csr, csr / pages, nbytes / size, compact / size)


def bench_repairs(
    client: distributed.Client, spec: str, edges: int, times: int, singles: int, backend: str = "cpu"
) -> Iterator[RepairTimes]:
    """Delete edges of a result's tree and insert them again; after each batch repair the result and traverse anew.

    On ``cuda`` several ranks make a new traversal instead of each repair.
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
                repairs.append(seconds_of(result.update)[0])
                traversals.append(seconds_of(graph.bfs, source, predecessors=True)[0])
        with _frozen_heap():
            for index in track(generator.integers(ends.shape[1], size=singles).tolist(), "single edges"):
                for change in (graph.delete_edges, graph.insert_edges):
                    changed, _ = seconds_of(change, (ends[0, [index]], ends[1, [index]]))
                    single.append(changed + seconds_of(result.update)[0])
    # The first batch moves the rows to pages.
    speedups = [traversal / repair for traversal, repair in zip(traversals[2:], repairs[2:], strict=True)]
    percentiles = np.percentile(single, (50, 99, 99.9, 100)).tolist()
    yield RepairTimes(edges, median(repairs[2:]), median(traversals[2:]), median(speedups), min(speedups), *percentiles)


@contextlib.contextmanager
def _frozen_heap() -> Iterator[None]:
    """Keep the objects that exist from Python's collections, each of which would stop all threads of this process."""
    gc.collect()
    # A caller may keep objects from collections itself, and goes on to do so.
    kept = gc.get_freeze_count()
    gc.freeze()
    try:
        yield
    finally:
        if not kept:
            gc.unfreeze()

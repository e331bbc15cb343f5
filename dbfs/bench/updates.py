"""Updates of a living graph: batches of random edges inserted and deleted, and traversals on pages and on a CSR."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import distributed
import numpy as np

import dbfs
from dbfs.display.progress import track
from dbfs.edges.edge_list import EdgeList

_SOURCES = 8


@dataclass(frozen=True)
class UpdateRates:
    """The rates of one measurement; times of a call are the client's, and all rates are medians.

    Attributes:
        edges: edges of a batch.
        insert: edges inserted each second.
        delete: edges deleted each second.
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
        """The rate of traversals on pages, as a part of that on a CSR."""
        return self.csr / self.pages


def bench_updates(client: distributed.Client, scale: int, edges: int, times: int) -> UpdateRates:
    """Insert random edges into a Kronecker graph and delete them again, and traverse the graph.

    Args:
        client: the cluster to use.
        scale: logarithm of the number of vertices.
        edges: edges of a batch.
        times: number of batches of each kind.
    """
    generator, n = np.random.default_rng(1), 2**scale
    with dbfs.load(f"kronecker:scale={scale}", client=client, mutable=True, backend="cpu") as graph:
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


def _seconds(change: Callable[[EdgeList], object], batch: EdgeList) -> float:
    start = time.perf_counter()
    change(batch)
    return time.perf_counter() - start

"""Batches through the service, against SciPy's distances."""

import threading
from typing import Any

import distributed
import numpy as np

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import RunCancelledError
from tests.support import graphs, oracle

N = 200
ARRAYS = graphs.random(N, 500, 3)
SOURCES = np.random.default_rng(1).permutation(N)[:150].tolist()


def loaded(client: distributed.Client, **options: Any) -> Graph:
    n, src, dst = ARRAYS
    return dbfs.load(dbfs.from_arrays(src, dst, n=n, directed=False), client=client, **options)


def assert_batch(graph: Graph, **options: Any) -> dbfs.BatchResult:
    """Everything that a batch may keep."""
    expected = np.array([oracle.distances(oracle.adjacency(*ARRAYS, directed=False), [one]) for one in SOURCES]).T
    targets = [7, 3, 7, 199]
    result = graph.bfs_batch(SOURCES, keep="distances", targets=targets, nearest=True, **options)
    assert (result.sources, result.depth, result.keep) == (tuple(SOURCES), expected.max(), "distances")
    counts = [np.bincount(one[one >= 0], minlength=result.depth + 1) for one in expected.T]
    np.testing.assert_array_equal(result.counts, counts)
    distances = result.distances()
    assert distances.dtype == np.uint8
    np.testing.assert_array_equal(np.where(distances == 255, -1, distances.astype(int)), expected)
    np.testing.assert_array_equal(result.target_distances(), expected[targets].T)
    far = np.where(expected < 0, 10**6, expected)
    least = far.min(axis=1)
    smallest = np.where(far == least[:, None], SOURCES, 10**6).min(axis=1)
    vertices, nearest = result.nearest()
    np.testing.assert_array_equal(nearest, np.where(least < 10**6, least, -1))
    np.testing.assert_array_equal(vertices, np.where(least < 10**6, smallest, -1))
    reached = graph.bfs_batch(SOURCES, keep="reached", **options).reached_bits()
    bits = np.unpackbits(reached, axis=1, count=len(SOURCES), bitorder="little")
    np.testing.assert_array_equal(bits, expected >= 0)
    return result


def assert_cancelled(client: distributed.Client, ranks: int) -> None:
    with dbfs.load("path:n=1000000", client=client, ranks=ranks) as graph:
        errors: list[BaseException] = []
        levels = threading.Event()

        def run() -> None:
            try:
                graph.bfs_batch([0, 1], direction="bottom-up", progress=lambda made: levels.set())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert levels.wait(60)
        (listed,) = dbfs.runs(client=client)
        listed.cancel()
        thread.join(60)
        assert [type(error) for error in errors] == [RunCancelledError]
        assert graph.bfs_batch([0], max_depth=3).counts.tolist() == [[1, 1, 1, 1]]

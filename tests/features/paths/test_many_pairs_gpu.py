"""``Graph.pair_distances`` of a graph on one GPU, by searches from both ends, against traversals."""

from collections.abc import Iterator
from typing import Any

import distributed
import numpy as np
import pytest

import dbfs
from dbfs.errors import DeadlineExceededError
from tests.support.gpus import needs_gpu
from tests.support.graphs import random

pytestmark = needs_gpu("cupy", "dask_cuda")


@pytest.fixture(scope="module")
def mapped() -> Iterator[distributed.Client]:
    with dbfs.connect(dashboard_address=None, memory_limit=0) as client:
        yield client


def assert_pairs(graph: Any, sources: int = 40, pairs: int = 5000) -> None:
    """Compare random pairs of some sources with traversals, twice."""
    generator = np.random.default_rng(graph.n)
    chosen = generator.choice(graph.n, sources, replace=False)
    places = generator.integers(0, sources, pairs)
    ends = np.stack([chosen[places], generator.integers(0, graph.n, pairs)], axis=1)
    ends[:10, 1] = ends[:10, 0]
    rows = np.stack([result.distances() for result in graph.bfs_many(chosen.tolist())])
    want = rows[places, ends[:, 1]]
    for _ in range(2):
        np.testing.assert_array_equal(graph.pair_distances(ends), want)
    assert graph.distance(*ends[0].tolist()) == want[0]


@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("spec", ["kronecker:scale=15", "grid2d:side=120", "grid3d:side=30"])
def test_distances_are_those_of_traversals(mapped: distributed.Client, spec: str, order: str) -> None:
    with dbfs.load(spec, client=mapped, backend="cuda", ranks=1, order=order) as graph:
        assert_pairs(graph)


@pytest.mark.parametrize("in_edges", [False, True])
@pytest.mark.parametrize("m", [30_000, 300_000])
def test_directed_graphs(mapped: distributed.Client, m: int, in_edges: bool) -> None:
    n, src, dst = random(20_000, m, 8)
    # A few vertices have thousands of out-edges.
    edges = dbfs.from_arrays(src**4 // n**3, dst, n=n, directed=True)
    with dbfs.load(edges, client=mapped, backend="cuda", ranks=1, in_edges=in_edges) as graph:
        assert_pairs(graph)


def test_frontiers_beyond_the_queues(mapped: distributed.Client) -> None:
    """Two stars of 300,000 leaves, whose hubs a path of 10 edges joins."""
    leaves = 300_000
    src = np.concatenate([np.zeros(leaves, int), np.full(leaves, 10), np.arange(10)])
    dst = np.concatenate([np.arange(11, 11 + 2 * leaves), np.arange(1, 11)])
    edges = dbfs.from_arrays(src, dst, n=11 + 2 * leaves, directed=False)
    with dbfs.load(edges, client=mapped, backend="cuda", ranks=1) as graph:
        pairs = [(0, 10), (11, 11 + leaves), (10, 0), (12, 13), (5, 11), (0, 0)]
        assert graph.pair_distances(pairs).tolist() == [10, 12, 10, 2, 6, 0]


def test_a_call_ends_at_its_deadline_and_the_graph_goes_on(mapped: distributed.Client) -> None:
    n = 200_000
    edges = dbfs.from_arrays(np.arange(n - 1), np.arange(1, n), n=n, directed=False)
    with dbfs.load(edges, client=mapped, backend="cuda", ranks=1) as graph:
        with pytest.raises(DeadlineExceededError):
            graph.pair_distances([(0, n - 1), (1, n - 1)] * 500, deadline=0.2)
        assert graph.pair_distances([(0, 300), (n - 1, n - 200)]).tolist() == [300, 199]
        assert graph.bfs(0).depth == n - 1


def test_living_graphs(mapped: distributed.Client) -> None:
    n = 1000
    edges = dbfs.from_arrays(np.arange(n - 1), np.arange(1, n), n=n, directed=False)
    with dbfs.load(edges, client=mapped, backend="cuda", ranks=1, mutable=True) as graph:
        pairs = [(0, 900), (3, 5), (999, 998)]
        assert graph.pair_distances(pairs).tolist() == [900, 2, 1]
        graph.insert_edges([(0, 899)])
        assert graph.pair_distances(pairs).tolist() == [2, 2, 1]
        graph.delete_edges([(3, 4)])
        assert graph.pair_distances(pairs).tolist() == [2, 898, 1]

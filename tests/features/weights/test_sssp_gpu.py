"""``Graph.sssp`` of graphs on GPUs: results, paths and tables against a heap's Dijkstra, on views too, and its ends."""

import itertools
from collections.abc import Iterator
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dbfs
from dbfs.errors import DeadlineExceededError
from tests.support.gpus import needs, needs_gpu
from tests.support.graphs import random
from tests.support.weights import arcs, assert_tree, expected

pytestmark = needs_gpu("cupy", "dask_cuda")

N, M = 2000, 9000


@pytest.fixture(scope="module")
def mapped() -> Iterator[distributed.Client]:
    with dbfs.connect(dashboard_address=None, memory_limit=0) as client:
        yield client


def table(dtype: str) -> tuple[pa.Table, Any, Any, Any]:
    _, src, dst = random(N, M, 7)
    # Every id has an edge, so that vertices are ids.
    src, dst = np.append(src, np.arange(N)), np.append(dst, (np.arange(N) + 1) % N)
    weights = np.random.default_rng(7).integers(0, 50, src.size).astype(dtype)
    return pa.table({"source": src, "target": dst, "w": weights}), src, dst, weights


@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32", "float64"])
@pytest.mark.parametrize("ranks", [1, needs(2), needs(4)])
def test_labels_are_dijkstras(mapped: distributed.Client, ranks: int, dtype: str, directed: bool, order: str) -> None:
    rows, src, dst, weights = table(dtype)
    options: dict[str, Any] = {"edge_columns": ["w"], "backend": "cuda", "ranks": ranks, "order": order}
    with dbfs.load(rows, client=mapped, directed=directed, **options) as graph:
        wide = weights.astype(np.int64) if dtype == "uint8" else weights
        of = arcs((N, src, dst), wide, directed=directed)
        want = expected(N, of, [3, 50], wide.dtype)
        result = graph.sssp([3, 50], "w", predecessors=True)
        found = result.distances()
        assert found.dtype == want.dtype
        np.testing.assert_array_equal(found, want)
        assert_tree(of, [3, 50], found, result.predecessors())
        result.validate()
        assert (result.depth, result.reached) == (want.max(), N)
        np.testing.assert_array_equal(result.within(20), np.flatnonzero(want <= 20))
        assert result.path_to(1500)[-1] == 1500
        alone = expected(N, of, [3], wide.dtype)
        assert graph.distance(3, 1500, weight="w") == alone[1500]
        path = graph.path(3, 1500, weight="w")
        between: dict[tuple[int, int], Any] = {}
        for u, v, weight in of:
            between[u, v] = min(weight, between.get((u, v), weight))
        total = wide.dtype.type(0)
        for step in itertools.pairwise(path):
            total += between[step]
        assert (path[0], path[-1], total) == (3, 1500, alone[1500])
        assert result.to_arrow()["distance"].to_pylist() == want.tolist()
        bounded = graph.sssp([3, 50], "w", max_distance=9).distances()
        none = -1 if want.dtype.kind == "i" else np.inf
        np.testing.assert_array_equal(bounded, np.where(want <= 9, want, none))
        hops = graph.bfs([3, 50]).distances()
        np.testing.assert_array_equal(graph.sssp([3, 50], "w").distances(), want)
        np.testing.assert_array_equal(graph.bfs([3, 50]).distances(), hops)
        with graph.where(edges=pc.field("w") < 25) as view:
            light = weights < 25
            kept = arcs((N, src[light], dst[light]), wide[light], directed=directed)
            np.testing.assert_array_equal(view.sssp(3, "w").distances(), expected(N, kept, [3], wide.dtype))


@pytest.mark.parametrize("ranks", [1, needs(2), needs(4)])
def test_a_run_by_weight_ends_at_its_deadline_and_the_graph_goes_on(mapped: distributed.Client, ranks: int) -> None:
    n = 200_000
    rows = pa.table({"source": np.arange(n - 1), "target": np.arange(1, n), "w": np.ones(n - 1, np.int64)})
    with dbfs.load(rows, edge_columns=["w"], client=mapped, backend="cuda", ranks=ranks) as graph:
        with pytest.raises(DeadlineExceededError):
            graph.sssp(0, "w", delta=0, deadline=0.2)
        assert graph.sssp(0, "w").depth == n - 1


@pytest.mark.parametrize("ranks", [needs(2), needs(4)])
def test_large_graphs_on_several_gpus(mapped: distributed.Client, ranks: int) -> None:
    """Piles that are bitmaps, rows that are cut, weights of 0: distances are one GPU's, parents a tree."""
    n, m = 300_000, 3_000_000
    generator = np.random.default_rng(3)
    src, dst = generator.integers(0, n, m) ** 2 // n, generator.integers(0, n, m)
    columns = {"w": generator.integers(0, 200, m), "x": generator.exponential(1, m), "zero": np.zeros(m, np.int64)}
    rows = pa.table({"source": src, "target": dst} | columns)
    options: dict[str, Any] = {"edge_columns": [*columns], "client": mapped, "backend": "cuda"}
    with dbfs.load(rows, ranks=1, **options) as one, dbfs.load(rows, ranks=ranks, **options) as several:
        for column in columns:
            want = one.sssp(int(src[0]), column).distances()
            for _ in range(3):
                found = several.sssp(int(src[0]), column, predecessors=True)
                np.testing.assert_array_equal(found.distances(), want)
                found.validate()
        hops = one.bfs(int(src[0])).distances()
        np.testing.assert_array_equal(several.bfs(int(src[0])).distances(), hops)
        want = one.sssp(int(src[0]), "w").distances()
        np.testing.assert_array_equal(several.sssp(int(src[0]), "w").distances(), want)

"""Batches of sources on GPUs through the service: every reader against SciPy, by every exchange and layout."""

from collections.abc import Callable
from typing import Any

import dask
import distributed
import numpy as np
import pytest

import dbfs
from dbfs.features.batches import batch as batches
from dbfs.features.batches import sweeps
from dbfs_workers.features.batches import levels as batch_levels
from dbfs_workers.features.batches.on_gpu import CudaBatch
from tests.support import graphs
from tests.support.batch_results import SOURCES, assert_batch, assert_cancelled, loaded
from tests.support.batches import dependencies
from tests.support.gpus import needs, needs_gpu, needs_nccl

pytestmark = needs_gpu("cupy", "dask_cuda")


def check(client: distributed.Client, monkeypatch: pytest.MonkeyPatch, exchange: str, **options: Any) -> None:
    with dask.config.set({"dbfs.exchange": exchange}), loaded(client, backend="cuda", **options) as graph:
        assert graph.backend == "cuda"
        assert assert_batch(graph).groups == 1
        graph.bfs_batch(range(100), keep="distances").validate()
        assert graph.bfs([0]).reached == graph.bfs_batch([0]).reached[0]
        assert_batch(graph, direction="bottom-up")
        for measure in (graph.closeness_centrality, graph.harmonic_centrality):
            # The sums of a sample travel from the GPU; those of all vertices are made of counts.
            assert measure(sample=graph.n).to_dict() == pytest.approx(measure().to_dict())
        striped = graph.bfs_batch(SOURCES, nearest=True).counts
        monkeypatch.setattr(batches, "_SHARES", {"cpu": 8, "cuda": 8})
        for _ in range(2):
            np.testing.assert_array_equal(graph.bfs_batch(SOURCES).counts, striped)
        monkeypatch.setattr(batches, "MOST_SOURCES", 64)
        assert assert_batch(graph, direction="top-down").groups == 3


@pytest.mark.parametrize("ranks", [needs(ranks) for ranks in (1, 2, 4)])
@pytest.mark.parametrize("order", ["given", "degree"])
def test_gpus_that_map_memory(
    gpus: distributed.Client, monkeypatch: pytest.MonkeyPatch, ranks: int, order: str
) -> None:
    check(gpus, monkeypatch, "cuda_ipc", ranks=ranks, order=order)


@needs_nccl
@pytest.mark.parametrize("ranks", [needs(ranks) for ranks in (2, 4)])
def test_gpus_by_nccl(gpus: distributed.Client, monkeypatch: pytest.MonkeyPatch, ranks: int) -> None:
    check(gpus, monkeypatch, "nccl", ranks=ranks)


@pytest.mark.parametrize("options", [{"ranks": 1}, {"ranks": 3, "order": "degree"}], ids=str)
def test_ranks_of_one_gpu(
    sharing: distributed.Client, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    check(sharing, monkeypatch, "auto", **options)


def test_a_grid_of_ranks_on_one_gpu(sharing: distributed.Client) -> None:
    """Sources run one by one there, for 3 s a call: ``check`` has eleven calls."""
    with loaded(sharing, backend="cuda", ranks=4, layout="2d") as graph:
        assert assert_batch(graph).groups == 1


def check_betweenness(client: distributed.Client, exchange: str, **options: Any) -> None:
    """Of several runs and blocks, with parallel edges and self-loops."""
    n, src, dst = graphs.random(150, 330, 7)
    for directed in (False, True):
        edges = dbfs.from_arrays(src, dst, n=n, directed=directed)
        of_rows, of_edges = dependencies((n, src, dst), [*range(n)], directed=directed)
        flows = of_edges[:, :, 0] if directed else of_edges[:, :, 0] + of_edges[:, :, 0].T
        parts = 1 if directed else 2
        with (
            dask.config.set({"dbfs.exchange": exchange}),
            dbfs.load(edges, client=client, backend="cuda", in_edges=True, **options) as graph,
        ):
            found = graph.betweenness_centrality(normalized=False)
            np.testing.assert_allclose(found.values, of_rows[:, 0] / parts, rtol=1e-12, atol=1e-12)
            of_pairs = graph.edge_betweenness_centrality(normalized=False).to_dict()
            assert of_pairs == pytest.approx({pair: flows[pair] / parts for pair in of_pairs}, rel=1e-12)
            assert sum(of_pairs.values()) == pytest.approx(of_edges[:, :, 0].sum() / parts)


@pytest.mark.parametrize("ranks", [needs(ranks) for ranks in (1, 2, 4)])
@pytest.mark.parametrize("order", ["given", "degree"])
def test_betweenness_on_gpus_that_map_memory(
    gpus: distributed.Client, monkeypatch: pytest.MonkeyPatch, ranks: int, order: str
) -> None:
    monkeypatch.setattr(sweeps, "MOST_SOURCES", 70)
    check_betweenness(gpus, "cuda_ipc", ranks=ranks, order=order)


@needs_nccl
@pytest.mark.parametrize("ranks", [needs(2)])
def test_betweenness_by_nccl(gpus: distributed.Client, ranks: int) -> None:
    check_betweenness(gpus, "nccl", ranks=ranks)


@pytest.mark.parametrize("ranks", [1, 3])
def test_betweenness_of_ranks_of_one_gpu(sharing: distributed.Client, ranks: int) -> None:
    check_betweenness(sharing, "auto", ranks=ranks)


def set_constants(values: dict[str, Any]) -> dict[str, Any]:
    """Replace constants of a batch's levels on a worker; return the values before."""
    before = {name: getattr(batch_levels, name) for name in values}
    for name, value in values.items():
        setattr(batch_levels, name, value)
    return before


@pytest.mark.parametrize("ranks", [needs(ranks) for ranks in (1, 2)])
@pytest.mark.parametrize("exchange", ["auto", pytest.param("nccl", marks=needs_nccl)])
def test_small_frontiers_go_top_down(gpus: distributed.Client, ranks: int, exchange: str) -> None:
    small = {"_SMALL_FRONTIERS": (1 / 2, 1 / 8), "_SMALL_EDGES": 1, "_LARGE_EDGES": 0}
    (before, *_) = gpus.run(set_constants, small).values()
    try:
        with dask.config.set({"dbfs.exchange": exchange}), loaded(gpus, backend="cuda", ranks=ranks) as graph:
            assert_batch(graph)
    finally:
        gpus.run(set_constants, before)


def set_pays(pays: Callable[..., bool]) -> Callable[..., bool]:
    """Replace the rule on a worker; return the rule before."""
    before = CudaBatch.pays
    CudaBatch.pays = pays  # type: ignore[method-assign]
    return before


@pytest.mark.parametrize("ranks", [needs(ranks) for ranks in (1, 2)])
def test_sources_that_share_too_little(gpus: distributed.Client, ranks: int) -> None:
    (before, *_) = gpus.run(set_pays, lambda self, shared: False).values()
    try:
        with dbfs.load(dbfs.path(400), client=gpus, ranks=ranks) as graph:
            result = graph.bfs_batch([0, 7, 399], keep="distances", targets=[5], nearest=True)
            expected = abs(np.arange(400)[:, None] - [0, 7, 399])
            np.testing.assert_array_equal(result.distances(), expected)
            np.testing.assert_array_equal(result.target_distances(), expected[5][:, None])
            np.testing.assert_array_equal(result.nearest()[1], expected.min(axis=1))
    finally:
        gpus.run(set_pays, before)


@pytest.mark.parametrize("ranks", [needs(ranks) for ranks in (1, 2)])
def test_a_batch_is_cancelled_and_the_next_one_is_right(gpus: distributed.Client, ranks: int) -> None:
    assert_cancelled(gpus, ranks=ranks)

"""Batches of sources on GPUs through the service: every reader against SciPy, by every exchange and layout."""

from collections.abc import Callable, Iterator
from typing import Any

import dask
import distributed
import numpy as np
import pytest

import dbfs
from dbfs.graph import batch as batches
from dbfs_workers.backends.batch_cuda import CudaBatch
from tests.support.batch_results import assert_batch, assert_cancelled, loaded
from tests.support.gpus import four_on_one_gpu, needs, needs_gpu, needs_nccl

pytestmark = needs_gpu("cupy", "dask_cuda")


@pytest.fixture(scope="module")
def gpus() -> Iterator[distributed.Client]:
    with dbfs.connect(dashboard_address=None, memory_limit=0) as client:
        yield client


@pytest.fixture(scope="module")
def sharing() -> Iterator[distributed.Client]:
    with four_on_one_gpu() as client:
        yield client


def check(client: distributed.Client, monkeypatch: pytest.MonkeyPatch, exchange: str, **options: Any) -> None:
    with dask.config.set({"dbfs.exchange": exchange}), loaded(client, backend="cuda", **options) as graph:
        assert graph.backend == "cuda"
        assert assert_batch(graph).groups == 1
        graph.bfs_batch(range(100), keep="distances").validate()
        assert graph.bfs([0]).reached == graph.bfs_batch([0]).reached[0]
        assert_batch(graph, direction="bottom-up")
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


@pytest.mark.parametrize(
    "options", [{"ranks": 1}, {"ranks": 3, "order": "degree"}, {"ranks": 4, "layout": "2d"}], ids=str
)
def test_ranks_of_one_gpu(
    sharing: distributed.Client, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    check(sharing, monkeypatch, "auto", **options)


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

"""The kernel of shortest paths by weight against a heap's Dijkstra: on this CPU, and on a GPU where there is one.

Axes: undirected and directed; integers whose sums fit 32 bits and those that need 64, both floats; weights that are 0
or vanish in sums; buckets of any width; rounds of one block and of all; far piles that are a list and such that are
only a bitmap; rows that are cut.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from dbfs_workers.base.errors import DeadlineExceededError, DistanceOverflowError
from dbfs_workers.features.weights import on_gpu
from dbfs_workers.features.weights.purpose import Weighted
from dbfs_workers.search.cuda.run import KernelAbortedError
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.gpus import on_gpu as gpu_parameter
from tests.support.graphs import random
from tests.support.weights import arcs, assert_tree, expected, labels, weighted_graphs
from tests.support.weights_on_gpu import install, run, search_of


@pytest.fixture(
    params=[pytest.param(False, id="emulated", marks=needs_compiler), gpu_parameter(True, id="gpu")],
)
def device(request: pytest.FixtureRequest) -> Iterator[bool]:
    """CuPy and the kernel, or stand-ins for both."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.param:
            install(patch)
        yield request.param


def assert_right(arrays: Any, weights: Any, sources: list[int], *, directed: bool, purpose: Any = None) -> Any:
    """Compare two traversals in the same memory with the oracle; return the second one."""
    n, of = arrays[0], arcs(arrays, weights, directed=directed)
    search = search_of(arrays, weights, directed=directed)
    for some in ([n - 1], sources):
        made = run(search, some, purpose)
        distances, parents = labels([made], n)
        want = expected(n, of, some, weights.dtype)
        np.testing.assert_array_equal(distances, want)
        assert parents is not None
        assert_tree(of, some, distances, parents)
        reached = want >= 0 if weights.dtype.kind == "i" else np.isfinite(want)
        assert made.reached == reached.sum()
        np.testing.assert_array_equal(made.labels.by_source, want[reached].max(keepdims=True))
        assert made.edges == sum(bool(reached[u]) for u, _, _ in of)
    return made


@given(weighted_graphs())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_distances_are_dijkstras_and_parents_a_tree(device: bool, case: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_gpu, "_ROOM", {1: 1, 2: 9, 3: 50, 4: 1 << 16}[case["p"]])
        patch.setattr(on_gpu, "_FEW_ROWS", {1: 0, 3: 30}[case["threads"]])
        options = {key: case[key] for key in ("directed", "purpose")}
        assert_right(case["arrays"], case["weights"], case["sources"], **options)


@pytest.mark.parametrize("weight", [0, 3])
def test_long_rows_are_cut(device: bool, weight: int) -> None:
    """Two hubs with thousands of edges, one behind the other."""
    n = 3000
    src = np.concatenate([np.zeros(2500, int), np.full(2000, 1), [0]])
    dst = np.concatenate([np.arange(2, 2502), np.arange(n - 2000, n), [1]])
    weights = np.where(src == 0, np.arange(src.size) % 7, np.full(src.size, weight))
    assert_right((n, src, dst), weights, [0], directed=True)


def test_bounds_and_targets(device: bool) -> None:
    n, m = 200, 600
    arrays = random(n, m, 5)
    weights = np.random.default_rng(5).integers(0, 50, m)
    want = expected(n, arcs(arrays, weights, directed=False), [0], weights.dtype)
    search = search_of(arrays, weights, directed=False)
    bounded = run(search, [0], Weighted("w", max_distance=30.5), predecessors=False)
    np.testing.assert_array_equal(labels([bounded], n)[0], np.where(want <= 30, want, -1))
    near = int(np.argsort(np.where(want < 0, want.max(), want))[20])
    stopped = run(search, [0], Weighted("w", delta=1), targets=(near,))
    found, _ = labels([stopped], n)
    assert found[near] == want[near]
    np.testing.assert_array_equal(found[found >= 0], want[found >= 0])
    assert stopped.reached < run(search, [0]).reached
    between = run(search, [0], Weighted("w", path=True), targets=(near,))
    assert between.labels.by_source.tolist() == [want[near]]


def test_a_sum_past_int64_is_told(device: bool) -> None:
    weights = np.array([2**62, 2**62, 5])
    search = search_of((4, np.arange(3), np.arange(1, 4)), weights, directed=True)
    with pytest.raises(DistanceOverflowError, match="2 vertices by 'w'"):
        run(search, [0])
    assert run(search, [1]).labels.distances[:4].tolist() == [-1, 0, 2**62, 2**62 + 5]


def test_a_kernel_ends_at_its_deadline_and_when_it_is_stopped(device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 60_000 if device else 300
    search = search_of((n, np.arange(n - 1), np.arange(1, n)), np.ones(n - 1, np.int64), directed=True)
    for few in (0, 1024):
        monkeypatch.setattr(on_gpu, "_FEW_ROWS", few)
        with pytest.raises(DeadlineExceededError):
            run(search, [0], Weighted("w", delta=0), seconds=0.01 if device else 0)
        # The host may have seen the deadline before the kernel did.
        search.flag.word[0] = 0
    if device:
        search.flag.word[0] = 1
        with pytest.raises(KernelAbortedError):
            run(search, [0], Weighted("w", delta=0))
        search.flag.word[0] = 0
    assert run(search, [0]).reached == n


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["int64", "float32", "float64"])
@pytest.mark.parametrize("spread", [255, 1 << 40])
def test_large_graphs(monkeypatch: pytest.MonkeyPatch, dtype: str, spread: int) -> None:
    pytest.importorskip("cupy")
    n, m = 20_000, 200_000
    arrays = random(n, m, 9)
    src = arrays[1] ** 2 % n
    weights = np.random.default_rng(9).integers(1, spread, m).astype(dtype)
    for few in (0, 1024):
        monkeypatch.setattr(on_gpu, "_FEW_ROWS", few)
        for purpose in (None, Weighted("w", delta=spread // 8)):
            assert_right((n, src, arrays[2]), weights, [3, 50], directed=False, purpose=purpose)

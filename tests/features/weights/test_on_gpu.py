"""The kernel of shortest paths by weight against a heap's Dijkstra: on this CPU, and on a GPU where there is one.

Axes: undirected and directed; integers whose sums fit 32 bits and those that need 64, both floats; weights that are 0
or vanish in sums; buckets of any width; rounds of one block and of all; far piles that are a list and such that are
only a bitmap; rows that are cut. On this CPU also one to four ranks, which are threads.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbfs_workers.base.errors import DeadlineExceededError, DistanceOverflowError, NoRoomForLabelsError
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.features.weights import on_gpu
from dbfs_workers.features.weights.columns import EdgeWeights
from dbfs_workers.features.weights.purpose import Weighted
from dbfs_workers.features.weights.resident_part import ResidentWeights
from dbfs_workers.search.cuda.run import KernelAbortedError
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.gang import PATIENCE
from tests.support.gpus import on_gpu as gpu_parameter
from tests.support.graphs import random
from tests.support.weights import arcs, assert_tree, expected, labels, weighted_graphs
from tests.support.weights_on_gpu import install, on_gpus, ranks, run, run_all, search_of, searches_of


@pytest.fixture(
    params=[pytest.param(False, id="emulated", marks=needs_compiler), gpu_parameter(True, id="gpu")],
)
def device(request: pytest.FixtureRequest) -> Iterator[bool]:
    """CuPy and the kernel, or stand-ins for both."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.param:
            install(patch)
        yield request.param


def assert_right(
    arrays: Any, weights: Any, sources: list[int], p: int = 1, *, directed: bool, purpose: Any = None
) -> None:
    """Compare two traversals in the same memory with the oracle."""
    n, of = arrays[0], arcs(arrays, weights, directed=directed)
    searches = searches_of(arrays, weights, p, directed=directed)
    for some in ([n - 1], sources):
        made = run_all(searches, some, purpose)
        distances, parents = labels(made, n)
        want = expected(n, of, some, weights.dtype)
        np.testing.assert_array_equal(distances, want)
        assert parents is not None
        assert_tree(of, some, distances, parents)
        reached = want >= 0 if weights.dtype.kind == "i" else np.isfinite(want)
        assert sum(each.reached for each in made) == reached.sum()
        assert max(each.labels.by_source[0] for each in made) == want[reached].max()
        assert sum(each.edges for each in made) == sum(bool(reached[u]) for u, _, _ in of)
        assert len({each.counters for each in made}) == 1


@given(weighted_graphs(), st.integers(1, 4))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_distances_are_dijkstras_and_parents_a_tree(device: bool, case: dict[str, Any], p: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_gpu, "_ROOM", {1: 1, 2: 9, 3: 50, 4: 1 << 16}[case["p"]])
        patch.setattr(on_gpu, "_FEW_ROWS", {1: 0, 3: 30}[case["threads"]])
        options = {key: case[key] for key in ("directed", "purpose")}
        assert_right(case["arrays"], case["weights"], case["sources"], 1 if device else p, **options)


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("weight", [0, 3])
def test_long_rows_are_cut(device: bool, weight: int, p: int) -> None:
    """Two hubs with thousands of edges, one behind the other."""
    n = 3000
    src = np.concatenate([np.zeros(2500, int), np.full(2000, 1), [0]])
    dst = np.concatenate([np.arange(2, 2502), np.arange(n - 2000, n), [1]])
    weights = np.where(src == 0, np.arange(src.size) % 7, np.full(src.size, weight))
    assert_right((n, src, dst), weights, [0], 1 if device else p, directed=True)


@needs_compiler
@pytest.mark.parametrize("few", [0, 1024])
@pytest.mark.parametrize("p", [2, 4])
def test_ranks_without_rows_and_long_paths(monkeypatch: pytest.MonkeyPatch, p: int, few: int) -> None:
    """A path of weights that are 0 goes through all ranks, from each of which one edge leads on."""
    install(monkeypatch)
    monkeypatch.setattr(on_gpu, "_FEW_ROWS", few)
    for n in (1, 2, 3, 90):
        arrays = n, np.arange(n - 1), np.arange(1, n)
        for weights in (np.zeros(n - 1), np.arange(n - 1), np.full(n - 1, np.inf)):
            assert_right(arrays, weights, [0], p, directed=False, purpose=Weighted("w", delta=2))


@needs_compiler
def test_bounds_and_targets_of_several_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    n, m = 200, 600
    arrays = random(n, m, 5)
    weights = np.random.default_rng(5).integers(0, 50, m)
    want = expected(n, arcs(arrays, weights, directed=False), [0], weights.dtype)
    searches = searches_of(arrays, weights, 3, directed=False)
    bounded = run_all(searches, [0], Weighted("w", max_distance=30.5))
    np.testing.assert_array_equal(labels(bounded, n)[0], np.where(want <= 30, want, -1))
    near = int(np.argsort(np.where(want < 0, want.max(), want))[20])
    stopped = run_all(searches, [0], Weighted("w", delta=1), targets=(near,))
    found, _ = labels(stopped, n)
    assert found[near] == want[near]
    np.testing.assert_array_equal(found[found >= 0], want[found >= 0])
    assert sum(each.reached for each in stopped) < sum(each.reached for each in run_all(searches, [0]))
    between = run_all(searches, [0], Weighted("w", path=True), targets=(near,))
    assert [each.labels.by_source.tolist() for each in between if each.labels.by_source.size] == [[want[near]]]


@needs_compiler
@pytest.mark.parametrize("few", [0, 1024])
def test_a_rank_whose_peer_stops_waits_until_its_deadline(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """The emulator's clock goes on by 1 ns at each look at it."""
    install(monkeypatch)
    monkeypatch.setattr(on_gpu, "_FEW_ROWS", few)
    monkeypatch.setattr(on_gpu, "time", SimpleNamespace(monotonic=lambda: 0.0))
    n = 3000
    searches = searches_of((n, np.arange(n - 1), np.arange(1, n)), np.ones(n - 1, np.int64), 2, directed=True)
    spec = TraversalSpec("1", (0,), False, "cuda", direction="top-down", purpose=Weighted("w", delta=0))
    for alone in (False, True):
        with ranks(1 if alone else 2) as pool:
            made = [pool.submit(search.run, spec, (1 + at) * 3e-7) for at, search in enumerate(searches[alone:])]
            assert [type(each.exception()) for each in made] == [DeadlineExceededError] * len(made)


@needs_compiler
def test_ranks_make_and_free_their_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of three types in turn; between them another run, for which one rank lacks room; a new connection."""
    install(monkeypatch)
    p, n, m = 3, 100, 400
    arrays, generator = random(n, m, 2), np.random.default_rng(2)
    # The largest weights of one rank alone need 64 bits.
    wide = np.where(arrays[1] % p == 1, 2**40, 1)
    columns = {"small": generator.integers(0, 9, m), "wide": wide, "float": generator.random(m)}
    parts: list[Any] = []
    for name, weights in columns.items():
        for graph, values in on_gpus(arrays, weights, p, directed=True):
            if len(parts) <= graph.rank:
                member = SimpleNamespace(rank=graph.rank, checked_run="", require_room=lambda *_: None)
                runner: Any = SimpleNamespace(member=member, graph_id="graph", lock=threading.Lock())
                runner.graph, runner.raise_if_stopped = lambda graph=graph: graph, lambda *_: None
                parts.append((ResidentWeights(runner), graph))
                parts[-1][0].make(graph)
            parts[graph.rank][0].weights[name] = EdgeWeights(None, graph, values, None)
    numbers = itertools.count(1)

    def together(call: Callable[..., Any]) -> list[Any]:
        number = next(numbers)
        with ranks(p) as pool:
            return [each.result() for each in [pool.submit(call, part, graph, number) for part, graph in parts]]

    def connect() -> None:
        offers = [part.offer() for part, _ in parts]
        for part, _ in parts:
            part.connect(offers)

    def spec(name: str) -> RunSpec:
        return RunSpec.single(TraversalSpec("1", (0, 5), True, "cuda", direction="top-down", purpose=Weighted(name)))

    def make_room(part: ResidentWeights, graph: Any, number: int) -> bool:
        part.make_room(graph, spec("small"), number, time.monotonic() + PATIENCE)
        return part._search is None

    def find(name: str) -> None:
        def traverse(part: ResidentWeights, graph: Any, number: int) -> Any:
            return next(iter([*part.traverse(graph, number, spec(name), time.monotonic() + PATIENCE)]))

        made = together(traverse)
        distances, parents = labels(made, n)
        of = arcs(arrays, columns[name], directed=True)
        np.testing.assert_array_equal(distances, expected(n, of, [0, 5], columns[name].dtype))
        assert parents is not None
        assert_tree(of, [0, 5], distances, parents)

    def lack(*_: Any) -> None:
        raise NoRoomForLabelsError("no room")

    connect()
    for name in (*columns, "small", "small"):
        find(name)
    assert together(make_room) == [False] * p
    parts[1][0]._runner.member.require_room = lack
    assert together(make_room) == [True] * p
    parts[1][0]._runner.member.require_room = lambda *_: None
    find("wide")
    connect()
    find("wide")
    for part, _ in parts:
        part.disconnect()
    for part, _ in parts:
        part.free()


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

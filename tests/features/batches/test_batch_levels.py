"""Batches on ranks that are threads of this process: every bit against SciPy's distances."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dbfs_workers.base.errors import NoRoomForLabelsError, RunAbortedError, TooManyPathsError
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.batches import levels as batch_levels
from dbfs_workers.features.batches.levels import BatchLevels
from dbfs_workers.features.batches.on_cpu import CpuBatch
from dbfs_workers.features.batches.operators import ChosenRows, SettledRows
from dbfs_workers.features.batches.purpose import Batch
from dbfs_workers.features.batches.storage import BatchScratch, RankBatch
from dbfs_workers.search.cpu import team_calls
from dbfs_workers.search.levels import loop
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import RankRun
from tests.support import graphs
from tests.support.batches import (
    EMPTY,
    assert_counted,
    assert_counts,
    assert_looks_are_counted,
    assert_right,
    assert_swept,
    batches,
    expected,
    on_cpu,
    on_threads,
    run,
    shared_batches,
)
from tests.support.exchanges import shared_memory
from tests.support.gang import PATIENCE, partitions
from tests.support.graphs import Arrays


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batch=batches())
def test_any_batch_has_scipys_distances(batch: dict[str, Any]) -> None:
    assert_right(**batch)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batch=shared_batches())
def test_ranks_that_share_the_sources(batch: dict[str, Any]) -> None:
    assert_counted(**batch)


def test_a_rank_has_its_share_of_the_sources_and_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank takes 50 of 150 sources, a word a vertex, over the rows of all ranks."""
    widths: list[tuple[int, int]] = []
    settle = CpuBatch.settle

    def settled(self: CpuBatch, scratch: BatchScratch) -> SettledRows:
        widths.append((scratch.width, scratch.partition.stripe.n_local))
        return settle(self, scratch)

    monkeypatch.setattr(CpuBatch, "settle", settled)
    assert_counted(graphs.random(300, 900, 4), [*range(0, 300, 2)], 3)
    # Then a batch of one source, which two ranks have none of.
    assert {*widths} == {(1, 384)}


def test_ranks_that_share_the_sources_decide_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five sources on two ranks: by their own sources one rank would go on together, and the other one by one."""
    monkeypatch.setattr(CpuBatch, "pays", lambda self, shared: shared.sources > 2)
    assert_counted((300, np.arange(299), np.arange(1, 300)), [0, 1, 150, 250, 299], 2)


@pytest.mark.parametrize("copied", [False, True], ids=["rows shared", "sources shared"])
def test_a_run_that_stops_before_a_group_leaves_nothing_of_it(copied: bool) -> None:
    """Ranks on GPUs keep their levels from run to run."""
    arrays = graphs.random(300, 900, 3)
    ends, parts = shared_memory(Stripe(300, 2)), partitions(*arrays, 2, directed=False)
    ended = threading.Barrier(2)
    first, never_made, last = ([*range(begin, begin + 60)] for begin in (0, 100, 200))

    def traverse(rank: int) -> list[NDArray[np.int64]]:
        levels, made = on_cpu(parts[rank], ends[rank], lambda: EMPTY), list[RankRun]()
        for number, groups in enumerate([[first, never_made], [last]], 1):
            specs = [
                TraversalSpec(str(number), tuple(group), False, "cpu", purpose=Batch(("counts",), copied))
                for group in groups
            ]
            made += loop.traverse(
                lambda: levels,
                specs,
                ends[rank],
                watch=loop.Watch(number),
                deadline=time.monotonic() + PATIENCE,
                stops=lambda: True,
            )
            # Rank 0 begins no run before all ranks have ended the last one.
            ended.wait(PATIENCE)
        return [run.labels.counts for run in made if isinstance(run.labels, RankBatch)]

    try:
        with ThreadPoolExecutor(2) as pool:
            by_rank = [*pool.map(traverse, range(2))]
    finally:
        for end in ends:
            end.close()
    assert [len(counts) for counts in by_rank] == [2, 2]
    for sources, *of_ranks in zip((first, last), *by_rank, strict=True):
        assert_counts(of_ranks, expected(arrays, sources, directed=False, max_depth=None))


@pytest.mark.parametrize("copied", [False, True], ids=["rows shared", "sources shared"])
@pytest.mark.parametrize(("n", "levels"), [(10, 9), (11, 10)], ids=["a path", "a path and a vertex"])
def test_no_level_follows_when_all_is_reached(
    monkeypatch: pytest.MonkeyPatch, copied: bool, n: int, levels: int
) -> None:
    """Two batches of depth 9 on two ranks."""
    made: list[int] = []
    run_level = BatchLevels.run

    def counted(self: BatchLevels, state: Any, table: Any) -> None:
        made.append(state.level)
        run_level(self, state, table)

    monkeypatch.setattr(BatchLevels, "run", counted)
    arrays, sources = (n, np.arange(9), np.arange(1, 10)), [0, 4, 9]
    kept = run(arrays, sources, 2, keeps=("counts",), copied=copied)
    assert_counts([of_rank.counts for of_rank in kept], expected(arrays, sources, directed=False, max_depth=None))
    assert sorted(made) == sorted([*range(levels)] * 4)


def test_copies_without_memory_are_refused() -> None:
    # The rank that is asked may hear of the other's error first.
    words = r"all 24 edges .* takes 2,160 bytes; 7 bytes"
    with pytest.raises((NoRoomForLabelsError, RunAbortedError), match=words):
        run(diamonds(3), [0, 1], 2, free=lambda: 7, keeps=("counts",), copied=True)


@pytest.fixture
def threads_for_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team_calls, "LEAST_PARTED", 1)


@pytest.mark.usefixtures("threads_for_few_rows")
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(batch=batches())
def test_threads_that_share_rows(batch: dict[str, Any]) -> None:
    assert_right(**batch, levels=on_threads)


@pytest.mark.usefixtures("threads_for_few_rows")
@pytest.mark.parametrize("direction", ["top-down", "bottom-up", "auto"])
@pytest.mark.parametrize("sources", [50, 100], ids=["one word", "two words"])
def test_threads_push_to_the_same_vertices(direction: str, sources: int) -> None:
    """All rows have edges to a few hubs."""
    rows, hubs = np.repeat(np.arange(4000), 8), np.tile(np.arange(8), 4000)
    assert_right((4000, rows, hubs), [*range(0, 4000, 4000 // sources)], 2, direction=direction, levels=on_threads)


@pytest.mark.usefixtures("threads_for_few_rows")
@pytest.mark.parametrize("directed", [False, True])
def test_threads_sweep_over_the_rows_of_a_level(directed: bool) -> None:
    assert_swept(graphs.random(90, 300, 2), [*range(60)], 2, directed=directed, levels=on_threads)


@pytest.mark.parametrize("p", [1, 3])
def test_sources_with_small_frontiers_go_top_down_while_others_go_bottom_up(
    monkeypatch: pytest.MonkeyPatch, p: int
) -> None:
    """The last two are far from the others."""
    _, src, dst = graphs.random(300, 1500, 3)
    path = np.arange(300, 349)
    arrays = 350, np.concatenate([src, path, [0]]), np.concatenate([dst, path + 1, [300]])
    rows: list[int] = []
    push = CpuBatch.push

    def pushed(self: CpuBatch, scratch: BatchScratch, chosen: ChosenRows | None = None) -> int:
        rows.extend([] if chosen is None else [int(np.bitwise_count(chosen.rows).sum())])
        return push(self, scratch, chosen)

    monkeypatch.setattr(CpuBatch, "push", pushed)
    assert_right(arrays, [*range(60), 340, 349], p)
    assert rows == []
    assert_right(arrays, [*range(60), 340, 349], p, small_frontiers=True)
    assert sum(rows) > 0


def test_looks_at_edges_are_counted() -> None:
    assert_looks_are_counted()


@pytest.mark.parametrize("together", [True, False], ids=["shared", "alone"])
def test_ranks_share_the_sources_on_a_path(monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    """Two batches on the same copy of the rows; the first one may end one by one."""
    monkeypatch.setattr(CpuBatch, "pays", lambda self, shared: together)
    assert_counted((300, np.arange(299), np.arange(1, 300)), [0, 1, 150, 299], 3)


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("together", [True, False], ids=["shared", "alone"])
def test_a_path_is_right_together_and_one_by_one(monkeypatch: pytest.MonkeyPatch, p: int, together: bool) -> None:
    """300 levels: distances take a byte at first, and two from distance 255 on."""
    monkeypatch.setattr(CpuBatch, "pays", lambda self, shared: together)
    ways: list[int] = []
    alone = BatchLevels._run_alone
    monkeypatch.setattr(BatchLevels, "_run_alone", lambda self, state: (ways.append(p), alone(self, state))[1])
    arrays = 300, np.arange(299), np.arange(1, 300)
    kept = assert_right(arrays, [0, 1, 150, 299], p, targets=(5, 298, 5))
    assert kept[0].distances.dtype == np.uint16
    assert bool(ways) is not together


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    n=st.integers(1, 30),
    density=st.floats(0, 4),
    seed=st.integers(0, 2**16),
    sources=st.integers(1, 30),
    p=st.integers(1, 4),
    directed=st.booleans(),
)
def test_any_sweep_has_the_dependencies_of_their_definition(
    n: int, density: float, seed: int, sources: int, p: int, directed: bool
) -> None:
    """With parallel edges, which count once, and self-loops."""
    chosen = np.random.default_rng(seed).permutation(n)[: min(n, sources)].tolist()
    assert_swept(graphs.random(n, int(density * n), seed), chosen, p, directed=directed)


@pytest.mark.parametrize("together", [True, False], ids=["shared", "alone"])
def test_a_lattice_is_swept_together_and_one_by_one(monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    monkeypatch.setattr(CpuBatch, "pays", lambda self, shared: together)
    monkeypatch.setattr(batch_levels, "_LEVELS", 1)
    places = np.arange(64).reshape(4, 16)
    pairs = [(places[:-1], places[1:]), (places[:, :-1], places[:, 1:])]
    src, dst = (np.concatenate([pair[end].ravel() for pair in pairs]) for end in (0, 1))
    assert_swept((64, src, dst), [*range(0, 64, 3)], 3, directed=False)


def diamonds(count: int) -> Arrays:
    """A chain in which each of ``count`` stretches doubles the number of paths."""
    first = 3 * np.arange(count)
    pairs = [(first, first + 1), (first, first + 2), (first + 1, first + 3), (first + 2, first + 3)]
    src, dst = (np.concatenate([pair[end] for pair in pairs]) for end in (0, 1))
    return 3 * count + 1, src, dst


@pytest.mark.parametrize("p", [1, 2])
def test_more_paths_than_a_float_holds_are_refused(p: int) -> None:
    keeps = ("counts", "betweenness")
    assert np.isfinite(np.concatenate([kept.sums for kept in run(diamonds(1023), [0], p, keeps=keeps)])).all()
    # The rank that is asked may hear of another's error first.
    with pytest.raises((TooManyPathsError, RunAbortedError), match=r"a vertex has more shortest paths .* 1\.8e\+308"):
        run(diamonds(1024), [0], p, keeps=keeps)


def test_sweeps_without_memory_are_refused() -> None:
    with pytest.raises(NoRoomForLabelsError, match=r"takes 13,984 bytes on each .* all 24 edges; 7 bytes are free"):
        run(diamonds(3), [0], free=lambda: 7, keeps=("counts", "edge_betweenness"))


def test_distances_that_outgrow_the_memory_are_refused() -> None:
    arrays = 300, np.arange(299), np.arange(1, 300)
    with pytest.raises(NoRoomForLabelsError, match="distances of 300 and more, which .* 2 bytes each: .* 7 bytes"):
        run(arrays, [0], free=lambda: 7)

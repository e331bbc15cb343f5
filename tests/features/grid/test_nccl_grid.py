"""The messages of a 2-D partition by NCCL, with a stand-in for NCCL, against SciPy; and runs that end early."""

import re
import time
from dataclasses import replace

import numpy as np
import pytest

from dbfs_workers.base.errors import DeadlineExceededError, RunAbortedError, RunCancelledError, WorkerLostError
from dbfs_workers.features.grid.grid import Grid
from dbfs_workers.features.lab.purpose import ByStrategy
from dbfs_workers.search.cuda.communicator import HEADER, INLINE
from dbfs_workers.search.exchange import nccl_groups
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import Nothing
from tests.support import graphs, grids, oracle
from tests.support.answers import assert_counts_add_up, assert_scipys, every_spec
from tests.support.gang import PATIENCE, spec

SHAPES = [Grid(1, 2), Grid(2, 1), Grid(2, 2)]
LEVELS = 300
# With 4 ranks, bitmaps of this graph are larger than what goes with the headers.
LARGE = graphs.random(140_000, 300_000, 1)


@pytest.mark.matrix
@pytest.mark.parametrize("grid", [*SHAPES, *(pytest.param(g, marks=pytest.mark.full) for g in Grid.shapes(6))], ids=str)
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_labels_are_scipys(grid: Grid, directed: bool) -> None:
    for arrays, specs in ((graphs.random(60, 90, 3), every_spec([20, 1])), (LARGE, [spec(50_000, predecessors=True)])):
        n, src, dst = arrays
        stripe = Stripe(n, grid.rows * grid.columns)
        with grids.gang(grids.build(stripe, src, dst, directed=directed, grid=grid), by_nccl=True) as gang:
            assert_scipys(specs, gang.run(*specs), arrays, stripe, directed=directed)
            (scan,) = gang.run(replace(spec(20, predecessors=True), purpose=ByStrategy("row-scan")))
        matrix = oracle.adjacency(n, src, dst, directed=directed)
        expected = oracle.distances(matrix, [20])
        np.testing.assert_array_equal(scan.distances(stripe), expected)
        oracle.assert_valid_parents(matrix, expected, scan.parents(stripe), [20])
        assert_counts_add_up(scan)


def test_only_headers_leave_the_row_and_the_column() -> None:
    n, src, dst = LARGE
    stripe, grid = Stripe(n, 4), Grid(2, 2)
    with grids.gang(grids.build(stripe, src, dst, directed=False, grid=grid), by_nccl=True) as gang:
        largest = gang.network.largest
        gang.run(spec(1, predecessors=True))
    # Ranks 0 and 3 share neither a row nor a column, and ranks 1 and 2 do not either.
    assert {pair for pair, size in largest.items() if size <= 8 * HEADER + 4 * INLINE} == {
        (0, 3), (3, 0), (1, 2), (2, 1)
    }  # fmt: skip
    assert len(largest) == 12


@pytest.mark.parametrize("size", [3, 2000])
def test_a_message_arrives_at_one_crossing(size: int) -> None:
    n, src, dst = LARGE
    grid = Grid(1, 2)
    with grids.gang(grids.build(Stripe(n, 2), src, dst, directed=False, grid=grid), by_nccl=True) as gang:
        sender, receiver = gang.exchanges
        for exchange in gang.exchanges:
            exchange.carrier.begin("run", 1, time.monotonic() + PATIENCE)
        sender.post_words(1, np.arange(size, dtype=np.uint32))
        for arrives in (size, 0):
            gang.on_ranks(lambda rank: gang.exchanges[rank].cross(0, "fold", Nothing()))
            np.testing.assert_array_equal(receiver.words(0), np.arange(arrives))


def load_path(grid: Grid) -> list[grids.GridPartition]:
    path = np.arange(LEVELS)
    return grids.build(Stripe(LEVELS + 1, grid.rows * grid.columns), path, path + 1, directed=False, grid=grid)


def assert_serves_when_connected_anew(gang: grids.GridGang) -> None:
    gang.connect_by_nccl()
    np.testing.assert_array_equal(gang.run(spec(0))[0].distances(gang.stripe), np.arange(LEVELS + 1))


@pytest.mark.parametrize("grid", SHAPES, ids=str)
def test_a_connection_that_breaks_names_the_level_and_its_phase(monkeypatch: pytest.MonkeyPatch, grid: Grid) -> None:
    monkeypatch.setattr(nccl_groups, "CAUSE_SECONDS", 0.05)
    ranks = grid.rows * grid.columns
    with grids.gang(load_path(grid), by_nccl=True) as gang:
        # A level has two crossings.
        gang.network.breaks_after = gang.network.groups + 2 * 100 * ranks
        for future in gang.start(spec(0)):
            raised = future.exception(PATIENCE)
            assert isinstance(raised, RunAbortedError)
            level = re.search(r"rank \d, level (\d+), (expand|fold): .*NCCL failed: cut", str(raised))
            assert level is not None
            assert abs(int(level[1]) - 100) < 4
        gang.network.broken = ""
        assert_serves_when_connected_anew(gang)


@pytest.mark.parametrize(
    ("cause", "error", "words"),
    [
        (Cause.CANCELLED, RunCancelledError, "cancelled: enough"),
        (Cause.LOST, WorkerLostError, "lost rank 0; load the graph again"),
    ],
)
def test_the_end_of_a_run_ends_the_wait_of_all_ranks(cause: Cause, error: type[Exception], words: str) -> None:
    with grids.gang(load_path(Grid(2, 2)), by_nccl=True) as gang:
        first, *others = gang.exchanges
        for exchange in gang.exchanges:
            exchange.carrier.begin("run", 1, time.monotonic() + PATIENCE)
        gang.number = 1
        waiting = [gang.pool.submit(exchange.cross, 7, "fold", Nothing()) for exchange in others]
        first.carrier.abort(1, cause, "lost rank 0" if cause is Cause.LOST else "enough", 0)
        for rank, future in enumerate(waiting, 1):
            raised = future.exception(PATIENCE)
            assert isinstance(raised, error)
            assert str(raised) == f"run run, rank {rank}, level 7, fold: {words}"
        assert_serves_when_connected_anew(gang)


def test_a_silent_rank_ends_the_run_at_the_deadline() -> None:
    with grids.gang(load_path(Grid(1, 2)), by_nccl=True) as gang:
        for exchange in gang.exchanges:
            exchange.carrier.begin("run", 1, time.monotonic() + 0.1)
        gang.number = 1
        with pytest.raises(DeadlineExceededError, match="rank 1, level 4, expand: the deadline passed at the barrier"):
            gang.exchanges[1].cross(4, "expand", Nothing())
        assert_serves_when_connected_anew(gang)

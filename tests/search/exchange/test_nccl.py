"""The exchange by NCCL, with a stand-in for NCCL, against SciPy; and every way in which a run can end early."""

import re
import time
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from dbfs_workers.base.errors import (
    DeadlineExceededError,
    ExchangeUnavailableError,
    RunAbortedError,
    RunCancelledError,
    StaleRunError,
    WorkerLostError,
)
from dbfs_workers.search.cuda.communicator import MOST_AHEAD
from dbfs_workers.search.exchange import nccl_groups
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import Nothing
from tests.support import graphs
from tests.support.answers import assert_scipys, every_spec
from tests.support.gang import PATIENCE, partitions, spec
from tests.support.nccl import NcclGang, NumpyMessages, by_nccl

LEVELS = 300


@pytest.mark.parametrize("p", [2, *(pytest.param(p, marks=pytest.mark.full) for p in (1, 3, 4))])
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_labels_are_scipys(p: int, directed: bool) -> None:
    # Bins of the first graph go with the headers, some of the second in groups of their own.
    for arrays in (graphs.random(60, 90, 3), graphs.random(12_000, 60_000, 1)):
        n, src, dst = arrays
        with by_nccl(p) as gang:
            gang.load(partitions(n, src, dst, p, directed=directed))
            specs = every_spec([n // 3, 1])
            assert_scipys(specs, gang.run(*specs), arrays, Stripe(n, p), directed=directed)


def test_small_levels_take_one_group_each_and_wait_together() -> None:
    with by_nccl(2) as gang:
        load_path(gang)
        groups, waits = gang.network.groups, gang.network.waits
        (answer,) = gang.run(spec(0))
        np.testing.assert_array_equal(answer.distances(Stripe(LEVELS + 1, 2)), np.arange(LEVELS + 1))
        # Both ranks start a group before the first level and at each level's end. Of the levels queued together last,
        # some come behind the end of the traversal.
        assert 2 * (LEVELS + 2) <= gang.network.groups - groups < 2 * (LEVELS + 2 + MOST_AHEAD)
        assert gang.network.waits - waits < 2 * LEVELS / MOST_AHEAD + 20


def test_levels_queued_ahead_end_where_the_run_must_look() -> None:
    arrays, source = graphs.comet(100, 6000)
    n, src, dst = arrays
    for p in (2, 3):
        with by_nccl(p, FarMessages) as gang:
            gang.load(partitions(n, src, dst, p, directed=False))
            specs = every_spec([source])
            assert_scipys(specs, gang.run(*specs), arrays, Stripe(n, p), directed=False)
            (short,) = gang.run(spec(source, direction="top-down", max_depth=90))
            assert short.total(lambda run: run.reached) == 91
            waits = gang.network.waits
            gang.run(spec(source, direction="top-down"))
            # The levels run ahead in spite of the head's large degree.
            assert gang.network.waits - waits < p * 30


def test_a_connection_that_breaks_among_levels_queued_together_names_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_groups, "CAUSE_SECONDS", 0.05)
    with by_nccl(2) as gang:
        load_path(gang)
        gang.network.breaks_after = gang.network.groups + 200
        for raised in errors(gang.start(spec(0))):
            assert isinstance(raised, RunAbortedError)
            level = re.search(r"level (\d+), top-down: .*NCCL failed: cut", str(raised))
            assert level is not None
            assert abs(int(level[1]) - 100) < 4


class FarMessages(NumpyMessages):
    """Levels may run ahead whatever the degrees."""

    def most_ahead(self, max_degree: int) -> int:
        return 64


def load_path(gang: NcclGang) -> None:
    path = np.arange(LEVELS)
    gang.load(partitions(LEVELS + 1, path, path + 1, gang.p, directed=False))


def errors(futures: list[Future[Any]]) -> list[BaseException | None]:
    return [future.exception(PATIENCE) for future in futures]


def assert_serves_when_formed_anew(gang: NcclGang) -> None:
    gang.connect()
    distances = gang.run(spec(0))[0].distances(Stripe(LEVELS + 1, gang.p))
    np.testing.assert_array_equal(distances, np.arange(LEVELS + 1))


def endless(gang: NcclGang) -> list[Future[Any]]:
    """Start a run on ranks 1 and 2 only: rank 0 is silent."""
    load_path(gang)
    exchange, silent = gang.exchanges[0], Future[Any]()
    silent.set_result(None)
    gang.number += 1
    for rank in (1, 2):
        gang.exchanges[rank].begin("run", gang.number, time.monotonic() + PATIENCE)
    exchange.begin("run", gang.number, time.monotonic() + PATIENCE)
    return [
        gang.threads.submit(gang.exchanges[rank].cross, 7, "test", (1, 0, 0, 0, 0), sliced=False) for rank in (1, 2)
    ]


@pytest.mark.parametrize(
    ("cause", "error", "words"),
    [
        (Cause.CANCELLED, RunCancelledError, "run run, rank {}, level 7, test: cancelled: enough"),
        (Cause.FAILED, RunAbortedError, "run run, rank {}, level 7, test: rank 0 failed first: enough"),
    ],
)
def test_an_abort_ends_the_wait_of_all_ranks(cause: Cause, error: type[Exception], words: str) -> None:
    with by_nccl(3) as gang:
        waiting = endless(gang)
        gang.exchanges[0].abort(gang.number, cause, "enough")
        for rank, raised in zip((1, 2), errors(waiting), strict=True):
            assert isinstance(raised, error)
            assert str(raised) == words.format(rank)
        assert_serves_when_formed_anew(gang)


def test_a_lost_rank_ends_the_wait() -> None:
    with by_nccl(3) as gang:
        waiting = endless(gang)
        del gang.messages.ends[0]
        gang.exchanges[1].abort(gang.number, Cause.LOST, "lost rank 0", 0)
        for rank, raised in zip((1, 2), errors(waiting), strict=True):
            assert isinstance(raised, WorkerLostError)
            assert str(raised) == f"run run, rank {rank}, level 7, test: lost rank 0; load the graph again"


def test_a_silent_rank_ends_the_run_at_the_deadline() -> None:
    with by_nccl(3) as gang:
        load_path(gang)
        for exchange in gang.exchanges:
            exchange.begin("run", 1, time.monotonic() + 0.1)
        gang.number = 1
        with pytest.raises(DeadlineExceededError, match="rank 1, level 4, test: the deadline passed at the barrier"):
            gang.exchanges[1].cross(4, "test", Nothing(), sliced=True)
        with pytest.raises(DeadlineExceededError, match="rank 2, level 4, test: the deadline passed"):
            gang.exchanges[2].cross(4, "test", Nothing(), sliced=True)
        assert_serves_when_formed_anew(gang)


def test_a_connection_that_breaks_is_an_error_with_rank_and_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_groups, "CAUSE_SECONDS", 0.05)
    with by_nccl(3) as gang:
        waiting = endless(gang)
        gang.network.broken = "remote process exited"
        for raised in errors(waiting):
            assert isinstance(raised, RunAbortedError)
            assert "level 7, test: " in str(raised)
            assert "NCCL failed: remote process exited" in str(raised)
        gang.network.broken = ""
        assert_serves_when_formed_anew(gang)


def test_a_connection_that_breaks_with_its_worker_is_a_lost_worker() -> None:
    with by_nccl(3) as gang:
        waiting = endless(gang)
        gang.network.broken = "remote process exited"
        del gang.messages.ends[0]
        # The service learns of the loss a moment later.
        time.sleep(0.05)
        gang.exchanges[1].abort(gang.number, Cause.LOST, "lost rank 0", 0)
        for rank, raised in zip((1, 2), errors(waiting), strict=True):
            assert isinstance(raised, WorkerLostError)
            assert str(raised) == f"run run, rank {rank}, level 7, test: lost rank 0; load the graph again"


def test_a_run_needs_a_new_communicator_after_a_failed_one() -> None:
    with by_nccl(3) as gang:
        waiting = endless(gang)
        gang.exchanges[0].abort(gang.number, Cause.CANCELLED, "")
        errors(waiting)
        gang.exchanges[1].begin("next", gang.number + 1, time.monotonic() + PATIENCE)
        with pytest.raises(RunAbortedError, match="its communicator has ended with an earlier run"):
            gang.exchanges[1].cross(0, "start", Nothing(), sliced=False)


def test_ranks_in_different_runs_notice() -> None:
    with by_nccl(2) as gang:
        load_path(gang)
        for rank, exchange in enumerate(gang.exchanges):
            exchange.begin(f"run {rank}", 1, time.monotonic() + PATIENCE)
        crossings = [
            gang.threads.submit(exchange.cross, 0, "start", Nothing(), sliced=False) for exchange in gang.exchanges
        ]
        for rank, raised in enumerate(errors(crossings)):
            assert isinstance(raised, StaleRunError)
            assert f"rank {1 - rank} is in another run" in str(raised)
        with pytest.raises(StaleRunError, match="has number 1, which is not after 1"):
            gang.exchanges[0].begin("run", 1, time.monotonic())


def test_a_gang_with_an_absent_rank_is_not_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_groups, "CONNECT_SECONDS", 0.05)
    with by_nccl(2) as gang:
        load_path(gang)
        with pytest.raises(ExchangeUnavailableError, match=r"rank 1: no communicator after 0\.05 s"):
            gang.exchanges[1].connect([exchange.offer() for exchange in gang.exchanges])


def test_a_broken_network_is_not_connected() -> None:
    with by_nccl(2) as gang:
        load_path(gang)
        gang.network.broken = "no network adapter"
        offers = [exchange.offer() for exchange in gang.exchanges]
        connecting = [gang.threads.submit(exchange.connect, offers) for exchange in gang.exchanges]
        for rank, raised in enumerate(errors(connecting)):
            assert isinstance(raised, ExchangeUnavailableError)
            assert str(raised) == f"rank {rank} is not connected by NCCL: no network adapter"

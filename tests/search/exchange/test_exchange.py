"""The shared-memory exchange in real processes: crossing, and every way a run can end early, on CPUs and a GPU."""

import dataclasses
import os
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dbfs_workers.base.errors import (
    DeadlineExceededError,
    ExchangeUnavailableError,
    RunAbortedError,
    RunCancelledError,
    StaleRunError,
    WorkerLostError,
)
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.exchange.segment import Segment, SegmentHandle, nbytes
from dbfs_workers.search.exchange.shared_memory import Offer, SharedMemoryExchange
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import Nothing
from tests.support.exchanges import shared_memory
from tests.support.gang import PATIENCE, Gang, Told, partitions, spec, started
from tests.support.gpus import on_gpu
from tests.support.graphs import random

pytestmark = pytest.mark.alone

BACKENDS = ["cpu", on_gpu("cuda", id="cuda")]


@pytest.fixture(scope="module", params=BACKENDS)
def three(request: pytest.FixtureRequest) -> Iterator[Gang]:
    with started(3, request.param, staged=request.param == "cuda") as gang:
        yield gang


@pytest.fixture
def connected(three: Gang) -> Iterator[Gang]:
    path = np.arange(5000)
    three.load(partitions(5001, path, path + 1, 3, directed=False))
    yield three
    assert three.disconnect() == [False] * 3


def assert_serves(gang: Gang) -> None:
    """The run after one that ended early is right."""
    distances = gang.run(spec(0))[0].distances(Stripe(5001, 3))
    np.testing.assert_array_equal(distances, np.arange(5001))


@pytest.mark.parametrize("p", [*(pytest.param(p, marks=pytest.mark.full) for p in (1, 3, 4)), 2])
def test_every_crossing_joins_the_counts_of_all_ranks(p: int) -> None:
    with started(p) as gang:
        gang.join(Stripe(100, p))
        # Run numbers are below 2^31.
        for number in (1, 2**31 - 1):
            for answered in gang.everywhere("cross", number, 2000, PATIENCE, "run"):
                total = p * (p - 1) // 2
                assert answered.result() == [Told(p, total, p * i, p - 1, 0) for i in range(2000)]
        assert gang.disconnect() == [False] * p


@pytest.mark.full
def test_a_deadline_ends_the_wait_on_every_rank(connected: Gang) -> None:
    number = connected.next_number()
    waiting = [
        connected.call(0, "cross", number, 1, 0.3, "run"),
        connected.call(1, "cross", number, 1, PATIENCE, "run"),
    ]
    with pytest.raises(DeadlineExceededError, match=r"run run, rank 0, level 0, test: .* waiting for rank [12]"):
        waiting[0].result()
    with pytest.raises(
        DeadlineExceededError, match="rank 1, level 0, test: .* rank 0 saw it first: level 0, test, wait"
    ):
        waiting[1].result()
    # Too late: the run is over.
    with pytest.raises(DeadlineExceededError):
        connected.call(2, "cross", number, 1, PATIENCE, "run").result()
    assert_serves(connected)


@pytest.mark.full
def test_a_deadline_that_passes_while_all_ranks_work(three: Gang) -> None:
    # Of a path one rank would lead the levels, and look at the deadline itself.
    n, src, dst = random(2000, 20_000, 1)
    three.load(partitions(n, src, dst, 3, directed=False))
    for answered in three.everywhere("run", [spec(0)] * 100_000, three.next_number(), 0.5):
        with pytest.raises(DeadlineExceededError, match="run run, rank ., level .*deadline passed"):
            answered.result()
    assert three.disconnect() == [False] * 3


def test_cancelling_stops_every_rank(connected: Gang) -> None:
    number = connected.next_number()
    running = connected.everywhere("run", [spec(0)] * 100_000, number, PATIENCE)
    time.sleep(0.2)
    connected.call(1, "abort", number - 1, Cause.CANCELLED, "an old one").result()
    time.sleep(0.1)
    connected.call(1, "abort", number, Cause.CANCELLED, "its client is gone").result()
    connected.call(2, "abort", number, Cause.FAILED, "too late to be the cause").result()
    for answered in running:
        with pytest.raises(RunCancelledError, match="run run, rank ., level .*: cancelled: its client is gone"):
            answered.result()
    assert_serves(connected)


def test_a_run_of_one_rank_cancelled_before_it_begins() -> None:
    path = np.arange(50)
    with started(1) as gang:
        gang.load(partitions(51, path, path + 1, 1, directed=False))
        number = gang.next_number()
        gang.call(0, "abort", number, Cause.CANCELLED, "").result()
        with pytest.raises(RunCancelledError, match="start: cancelled$"):
            gang.call(0, "run", [spec(0)], number, PATIENCE).result()
        np.testing.assert_array_equal(gang.run(spec(0))[0].distances(Stripe(51, 1)), np.arange(51))
        assert gang.disconnect() == [False]


def test_an_only_rank_is_cancelled_too() -> None:
    """It waits for no peer, and looks for an abort at each crossing that the host directs."""
    path = np.arange(5000)
    with started(1) as gang:
        gang.load(partitions(5001, path, path + 1, 1, directed=False))
        for words in ("its client is gone", "once more"):
            number = gang.next_number()
            running = gang.everywhere("run", [spec(0)] * 1_000_000, number, PATIENCE)
            gang.call(0, "abort", number - 1, Cause.CANCELLED, "an old one").result()
            gang.call(0, "abort", number, Cause.CANCELLED, words).result()
            for answered in running:
                with pytest.raises(RunCancelledError, match=f"run run, rank 0, level .*: cancelled: {words}"):
                    answered.result()
        distances = gang.run(spec(0))[0].distances(Stripe(5001, 1))
        np.testing.assert_array_equal(distances, np.arange(5001))
        assert gang.disconnect() == [False]


def test_a_run_cancelled_before_it_begins_does_not_begin(connected: Gang) -> None:
    number = connected.next_number()
    connected.call(0, "abort", number, Cause.CANCELLED, "").result()
    for answered in connected.everywhere("run", [spec(0)], number, PATIENCE):
        with pytest.raises(RunCancelledError, match="start: cancelled$"):
            answered.result()
    assert_serves(connected)


def test_peers_learn_who_failed_first_and_why(connected: Gang) -> None:
    number = connected.next_number()
    waiting = connected.everywhere("run", [spec(0)], number, PATIENCE, ranks=[0, 2])
    with pytest.raises(AttributeError, match="queues"):
        connected.call(1, "fail", number).result()
    for answered in waiting:
        words = "level 0, start: rank 1 failed first: AttributeError: .*queues"
        with pytest.raises(RunAbortedError, match=words):
            answered.result()


def test_stale_messages_are_refused(connected: Gang) -> None:
    assert_serves(connected)
    for old in (0, connected.number):
        with pytest.raises(StaleRunError, match=f"number {old}, which is not after {connected.number}"):
            connected.call(0, "run", [spec(0)], old, PATIENCE).result()
    assert_serves(connected)
    number = connected.next_number()
    mixed = [connected.call(rank, "cross", number, 1, PATIENCE, f"run {min(rank, 1)}") for rank in range(3)]
    with pytest.raises(StaleRunError, match="rank 0, level 0, test: rank 1 is in another run"):
        mixed[0].result()
    assert_serves(connected)
    number = connected.next_number()
    behind = connected.call(0, "cross", number, 1, PATIENCE, "run")
    ahead = connected.everywhere("cross", number + 1, 1, 1.0, "run", ranks=[1, 2])
    with pytest.raises(StaleRunError, match="rank 1 is in another run"):
        behind.result()
    for answered in ahead:
        with pytest.raises(DeadlineExceededError):
            answered.result()


@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.full), 2])
@pytest.mark.parametrize(
    "while_running",
    [pytest.param(False, id="at the barrier", marks=pytest.mark.full), pytest.param(True, id="in a level")],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_killed_peer_is_noticed_at_once(backend: str, victim: int, while_running: bool) -> None:
    with started(3, backend, staged=backend == "cuda") as gang:
        path = np.arange(5000)
        gang.load(partitions(5001, path, path + 1, 3, directed=False))
        survivors = [rank for rank in range(3) if rank != victim]
        ranks = range(3) if while_running else survivors
        calls = {rank: gang.call(rank, "run", [spec(0)] * 100_000, 1, PATIENCE) for rank in ranks}
        time.sleep(0.2)
        gang.kill(victim)
        killed = time.monotonic()
        for rank in survivors:
            with pytest.raises(WorkerLostError, match=f"run run, rank {rank}, level .* lost rank {victim}; load"):
                calls[rank].result()
        assert time.monotonic() - killed < PATIENCE / 2
        assert [gang.call(rank, "close").result() for rank in survivors] == [False, False]


@pytest.mark.full
def test_nothing_is_left_when_every_rank_is_killed() -> None:
    with started(2) as gang:
        gang.load(partitions(101, np.arange(100), np.arange(1, 101), 2, directed=False))
        gang.everywhere("run", [spec(0)] * 100_000, 1, PATIENCE)
        descriptors = Path(f"/proc/{gang.processes[0].pid}/fd").iterdir()
        # The memory has no name: only the descriptors of these processes lead to it.
        assert any(str(descriptor.readlink()).startswith("/memfd:dbfs") for descriptor in descriptors)
        gang.kill(0)
        gang.kill(1)
        for process in gang.processes:
            process.join(5)
            assert process.exitcode == -9


def memory_of(exchange: SharedMemoryExchange) -> SegmentHandle:
    """Return the handle of the memory that rank 0 offers."""
    memory = exchange.offer().memory
    assert memory is not None
    return memory


def test_only_the_right_memory_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange, late = (SharedMemoryExchange(Stripe(100, 2), rank, "graph") for rank in (0, 1))
    handle = memory_of(exchange)
    token = handle.token
    # Of the same size, and open in this process: only the token is wrong.
    other = SharedMemoryExchange(Stripe(100, 2), 0, "other")
    foreign = memory_of(other).token
    with Path(__file__).open() as file:
        wrong = [
            ("is another file", dataclasses.replace(token, descriptor=foreign.descriptor)),
            ("is another file", dataclasses.replace(token, descriptor=file.fileno())),
            ("its token is of another graph", foreign),
            # An earlier process of the same number had a token of its own.
            ("is another file", dataclasses.replace(token, label=token.label[:-1] + "x")),
            ("No such file", dataclasses.replace(token, pid=2**22 + 1)),
        ]
        opened: list[str] = []
        monkeypatch.setattr(os, "open", lambda path, *_: opened.append(path))
        for words, one in wrong:
            with pytest.raises(ExchangeUnavailableError, match=f"rank 1 can't open the shared memory .*{words}"):
                late.connect([Offer(dataclasses.replace(handle, token=one))])
        assert opened == []
        monkeypatch.undo()
    with pytest.raises(ExchangeUnavailableError, match=r"it has \d+ bytes, \d+ bytes are expected"):
        late.connect([Offer(dataclasses.replace(handle, stripe=Stripe(1_000_000, 2)))])
    exchange.close()
    exchange.close()
    other.close()
    with pytest.raises(ExchangeUnavailableError, match="rank 1 can't open the shared memory of process"):
        late.connect([Offer(handle)])
    late.close()


def test_the_file_may_become_another_one_after_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange, late = (SharedMemoryExchange(Stripe(100, 2), rank, "graph") for rank in (0, 1))
    other = SharedMemoryExchange(Stripe(100, 2), 0, "graph")
    offers, path_of_other, before = [exchange.offer()], memory_of(other).token.path, os.open

    def instead(path: str, flags: int) -> int:
        return before(path_of_other, flags)

    monkeypatch.setattr(os, "open", instead)
    with pytest.raises(ExchangeUnavailableError, match="is another file"):
        late.connect(offers)
    exchange.close()
    other.close()


def test_the_memory_is_the_owners_and_keeps_its_size() -> None:
    exchange = SharedMemoryExchange(Stripe(100, 2), 0, "graph")
    descriptor = memory_of(exchange).token.descriptor
    assert stat.S_IMODE(os.fstat(descriptor).st_mode) == 0o600
    for size in (0, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    exchange.close()


def test_bodies_do_not_overlap() -> None:
    stripe = Stripe(1000, 3)
    segment = Segment.create(stripe, 9, "graph")
    parts: list[NDArray[Any]] = [segment.words]
    for rank in range(3):
        for of in (segment.rows, segment.parents, segment.slices):
            parts += [of(rank, parity) for parity in (0, 1)]
    for value, part in enumerate(parts):
        part[:] = value
    assert all((part == value).all() for value, part in enumerate(parts))
    assert sum(part.nbytes for part in parts) <= nbytes(stripe, 9)
    del part, parts
    segment.close()


@pytest.fixture
def alone() -> Iterator[SharedMemoryExchange]:
    """The exchange of a gang of one rank: no crossing waits for another rank."""
    (exchange,) = shared_memory(Stripe(8, 1))
    yield exchange
    exchange.close()


def test_a_deadline_ends_a_crossing_that_all_ranks_reach(alone: SharedMemoryExchange) -> None:
    alone.begin("run", 1, time.monotonic() + PATIENCE)
    assert alone.cross(0, "test", Told(1, 2, 3, 4, 5), sliced=False) == Told(1, 2, 3, 4, 5)
    alone.begin("late", 2, time.monotonic() - 1)
    with pytest.raises(DeadlineExceededError, match="at the barrier"):
        alone.cross(0, "test", Nothing(), sliced=False)


def test_the_first_of_two_aborts_is_the_cause(alone: SharedMemoryExchange) -> None:
    alone.begin("run", 1, time.monotonic() + PATIENCE)
    alone.abort(1, Cause.CANCELLED, "its client is gone")
    alone.abort(1, Cause.FAILED, "too late to be the cause")
    with pytest.raises(RunCancelledError, match="cancelled: its client is gone"):
        alone.cross(0, "test", Nothing(), sliced=False)


def test_a_rank_that_finds_all_others_at_the_barrier_of_a_cancelled_run() -> None:
    ranks = shared_memory(Stripe(100, 2))
    for rank in ranks:
        rank.begin("run", 1, time.monotonic() + PATIENCE)
    ranks[0].abort(1, Cause.CANCELLED, "enough")
    for rank in ranks:
        with pytest.raises(RunCancelledError, match="cancelled: enough$"):
            rank.cross(0, "test", Nothing(), sliced=False)
    for rank in ranks:
        rank.close()


def test_a_look_finds_an_abort_and_the_deadline(alone: SharedMemoryExchange) -> None:
    alone.begin("run", 1, time.monotonic() + PATIENCE)
    alone.look(3, "test")
    alone.abort(1, Cause.CANCELLED, "enough")
    with pytest.raises(RunCancelledError, match="level 3, test: cancelled: enough$"):
        alone.look(3, "test")
    alone.begin("run", 2, time.monotonic() - 1)
    with pytest.raises(DeadlineExceededError, match="level 3, test: the deadline passed while it led the level"):
        alone.look(3, "test")


def test_an_abort_ends_the_wait_for_a_rank_that_does_not_come() -> None:
    exchange, other = shared_memory(Stripe(100, 2))
    exchange.begin("run", 1, time.monotonic() + 3)
    other.abort(1, Cause.CANCELLED, "enough")
    with pytest.raises(RunCancelledError, match="cancelled: enough$"):
        exchange.cross(0, "test", Nothing(), sliced=False)
    other.close()
    exchange.close()


@pytest.mark.parametrize("p", [1, 2])
def test_a_crossing_empties_the_bins(p: int) -> None:
    ranks = shared_memory(Stripe(8, p))

    def cross(rank: SharedMemoryExchange) -> None:
        rank.cross(0, "test", Nothing(), sliced=False)

    with ThreadPoolExecutor(p) as pool:
        for rank in ranks:
            rank.begin("run", 1, time.monotonic() + PATIENCE)
        for size in (3, 0, 5):
            for rank in ranks:
                rank.bin_ends[:] = size
            list(pool.map(cross, ranks))
            assert [(rank.bin_ends.tolist(), rank.log_end) for rank in ranks] == [([0] * p, size)] * p
    for rank in ranks:
        rank.close()
